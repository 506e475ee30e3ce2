/**
 * Looks up routes, upstreams and plugins and their live statistics by name, and computes how many requests reach each stage of a route.
 */
import type {
  Figures,
  Health,
  PluginConfig,
  ProxyConfig,
  RouteConfig,
  ServiceConfig,
  ServiceHealth,
  Stats,
  Status,
  TryFigures,
  UpstreamConfig,
} from "./api.ts";

export type Level = "global" | "service" | "route";

/** A plugin instance and its place in the configuration. */
export interface PluginPlace {
  readonly level: Level;
  readonly service: string | null;
  readonly route: string | null;
  readonly plugin: PluginConfig;
}

/** Every instance in the order of the configuration, also disabled ones. */
export function pluginsOf(config: ProxyConfig): readonly PluginPlace[] {
  return [
    ...config.plugins.map((plugin): PluginPlace => ({ level: "global", service: null, route: null, plugin })),
    ...config.services.flatMap(({ name, plugins, routes }) => [
      ...plugins.map((plugin): PluginPlace => ({ level: "service", service: name, route: null, plugin })),
      ...routes.flatMap((route) => route.plugins.map((plugin): PluginPlace => ({ level: "route", service: name, route: route.name, plugin }))),
    ]),
  ];
}

/** The plugins of a route in the order in which they run, also disabled ones. */
export function chainOf(config: ProxyConfig, service: ServiceConfig, route: RouteConfig): readonly PluginPlace[] {
  return [
    ...config.plugins.map((plugin): PluginPlace => ({ level: "global", service: null, route: null, plugin })),
    ...service.plugins.map((plugin): PluginPlace => ({ level: "service", service: service.name, route: null, plugin })),
    ...route.plugins.map((plugin): PluginPlace => ({ level: "route", service: service.name, route: route.name, plugin })),
  ];
}

/** Requests that got 500 because the instance failed. Instances of the same kind and place without ids share a count. */
export function faultsOf(status: Status | null, { level, service, route, plugin }: PluginPlace): number {
  let count = 0;
  for (const fault of status?.plugin_faults ?? []) {
    const isSame = fault.plugin === plugin.name && fault.level === level && fault.service === service && fault.route === route;
    if (isSame && fault.id === (plugin.id ?? null)) count += fault.count;
  }
  return count;
}

export interface WarningCounts {
  /** Warnings about the service or one of its routes. */
  service(service: string): number;
  route(service: string, route: string): number;
}

export function warningCounts(status: Status | null): WarningCounts {
  const services = new Map<string, number>();
  const routes = new Map<string, number>();
  for (const { service, route } of status?.warnings ?? []) {
    if (service === null) continue;
    services.set(service, (services.get(service) ?? 0) + 1);
    const key = JSON.stringify([service, route]);
    routes.set(key, (routes.get(key) ?? 0) + 1);
  }
  return { service: (service) => services.get(service) ?? 0, route: (service, route) => routes.get(JSON.stringify([service, route])) ?? 0 };
}

/** `base_path` and `path` as one pattern: "/" for both is "/", and a final slash is ignored. */
export function patternOf(service: Pick<ServiceConfig, "base_path">, route: Pick<RouteConfig, "path">): string {
  const pattern = [service.base_path, route.path].map((part) => part.replace(/\/$/, "")).join("");
  return pattern === "" ? "/" : pattern;
}

/** "GET, HEAD", or "all methods". */
export function methodsOf({ methods }: Pick<RouteConfig, "methods">): string {
  return methods === undefined || methods.length === 0 ? "all methods" : methods.join(", ");
}

/** "10.0.1.10:8080", "[::1]:8080" */
export function addressOf({ host, port }: Pick<UpstreamConfig, "host" | "port">): string {
  return host.includes(":") && !host.startsWith("[") ? `[${host}]:${port}` : `${host}:${port}`;
}

export interface FiguresByName {
  /** Null: not known yet. All zero: no traffic in the window. */
  route(service: string, route: string): Figures | null;
  upstream(service: string, id: string): TryFigures | null;
  /** Sums over these upstreams; times come from the slowest. */
  upstreams(service: string, ids: readonly string[]): TryFigures | null;
  /** Rates are sums over the routes; times come from the slowest route, since percentiles cannot be added. */
  service(service: string): Figures | null;
}

