/**
 * Compiles a valid configuration into a snapshot: a route table with one handler for each route. A request keeps its
 * snapshot to its end.
 */
import type { Clock } from "../base/clock.ts";
import { Egress } from "../base/egress.ts";
import type { LoadResult } from "../config/load.ts";
import type { Config, PluginInstance, Route, Service } from "../config/model.ts";
import type { Meter, RouteName, ServiceName } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import type { MetricsPlan } from "../observe/metrics_plan.ts";
import type * as serverTimingPart from "../observe/server_timing.ts";
import type { CallerRegistry } from "../plugins/callers.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { Matching, UpstreamPaths } from "../route/contracts.ts";
import { compileTable, type RouteTable, type TableEntry } from "../route/table.ts";
import type { ReceiveOptions } from "../server/inbound.ts";
import type * as proxiesPart from "../server/trusted_proxies.ts";
import type { HostCertificates } from "../server/certificates.ts";
import type { WatchedRoute } from "./bundle.ts";
import { destinationsOf } from "./destinations.ts";
import type { BeforeRoutes, CompileTools, EarlyAnswer, Place } from "./compile_types.ts";
import type { PluginContext, PluginLink, RouteChain } from "./compile_types.ts";
import type { Parts } from "./parts.ts";
import type { InUse } from "./runtime.ts";
import type { ShownCertificate } from "./status.ts";
import { compileUpstreams } from "./upstreams.ts";

/** A configuration without errors, as `loadConfig` returns it. */
export interface Loaded extends Omit<Extract<LoadResult<AnyPlugin>, { readonly ok: true }>, "ok"> {
  /** The part for `match` of routes; null: no route has it. */
  readonly conditions: Matching | null;
  /** Null: it has none. */
  readonly callers: CallerRegistry | null;
  /** For `upstream_path`; null: it is not used. */
  readonly upstreamPaths: UpstreamPaths | null;
}

export interface Snapshot extends Loaded {
  readonly global: Config["global"];
  readonly table: RouteTable<RouteTarget>;
  /** Null: plain HTTP is not redirected. */
  readonly redirect: EarlyAnswer | null;
  /**
   * Answers requests before a route is looked up: the redirect, and the refusal of misdirected requests. Null: there is
   * neither.
   */
  readonly early: EarlyAnswer | null;
  /** Null: nothing does. */
  readonly beforeRoutes: BeforeRoutes | null;
  readonly certificates: HostCertificates;
  /** The certificates of `global.certificates`, as they are reported. */
  readonly shownCertificates: readonly (ShownCertificate & {
    readonly path: string;
    readonly hosts: readonly string[];
  })[];
  /** Keys of all plugin instances. */
  readonly instances: ReadonlySet<string>;
  readonly counts: { readonly services: number; readonly routes: number; readonly upstreams: number };
  readonly inUse: InUse;
  readonly metrics: MetricsPlan | null;
  readonly receiving: ReceiveOptions;
  /** Null: replies have no Server-Timing. */
  readonly serverTiming: typeof serverTimingPart | null;
}

export interface RouteTarget {
  readonly service: ServiceName;
  readonly route: RouteName;
  /** The service's base_path and the route's path together. */
  readonly pattern: string;
  readonly handler: Handler;
  readonly meter: Meter | null;
  /** Whether a plugin of the route handles CORS preflights. */
  readonly takesPreflights: boolean;
}

/** Throws a `ConfigError` when a plugin cannot be created; the snapshot in force is not touched. */
export function compile(loaded: Loaded, tools: CompileTools): Snapshot {
  const inUse = tools.runtime.inUse(loaded.config.global.dnsTtlMs, loaded.config.global.limits.maxClientShare);
  try {
    return compileInto(inUse, loaded, tools);
  } catch (error) {
    tools.runtime.abandon(inUse);
    throw tools.runtime.parts.partIfLoaded("plugins")?.placed(error, loaded) ?? error;
  }
}

