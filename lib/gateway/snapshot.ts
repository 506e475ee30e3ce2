/**
 * Compiles a valid configuration into a snapshot: a route table with one handler for each route. A request keeps its
 * snapshot to its end.
 */
import type { Clock } from "../base/clock.ts";
import { Egress, type Destination, type EgressProxy } from "../base/egress.ts";
import { BEFORE } from "../base/threads.ts";
import { atOnce } from "../base/time_slices.ts";
import type { Config, PluginInstance, Route, Service } from "../config/model.ts";
import type { Meter, RouteName, ServiceName } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import type { LogFormats } from "../observe/access_log.ts";
import { readEntries, tableSteps, type TableRoute, type RouteTable, type TableEntry } from "../route/table.ts";
import type { ReceiveOptions } from "../server/inbound.ts";
import type { HostCertificates } from "../server/certificates.ts";
import type { IssuedCertificates } from "../server/issued_certificates.ts";
import type { WatchedRoute } from "./bundle.ts";
import { destinationsOfUpstreams } from "./destinations.ts";
import type {
  BeforeRoutes,
  CompileTools,
  EarlyAnswer,
  UseOwnErrors,
  ValidConfig,
  PluginContext,
  PluginLink,
  PluginOwner,
  RouteChain,
} from "./compile_types.ts";
import type { FeatureContext } from "./features.ts";
import type { LoadedFeatures } from "./loaded_features.ts";
import type { InUse } from "./runtime.ts";
import type { ShownCertificate, ShownRevocationList } from "./status.ts";
import { compileUpstreams } from "./upstreams.ts";

export interface Snapshot extends ValidConfig {
  readonly global: Config["global"];
  readonly table: RouteTable<RouteTarget>;
  /** What the services and the global plugins were compiled to, for the next snapshot. */
  readonly services: ReadonlyMap<Service, CompiledService>;
  readonly globals: CompiledUnit<readonly PluginLink[]>;
  readonly matched: PluginContext["matched"];
  /** Lists of methods, see `readEntries`. */
  readonly methods: Map<string, readonly string[]>;
  /** Null: no proxy leads to anything. */
  readonly egressProxy: EgressProxy | null;
  /** See `ownAnswers`. */
  readonly ownAnswers: EarlyAnswer | null;
  /**
   * Answers requests before a route is looked up: challenges, the redirect, the refusal of misdirected requests, and
   * metadata of protected resources. Null: there is none of them.
   */
  readonly early: EarlyAnswer | null;
  /** Completes replies to requests for which no route was found, as global plugins say; null: they say nothing. */
  readonly beforeRoutes: BeforeRoutes | null;
  readonly certificates: HostCertificates;
  /** What is served of `global.acme`; null: the configuration does not have it. */
  readonly issued: IssuedCertificates | null;
  /** The certificates of `global.certificates`, as they are reported. */
  readonly shownCertificates: readonly (ShownCertificate & {
    readonly path: string;
    readonly hosts: readonly string[];
  })[];
  /** As they are reported. */
  readonly revocationLists: readonly ShownRevocationList[];
  /** Keys of all plugin instances. */
  readonly instances: ReadonlySet<string>;
  readonly counts: { readonly services: number; readonly routes: number; readonly upstreams: number };
  readonly inUse: InUse;
  readonly metrics: PluginContext["plan"];
  readonly receiving: ReceiveOptions;
  /** Of `global`; null: there are none. */
  readonly errors: UseOwnErrors | null;
  /** Null: replies have no Server-Timing. */
  readonly serverTiming: LogFormats["withServerTiming"] | null;
}

export interface RouteTarget {
  readonly service: ServiceName;
  readonly route: RouteName;
  /** The service's base_path and the route's path together. */
  readonly pattern: string;
  readonly handler: Handler;
  readonly meter: Meter | null;
  /** Of the service, then of `global`; null: the service has none. */
  readonly errors: UseOwnErrors | null;
  /** Whether a plugin of the route handles CORS preflights. */
  readonly takesPreflights: boolean;
}

export interface SnapshotTools extends CompileTools {
  readonly features: LoadedFeatures;
}