const IDLE: Figures = { requests_per_s: 0, errors_per_s: 0, limited_per_s: 0, p50_ms: null, p95_ms: null, p99_ms: null, in_flight: 0 };

export function figuresByName(stats: Stats | null): FiguresByName {
  if (stats === null) return { route: () => null, upstream: () => null, upstreams: () => null, service: () => null };
  const routes = new Map(stats.services.map(({ name, routes: list }) => [name, new Map(list.map((each) => [each.name, each]))]));
  const upstreams = new Map(stats.services.map(({ name, upstreams: list }) => [name, new Map(list.map((each) => [each.id, each]))]));
  const upstream = (service: string, id: string): TryFigures => upstreams.get(service)?.get(id) ?? IDLE;
  return {
    route: (service, route) => routes.get(service)?.get(route) ?? IDLE,
    upstream,
    upstreams: (service, ids) => ids.map((id) => upstream(service, id)).reduce(sumOf, IDLE),
    service: (service) => [...(routes.get(service)?.values() ?? [])].reduce(sumOf, IDLE),
  };
}

function sumOf(a: Figures, b: TryFigures & Partial<Figures>): Figures {
  return {
    requests_per_s: a.requests_per_s + b.requests_per_s,
    errors_per_s: a.errors_per_s + b.errors_per_s,
    limited_per_s: a.limited_per_s + (b.limited_per_s ?? 0),
    p50_ms: slower(a.p50_ms, b.p50_ms),
    p95_ms: slower(a.p95_ms, b.p95_ms),
    p99_ms: slower(a.p99_ms, b.p99_ms),
    in_flight: a.in_flight + b.in_flight,
  };
}

function slower(a: number | null, b: number | null): number | null {
  return a === null ? b : b === null ? a : Math.max(a, b);
}

/** Of the requests, 0 to 1; null where there were none. */
export function errorShare({ requests_per_s: requests, errors_per_s: errors }: TryFigures): number | null {
  return requests > 0 ? Math.min(1, errors / requests) : null;
}

export function healthOf(health: Health | null, service: string): ServiceHealth | null {
  return health?.services.find(({ name }) => name === service) ?? null;
}

/** Requests per second that reach one stage of a route. */
export interface Flow {
  readonly into: number;
  /** False: at most `into`, since an earlier stage may have answered some. */
  readonly exact: boolean;
  /** Refused at this stage; null: not known. */
  readonly refused: number | null;
}

/** Plugins that never answer a request themselves. */
const PASS_ALL = new Set(["request_headers", "response_headers", "http_log", "compress", "mirror"]);

/**
 * One flow for each plugin, and one for the upstreams behind them. The gateway counts refusals of rate limits by route: they belong to one
 * plugin if the route has a single limit, and are subtracted after the last of several.
 */
export function flowThrough(
  plugins: readonly Pick<PluginConfig, "name" | "config">[],
  figures: Pick<Figures, "requests_per_s" | "limited_per_s">,
): readonly Flow[] {
  const { requests_per_s: requests, limited_per_s: limited } = figures;
  const limits = plugins.filter(isLimit).length;
  let passed = 0;
  let mayHaveAnswered = false;
  const before = () => ({
    into: passed < limits ? requests : Math.max(0, requests - limited),
    exact: !mayHaveAnswered && (passed === 0 || passed === limits || limited === 0),
  });
  const flows = plugins.map((plugin): Flow => {
    const { into, exact } = before();
    if (isLimit(plugin)) {
      passed += 1;
      return { into, exact, refused: limits === 1 ? limited : limited === 0 ? 0 : null };
    }
    const passesAll = PASS_ALL.has(plugin.name) || plugin.name === LIMITS || isDelay(plugin);
    mayHaveAnswered ||= !passesAll;
    return { into, exact, refused: passesAll ? 0 : null };
  });
  return [...flows, { ...before(), refused: null }];
}

const LIMITS = "rate_limit";
const FAULT = "fault";

/** A limit in shadow mode refuses nothing. */
function isLimit({ name, config }: Pick<PluginConfig, "name" | "config">): boolean {
  return name === LIMITS && config.mode !== "shadow";
}

/** A fault that only delays. */
function isDelay({ name, config }: Pick<PluginConfig, "name" | "config">): boolean {
  return name === FAULT && config.status === undefined;
}
