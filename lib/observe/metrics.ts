/**
 * Counts and times requests and tries: what every request passes on its way is a few additions, and allocates nothing once its kind
 * has been seen. Whatever is counted goes by the names of the configuration. As text it is written in `exposition.ts`.
 */
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { CacheResult, Meter, Notes } from "../http/exchange.ts";
import { PluginMeter } from "./plugin_meter.ts";
import { Recent } from "./recent.ts";

export interface Cell {
  count: number;
}

/** Other methods are counted together: clients make them up. */
export const METHODS: readonly string[] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

const METHOD_INDEX = new Map(METHODS.map((method, i) => [method, i]));
/** Above every status. */
const SPAN = 1_000;
const HIGHEST_STATUS = 599;
/** Plugins of a host may bring codes of their own, and make them up as well. */
const MOST_CODES = 64;

const NO_CELLS: ReadonlyMap<string, Cell> = new Map();

/** What is known of the requests of one route. */
export class RouteMeter implements Meter {
  readonly recent = new Recent();
  rateLimited = 0;
  /** Requests that were given this route and are not over. */
  inFlight = 0;
  /** Of bodies, as the access log has them. */
  receivedBytes = 0;
  sentBytes = 0;
  /** Requests that a cache looked at, by what it did; null as long as there were none. */
  cached: Map<CacheResult, number> | null = null;
  /** Both null as long as they would be empty, as in `Recent`. */
  #requests: Map<number, Cell> | null = null;
  #refusals: Map<string, Cell> | null = null;

  /** By the code of the error. */
  get refusals(): ReadonlyMap<string, Cell> {
    return this.#refusals ?? NO_CELLS;
  }

  ended(method: string, notes: Notes, ms: number): void {
    const { status, code, received, sent, cache } = notes;
    const { recent } = this;
    if (received !== null) this.receivedBytes += received;
    if (sent !== null) this.sentBytes += sent;
    if (cache !== null) {
      const cached = (this.cached ??= new Map<CacheResult, number>());
      cached.set(cache, (cached.get(cache) ?? 0) + 1);
    }
    if (notes.meter === this) this.inFlight--;
    recent.requests++;
    if (status !== null && status >= 500) recent.errors++;
    const known = METHOD_INDEX.get(method) ?? METHODS.length;
    const key = known * SPAN + (status === null ? 0 : status > HIGHEST_STATUS ? HIGHEST_STATUS + 1 : status);
    const requests = (this.#requests ??= new Map<number, Cell>());
    const cell = requests.get(key);
    if (cell === undefined) requests.set(key, { count: 1 });
    else cell.count++;
    // A WebSocket lasts as long as people keep it open: among requests it would hide how long those take.
    if (status !== 101) recent.time(ms);
    if (code !== null) this.#failed(code, notes);
  }

  /** Each kind of request that there was. */
  *requests(): Iterable<readonly [method: string, code: string, count: number]> {
    for (const [key, { count }] of this.#requests ?? []) {
      const status = key % SPAN;
      const code = status === 0 ? "none" : status > HIGHEST_STATUS ? "other" : String(status);
      yield [METHODS[Math.floor(key / SPAN)] ?? "other", code, count];
    }
  }

  #failed(code: string, { route, attempts }: Notes): void {
    if (code === "rate_limited") {
      this.rateLimited++;
      this.recent.limited++;
    }
    if (route === null || attempts > 0 || code === "internal" || ERRORS[code as ErrorCode]?.side === "upstream") return;
    const refusals = (this.#refusals ??= new Map<string, Cell>());
    const name = refusals.has(code) || refusals.size < MOST_CODES ? code : "other";
    const cell = refusals.get(name);
    if (cell === undefined) refusals.set(name, { count: 1 });
    else cell.count++;
  }
}

/** What is known of the tries of one service's upstreams. */
export class ServiceMeter {
  retries = 0;
  readonly upstreams = new Map<string, Recent>();

  /** `status` is that of the answer; null: there was none. */
  tried(upstream: string, ms: number, status: number | null): void {
    const recent = this.upstreams.get(upstream);
    if (recent === undefined) return;
    recent.requests++;
    if (status === null || status >= 500) recent.errors++;
    recent.time(ms);
  }

  retried(): void {
    this.retries++;
  }
}

/** What one configuration counts; the names are filled in while it is compiled. */
export interface MetricsPlan {
  readonly services: Map<string, ServicePlan>;
  /** By their labels, as JSON. */
  readonly plugins: Map<string, PluginMeter>;
}

/** Labels of a plugin instance: kind, level, service, route, and `id` or, without one, its place among its kind ("1", "2", …). */
export type PluginLabels = readonly string[];

export interface PluginPlace {
  readonly name: string;
  readonly level: string;
  readonly service: string | null;
  readonly route: string | null;
  readonly id: string;
}

export function pluginLabels({ name, level, service, route, id }: PluginPlace): PluginLabels {
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
  /** Of requests for which no route was found, or looked for. */
  readonly unrouted = new RouteMeter();
  #services: MetricsPlan["services"] = new Map();
  #plugins: MetricsPlan["plugins"] = new Map();

  get services(): ReadonlyMap<string, ServicePlan> {
    return this.#services;
  }

  /** The labels of each plugin instance, and what is known of it. */
  *plugins(): Iterable<readonly [labels: PluginLabels, meter: PluginMeter]> {
    for (const [key, meter] of this.#plugins) yield [JSON.parse(key) as PluginLabels, meter];
  }

  /** As `plan`, for a plugin instance. Two of a kind that bear the same labels are counted together. */
  planPlugin(place: PluginPlace, { plugins }: MetricsPlan): PluginMeter {
    const key = JSON.stringify(pluginLabels(place));
    const meter = plugins.get(key) ?? this.#plugins.get(key) ?? new PluginMeter();
    plugins.set(key, meter);
    return meter;
  }

  /** Names that are there go on counting. */
  plan(service: Names, { services }: MetricsPlan): ServicePlan {
    const known = this.#services.get(service.name);
    const planned: ServicePlan = {
      meter: known?.meter ?? new ServiceMeter(),
      upstreams: new Set(service.upstreams.map(({ id }) => id)),
      routes: new Map(service.routes.map(({ name }) => [name, known?.routes.get(name) ?? new RouteMeter()])),
    };
    services.set(service.name, planned);
    return planned;
  }

  /** A configuration comes into force: what it does not name goes. */
  adopt({ services, plugins }: MetricsPlan): void {
    this.#services = services;
    this.#plugins = plugins;
    for (const { meter, upstreams } of services.values()) {
      for (const id of meter.upstreams.keys()) if (!upstreams.has(id)) meter.upstreams.delete(id);
      for (const id of upstreams) if (!meter.upstreams.has(id)) meter.upstreams.set(id, new Recent());
    }
  }
}
