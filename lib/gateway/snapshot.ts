/**
 * Compiles a valid configuration into what requests are served by: a frozen route table with one folded handler per route.
 * A request takes one snapshot and keeps it to its end; swapping snapshots is `gateway.ts`.
 */
import { hash, randomUUID } from "node:crypto";
import { cidrSet } from "../base/cidr.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { factsOf } from "../base/pem.ts";
import type { Json } from "../config/json.ts";
import type { Config, PluginInstance, Service } from "../config/model.ts";
import { statusRanges } from "../config/resilience.ts";
import type { NamedFile } from "../config/schema.ts";
import type { RouteName, ServiceName } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import type { Metrics, MetricsPlan, RouteMeter } from "../observe/metrics.ts";
import { endPluginTime, metered } from "../observe/plugin_meter.ts";
import type { Tracer } from "../observe/trace.ts";
import { composeChain, type Link, type OnFault } from "../plugins/chain.ts";
import { runningOrder, type AnyPlugin, type Scope, type Tools } from "../plugins/plugin.ts";
import { compileTable, type RouteTable, type TableEntry } from "../route/table.ts";
import { hostCertificates, type HostCertificates } from "../server/certificates.ts";
import type { Counters } from "../store/counters.ts";
import { attempts } from "../upstream/attempts.ts";
import { balancer } from "../upstream/balance.ts";
import type { Member } from "../upstream/upstream_set.ts";
import type { HealthSettings } from "../upstream/health.ts";
import type { RetryPolicy } from "../upstream/retries.ts";
import { upstreamTls } from "../upstream/tls.ts";
import type { ForwardOptions } from "../upstream/try.ts";
import type { CheckSettings, InUse, Runtime } from "./runtime.ts";
import type { ShownCertificate } from "./status.ts";

export interface Snapshot {
  readonly table: RouteTable<RouteTarget>;
  readonly isTrusted: (address: string) => boolean;
  readonly limits: Config["global"]["limits"];
  readonly underscores: Config["global"]["underscoreHeaders"];
  /** What the files hold that the configuration names: certificates, keys, authorities, plugins' files and modules. */
  readonly files: readonly NamedFile[];
  /** The plugin modules as they were loaded, whatever their files hold by now. */
  readonly modules: readonly NamedFile[];
  /** Keys of all plugin instances. */
  readonly instances: ReadonlySet<string>;
  readonly certificates: HostCertificates;
  /** What serves HTTP/1.1 to clients. */
  readonly http1: "wire" | "node";
  /** Whether plain ports take HTTP/2 by prior knowledge. */
  readonly h2c: boolean;
  readonly accessLog: Config["global"]["accessLog"];
  readonly serverTiming: boolean;
  /** The configuration for display: defaults filled in, references unresolved. */
  readonly shown: Json;
  readonly masked: () => Json;
  /** All plugin kinds that the configuration can name. */
  readonly kinds: readonly AnyPlugin[];
  readonly digest: string;
  readonly counts: { readonly services: number; readonly routes: number; readonly upstreams: number };
  readonly inUse: InUse;
  readonly metrics: MetricsPlan;
  /** The certificates that clients are shown by host name. */
  readonly shownCertificates: readonly HostCertificate[];
}

/** A certificate of `global.certificates`. */
export interface HostCertificate extends ShownCertificate {
  readonly path: string;
  readonly hosts: readonly string[];
}

export interface RouteTarget {
  readonly service: ServiceName;
  readonly route: RouteName;
  /** Of the service's base_path and the route's path together. */
  readonly pattern: string;
  readonly handler: Handler;
  readonly meter: RouteMeter;
  /** Whether a plugin of the route wants CORS preflights. */
  readonly takesPreflights: boolean;
}

export interface Loaded {
  readonly config: Config;
  readonly shown: Json;
  readonly masked: () => Json;
  readonly digest: string;
  readonly files: readonly NamedFile[];
}

