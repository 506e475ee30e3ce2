/**
 * The counts of a gateway's requests under the names of the configuration in force, of its plugin instances, and those
 * of a configuration that is being compiled.
 */
import type { PluginTime } from "../http/exchange.ts";
import type { DecisionRing, Decisions } from "./decisions.ts";
import type { ServerDurations } from "./server_durations.ts";
import { increase, Recent, RouteMeter, ServiceMeter, Total, type StepCounter } from "./metrics.ts";

/** Each result is a time series; further ones are counted as "other". */
const MAX_RESULTS = 32;

/** Counts the requests of a plugin instance, the time they take, and the results that the plugin itself reports. */
export class PluginMeter implements PluginTime {
  readonly name: string;
  requests = 0;
  answered = 0;
  ms = 0;
  /** By name; null while empty: most plugins report none. */
  results: Map<string, number> | null = null;

  /** `name`: of its kind. */
  constructor(name: string) {
    this.name = name;
  }

  tally(result: string, count = 1): void {
    increase((this.results ??= new Map<string, number>()), result, count, MAX_RESULTS);
  }

  get isUsed(): boolean {
    return this.requests > 0 || this.ms > 0 || this.results !== null;
  }

  /** Moves all counts into a report: it has what was counted since the last one. */
  take(): PluginReport {
    const { requests, answered, ms, results } = this;
    this.requests = this.answered = this.ms = 0;
    this.results = null;
    return { requests, answered, ms, results };
  }

  /** Adds the counts of a report. */
  add({ requests, answered, ms, results }: PluginReport): void {
    this.requests += requests;
    this.answered += answered;
    this.ms += ms;
    for (const [result, count] of results ?? []) this.tally(result, count);
  }
}

export type PluginReport = Pick<PluginMeter, "requests" | "answered" | "ms" | "results">;

export interface PluginLabels {
  readonly name: string;
  readonly level: string;
  readonly service: string | null;
  readonly route: string | null;
  /** `id` or, without one, its place among its kind ("1", "2", …). */
  readonly id: string;
}

/** Names and values in turn. */
export function pluginLabels({ name, level, service, route, id }: PluginLabels): readonly string[] {
  return ["plugin", name, "level", level, "service", service ?? "", "route", route ?? "", "id", id];
}

export interface ServicePlan {
  readonly meter: ServiceMeter;
  /** Their groups, by id; of endpoints that change by the names that they have in metrics. */
  readonly upstreams: Map<string, string | null>;
  /** Whether it has upstreams that change without a reload. */
  isFollowing: boolean;
  /** The ids of endpoints that change. */
  endpoints: readonly string[];
  /** When endpoints left whose figures are still there, by their names in metrics: see `setUpstreams`. */
  readonly gone: Map<string, number>;
  readonly routes: ReadonlyMap<string, RouteMeter>;
}

interface Names {
  readonly name: string;
  readonly upstreams: readonly { readonly id: string; readonly group?: string | undefined }[];
  readonly routes: readonly { readonly name: string }[];
}

const NONE: ReadonlySet<string> = new Set();

/** The meters of one configuration, filled in while it is compiled. Meters are kept for names that are known. */
export class MetricsPlan {
  readonly services = new Map<string, ServicePlan>();
  /** Keyed by their labels as JSON. */
  readonly plugins = new Map<string, PluginMeter>();
  /** The keys of all plugin instances, complete once they have been created. */
  readonly instances: ReadonlySet<string>;
  readonly #metrics: Metrics;
  /** Null: no decisions are kept. */
  readonly #ring: DecisionRing | null;

  constructor(metrics: Metrics, ring: DecisionRing | null = null, instances: ReadonlySet<string> = NONE) {
    this.#metrics = metrics;
    this.#ring = ring;
    this.instances = instances;
  }

  /** Adds a plugin instance. Two with the same labels are counted together. */
  plugin(place: PluginLabels): PluginMeter {
    const key = JSON.stringify(pluginLabels(place));
    const meter = this.plugins.get(key) ?? this.#metrics.plugins.get(key) ?? new PluginMeter(place.name);
    this.plugins.set(key, meter);
    return meter;
  }

  service({ name, upstreams, routes }: Names): ServicePlan {
    const { services, steps, total } = this.#metrics;
    const known = services.get(name);
    const planned: ServicePlan = {
      meter: known?.meter ?? new ServiceMeter(),
      // Endpoints that change come in their place with `setUpstreams`.
      upstreams: new Map(upstreams.map(({ id, group = null }) => [id, group])),
      isFollowing: false,
      endpoints: [],
      gone: new Map(),
      routes: new Map(
        routes.map((route) => [route.name, known?.routes.get(route.name) ?? new RouteMeter(steps, total)]),
      ),
    };
    this.services.set(name, planned);
    return planned;
  }