/** Throws a `ConfigError` when a plugin cannot be created; the snapshot in force is not touched. */
export function compile(valid: ValidConfig, tools: SnapshotTools): Snapshot {
  return atOnce(compileSteps(valid, tools, null));
}

/**
 * The same in steps, for `inSlices`. `before`: the snapshot in force, of which is kept what has not changed. It has to
 * be in force until the end; else end the steps by `return`, which gives up what has been made.
 */
export function* compileSteps(
  valid: ValidConfig,
  tools: SnapshotTools,
  before: Snapshot | null,
): Generator<void, Snapshot> {
  const inUse = tools.runtime.inUse(valid.config.global.dnsTtlMs, valid.config.global.limits.maxClientShare);
  let compiled: Snapshot | null = null;
  try {
    compiled = yield* compileInto(inUse, valid, tools, before);
    return compiled;
  } catch (error) {
    throw tools.features.loaded.plugins?.placed(error, valid) ?? error;
  } finally {
    if (compiled === null) tools.runtime.abandon(inUse);
  }
}

function* compileInto(
  inUse: InUse,
  valid: ValidConfig,
  tools: SnapshotTools,
  before: Snapshot | null,
): Generator<void, Snapshot> {
  const { global, services } = valid.config;
  const { runtime, features } = tools;
  const egressProxy = global.egressProxy === undefined ? null : features.outbound.egressProxy(global.egressProxy);
  if (global.counters !== undefined)
    inUse.shared = features.sharedCounters.sharedCounters(global.counters, inUse, tools, egressProxy);
  const memory = (name: string, bytes: number) => runtime.memory(name, bytes, inUse);
  valid.callers?.remember(memory);
  const instances = new Set<string>();
  const plan = tools.metrics?.plan(global.decisions, memory, instances) ?? null;
  const { kinds, callers } = valid;
  const matched = valid.routing?.matchedHeaders(services);
  features.loaded.routing?.refuseUnknownCodes(valid, features.kindNames);
  const errors = features.loaded.routing?.compileOwnErrors(global.errors) ?? null;
  const common = { gatewayName: global.name, kinds, callers, matched, ...codeOfKinds(features) };
  const whole = { ...tools, ...common, inUse, plan, instances, egressProxy };
  const reused = before !== null && hasSameCommon(before, whole, global) ? before : null;
  const globals = reused?.globals ?? (yield* compileUnit(whole, [], globalLinks(global.plugins)));
  if (reused !== null) include(globals, whole);
  const methods = reused?.methods ?? new Map<string, readonly string[]>();
  const compiled = new Map<Service, CompiledService>();
  for (const service of services) {
    const known = reused?.services.get(service);
    const isKept = known !== undefined && mayStay(known);
    if (isKept) include(known, whole);
    const routes = routesOfService(service, { globals: globals.made, methods, valid });
    compiled.set(service, isKept ? known : yield* compileUnit(whole, destinationsOfUpstreams(service), routes));
    yield;
  }
  const ofServices = Array.from(compiled.values());
  const answers = ownAnswers(valid, features);
  const hasCertificates = global.certificates.length > 0 || global.acme !== undefined;
  const certificatesOf = hasCertificates ? features.serverTls.certificatesOf : null;
  const served = certificatesOf?.(global, answers, tools) ?? { ...NO_CERTIFICATES, early: answers };
  return Object.freeze({
    ...valid,
    global,
    globals,
    matched,
    services: compiled,
    methods,
    table: yield* tableSteps(ofServices.map(({ made }) => made)),
    egressProxy,
    beforeRoutes: features.loaded.plugins?.beforeRoutes(globals.made, whole) ?? null,
    ownAnswers: answers,
    ...served,
    revocationLists: revocationListsOf(valid.config, tools),
    instances: whole.instances,
    counts: {
      services: services.length,
      routes: ofServices.reduce((sum, { made }) => sum + made.length, 0),
      upstreams: services.reduce((sum, { upstreams }) => sum + upstreams.length, 0),
    },
    inUse,
    metrics: plan,
    receiving: { ...receivingBy(valid, runtime.clock), ownBody: errors?.ofUnread ?? null },
    errors,
    serverTiming: global.serverTiming ? features.logs.withServerTiming : null,
  });
}

