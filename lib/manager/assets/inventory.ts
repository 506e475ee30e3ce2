/**
 * Looks up routes, upstreams and plugins and their live statistics by name.
 */
import type {
  Figures,
  PluginConfig,
  ProxyConfig,
  RouteConfig,
  RoutePlugins,
  ServiceConfig,
  Stats,
  Status,
  TryFigures,
  ServiceHealth,
  UpstreamConfig,
} from "./api.ts";
import { perSecond } from "./format.ts";

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
      ...routes.flatMap((route) =>
        route.plugins.map((plugin): PluginPlace => ({ level: "route", service: name, route: route.name, plugin })),
      ),
    ]),
  ];
}

/** The place of a plugin that runs for a route. */
export function placeOf(
  { level, name, id, config }: Pick<RoutePlugins["plugins"][number], "level" | "name" | "id" | "config">,
  service: string,
  route: string,
): PluginPlace {
  const plugin: PluginConfig = { name, enabled: true, config, ...(id !== null && { id }) };
  return { level, service: level === "global" ? null : service, route: level === "route" ? route : null, plugin };
}

/** The disabled plugins of a route. */
export function disabledOf(config: ProxyConfig, service: ServiceConfig, route: RouteConfig): readonly PluginPlace[] {
  return pluginsOf({ ...config, services: [{ ...service, routes: [route] }] }).filter(({ plugin }) => !plugin.enabled);
}

/**
 * Requests that got 500 because the instance failed. Instances of the same kind and place without ids share a count.
 */
export function faultsOf(status: Status | null, { level, service, route, plugin }: PluginPlace): number {
  let count = 0;
  for (const fault of status?.plugin_faults ?? []) {
    const isSame =
      fault.plugin === plugin.name && fault.level === level && fault.service === service && fault.route === route;
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
  return {
    service: (service) => services.get(service) ?? 0,
    route: (service, route) => routes.get(JSON.stringify([service, route])) ?? 0,
  };
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

/**
 * What a service has as `health` knows it: in the place of an SRV record its targets, in that of a name its addresses,
 * if it has several; the record or the name while it has none.
 */
export function endpointsOf(
  { upstreams }: Pick<ServiceConfig, "upstreams">,
  health: ServiceHealth | null,
): readonly UpstreamConfig[] {
  return upstreams.flatMap((upstream) => {
    const endpoints = (health?.upstreams ?? []).filter(({ id }) => ownerOf(upstreams, id) === upstream);
    return endpoints.length === 0
      ? [upstream]
      : endpoints.map(({ group, ...endpoint }) => ({ ...endpoint, group: group ?? undefined }));
  });
}

/** The upstream of the configuration that an endpoint is of, which is not configured itself: its id begins with it. */
export function ownerOf(upstreams: readonly UpstreamConfig[], id: string): UpstreamConfig | undefined {
  if (upstreams.some((each) => each.id === id)) return undefined;
  return upstreams.find((each) => id.startsWith(`${each.id}/`));
}

/** "10.0.1.10:8080", "[::1]:8080", "SRV _http._tcp.orders.internal" */
export function addressOf({ host, port, srv }: Pick<UpstreamConfig, "host" | "port" | "srv">): string {
  if (host === undefined) return `SRV ${srv ?? ""}`;
  return host.includes(":") && !host.startsWith("[") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Null: not known yet. All zero: no traffic in the window. */
export interface FiguresByName {
  route(service: string, route: string): Figures | null;
  upstream(service: string, id: string): TryFigures | null;
  /** Upstreams of a group, or those in none. */
  group(service: string, group: string | null): TryFigures | null;
  service(service: string): Figures | null;
}

const IDLE: Figures = {
  requests_per_s: 0,
  errors_per_s: 0,
  limited_per_s: 0,
  statuses_per_s: {},
  p50_ms: null,
  p95_ms: null,
  p99_ms: null,
  in_flight: 0,
};

export function figuresByName(stats: Stats | null): FiguresByName {
  const all = stats?.services ?? null;
  if (all === null) return { route: () => null, upstream: () => null, group: () => null, service: () => null };
  const services = new Map(
    all.map((service) => {
      const { total, routes, upstreams, groups } = service;
      const by = {
        routes: new Map(routes.map((each) => [each.name, each])),
        upstreams: new Map(upstreams.map((each) => [each.id, each])),
        groups: new Map(groups.map((each) => [each.group, each])),
      };
      return [service.name, { total, ...by }];
    }),
  );
  return {
    route: (service, route) => services.get(service)?.routes.get(route) ?? IDLE,
    upstream: (service, id) => services.get(service)?.upstreams.get(id) ?? IDLE,
    group: (service, group) => services.get(service)?.groups.get(group) ?? IDLE,
    service: (service) => services.get(service)?.total ?? IDLE,
  };
}

/** Replies with 4xx, those of rate limits included; 0 to 1, null where there were no requests. */
export function clientErrorShare(figures: Pick<Figures, "requests_per_s" | "statuses_per_s">): number | null {
  const { requests_per_s: requests, statuses_per_s: statuses } = figures;
  return requests > 0 ? Math.min(1, (statuses["4xx"] ?? 0) / requests) : null;
}

/** "401 1.5/s · 404 0.2/s"; "" without such replies. */
export function refusalsText(figures: Pick<Figures, "statuses_per_s"> | null): string {
  const { statuses_per_s: statuses = {} } = figures ?? {};
  return (["401", "403", "404"] as const)
    .flatMap((status) => (statuses[status] === undefined ? [] : [`${status} ${perSecond(statuses[status])}`]))
    .join(" · ");
}

/** "2xx 90/s · 4xx 2/s (401 1.5/s · 404 0.2/s)"; "" without replies. */
export function statusesText(figures: Pick<Figures, "statuses_per_s">): string {
  const classes = (["2xx", "3xx", "4xx", "5xx"] as const).flatMap((name) => {
    const rate = figures.statuses_per_s[name];
    const refusals = name === "4xx" ? refusalsText(figures) : "";
    return rate === undefined ? [] : [`${name} ${perSecond(rate)}${refusals === "" ? "" : ` (${refusals})`}`];
  });
  return classes.join(" · ");
}

/** Of the requests, 0 to 1; null where there were none. */
export function errorShare(figures: Pick<TryFigures, "requests_per_s" | "errors_per_s">): number | null {
  const { requests_per_s: requests, errors_per_s: errors } = figures;
  return requests > 0 ? Math.min(1, errors / requests) : null;
}