  /**
   * A service, whose upstreams change without a reload, has these. The figures of the others stay until `dropGone`.
   * `now`: in milliseconds.
   */
  setUpstreams(
    service: string,
    peers: readonly { id: string; label: string; group: string | null }[],
    now: number,
  ): void {
    const planned = this.services.get(service);
    if (planned === undefined) return;
    const { upstreams, gone } = planned;
    const isInForce = this.#metrics.services.get(service) === planned;
    if (isInForce) for (const label of upstreams.keys()) gone.set(label, now);
    planned.isFollowing = true;
    planned.endpoints = peers.map(({ id }) => id);
    upstreams.clear();
    for (const { id, label, group } of peers) {
      upstreams.set(label, label === id ? group : null);
      gone.delete(label);
    }
    if (isInForce) this.#begin(planned);
  }

  /**
   * Drops the figures of upstreams that left until this moment, in milliseconds. Returns when the first of the others
   * left; null: there are none.
   */
  dropGone(service: string, until: number): number | null {
    const planned = this.services.get(service);
    // In the order in which they left.
    for (const [label, at] of planned?.gone ?? []) {
      if (at > until) return at;
      planned!.gone.delete(label);
      planned!.meter.upstreams.delete(label);
    }
    return null;
  }

  #begin({ meter, upstreams }: ServicePlan): void {
    for (const name of upstreams.keys())
      if (!meter.upstreams.has(name)) meter.upstreams.set(name, new Recent(this.#metrics.steps));
  }

  /** For one unit of a snapshot, which is to be included. */
  unit(): MetricsPlan {
    return new MetricsPlan(this.#metrics);
  }

  include({ services, plugins }: MetricsPlan): void {
    for (const [name, service] of services) this.services.set(name, service);
    for (const [key, meter] of plugins) this.plugins.set(key, meter);
  }

  /** The configuration takes effect: meters for names that it does not have are dropped. */
  apply(): void {
    this.#metrics.inForce = this;
    const { decisions } = this.#metrics;
    if (decisions !== null) decisions.ring = this.#ring;
    if (this.#ring !== null) decisions?.onFirstRing?.();
    for (const planned of this.services.values()) {
      dropOthers(planned);
      this.#begin(planned);
    }
  }
}

function dropOthers({ meter, upstreams }: ServicePlan): void {
  for (const name of meter.upstreams.keys()) if (!upstreams.has(name)) meter.upstreams.delete(name);
}

export class Metrics {
  readonly steps: StepCounter = { current: 0 };
  /** All requests. */
  readonly total = new Total(this.steps);
  /** Requests for which no route was found, or looked for. */
  readonly unrouted = new RouteMeter(this.steps, this.total);
  /** Faults of plugins, by kind; outside of requests by the name of their module. */
  readonly pluginFaults = new Map<string, number>();
  /** TLS handshakes that have finished, and those that were refused, by their labels as JSON. */
  readonly handshakes = new Map<string, number>();
  readonly refusedHandshakes = new Map<string, number>();
  /** Null: nobody can ask for them. */
  readonly decisions: Decisions | null;
  /** Null: nobody gets them. */
  readonly durations: ServerDurations | null;
  inForce = new MetricsPlan(this);

  constructor(decisions: Decisions | null = null, durations: ServerDurations | null = null) {
    this.decisions = decisions;
    this.durations = durations;
  }

  /**
   * `decisions`: how many are kept; `memory`: of the configuration, by name, the same for all threads; `instances`: see
   * `MetricsPlan`.
   */
  plan(
    decisions?: number,
    memory: (name: string, bytes: number) => ArrayBufferLike = (_name, bytes) => new ArrayBuffer(bytes),
    instances: ReadonlySet<string> = NONE,
  ): MetricsPlan {
    return new MetricsPlan(this, this.decisions?.ringFor(decisions, memory), instances);
  }

  get services(): ReadonlyMap<string, ServicePlan> {
    return this.inForce.services;
  }

  /** Keyed by their labels as JSON. */
  get plugins(): ReadonlyMap<string, PluginMeter> {
    return this.inForce.plugins;
  }

  /** Counts a TLS handshake. `group`: null: it is not known. */
  finished(side: "client" | "upstream", version: string | null, group: string | null): void {
    const labels = ["side", side, "version", version ?? "", "group", group ?? ""];
    increase(this.handshakes, JSON.stringify(labels), 1);
  }

  refused(side: "client" | "upstream", reason: string): void {
    increase(this.refusedHandshakes, JSON.stringify(["side", side, "reason", reason]), 1);
  }

  /** `plugin`: the name of a kind, or of a module. */
  pluginFailed(plugin: string): void {
    increase(this.pluginFaults, plugin, 1);
  }
}