export interface Workshop {
  readonly metrics: Metrics;
  readonly runtime: Runtime;
  readonly kinds: readonly AnyPlugin[];
  readonly log: Log;
  /** Null: requests are not traced. */
  readonly tracer: Tracer | null;
  /** Told of every plugin that is at fault for a request. */
  readonly onFault: OnFault;
}

/** Throws when a plugin cannot be created; nothing in force has been touched then. */
export function compile(loaded: Loaded, workshop: Workshop): Snapshot {
  const inUse = workshop.runtime.inUse(loaded.config.global.dnsTtlMs);
  try {
    return compileInto(inUse, loaded, workshop);
  } catch (error) {
    workshop.runtime.abandon(inUse);
    throw error;
  }
}

function compileInto(inUse: InUse, loaded: Loaded, workshop: Workshop): Snapshot {
  const { config } = loaded;
  const { runtime, log, metrics } = workshop;
  const plan: MetricsPlan = { services: new Map(), plugins: new Map() };
  const compiler = new PluginCompiler(workshop, config.global.name, inUse, plan);
  const entries: TableEntry<RouteTarget>[] = [];
  const globals = compiler.create(config.global.plugins, { level: "global", service: null, route: null });
  const viaName = config.global.name.replace(NOT_TOKEN, "-");
  let upstreams = 0;
  for (const service of config.services) {
    const tls = service.tls === undefined ? undefined : upstreamTls(service.tls);
    if (tls?.verify === false) log.warn("upstreams are not verified: anybody on the way can read and change what is sent", { service: service.name });
    const fleet = runtime.fleet(service.name);
    const members = service.upstreams.map(({ id, host, port, weight }): Member => {
      const { keepaliveIdleMs } = service.pool;
      const options = { protocol: service.protocol, host, port, keepaliveIdleMs, ...(tls === undefined ? {} : { tls }) };
      const pool = runtime.pool(service.name, options, service.pool.maxConnections, inUse);
      return { peer: fleet.peer(id, pool), weight, health: healthSettings(service) };
    });
    upstreams += members.length;
    const breaker = service.circuitBreaker === undefined ? null : { breaker: fleet.breaker(service.circuitBreaker), settings: service.circuitBreaker };
    inUse.fleets.set(service.name, { fleet, members, breaker, checks: checkSettings(service) });
    const { meter, routes } = metrics.plan(service, plan);
    const policy = service.retries === undefined || service.retries.attempts === 0 ? null : retryPolicy(service.retries);
    const innermost = attempts({
      picker: fleet.picker(
        members.map(({ peer }) => peer),
        balancer(service.loadBalancingStrategy),
      ),
      forwarding: forwardOptions(service, viaName, runtime),
      totalMs: service.timeouts.totalMs,
      breaker: breaker?.breaker ?? null,
      meter,
      log,
      retries: policy === null ? null : { policy, budget: fleet.budget, memory: runtime.replayMemory },
    });
    const outer = {
      plugins: [...config.global.plugins, ...service.plugins],
      links: [...globals, ...compiler.create(service.plugins, { level: "service", service: service.name, route: null })],
    };
    entries.push(...routeEntries(service, innermost, outer, routes, compiler));
  }
  const trusted = cidrSet(config.global.trustedProxies);
  return Object.freeze({
    table: compileTable(entries),
    isTrusted: config.global.trustedProxies.length === 0 ? () => false : (address: string) => trusted.has(address),
    limits: config.global.limits,
    underscores: config.global.underscoreHeaders,
    files: loaded.files,
    modules: config.global.pluginModules.map(({ path }) => path),
    instances: compiler.instances,
    certificates: hostCertificates(config.global.certificates, workshop.log, runtime.clock),
    http1: config.global.http1,
    h2c: config.global.h2c,
    accessLog: config.global.accessLog,
    serverTiming: config.global.serverTiming,
    shown: loaded.shown,
    masked: loaded.masked,
    kinds: workshop.kinds,
    digest: loaded.digest,
    counts: { services: config.services.length, routes: entries.length, upstreams },
    inUse,
    metrics: plan,
    shownCertificates: config.global.certificates.map(({ hosts, cert }, i) => {
      return { where: `global.certificates[${i}]`, path: cert.path, hosts, ...factsOf(cert.content) };
    }),
  });
}

