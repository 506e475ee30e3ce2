/**
 * The features of the program that not every gateway needs, as the kernel sees them: types alone. `config/needs.ts`
 * says which a configuration names, `cli/on_demand.ts` which settings do, and `features/table.ts` how each is loaded.
 */
import type { Destination, Dial, EgressProxy } from "../base/egress.ts";
import type { EgressProxySettings } from "../base/egress_proxy.ts";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Threads } from "../base/threads.ts";
import type { JsonNode } from "../config/json.ts";
import type { CallersReader, TestReader } from "../config/load.ts";
import type { Config, PluginInstance, Service } from "../config/model.ts";
import type { CheckContext } from "../config/schema.ts";
import type { ReferenceReader } from "../config/schema_types.ts";
import type { TracingSettings } from "../config/settings_types.ts";
import type { CheckSignature, ConfigSource, ReadOptions } from "../config/source.ts";
import type { Handler } from "../http/handler.ts";
import type { HeaderList } from "../http/headers.ts";
import type { LogFormats } from "../observe/access_log.ts";
import type * as decisionReader from "../observe/decision_reader.ts";
import type { Decisions } from "../observe/decisions.ts";
import type { Metrics } from "../observe/metrics_plan.ts";
import type { OtlpExporter } from "../observe/otlp.ts";
import type { ServerDurations } from "../observe/server_durations.ts";
import type * as tailCode from "../observe/tail.ts";
import type { Tracer } from "../observe/trace.ts";
import type * as purgeCode from "../plugins/cache/purge.ts";
import type { AnyPlugin, FurtherLimits, Tools } from "../plugins/plugin.ts";
import type { Matching, UpstreamPaths } from "../route/contracts.ts";
import type { ProxyTrust } from "../server/inbound.ts";
import type { HostCertificates, TlsFiles } from "../server/certificates.ts";
import type { IssuedCertificates } from "../server/issued_certificates.ts";
import type { ListenerFeatures } from "../server/listener.ts";
import type { GatewayCounters } from "../store/counters.ts";
import type { AnyResponseParser } from "../upstream/response_parser.ts";
import type { takeOut, TakenOut, UpstreamState } from "../upstream/taken_out.ts";
import type {
  BeforeRoutes,
  CompileTools,
  EarlyAnswer,
  ErrorEntries,
  UseOwnErrors,
  ValidConfig,
} from "./compile_types.ts";
import type {
  HandlerFor,
  PluginContext,
  PluginLink,
  PluginOwner,
  RouteChain,
  UpstreamsMaker,
} from "./compile_types.ts";
import type { WatchedRoute } from "./bundle.ts";
import type { RecentRequests } from "./recent_requests.ts";
import type { InUse, Runtime, RuntimeFeatures } from "./runtime.ts";
import type { ConfigWarning, HttpsFacts, ShownCertificate, ShownRevocationList, TestReport } from "./status.ts";