function revocationListsOf(
  { global: { tls }, services }: Config,
  { features, log, runtime: { clock } }: SnapshotTools,
): Snapshot["revocationLists"] {
  const shown = services.flatMap(({ name, tls: { crl } = {} }) =>
    crl === undefined ? [] : features.outbound.shownRevocationLists(`services.${name}.tls.crl`, crl, log, clock.wall()),
  );
  if (tls?.clientCrl === undefined) return shown;
  return [
    ...features.serverTls.shownRevocationLists("global.tls.client_crl", tls.clientCrl, log, clock.wall()),
    ...shown,
  ];
}

const NO_CERTIFICATES: Pick<Snapshot, "certificates" | "issued" | "shownCertificates"> = {
  certificates: { find: () => undefined },
  issued: null,
  shownCertificates: [],
};

/**
 * What the gateway answers before a route is looked up, whatever the connection has: the redirect to HTTPS, and
 * metadata of protected resources. Null: none of these is configured.
 */
export function ownAnswers(
  valid: Pick<ValidConfig, "config" | "kinds" | "source">,
  features: LoadedFeatures,
): EarlyAnswer | null {
  const { httpsRedirect } = valid.config.global;
  const redirect = httpsRedirect === undefined ? null : features.routing.httpsRedirect(httpsRedirect);
  const metadata = features.loaded.plugins?.resourceAnswers(valid) ?? null;
  if (redirect === null || metadata === null) return redirect ?? metadata;
  return (inbound, authority) => redirect(inbound, authority) ?? metadata(inbound, authority);
}

function codeOfKinds(features: LoadedFeatures): Pick<PluginContext, "isBuiltIn" | "foreign" | "limits"> {
  return {
    isBuiltIn: (kind) => features.isBuiltIn(kind),
    foreign: features.foreign,
    limits: () => features.callers,
  };
}

/**
 * What is compiled at a time and may stay in the next snapshot: a service, or the global plugins; and all that it uses.
 */
interface CompiledUnit<T> {
  readonly made: T;
  readonly inUse: InUse;
  readonly instances: ReadonlySet<string>;
  readonly plan: PluginContext["plan"];
}

type CompiledService = CompiledUnit<readonly TableRoute<RouteTarget>[]>;

/** Adds what a unit uses to what the whole snapshot uses. */
function include({ inUse, instances, plan }: Omit<CompiledUnit<unknown>, "made">, whole: Whole): void {
  whole.runtime.include(inUse, whole.inUse);
  for (const key of instances) whole.instances.add(key);
  if (plan !== null) whole.plan?.include(plan);
}

type Whole = Omit<FeatureContext, "egress"> & Pick<Snapshot, "egressProxy">;

function* compileUnit<T>(
  whole: Whole,
  destinations: readonly Destination[],
  make: (context: FeatureContext) => Generator<void, T>,
): Generator<void, CompiledUnit<T>> {
  const { dnsTtlMs, maxClientShare, shared } = whole.inUse;
  const inUse = whole.runtime.inUse(dnsTtlMs, maxClientShare);
  inUse.shared = shared;
  const unit = { inUse, instances: new Set<string>(), plan: whole.plan?.unit() ?? null };
  try {
    const { egressProxy } = whole;
    const egress = new Egress(destinations, egressProxy && (() => egressProxy));
    const made = yield* make({ ...whole, ...unit, egress });
    return { ...unit, made };
  } finally {
    // Also where it fails: whatever it keeps is closed with all else.
    include(unit, whole);
  }
}

/**
 * Whether a service that has not changed may stay as it was compiled. It holds, besides the tools of the gateway, which
 * are the same as long as it runs: its object of the configuration, and what of the `Whole` is compared here; its links
 * around those of the global plugins, which stay with it; its meters, upstreams, pools, limiters and kept state, which
 * stay in force because `include` adds them to what the new snapshot uses; and its own destinations. `loadSteps` gives
 * a service, and `global`, the object of before only where text, files, environment, kinds and schemas are those of
 * before.
 */