function forwardOptions({ timeouts, preserveHost, retries, upstreamClient }: Service, viaName: string, { clock }: Runtime): ForwardOptions {
  const { connectMs, responseMs, idleMs } = timeouts;
  return { clock, client: upstreamClient, viaName, preserveHost, connectMs, responseMs, idleMs, tryMs: retries?.perTryMs ?? 0 };
}

function healthSettings({ health: { enabled, healthyThreshold, unhealthyThreshold, passive } }: Service): HealthSettings {
  return { active: enabled ? { healthyThreshold, unhealthyThreshold } : null, passive };
}

/** Null: nothing is probed. */
function checkSettings({ health: { enabled, path, intervalMs, timeoutMs, expectStatus } }: Service): CheckSettings | null {
  if (!enabled) return null;
  const ranges = statusRanges(expectStatus);
  const expects = (status: number) => ranges.some(({ from, to }) => status >= from && status <= to);
  return { path, intervalMs, timeoutMs, expects, expectStatus: String(expectStatus) };
}

function retryPolicy({ on, ...rest }: NonNullable<Service["retries"]>): RetryPolicy {
  return { ...rest, on: new Set(on.filter((item) => typeof item === "string")), statuses: new Set(on.filter((item) => typeof item === "number")) };
}

/** What a Via pseudonym cannot hold (RFC 9110 §7.6.3: a token). */
const NOT_TOKEN = /[^!#$%&'*+.^_`|~0-9A-Za-z-]+/g;

interface Outer {
  readonly plugins: readonly PluginInstance[];
  readonly links: readonly OwnLink[];
}

interface OwnLink extends Link {
  readonly kind: AnyPlugin;
  /** Of guards: a digest that differs where their configuration does. */
  readonly identity: string;
}

function routeEntries(
  service: Service,
  innermost: Handler,
  outer: Outer,
  meters: ReadonlyMap<string, RouteMeter>,
  compiler: PluginCompiler,
): TableEntry<RouteTarget>[] {
  const behind = endPluginTime(innermost, compiler.clock);
  const name: ServiceName = { name: service.name, basePath: withoutFinalSlash(service.basePath) };
  const outerTakesPreflights = compiler.takesPreflights(outer.plugins);
  return service.routes.map((route) => {
    const own = compiler.create(route.plugins, { level: "route", service: service.name, route: route.name });
    const links = runningOrder(own.length === 0 ? outer.links : [...outer.links, ...own]);
    return {
      basePath: service.basePath,
      hosts: service.hosts,
      path: route.path,
      methods: route.methods,
      encodedSlashes: service.encodedSlashes === "allow",
      pathParameters: service.pathParameters === "allow",
      target: {
        service: name,
        route: { name: route.name, path: route.path, audience: audienceOf(links, service.name, route.name) },
        pattern: patternOf(name.basePath, route.path),
        handler: compiler.fold(links, links.length === 0 ? innermost : behind, { service: service.name, route: route.name }),
        meter: meters.get(route.name)!,
        takesPreflights: outerTakesPreflights || compiler.takesPreflights(route.plugins),
      },
    };
  });
}

/** See `RouteName`. */
function audienceOf(links: readonly OwnLink[], service: string, route: string): string {
  if (!links.some(({ kind }) => kind.stores)) return "";
  return hash("sha256", JSON.stringify([service, route, links.filter(({ kind }) => kind.guards).map(({ identity }) => identity)]), "base64url");
}

/** `/a/{rest*}`; route `/` under base_path `/a` is `/a`, as it is asked for. */
function patternOf(basePath: string, path: string): string {
  if (basePath === "/") return path;
  return path === "/" ? basePath : basePath + path;
}

function withoutFinalSlash(path: string): string {
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
}

const NO_LINKS: readonly OwnLink[] = Object.freeze([]);

/** Creates the middlewares of one list of plugin instances, each under a key that names it across reloads. */
class PluginCompiler {
  readonly #workshop: Workshop;
  readonly #gatewayName: string;
  readonly #inUse: InUse;
  readonly #plan: MetricsPlan;
  /** Keys of all that were created. */
  readonly instances = new Set<string>();

  constructor(workshop: Workshop, gatewayName: string, inUse: InUse, plan: MetricsPlan) {
    this.#workshop = workshop;
    this.#gatewayName = gatewayName;
    this.#inUse = inUse;
    this.#plan = plan;
  }

  get clock(): Clock {
    return this.#workshop.runtime.clock;
  }

  takesPreflights(instances: readonly PluginInstance[]): boolean {
    const { kinds } = this.#workshop;
    return instances.some(({ name, enabled }) => enabled && kinds.find((kind) => kind.name === name)?.takes === "preflights");
  }

  fold(links: readonly Link[], innermost: Handler, of: { readonly service: string; readonly route: string }): Handler {
    try {
      return composeChain(links, innermost, this.#workshop.onFault);
    } catch (error) {
      throw new Error(`the plugins of ${whereIs({ level: "route", ...of })} cannot be put together: ${messageOf(error)}`, { cause: error });
    }
  }

  create(instances: readonly PluginInstance[], place: Pick<Scope, "level" | "service" | "route">): readonly OwnLink[] {
    if (instances.length === 0) return NO_LINKS;
    const { runtime, kinds, log, metrics, tracer } = this.#workshop;
    const links: OwnLink[] = [];
    const seen = new Map<string, number>();
    const counters: Counters = {
      limiter: (key, options) => {
        this.#inUse.limiters.add(key);
        return runtime.counters.limiter(key, options);
      },
    };
    for (const instance of instances) {
      // Instances without an id are told apart by their place among their kind, disabled ones counted: switching one off does not
      // hand its counts to the next.
      const nth = seen.get(instance.name) ?? 0;
      seen.set(instance.name, nth + 1);
      if (!instance.enabled) continue;
      const key = JSON.stringify([place.level, place.service, place.route, instance.name, instance.id ?? nth]);
      const kind = kinds.find(({ name }) => name === instance.name)!;
      const scope: Scope = { ...place, key, id: instance.id ?? null };
      try {
        const keep: Tools["keep"] = (name, settings, make) =>
          // As a digest: settings may hold whole files.
          runtime.keep(JSON.stringify([key, name]), hash("sha256", JSON.stringify(settings) ?? ""), make, this.#inUse);
        const { clock, verdicts } = runtime;
        const middleware = kind.create(instance.config, { clock, log, counters, gatewayName: this.#gatewayName, scope, keep, verdicts });
        if (typeof middleware !== "function") throw new TypeError('"create" gave no function');
        const link = { name: instance.name, scope, middleware, kind, identity: kind.guards === true ? identityOf(key, instance.config) : "" };
        const traced = tracer === null ? middleware : tracer.spanned(link, middleware);
        const meter = metrics.planPlugin({ ...scope, name: instance.name, id: instance.id ?? String(nth + 1) }, this.#plan);
        links.push({ ...link, middleware: metered(meter, traced, runtime.clock) });
        this.instances.add(key);
      } catch (error) {
        throw new Error(`plugin ${instance.name} of ${whereIs(scope)} cannot be created: ${messageOf(error)}`, { cause: error });
      }
    }
    return links;
  }
}

/** A configuration that JSON cannot carry is another one at each reload, so that nothing stored is taken over. */
function identityOf(key: string, config: unknown): string {
  try {
    return hash("sha256", JSON.stringify([key, config]));
  } catch {
    return randomUUID();
  }
}

function whereIs(scope: Pick<Scope, "level" | "service" | "route">): string {
  if (scope.level === "global") return "the global level";
  return scope.level === "service" ? `service "${scope.service}"` : `route "${scope.route}" of service "${scope.service}"`;
}