export interface Features extends RuntimeFeatures, ListenerFeatures {
  /** Services that have several upstreams, or say how one is chosen, judged or asked again; names and SRV records. */
  readonly balancing: RuntimeFeatures["balancing"] & {
    /** The upstreams of a service whose servers are others with time: it uses them in `context.inUse`. */
    followedUpstreams(service: Service, maker: UpstreamsMaker, context: FeatureContext): Generator<void, HandlerFor>;
  };
  /** What is between the gateway and other servers: names, TLS, and a proxy. */
  readonly outbound: RuntimeFeatures["outbound"] &
    RevocationLists & {
      egressProxy(settings: EgressProxySettings): EgressProxy;
      proxyDestination(settings: EgressProxySettings): Destination;
      /** `dial`, which leads to `to`, with a header of the PROXY protocol at the beginning of connections. */
      proxiedDial(dial: Dial, version: "v1" | "v2", to: Destination): Dial;
    };
  /** `match` and `upstream_path` of routes, what comes before them, `errors` of services. */
  readonly routing: ListenerFeatures["routing"] &
    Matching &
    UpstreamPaths &
    ProxyTrust &
    HttpsRedirects &
    OwnErrorBodies;
  /** Plugin instances; each kind is a file of its own. */
  readonly plugins: Plugins;
  /** Callers and their groups; limits by group, of costs, and in shadow mode. */
  readonly callers: Callers;
  /** Counters that gateways share, in Redis. */
  readonly sharedCounters: SharedCounters;
  /** What several threads of the program share, and report. */
  readonly workers: RuntimeFeatures["workers"] & {
    /** Of `GatewayInternals` with metrics. */
    workerReports(parts: object): { close(): void };
  };
  /** Status, metrics, and what became of requests. */
  readonly reporting: Reports;
  /** HTTP/2, for clients and to upstreams. */
  readonly http2: RuntimeFeatures["http2"] & ListenerFeatures["http2"] & Http2;
  /** HTTP/1 by Node's code, for clients and to upstreams. */
  readonly nodeHttp1: ListenerFeatures["nodeHttp1"] & { readonly NodeResponseParser: new () => AnyResponseParser };
  /** HTTPS for clients. */
  readonly serverTls: ListenerFeatures["serverTls"] & ServerTls;
  /** The access log beyond lines of JSON on standard output, and Server-Timing. */
  readonly logs: LogFormats;
  readonly tracing: Tracing;
  /** Tests of a configuration, and warnings about it. */
  readonly proof: Proof;
  /** What a configuration consists of besides its text: references, plugin modules and a signature. */
  readonly sources: Sources;
}

/** A configuration is compiled with them. */
export interface FeatureContext extends PluginContext {
  readonly features: Features;
}

interface Plugins {
  /** Creates the enabled instances of one list. Throws a `PluginError` when one of them cannot be created. */
  createLinks(instances: readonly PluginInstance[], place: PluginOwner, context: PluginContext): readonly PluginLink[];
  /** Chains the instances of a route, from the outermost to the innermost, around `innermost`. */
  chain(
    written: readonly PluginLink[],
    innermost: Handler,
    place: Omit<WatchedRoute, "plugins">,
    context: PluginContext,
  ): RouteChain;
  /** A `PluginError` as a `ConfigError`, any other error as it is. */
  placed(error: unknown, valid: ValidConfig): unknown;
  /** Null: no global plugin sees what is answered before a route is known. */
  beforeRoutes(
    globals: readonly PluginLink[],
    context: Pick<PluginContext, "runtime" | "onFault">,
  ): BeforeRoutes | null;
  /** Answers requests for metadata of protected resources; null: no plugin describes one. Throws a `ConfigError`. */
  resourceAnswers(valid: Pick<ValidConfig, "config" | "kinds" | "source">): EarlyAnswer | null;
  /** The servers that plugins ask. */
  destinationsOfPlugins(config: Config, kinds: readonly AnyPlugin[]): readonly Destination[];
}

interface OwnErrorBodies extends ErrorEntries {
  /** Of a service, then of `global`; null: there are none. */
  compileOwnErrors(...lists: readonly Config["global"]["errors"][]): UseOwnErrors | null;
  /** `builtIn`: the names of the gateway's own kinds. Throws a `ConfigError` for codes that no error has. */
  refuseUnknownCodes(valid: Pick<ValidConfig, "config" | "kinds" | "source">, builtIn: readonly string[]): void;
}

interface Callers extends FurtherLimits {
  /** The one of a gateway, which has all its `features` for itself. */
  callerReaderOf(features: object): CallersReader & {
    /** Reads files that have changed in slices, so that `read` finds them made. */
    readAhead(source: ConfigSource, readFile?: (path: string) => Buffer): Promise<void>;
  };
  readonly CallerRegistry: new (lists: readonly object[]) => NonNullable<Tools["callers"]>;
}