function hasSameCommon(before: Snapshot, { callers, matched, inUse }: Whole, global: Config["global"]): boolean {
  const hasSame = before.global === global && before.callers === callers && before.inUse.shared === inUse.shared;
  const namesOf = (headers: Whole["matched"]) => [...(headers ?? [])].sort().join();
  return hasSame && namesOf(before.matched) === namesOf(matched) && mayStay(before.globals);
}

/**
 * Plugins that are not the gateway's own are created at each reload; memory that takes the place of other memory is.
 */
function mayStay({ inUse }: CompiledUnit<unknown>): boolean {
  return !inUse.hasForeignPlugins && !Array.from(inUse.memory.keys()).some((name) => name.endsWith(BEFORE));
}

function globalLinks(plugins: readonly PluginInstance[]) {
  return function* (context: FeatureContext): Generator<void, readonly PluginLink[]> {
    return linksOf(plugins, { level: "global", service: null, route: null }, context);
  };
}

interface ServiceTools {
  readonly globals: readonly PluginLink[];
  readonly methods: Map<string, readonly string[]>;
  readonly valid: ValidConfig;
}

/** Less than a millisecond of work. */
const ROUTES_OF_A_STEP = 20;

function routesOfService(service: Service, { globals, methods, valid }: ServiceTools) {
  return function* (context: FeatureContext): Generator<void, readonly TableRoute<RouteTarget>[]> {
    const planned = context.plan?.service(service);
    const handlerFor = yield* compileUpstreams(service, planned?.meter ?? null, context);
    const { timeouts } = service;
    const innermost = handlerFor(timeouts);
    const place = { level: "service", service: service.name, route: null } as const;
    const outer = [...globals, ...linksOf(service.plugins, place, context)];
    const name = serviceName(service);
    const own = service.errors && [service.errors, valid.config.global.errors];
    const errors = own && context.features.routing.compileOwnErrors(...own);
    const entries: TableEntry<RouteTarget>[] = [];
    for (const route of service.routes) {
      const own = linksOf(route.plugins, { level: "route", service: service.name, route: route.name }, context);
      const handler = route.timeouts === undefined ? innermost : handlerFor({ ...timeouts, ...route.timeouts });
      const chained = chainOf([...outer, ...own], handler, { service: service.name, route: route.name }, context);
      const target = targetOf(name, route, chained, planned?.routes.get(route.name) ?? null, errors);
      if (entries.push(entryOf(service, route, target, valid)) % ROUTES_OF_A_STEP === 0) yield;
    }
    return readEntries(entries, methods);
  };
}

function linksOf(
  instances: readonly PluginInstance[],
  place: PluginOwner,
  context: FeatureContext,
): readonly PluginLink[] {
  return instances.length === 0 ? [] : context.features.plugins.createLinks(instances, place, context);
}

function chainOf(
  links: readonly PluginLink[],
  innermost: Handler,
  place: Omit<WatchedRoute, "plugins">,
  context: FeatureContext,
): RouteChain {
  if (links.length > 0) return context.features.plugins.chain(links, innermost, place, context);
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
  errors: UseOwnErrors | null = null,
): RouteTarget {
  return {
    service,
    route: { name, path, audience, ownHeaders, callers },
    pattern: patternOf(service.basePath, path),
    handler,
    meter,
    errors,
    takesPreflights,
  };
}

export function entryOf<T>(
  service: Service,
  route: Route,
  target: T,
  { routing }: Pick<ValidConfig, "routing">,
): TableEntry<T> {
  const { path, methods, match: written } = route;
  const match = written && routing!.routeConditions(written);
  const upstreamPath = routing?.upstreamPath(service, route);
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
  { config: { global }, routing }: Pick<ValidConfig, "config" | "routing">,
  clock: Clock,
): ReceiveOptions {
  const { trustedProxies, clientIpHeaders, limits, underscoreHeaders } = global;
  const proxies = trustedProxies.length === 0 ? null : routing!.trustedProxies(trustedProxies, clientIpHeaders);
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
