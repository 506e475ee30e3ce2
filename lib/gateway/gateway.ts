/**
 * The gateway as one object: starts, listens, drains and closes, and joins the parts that do the rest. The data path is `serve.ts`.
 */
import type { AddressInfo } from "node:net";
import type { Readable } from "node:stream";
import { systemClock, type Clock } from "../base/clock.ts";
import { silentLog, type Log } from "../base/log.ts";
import { ALONE, isWorker, type Threads } from "../base/threads.ts";
import type { Json } from "../config/json.ts";
import { NOT_LOADED } from "../config/part_fields.ts";
import type { TracingSettings } from "../config/tracing.ts";
import { AccessLog } from "../observe/access_log.ts";
import { whyUnwritable } from "../observe/line_writer.ts";
import { Metrics } from "../observe/metrics.ts";
import type { OtlpExporter } from "../observe/otlp.ts";
import type { GatewayStats, StatsExtent } from "../observe/stats.ts";
import type { Tracer } from "../observe/trace.ts";
import { Listener } from "../server/listener.ts";
import type { TlsFiles } from "../server/tls.ts";
import { joinTunnel } from "../upstream/tunnel.ts";
import type { Following } from "./bundle.ts";
import type { ConfigInput } from "./config_input.ts";
import { Configuration } from "./configuration.ts";
import type { GatewayHealth, CompleteOptions, ListenOptions } from "./options.ts";
import type { DryRun, DryRuns, ExplainedPlugin, Explanation, HttpsFacts, InjectRequest, InjectResponse, Listening, Mounted, Parts, Question, Reporting, ReportSource } from "./parts.ts";
import { Runtime } from "./runtime.ts";
import { Requests } from "./serve.ts";
import type { Snapshot } from "./snapshot.ts";
import { Shutdown } from "./shutdown.ts";
import type { ConfigWarning, GatewayStatus, LastTests, Reloaded, ReloadCause, TestReport } from "./status.ts";

export { ConfigError } from "./config_error.ts";
export type { GatewayHealth, CompleteOptions, ListenOptions } from "./options.ts";
export type { GatewayStatus, LastReload, LastTests, PluginFaults, Reloaded, ReloadCause } from "./status.ts";

/** See `Gateway.partsOf`. */
export type GatewayParts = ReportSource & { readonly accessLog: AccessLog };

export class Gateway {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #runtime: Runtime;
  readonly #accessLog: AccessLog;
  /** Null: requests are not traced. */
  readonly #spans: OtlpExporter | null;
  readonly #tracer: Tracer | null;
  #reporting: Reporting | null = null;
  readonly #configuration: Configuration;
  readonly #requests: Requests;
  readonly #listener: Listener;
  readonly #reported: GatewayParts;
  readonly #shutdown: Shutdown;
  /** Null: none has been asked for. */
  #dryRuns: DryRuns | null = null;
  #hasPlain = false;
  #https: HttpsFacts | null = null;

  /**
   * For mounting in a host's own server: `http.createServer(gateway.handler)`, `app.use(gateway.handler)`. Given `next`, it passes on each
   * request that no route takes; without it, the client gets 404. The path that the client sent counts, with a prefix under which it is mounted.
   */
  readonly handler: Mounted["handler"];
  /**
   * For the host's `upgrade` event, so that WebSockets pass: `server.on("upgrade", gateway.upgrade)`. An upgrade that no route takes goes to
   * `next`, or to the other listeners of the event: nothing is written to its socket. Without either, and if no listener answers, it gets 404.
   */
  readonly upgrade: Mounted["upgrade"];
  /** Whether a route takes the path, host and headers of the request; also one whose method is not allowed (405), or whose path is refused. */
  readonly matches: Mounted["matches"];