interface SharedCounters {
  /** Nothing is connected before `start`. */
  sharedCounters(
    config: NonNullable<Config["global"]["counters"]>,
    inUse: InUse,
    tools: CompileTools,
    proxy: EgressProxy | null,
  ): GatewayCounters;
  destinationsOfCounters(config: NonNullable<Config["global"]["counters"]>): readonly Destination[];
}

interface Reports {
  readonly Metrics: new (decisions: Decisions | null, durations: ServerDurations | null) => Metrics;
  readonly Decisions: new (clock: Clock) => Decisions;
  readonly RecentRequests: new (threads: Threads) => RecentRequests;
  /** Takes sessions of admin interfaces out of the cookies of a request. */
  sessionRemover(cookie: string): (headers: HeaderList) => HeaderList;
}

interface Http2 {
  /** Logs a warning where clients or upstreams over HTTP/2 can abort this Node. */
  warnOfNode(
    uses: {
      readonly global: { readonly http2: boolean; readonly h2c: boolean };
      readonly services: readonly { readonly protocol: string }[];
      readonly https: readonly string[];
    },
    log: Log,
  ): void;
}

interface HttpsRedirects extends HttpsPort {
  httpsRedirect(settings: NonNullable<Config["global"]["httpsRedirect"]>): EarlyAnswer;
}

/** See `ConfigurationOptions`. */
export type Https = boolean | "open" | "closed";

/** See `ConfigurationOptions`. */
export type AcmeMeans =
  | {
      readonly stateDir: boolean;
      readonly plainPort: boolean;
      /** Why certificates cannot be kept in STATE_DIR as it is now; undefined: they can. Default: nobody looks. */
      readonly stateProblem?: () => string | undefined;
    }
  | "checked";

interface RevocationLists {
  /** The lists of a file, as they are reported; `where`: see `ShownRevocationList`. */
  shownRevocationLists(
    where: string,
    file: { readonly path: string; readonly content: Buffer },
    log: Log,
    wall: number,
  ): readonly ShownRevocationList[];
  /** Beside the traffic, so that the next load finds them read, until the function that it resolves with is called. */
  readRevocationListsAhead(
    files: Iterable<{ readonly path: string; readonly content: Buffer }>,
    readFile: (path: string) => Buffer,
  ): Promise<() => void>;
}

interface HttpsPort {
  /**
   * Whether the HTTPS port is open with this configuration. Throws a `ConfigError` if a gateway which runs was not
   * started so, or if the configuration leads clients to a port that is closed.
   */
  httpsWith(valid: Pick<ValidConfig, "config" | "source">, https: Https): Https;
}

interface ServerTls extends HttpsPort, RevocationLists {
  refuseUnkept(valid: Pick<ValidConfig, "config" | "source">, means: AcmeMeans | undefined): void;
  httpsFacts(files: TlsFiles): HttpsFacts;
  acmeDestinations(acme: NonNullable<Config["global"]["acme"]>): readonly Destination[];
  /** What the threads of a gateway serve of `global.acme`. */
  issuedIn(runtime: Pick<Runtime, "common">): IssuedCertificates;
  shownIssued(issued: IssuedCertificates): readonly ShownCertificate[];
  /**
   * Compiles `global.certificates` and `global.acme`. `early`: challenges, the refusal of misdirected requests, and
   * `ownAnswers`.
   */
  certificatesOf(
    configured: Pick<Config["global"], "certificates" | "acme">,
    ownAnswers: EarlyAnswer | null,
    tools: CompileTools,
  ): {
    readonly certificates: HostCertificates;
    readonly issued: IssuedCertificates | null;
    readonly early: EarlyAnswer;
    readonly shownCertificates: readonly (ShownCertificate & {
      readonly path: string;
      readonly hosts: readonly string[];
    })[];
  };
}

interface Tracing {
  readonly ServerDurations: new () => ServerDurations;
  openTracing(
    settings: TracingSettings,
    tools: {
      readonly clock: Clock;
      readonly log: Log;
      readonly secretParameters: ReadonlySet<string>;
      readonly proxy: () => EgressProxy | null;
    },
  ): { readonly spans: OtlpExporter; readonly tracer: Tracer };
}

