/**
 * Compiles a valid configuration into a snapshot: a route table with one handler for each route. A request keeps its snapshot to its end.
 */
import { cidrSet } from "../base/cidr.ts";
import type { Clock } from "../base/clock.ts";
import { Egress } from "../base/egress.ts";
import { factsOf } from "../base/pem.ts";
import type { LoadResult } from "../config/load.ts";
import type { Config, Route, Service } from "../config/model.ts";
import { statusRanges } from "../config/resilience.ts";
import type { RouteName, ServiceName } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import type { MetricsPlan, RouteMeter, ServiceMeter } from "../observe/metrics.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import { compileTable, type RouteTable, type TableEntry } from "../route/table.ts";
import type { ReceiveOptions } from "../server/receive.ts";
import { hostCertificates, type HostCertificates } from "../server/certificates.ts";
import { attempts } from "../upstream/attempts.ts";
import { BREAKER_BYTES } from "../upstream/breaker.ts";
import { balancer } from "../upstream/balance.ts";
import type { HealthSettings } from "../upstream/health.ts";
import type { RetryPolicy } from "../upstream/faults.ts";
import { upstreamTls } from "../upstream/connect.ts";
import type { ForwardOptions } from "../upstream/upstream_request.ts";
import type { Member } from "../upstream/upstream_set.ts";
import { destinationsOf } from "./destinations.ts";
import { chain, createLinks, type CompileTools, type PluginContext, type PluginLink, type RouteChain } from "./plugin_instances.ts";
import type { CheckSettings, InUse, Runtime } from "./runtime.ts";
import { sharedCounters } from "./shared_counters.ts";
import type { ShownCertificate } from "./status.ts";

/** A configuration without errors, as `loadConfig` returns it. */
export type Loaded = Omit<Extract<LoadResult<AnyPlugin>, { readonly ok: true }>, "ok">;

export interface Snapshot extends Loaded {
  readonly global: Config["global"];
  readonly table: RouteTable<RouteTarget>;
  readonly certificates: HostCertificates;
  /** The certificates of `global.certificates`, as they are reported. */
  readonly shownCertificates: readonly (ShownCertificate & { readonly path: string; readonly hosts: readonly string[] })[];
  /** Keys of all plugin instances. */
  readonly instances: ReadonlySet<string>;
  readonly counts: { readonly services: number; readonly routes: number; readonly upstreams: number };
  readonly inUse: InUse;
  readonly metrics: MetricsPlan;
}

export interface RouteTarget {
  readonly service: ServiceName;
  readonly route: RouteName;
  /** The service's base_path and the route's path together. */
  readonly pattern: string;
  readonly handler: Handler;
  readonly meter: RouteMeter;
  /** Whether a plugin of the route handles CORS preflights. */
  readonly takesPreflights: boolean;
}

/** Throws when a plugin cannot be created; the snapshot in force is not touched. */
export function compile(loaded: Loaded, tools: CompileTools): Snapshot {
  const inUse = tools.runtime.inUse(loaded.config.global.dnsTtlMs);
  try {
    return compileInto(inUse, loaded, tools);
  } catch (error) {
    tools.runtime.abandon(inUse);
    throw error;
  }
}

function compileInto(inUse: InUse, loaded: Loaded, tools: CompileTools): Snapshot {
  const { global, services } = loaded.config;
  const { runtime, log } = tools;
  const egress = new Egress(destinationsOf(loaded.config, loaded.kinds));
  inUse.shared = sharedCounters(global.counters, inUse, egress, tools);
  const plan: MetricsPlan = { services: new Map(), plugins: new Map() };
  const instances = new Set<string>();
  const context: PluginContext = { ...tools, gatewayName: global.name, kinds: loaded.kinds, egress, inUse, plan, instances };
  const globals = createLinks(global.plugins, { level: "global", service: null, route: null }, context);
  const entries = services.flatMap((service) => compileService(service, globals, context));
  return Object.freeze({
    ...loaded,
    global,
    table: compileTable(entries),
    certificates: hostCertificates(global.certificates, log, runtime.clock),
    shownCertificates: global.certificates.map(({ hosts, cert }, i) => {
      return { where: `global.certificates[${i}]`, path: cert.path, hosts, ...factsOf(cert.content) };
    }),
    instances,
    counts: { services: services.length, routes: entries.length, upstreams: services.reduce((sum, { upstreams }) => sum + upstreams.length, 0) },
    inUse,
    metrics: plan,
  });
}

function compileService(service: Service, globals: readonly PluginLink[], context: PluginContext): TableEntry<RouteTarget>[] {
  const { meter, routes } = context.metrics.plan(service, context.plan);
  const upstreams = compileUpstreams(service, meter, context);
  const outer = [...globals, ...createLinks(service.plugins, { level: "service", service: service.name, route: null }, context)];
  const name = serviceName(service);
  return service.routes.map((route) => {
    const own = createLinks(route.plugins, { level: "route", service: service.name, route: route.name }, context);
    const chained = chain([...outer, ...own], upstreams, service.name, route.name, context);
    return entryOf(service, route, targetOf(name, route, chained, routes.get(route.name)!));
  });
}