  /**
   * `threads`: those of the program; `following`: the main thread's gateway, in a worker. Throws a `ConfigError` when the configuration is
   * refused, a `TypeError` for other options. Nothing listens yet.
   */
  constructor(options: CompleteOptions, threads: Threads = ALONE, following: Following | null = null) {
    const { log = silentLog, clock = systemClock, tracing, lookup, modules } = options;
    const problem = tracing === undefined ? undefined : modules.parts.part("tracing").tracingProblem(tracing);
    if (problem !== undefined) throw new TypeError(problem);
    const metrics = new Metrics();
    this.#log = log;
    this.#clock = clock;
    this.#runtime = new Runtime(clock, log, lookup, threads, modules.parts);
    this.#accessLog = new AccessLog({ sink: options.accessLog ?? null, clock, log, isRemote: following !== null });
    [this.#spans, this.#tracer] = tracing === undefined ? [null, null] : tracerOf(tracing, modules.parts, { clock, log }, this.#runtime.secretParameters);
    const parts = { clock, log, metrics, runtime: this.#runtime, accessLog: this.#accessLog, tracer: this.#tracer, defaultCertificate: () => this.#https };
    this.#configuration = new Configuration({ ...options, modules }, parts, following);
    const withoutSessions = options.adminCookie === undefined ? undefined : modules.parts.part("adminCookie").sessionRemover(options.adminCookie);
    this.#requests = new Requests({ ...parts, withoutSessions, configuration: this.#configuration, activate: () => this.#activate() });
    this.#listener = this.#createListener(threads, following);
    this.#configuration.onReplaced = (before, next) => this.#renewSessions(before, next);
    const counted = { ...parts, configuration: this.#configuration, listener: this.#listener, spans: this.#spans };
    const reports = threads.count === 1 ? null : new (modules.parts.part("workerReports").WorkerReports)(counted);
    this.#reported = { ...counted, requests: this.#requests, reports, startedAt: clock.now() };
    const closeReports = () => [this.#reporting, reports].forEach((each) => each?.close());
    this.#shutdown = new Shutdown({ ...this.#reported, spans: this.#spans, closeReports });
    const mounted = modules.parts.partIfLoaded("embedding")?.mounted(this.#listener, this.#configuration);
    this.handler = mounted?.handler ?? notEmbedded;
    this.upgrade = mounted?.upgrade ?? notEmbedded;
    this.matches = mounted?.matches ?? notEmbedded;
  }

  /** What the threads of one program need of a gateway, besides its members, which are for programs that embed it. */
  static partsOf(gateway: Gateway): GatewayParts {
    return gateway.#reported;
  }

  #createListener({ place, count }: Threads, following: Following | null): Listener {
    const configuration = this.#configuration;
    const inForce = () => {
      configuration.catchUp();
      return configuration;
    };
    return new Listener({
      part: (name) => this.#runtime.parts.part(name),
      clock: this.#clock,
      log: this.#log,
      writeBatch: this.#runtime.writeBatch,
      ...(this.#runtime.connections && { connections: this.#runtime.connections }),
      receiving: following === null ? this.#requests.receiving : () => inForce().receiving,
      ports: place < 0 ? "taken" : count > 1 ? "shared" : "alone",
      http1: () => inForce().snapshot.global.http1,
      h2c: () => inForce().snapshot.global.h2c,
      certificates: () => inForce().snapshot.certificates,
      serve: this.#requests.serve,
      ended: this.#requests.ended,
      join: (client, behind, tunnel, notes, delivery) => {
        // A tunnel may last for days, and its trace would not be sent until it ends.
        this.#tracer?.end(notes);
        this.#shutdown.addTunnel(client, tunnel.socket);
        joinTunnel(client, behind, tunnel, notes, delivery);
      },
    });
  }

  /** The configuration in force, for display: as written, with defaults filled in and references unresolved. */
  get shownConfig(): Json {
    return this.#configuration.snapshot.shown;
  }

  /** The same for users who may not see secrets: each literal secret is masked. */
  get maskedConfig(): Json {
    return this.#configuration.snapshot.masked();
  }

  /** Names the configuration in force: 12 hexadecimal digits. */
  get digest(): string {
    return this.#configuration.snapshot.digest;
  }

  get counts(): Snapshot["counts"] {
    return this.#configuration.snapshot.counts;
  }

  /** The warnings about the configuration in force, computed from it alone; `status.warnings` has them, too. */
  get configWarnings(): readonly ConfigWarning[] {
    return this.#configuration.configWarnings;
  }

  /**
   * The files that the configuration in force names, as absolute paths: certificates, keys, authorities, plugins' files, plugin modules and
   * files with tests.
   */
  get files(): readonly string[] {
    return this.#configuration.snapshot.files.map(({ path }) => path);
  }

  /** Those of `files` that hold tests: they are read again by `reload` only. */
  get testFiles(): readonly string[] {
    return this.#configuration.snapshot.testFiles;
  }

  /** Whether new requests should come here: false from `announceStop` or `close` on, and while no worker of several serves. */
  get ready(): boolean {
    return this.#shutdown.state === "serving" && this.#configuration.followers?.serving !== 0;
  }

  /** Requests that are being answered, and open WebSockets. */
  get inFlight(): number {
    return this.#requests.inFlight;
  }

  /** All about the gateway at this moment, as the admin interface reports it. */
  get status(): GatewayStatus {
    return this.#reports.status(this.#listening);
  }

  /** The state of every upstream and every circuit breaker. */
  get health(): GatewayHealth {
    return { services: this.#runtime.health };
  }

  /** Requests, errors and times of the last minute for every route and upstream, and of the last 15 minutes in all. */
  get stats(): GatewayStats {
    return this.recentStats("all");
  }

  /** As `stats`; "active": without the history, and without routes and upstreams that had no request in the last minute. */
  recentStats(extent: StatsExtent = "active"): GatewayStats {
    return this.#reports.stats(extent);
  }

  /** Which route would get a request, which plugins it would pass and which upstreams could get it, and why; nothing is sent or counted. */
  async explain(question: Question, secrets: "shown" | "masked" = "shown"): Promise<Explanation> {
    const { explain } = await this.#runtime.parts.onDemand.explain();
    return explain(question, secrets === "shown" ? this.shownConfig : this.maskedConfig, this.#reported);
  }

  /** The enabled plugins of a route in the order in which they run, secrets masked; null: there is no such route. */
  async routePlugins(service: string, route: string): Promise<readonly Omit<ExplainedPlugin, "verdict">[] | null> {
    const { routePlugins } = await this.#runtime.parts.onDemand.explain();
    return routePlugins({ service, route }, this.maskedConfig, this.#configuration.snapshot.kinds);
  }

  /** All metrics at this moment in Prometheus' text format 0.0.4. With thousands of busy routes it takes a while. */
  metrics(): string {
    return this.#reports.metrics(this.#listening);
  }

  /** The same as a stream, which lets requests through between its slices and waits for a slow reader. */
  metricsStream(): Readable {
    return this.#reports.metricsStream(this.#listening);
  }

  get #reports(): Reporting {
    return (this.#reporting ??= new (this.#runtime.parts.part("reporting").Reporting)(this.#reported));
  }

  get #listening(): Listening {
    return { state: this.#shutdown.state, hasPlain: this.#hasPlain, https: this.#https };
  }

  /**
   * Starts one listener; may be called several times. The first call runs the tests of the configuration, if it has some. Rejects with node's
   * error (EADDRINUSE, EACCES, …), with a `ConfigError` when a test fails or the access log's file cannot be opened, and once the gateway is
   * being closed. Tests that only run out of time are logged.
   */
  async listen(options: ListenOptions = {}): Promise<AddressInfo> {
    const { host = "127.0.0.1", port = 8008, fd, tls } = options;
    if (!this.#shutdown.isOpen) throw new Error("the gateway is being closed");
    await this.#configuration.prove("lenient");
    if (!this.#shutdown.isOpen) throw new Error("the gateway is being closed");
    try {
      this.#accessLog.start();
    } catch (error) {
      throw this.#configuration.accessLogError(error);
    }
    this.#requests.activate();
    if (tls !== undefined && !this.#hasPlain) throw new Error("a plain listener has to be there before an HTTPS one");
    const address = await (tls === undefined ? this.#listener.listenPlain(host, port, fd) : this.#listener.listenSecure(host, port, tls, fd));
    // Closed during the look-up of the host: the new socket must not outlive the gateway. A drain in progress closes it itself.
    if (this.#shutdown.state === "closed") this.#listener.destroy();
    if (!this.#shutdown.isOpen) throw new Error("the gateway is being closed");
    if (tls === undefined) this.#hasPlain = true;
    else this.#https = this.#runtime.parts.part("tlsServer").httpsFacts(tls);
    return address;
  }

  /**
   * Applies a new configuration: `config`, else the file read again, once all of its tests pass. All or nothing: on failure it rejects with a
   * `ConfigError` and keeps the old configuration. Requests in progress finish with the
   * configuration they started with. Reloads run one after another; one without `config` that waits stands for all that follow it.
   * `status.lastReload` reports both outcomes, with `by` as the cause. Rejects if the gateway is closed.
   */
  reload(config?: ConfigInput, by: ReloadCause = "api"): Promise<Reloaded> {
    return this.#configuration.reload(config, by);
  }

  /**
   * Runs the tests of the configuration in force whose names contain `only`, or all. Nothing is dialled, counted or stored. Never rejects: a
   * test that hangs fails after 2 seconds, and after 10 seconds the rest fails.
   */
  test({ only }: { readonly only?: string } = {}): Promise<TestReport> {
    return this.#configuration.test(only);
  }

  /**
   * Tries a reload without doing it: with `text`, a whole configuration, or with the source of the one in force, read again. Runs in a thread
   * of its own, unless the gateway has `plugins` of its host. Never rejects for errors in the configuration; with a `Fault` if four others wait,
   * or if it needs more than 30 seconds or 512 MB.
   */
  async dryRun(text: Buffer | null = null): Promise<DryRun> {
    const { DryRuns } = await this.#runtime.parts.onDemand.dryRuns();
    this.#dryRuns ??= new DryRuns(this.#configuration);
    return this.#dryRuns.run(text, this.#requests.recent);
  }

  /** The last complete run of tests: at the start, by `test`, or of a reload, also of one that was refused. Null before the first one. */
  get lastTests(): LastTests | null {
    return this.#configuration.lastTests;
  }

  /**
   * Loads the plugin modules that the next configuration names and that are not loaded yet: `await` it before `reload`, which reports
   * unusable modules. The configuration in force does not change.
   */
  async loadModules(config?: ConfigInput): Promise<void> {
    await this.#configuration.loadModules(config);
  }

  /**
   * Applies new content of `files` (never of plugin modules and `testFiles`), under the configuration in force. Everything else stays as it
   * was loaded, whatever the configuration file, `${file:}` secrets and other files hold by now: an error there must not keep a certificate
   * from being renewed, and a rotated secret waits for `reload`. All or nothing as `reload`. False when their content is the same, and once
   * the gateway has been closed.
   */
  rereadFiles(): boolean {
    return this.#configuration.rereadFiles();
  }

  /** Reopens `global.access_log.file` after it has been renamed; when that fails, logs it and writes on to the old one. */
  reopenAccessLog(): void {
    this.#accessLog.reopen();
  }

  /**
   * Replaces certificate, key and CA of all HTTPS listeners; connections stay, and sessions can be resumed unless the CA is another.
   * Throws, and keeps the old ones, when they cannot be used or would change whether clients are asked for a certificate.
   */
  renewTls(files: TlsFiles): void {
    this.#listener.renewTls(files);
    this.#https = this.#runtime.parts.part("tlsServer").httpsFacts(files);
    this.#configuration.followers?.renewTls(files);
  }

  /** Sends one request through the gateway without a socket. Rejects when the reply breaks off. */
  inject(request: InjectRequest): Promise<InjectResponse> {
    return this.#runtime.parts.part("embedding").injectInto(this.#requests, request, this.#configuration.receiving);
  }

  /**
   * The first half of a shutdown, for load balancers that notice it late: `ready` turns false, requests and connections are still
   * accepted, and HTTP/1 replies ask their clients to reconnect. `close` is to follow. Does nothing after it.
   */
  announceStop(): void {
    this.#shutdown.announce();
  }

  /**
   * Closes the gateway: no new connections, requests in progress finish, after `graceMs` (default 30000) the rest is cut off. Keep-alive
   * connections without a request are closed after a second (or half of a shorter grace), so that a request that is on its way
   * still gets its answer. Resolves "drained" when nothing had to be cut off, else "cut". A further call gives the same outcome; the
   * shorter grace counts.
   */
  close(graceMs = 30_000): Promise<"drained" | "cut"> {
    return this.#shutdown.close(graceMs);
  }

  /** Starts probes, look-ups and logs with the first request or listener: a configuration that is only checked starts nothing. */
  #activate(): void {
    this.#runtime.activate();
    this.#shutdown.answerForEntries();
    if (!isWorker(this.#runtime.threads) && this.#runtime.parts.partIfLoaded("reporting") !== null) this.#reports.start();
    try {
      this.#accessLog.start();
    } catch (error) {
      // A request to a handler in a host's own server cannot be answered with this error.
      const { file } = this.#configuration.snapshot.global.accessLog;
      this.#log.error("the access log's file cannot be opened", { file, error: whyUnwritable(error) });
    }
  }

  /** HTTP/2 settings are sent at the start of a connection: when they change, clients are asked to reconnect. */
  #renewSessions(before: Snapshot, next: Snapshot): void {
    const { limits, h2c } = before.global;
    const { maxHeaderBytes, maxHeaders } = next.global.limits;
    if (maxHeaderBytes !== limits.maxHeaderBytes || maxHeaders !== limits.maxHeaders) this.#listener.renewSessions("all");
    else if (h2c && !next.global.h2c) this.#listener.renewSessions("plain");
  }
}

/** The program itself never calls what is for a host's server. */
function notEmbedded(): never {
  throw new Error(`the part "embedding" ${NOT_LOADED}`);
}

function tracerOf(settings: TracingSettings, parts: Parts, tools: { readonly clock: Clock; readonly log: Log }, secretParameters: ReadonlySet<string>): [OtlpExporter, Tracer] {
  const { createSampler, OtlpExporter, Tracer } = parts.part("tracing");
  const { sampler = "parentbased_always_on", ratio = 1 } = settings;
  const spans = new OtlpExporter({ settings, ...tools });
  return [spans, new Tracer({ clock: tools.clock, sampler: createSampler(sampler, ratio), sink: spans, secretParameters })];
}
