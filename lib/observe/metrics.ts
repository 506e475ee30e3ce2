/**
 * Counts and times requests and tries under the names of the configuration, of the last minute and since the start: a few additions per
 * request, without an allocation once its kind of request has been seen.
 */
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { CacheResult, Meter, Notes } from "../http/exchange.ts";
import { PluginMeter } from "./plugin_meter.ts";
import { HIGHEST_STATUS, readCounts, Recent, type StepCounter } from "./recent.ts";
import type { ReportReader, ReportWriter } from "./report.ts";

/** Other methods are counted together: clients can invent them. */
export const METHODS: readonly string[] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

const METHOD_INDEX = new Map(METHODS.map((method, i) => [method, i]));
/** Above every status. */
const SPAN = 1_000;
/** Plugins of an embedder may have error codes of their own, in any number. */
const MOST_CODES = 64;

/** The requests of one route. */
export class RouteMeter implements Meter {
  readonly recent: Recent;
  rateLimited = 0;
  /** Requests of this route that are not over. */
  inFlight = 0;
  /** Bytes of bodies, as in the access log. */
  receivedBytes = 0;
  sentBytes = 0;
  /** Requests that reached a cache, by result. Null, like the maps below, while empty: most routes of a large configuration are quiet. */
  cached: Map<CacheResult, number> | null = null;
  /** Requests refused by plugins, by error code. */
  refusals: Map<string, number> | null = null;
  #requests: Map<number, { requests: number }> | null = null;
  readonly #total: Recent;

  /** `total` counts the requests of all routes. */
  constructor(steps: StepCounter = { current: 0 }, total = new Recent(steps)) {
    this.recent = new Recent(steps);
    this.#total = total;
  }

  ended(method: string, notes: Notes, ms: number): void {
    const { status, code, received, sent, cache } = notes;
    if (received !== null) this.receivedBytes += received;
    if (sent !== null) this.sentBytes += sent;
    if (cache !== null) increase((this.cached ??= new Map<CacheResult, number>()), cache, 1);
    if (notes.meter === this) this.inFlight--;
    const isError = status !== null && status >= 500;
    const isLimited = code === "rate_limited";
    if (isLimited) this.rateLimited++;
    // A WebSocket lasts as long as people keep it open, which would hide how long requests take.
    const timed = status === 101 ? null : ms;
    this.recent.count(isError, isLimited, timed, status);
    this.#total.count(isError, isLimited, timed, status);
    const known = METHOD_INDEX.get(method) ?? METHODS.length;
    const bounded = status === null ? 0 : status > HIGHEST_STATUS ? HIGHEST_STATUS + 1 : status;
    const key = known * SPAN + bounded;
    const counted = this.#requests?.get(key);
    if (counted !== undefined) counted.requests++;
    else (this.#requests ??= new Map<number, { requests: number }>()).set(key, { requests: 1 });
    if (code !== null) this.#failed(code, notes);
  }

  /** Counts by method and status. */
  *requests(): Iterable<readonly [method: string, code: string, count: number]> {
    for (const [key, { requests }] of this.#requests ?? []) {
      const status = key % SPAN;
      const code = status === 0 ? "none" : status > HIGHEST_STATUS ? "other" : String(status);
      yield [METHODS[Math.floor(key / SPAN)] ?? "other", code, requests];
    }
  }

  /** Moves all counts into a report. */
  take(report: ReportWriter): void {
    this.recent.take(report);
    report.add([this.receivedBytes, this.sentBytes]);
    for (const [key, { requests }] of this.#requests ?? []) report.item().add([key, requests]);
    report.end();
    for (const counts of [this.cached, this.refusals]) {
      for (const [name, count] of counts ?? []) report.item(name).add([count]);
      report.end();
    }
    this.receivedBytes = this.sentBytes = this.rateLimited = 0;
    this.#requests = this.cached = this.refusals = null;
  }

  /** Adds the counts of a report, as if these requests ended now. */
  add(report: ReportReader): void {
    const counts = readCounts(report);
    this.recent.addCounts(counts);
    this.#total.addCounts(counts);
    this.rateLimited += counts.limited;
    this.receivedBytes += report.number();
    this.sentBytes += report.number();
    while (report.item()) {
      const [key, requests] = [report.number(), report.number()];
      const counted = this.#requests?.get(key);
      if (counted !== undefined) counted.requests += requests;
      else (this.#requests ??= new Map<number, { requests: number }>()).set(key, { requests });
    }
    while (report.item()) increase((this.cached ??= new Map<CacheResult, number>()), report.name() as CacheResult, report.number());
    while (report.item()) this.#refused(report.name(), report.number());
  }

  #failed(code: string, { route, attempts }: Notes): void {
    if (route === null || attempts > 0 || code === "internal" || ERRORS[code as ErrorCode]?.side === "upstream") return;
    this.#refused(code, 1);
  }

  #refused(code: string, count: number): void {
    const refusals = (this.refusals ??= new Map<string, number>());
    increase(refusals, refusals.has(code) || refusals.size < MOST_CODES ? code : "other", count);
  }
}

function increase<Key>(counts: Map<Key, number>, key: Key, by: number): void {
  counts.set(key, (counts.get(key) ?? 0) + by);
}

/** The tries of one service's upstreams. */
export class ServiceMeter {
  retries = 0;
  readonly upstreams = new Map<string, Recent>();