export function serviceName({ name, basePath }: Service): ServiceName {
  return { name, basePath: withoutFinalSlash(basePath) };
}

export function targetOf(service: ServiceName, { name, path }: Route, { handler, audience, takesPreflights }: RouteChain, meter: RouteMeter): RouteTarget {
  return { service, route: { name, path, audience }, pattern: patternOf(service.basePath, path), handler, meter, takesPreflights };
}

export function entryOf<T>(service: Service, { path, methods, match }: Route, target: T): TableEntry<T> {
  const { basePath, hosts, encodedSlashes, pathParameters } = service;
  return { basePath, hosts, path, methods, match, encodedSlashes: encodedSlashes === "allow", pathParameters: pathParameters === "allow", target };
}

/** How requests are received under a configuration. */
export function receivingBy({ trustedProxies, limits, underscoreHeaders }: Config["global"], clock: Clock): ReceiveOptions {
  const isTrusted = trustedProxies.length === 0 ? null : cidrSet(trustedProxies).has;
  return { clock, isTrusted, limits, underscores: underscoreHeaders };
}

/** The innermost handler of a service: forwards a request to one of its upstreams. */
function compileUpstreams(service: Service, meter: ServiceMeter, { runtime, log, egress, inUse, gatewayName }: PluginContext): Handler {
  const { name, protocol, pool, retries, circuitBreaker } = service;
  const tls = service.tls === undefined ? undefined : upstreamTls(service.tls);
  if (tls?.verify === false) log.warn("upstream certificates are not verified: traffic can be intercepted and modified", { service: name });
  const upstreamSet = runtime.upstreamSet(name);
  const members = service.upstreams.map(({ id, host, port, weight }): Member => {
    const options = { protocol, host, port, why: "upstream", egress, keepaliveIdleMs: pool.keepaliveIdleMs, ...(tls === undefined ? {} : { tls }) };
    const memory = runtime.healthMemory(name, id, options, inUse);
    const peer = upstreamSet.peer(id, runtime.pool(name, options, pool.maxConnections, inUse), memory);
    return { peer, weight, health: healthSettings(service) };
  });
  const breaker = circuitBreaker === undefined ? null : upstreamSet.breaker(circuitBreaker, runtime.memory(`breaker ${name}`, BREAKER_BYTES, inUse));
  const settings = breaker === null ? null : { breaker, settings: circuitBreaker! };
  inUse.upstreamSets.set(name, { upstreamSet, members, breaker: settings, checks: checkSettings(service) });
  const peers = members.map(({ peer }) => peer);
  const isRetried = retries !== undefined && retries.attempts > 0;
  return attempts({
    picker: upstreamSet.picker(peers, balancer(service.loadBalancingStrategy)),
    forwarding: forwardOptions(service, viaNameOf(gatewayName), runtime),
    totalMs: service.timeouts.totalMs,
    breaker,
    meter,
    log,
    retries: isRetried ? { policy: retryPolicy(retries), budget: upstreamSet.budget, memory: runtime.replayMemory } : null,
  });
}

/** The gateway's pseudonym in Via (RFC 9110 §7.6.3: a token). */
export function viaNameOf(gatewayName: string): string {
  return gatewayName.replace(NOT_TOKEN, "-");
}

const NOT_TOKEN = /[^!#$%&'*+.^_`|~0-9A-Za-z-]+/g;

function forwardOptions({ timeouts, preserveHost, retries, upstreamClient }: Service, viaName: string, { clock }: Runtime): ForwardOptions {
  const { connectMs, responseMs, idleMs } = timeouts;
  return { clock, client: upstreamClient, viaName, preserveHost, connectMs, responseMs, idleMs, tryMs: retries?.perTryMs ?? 0 };
}

function healthSettings({ health: { enabled, healthyThreshold, unhealthyThreshold, passive } }: Service): HealthSettings {
  return { active: enabled ? { healthyThreshold, unhealthyThreshold } : null, passive };
}

/** Null: the upstreams are not probed. */
function checkSettings({ health: { enabled, path, intervalMs, timeoutMs, expectStatus } }: Service): CheckSettings | null {
  if (!enabled) return null;
  const ranges = statusRanges(expectStatus);
  const expects = (status: number) => ranges.some(({ from, to }) => status >= from && status <= to);
  return { path, intervalMs, timeoutMs, expects, expectStatus: String(expectStatus) };
}

function retryPolicy({ on, ...rest }: NonNullable<Service["retries"]>): RetryPolicy {
  return { ...rest, on: new Set(on.filter((item) => typeof item === "string")), statuses: new Set(on.filter((item) => typeof item === "number")) };
}

/** `/a/{rest*}`; route `/` under base_path `/a` is `/a`, as clients ask for it. */
function patternOf(basePath: string, path: string): string {
  if (basePath === "/") return path;
  return path === "/" ? basePath : basePath + path;
}

function withoutFinalSlash(path: string): string {
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
}