interface Proof extends TestReader {
  configWarnings(valid: ValidConfig): readonly ConfigWarning[];
  /** Beside the traffic. */
  configWarningsInSlices(valid: ValidConfig, memory?: { kept: object | null }): Promise<readonly ConfigWarning[]>;
}

interface Sources extends ReferenceReader {
  signedBy(keyFile: string): CheckSignature;
  /** Null: it is not to be checked. */
  validityOf(options: { readonly seen?: Kept<Seen> | null }, clock: Clock): Validity | null;
  /** The plugin modules of a configuration whose digest is right; other errors are ignored. */
  pluginModulesOf(source: ConfigSource, options: ReadOptions): readonly object[];
  /** The given kinds and those of the modules. */
  withModules(
    root: JsonNode,
    given: readonly AnyPlugin[],
    context: CheckContext,
    kindsOf: (module: object) => readonly AnyPlugin[] | string,
  ): readonly AnyPlugin[];
  readonly LoadedModules: new () => ModuleKinds;
}

/** The modules that were loaded for one gateway. */
export interface ModuleKinds {
  /** Those that are not loaded yet, one after the other. */
  load(modules: readonly object[]): Promise<void>;
  /** The kinds of a module, or why it could not be used. */
  kindsOf(module: object): readonly AnyPlugin[] | string;
}

/** What outlives the program of the signed configurations that were in force. */
export interface Seen {
  /** The highest serial that was in force; null: none had one. */
  readonly serial: number | null;
  /**
   * The latest time that was seen, in milliseconds since 1970: a clock that was set back does not bring a configuration
   * back.
   */
  readonly time: number;
}

/** A value that outlives the program. */
export interface Kept<T> {
  read(): T;
  /** Never throws or rejects. */
  write(value: T): Promise<void> | void;
}

/** Of one gateway that takes signed configurations only. */
export interface Validity {
  readonly seen: Seen;
  /** Throws a `ConfigError` for a configuration that is older than one that was in force, or has ended. */
  check(read: { readonly source: ConfigSource; readonly valid: ValidConfig }): void;
  /** In milliseconds since 1970; null: it does not end. */
  endOf(config: Pick<Config, "serial" | "expiresAt">): number | null;
  /** To be called when the configuration is in force, and has passed its tests. */
  applied(config: Pick<Config, "serial" | "expiresAt">): void;
}

/** What is loaded when somebody asks for it, whatever the configuration names. */
export interface OnDemand {
  tests(): Promise<{
    /** `configuration`: a `Configuration`; `read`: a `ReadConfig`. See `Configuration.testFirst`. */
    mustPass(configuration: object, read: object, late: "strict" | "lenient"): Promise<void>;
    testInForce(configuration: object, only?: string): Promise<TestReport>;
  }>;
  decisions(): Promise<typeof decisionReader>;
  tail(): Promise<typeof tailCode>;
  /** For the administrator, who takes upstreams out of traffic. */
  takenOut(): Promise<{
    readonly takeOut: typeof takeOut;
    /** `internals`: `GatewayInternals`. */
    takenOutOf(internals: object): {
      restore(kept: readonly TakenOut[]): void;
      has(upstream: Pick<UpstreamState, "service" | "id">): boolean;
      stateOf(upstream: Pick<UpstreamState, "service" | "id">): UpstreamState["state"];
      set(upstream: UpstreamState): Promise<void>;
    };
  }>;
  /** For the administrator, who drops stored replies. */
  purge(): Promise<typeof purgeCode>;
  explain(): Promise<object>;
  dryRuns(): Promise<object>;
  dryRun(): Promise<object>;
  /** What a worker has of the audit log: `gateway_audit.ts` and `observe/audit_events.ts`. */
  workerAudit(): Promise<object>;
}