function compileInto(inUse: InUse, loaded: Loaded, tools: CompileTools): Snapshot {
  const { global, services } = loaded.config;
  const { runtime } = tools;
  const egress = new Egress(destinationsOf(loaded.config, loaded.kinds, runtime.parts));
  if (global.counters !== undefined)
    inUse.shared = runtime.parts.part("redis").sharedCounters(global.counters, inUse, tools);
  loaded.callers?.remember((name, bytes) => runtime.memory(name, bytes, inUse));
  const plan = tools.metrics?.plan(global.decisions, (name, bytes) => runtime.memory(name, bytes, inUse)) ?? null;
  const instances = new Set<string>();
  const context: PluginContext = {
    ...tools,
    gatewayName: global.name,
    kinds: loaded.kinds,
    callers: loaded.callers,
    egress,
    inUse,
    plan,
    matched: loaded.conditions?.matchedHeaders(services),
    instances,
  };
  const globals = linksOf(global.plugins, { level: "global", service: null, route: null }, context);
  const entries = services.flatMap((service) => compileService(service, globals, loaded, context));
  const redirect = redirectOf(global, runtime.parts);
  const certificatesOf = global.certificates.length === 0 ? null : runtime.parts.part("misdirected").certificatesOf;
  return Object.freeze({
    ...loaded,
    global,
    table: compileTable(entries),
    beforeRoutes: runtime.parts.partIfLoaded("beforeRoutes")?.beforeRoutes(globals, context) ?? null,
    redirect,
    ...(certificatesOf?.(global.certificates, redirect, tools) ?? {
      early: redirect,
      certificates: NO_CERTIFICATES,
      shownCertificates: [],
    }),
    instances,
    counts: {
      services: services.length,
      routes: entries.length,
      upstreams: services.reduce((sum, { upstreams }) => sum + upstreams.length, 0),
    },
    inUse,
    metrics: plan,
    receiving: receivingBy(global, runtime.clock, () => runtime.parts.part("trustedProxies")),
    serverTiming: global.serverTiming ? runtime.parts.part("serverTiming") : null,
  });
}

const NO_CERTIFICATES: HostCertificates = { find: () => undefined };

export function redirectOf({ httpsRedirect }: Config["global"], parts: Parts): EarlyAnswer | null {
  return httpsRedirect === undefined ? null : parts.part("httpsRedirect").httpsRedirect(httpsRedirect);
}

function compileService(
  service: Service,
  globals: readonly PluginLink[],
  loaded: Loaded,
  context: PluginContext,
): TableEntry<RouteTarget>[] {
  const planned = context.plan?.service(service);
  const upstreams = compileUpstreams(service, planned?.meter ?? null, context);
  const outer = [
    ...globals,
    ...linksOf(service.plugins, { level: "service", service: service.name, route: null }, context),
  ];
  const name = serviceName(service);
  return service.routes.map((route) => {
    const own = linksOf(route.plugins, { level: "route", service: service.name, route: route.name }, context);
    const chained = chainOf([...outer, ...own], upstreams, { service: service.name, route: route.name }, context);
    return entryOf(service, route, targetOf(name, route, chained, planned?.routes.get(route.name) ?? null), loaded);
  });
}

function linksOf(instances: readonly PluginInstance[], place: Place, context: PluginContext): readonly PluginLink[] {
  return instances.length === 0 ? [] : context.runtime.parts.part("plugins").createLinks(instances, place, context);
}

function chainOf(
  links: readonly PluginLink[],
  innermost: Handler,
  place: Omit<WatchedRoute, "plugins">,
  context: PluginContext,
): RouteChain {
  if (links.length > 0) return context.runtime.parts.part("plugins").chain(links, innermost, place, context);
  return {
    handler: context.watched?.(innermost, { ...place, plugins: [] }) ?? innermost,
    audience: "",
    ownHeaders: context.matched,
    takesPreflights: false,
  };
}

export function serviceName({ name, basePath }: Service): ServiceName {
  return { name, basePath: withoutFinalSlash(basePath) };
}

export function targetOf(
  service: ServiceName,
  { name, path }: Route,
  { handler, audience, ownHeaders, takesPreflights, callers }: RouteChain,
  meter: Meter | null,
): RouteTarget {
  return {
    service,
    route: { name, path, audience, ownHeaders, callers },
    pattern: patternOf(service.basePath, path),
    handler,
    meter,
    takesPreflights,
  };
}

export function entryOf<T>(
  service: Service,
  route: Route,
  target: T,
  parts: Pick<Loaded, "conditions" | "upstreamPaths">,
): TableEntry<T> {
  const { path, methods, match: written } = route;
  const match = written && parts.conditions!.routeConditions(written);
  const upstreamPath = parts.upstreamPaths?.upstreamPath(service, route);
  const { basePath, hosts, encodedSlashes, pathParameters } = service;
  return {
    basePath,
    hosts,
    path,
    methods,
    match,
    upstreamPath,
    encodedSlashes: encodedSlashes === "allow",
    pathParameters: pathParameters === "allow",
    target,
  };
}

/** How requests are received under a configuration. */
export function receivingBy(
  { trustedProxies, limits, underscoreHeaders }: Config["global"],
  clock: Clock,
  part: () => typeof proxiesPart,
): ReceiveOptions {
  const proxies = trustedProxies.length === 0 ? null : part().trustedProxies(trustedProxies);
  return { clock, proxies, limits, underscores: underscoreHeaders };
}

/** `/a/{rest*}`; route `/` under base_path `/a` is `/a`, as clients ask for it. */
function patternOf(basePath: string, path: string): string {
  if (basePath === "/") return path;
  return path === "/" ? basePath : basePath + path;
}

function withoutFinalSlash(path: string): string {
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
}
