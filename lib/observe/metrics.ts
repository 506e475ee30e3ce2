/**
 * Counts and times requests and tries under the names of the configuration: a few additions per request, without an allocation once its
 * kind of request has been seen.
 */
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { CacheResult, Meter, Notes } from "../http/exchange.ts";
import { PluginMeter } from "./plugin_meter.ts";
import { Recent, type StepCounter } from "./recent.ts";

/** Other methods are counted together: clients can invent them. */
export const METHODS: readonly string[] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

const METHOD_INDEX = new Map(METHODS.map((method, i) => [method, i]));
/** Above every status. */
const SPAN = 1_000;
const HIGHEST_STATUS = 599;
/** Plugins of an embedder may have error codes of their own, without end. */
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
  /** Requests that a cache looked at, by result. Null, like the maps below, while empty: most routes of a large configuration are quiet. */
  cached: Map<CacheResult, number> | null = null;
  /** Requests refused by plugins, by error code. */
  refusals: Map<string, number> | null = null;
  #requests: Map<number, number> | null = null;
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
    if (cache !== null) increment((this.cached ??= new Map<CacheResult, number>()), cache);
    if (notes.meter === this) this.inFlight--;
    const isError = status !== null && status >= 500;
    const isLimited = code === "rate_limited";
    if (isLimited) this.rateLimited++;
    // A WebSocket lasts as long as people keep it open, which would hide how long requests take.
    const timed = status === 101 ? null : ms;
    this.recent.count(isError, isLimited, timed);
    this.#total.count(isError, isLimited, timed);
    const known = METHOD_INDEX.get(method) ?? METHODS.length;
    const bounded = status === null ? 0 : status > HIGHEST_STATUS ? HIGHEST_STATUS + 1 : status;
    increment((this.#requests ??= new Map<number, number>()), known * SPAN + bounded);
    if (code !== null) this.#failed(code, notes);
  }

  /** Counts by method and status. */
  *requests(): Iterable<readonly [method: string, code: string, count: number]> {
    for (const [key, count] of this.#requests ?? []) {
      const status = key % SPAN;
      const code = status === 0 ? "none" : status > HIGHEST_STATUS ? "other" : String(status);
      yield [METHODS[Math.floor(key / SPAN)] ?? "other", code, count];
    }
  }

  #failed(code: string, { route, attempts }: Notes): void {
    if (route === null || attempts > 0 || code === "internal" || ERRORS[code as ErrorCode]?.side === "upstream") return;
    const refusals = (this.refusals ??= new Map<string, number>());
    increment(refusals, refusals.has(code) || refusals.size < MOST_CODES ? code : "other");
  }
}

function increment<Key>(counts: Map<Key, number>, key: Key): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
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
  readonly upstreams: ReadonlySet<string>;
  readonly routes: ReadonlyMap<string, RouteMeter>;
}

interface Names {
  readonly name: string;
  readonly upstreams: readonly { readonly id: string }[];
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

  *plugins(): Iterable<readonly [labels: readonly string[], meter: PluginMeter]> {
    for (const [key, meter] of this.#plugins) yield [JSON.parse(key) as readonly string[], meter];
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
      upstreams: new Set(service.upstreams.map(({ id }) => id)),
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
      for (const id of upstreams) if (!meter.upstreams.has(id)) meter.upstreams.set(id, new Recent(this.steps));
    }
  }
}