  /** `status`: null without a response. */
  tried(upstream: string, ms: number, status: number | null): void {
    this.upstreams.get(upstream)?.count(status === null || status >= 500, false, ms);
  }

  retried(): void {
    this.retries++;
  }
}

/** The meters of one configuration, filled in while it is compiled. */
export interface MetricsPlan {
  readonly services: Map<string, ServicePlan>;
  /** Keyed by their labels as JSON. */
  readonly plugins: Map<string, PluginMeter>;
}

interface PluginPlace {
  readonly name: string;
  readonly level: string;
  readonly service: string | null;
  readonly route: string | null;
  /** `id` or, without one, its place among its kind ("1", "2", …). */
  readonly id: string;
}

/** Names and values in turn. */
export function pluginLabels({ name, level, service, route, id }: PluginPlace): readonly string[] {
  return ["plugin", name, "level", level, "service", service ?? "", "route", route ?? "", "id", id];
}

interface ServicePlan {
  readonly meter: ServiceMeter;
  /** Their groups, by id. */
  readonly upstreams: ReadonlyMap<string, string | null>;
  readonly routes: ReadonlyMap<string, RouteMeter>;
}

interface Names {
  readonly name: string;
  readonly upstreams: readonly { readonly id: string; readonly group?: string | undefined }[];
  readonly routes: readonly { readonly name: string }[];
}

export class Metrics {
  readonly steps: StepCounter = { current: 0 };
  /** All requests. */
  readonly total = new Recent(this.steps);
  /** Requests for which no route was found, or looked for. */
  readonly unrouted = new RouteMeter(this.steps, this.total);
  #services: MetricsPlan["services"] = new Map();
  #plugins: MetricsPlan["plugins"] = new Map();

  get services(): ReadonlyMap<string, ServicePlan> {
    return this.#services;
  }

  /** Keyed by their labels as JSON. */
  get plugins(): ReadonlyMap<string, PluginMeter> {
    return this.#plugins;
  }

  /** Adds a plugin instance to the plan. Two with the same labels are counted together. */
  planPlugin(place: PluginPlace, { plugins }: MetricsPlan): PluginMeter {
    const key = JSON.stringify(pluginLabels(place));
    const meter = plugins.get(key) ?? this.#plugins.get(key) ?? new PluginMeter();
    plugins.set(key, meter);
    return meter;
  }

  /** Adds a service to the plan. Meters are kept for names that are known. */
  plan(service: Names, { services }: MetricsPlan): ServicePlan {
    const known = this.#services.get(service.name);
    const planned: ServicePlan = {
      meter: known?.meter ?? new ServiceMeter(),
      upstreams: new Map(service.upstreams.map(({ id, group = null }) => [id, group])),
      routes: new Map(service.routes.map(({ name }) => [name, known?.routes.get(name) ?? new RouteMeter(this.steps, this.total)])),
    };
    services.set(service.name, planned);
    return planned;
  }

  /** A configuration takes effect: meters for names that it does not have are dropped. */
  adopt({ services, plugins }: MetricsPlan): void {
    this.#services = services;
    this.#plugins = plugins;
    for (const { meter, upstreams } of services.values()) {
      for (const id of meter.upstreams.keys()) if (!upstreams.has(id)) meter.upstreams.delete(id);
      for (const id of upstreams.keys()) if (!meter.upstreams.has(id)) meter.upstreams.set(id, new Recent(this.steps));
    }
  }
}
