/**
 * The gateway as one object: starts, listens, drains and closes, and joins the parts that do the rest. The data path is `serve.ts`.
 */
import type { AddressInfo } from "node:net";
import { systemClock, type Clock } from "../base/clock.ts";
import { silentLog, type Log } from "../base/log.ts";
import { ALONE, type Threads } from "../base/threads.ts";
import type { TracingSettings } from "../config/tracing.ts";
import { AccessLog } from "../observe/access_log.ts";
import { whyUnwritable } from "../observe/line_writer.ts";
import type { Metrics } from "../observe/metrics_plan.ts";
import type { OtlpExporter } from "../observe/otlp.ts";
import type { Tracer } from "../observe/trace.ts";
import { Listener } from "../server/listener.ts";
import type { TlsFiles } from "../server/tls.ts";
import { joinTunnel } from "../upstream/tunnel.ts";
import type { Following } from "./bundle.ts";
import type { ConfigInput } from "./config_input.ts";
import { Configuration } from "./configuration.ts";
import type { CompleteOptions, ListenOptions } from "./options.ts";
import type { HttpsFacts, Listening, Parts, Reporting, StatusSource } from "./parts.ts";
import type { RecentRequests } from "./recent_requests.ts";
import { Runtime } from "./runtime.ts";
import { Requests } from "./serve.ts";
import type { Snapshot } from "./snapshot.ts";
import { Shutdown } from "./shutdown.ts";
import type { ConfigWarning, Reloaded, ReloadCause } from "./status.ts";

export { ConfigError } from "./config_error.ts";
export type { GatewayHealth, CompleteOptions, ListenOptions } from "./options.ts";
export type { GatewayStatus, LastReload, LastTests, PluginFaults, Reloaded, ReloadCause } from "./status.ts";

/** See `GatewayCore.partsOf`. */
export interface GatewayParts extends StatusSource {
  readonly accessLog: AccessLog;
  /** Null: nobody can ask for them. */
  readonly metrics: Metrics | null;
  /** Null: nobody can ask for them. */
  readonly recent: RecentRequests | null;
  readonly listening: () => Listening;
  /** Null: nobody has asked for a report. */
  reporting: Reporting | null;
  /** Called with the first request or listener. */
  onActivate: () => void;
}

/** The kernel: what a program's own gateway does. What one can ask it besides is in `embed/gateway.ts`. */
export class GatewayCore {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #runtime: Runtime;
  readonly #accessLog: AccessLog;
  /** Null: requests are not traced. */
  readonly #spans: OtlpExporter | null;
  readonly #tracer: Tracer | null;
  readonly #configuration: Configuration;
  readonly #requests: Requests;
  readonly #listener: Listener;
  readonly #reported: GatewayParts;
  readonly #shutdown: Shutdown;
  #hasPlain = false;
  #https: HttpsFacts | null = null;

  /**
   * `threads`: those of the program; `following`: the main thread's gateway, in a worker. Throws a `ConfigError` when the configuration is
   * refused, a `TypeError` for other options. Nothing listens yet.
   */
  constructor(options: CompleteOptions, threads: Threads = ALONE, following: Following | null = null) {
    const { log = silentLog, clock = systemClock, tracing, lookup, modules } = options;
    const problem = tracing === undefined ? undefined : modules.part("tracing").tracingProblem(tracing);
    if (problem !== undefined) throw new TypeError(problem);
    const metricsPart = modules.partIfLoaded("metrics");
    const metrics = metricsPart && new metricsPart.Metrics();
    this.#log = log;
    this.#clock = clock;
    this.#runtime = new Runtime(clock, log, lookup, threads, modules);
    const combined = () => modules.part("combinedLog").combinedLines();
    this.#accessLog = new AccessLog({ sink: options.accessLog ?? null, clock, log, combined, isRemote: following !== null });
    [this.#spans, this.#tracer] = tracing === undefined ? [null, null] : tracerOf(tracing, modules, { clock, log }, this.#runtime.secretParameters);
    const parts = { clock, log, metrics, runtime: this.#runtime, accessLog: this.#accessLog, tracer: this.#tracer, defaultCertificate: () => this.#https };
    this.#configuration = new Configuration({ ...options, modules }, parts, following);
    const withoutSessions = options.adminCookie === undefined ? undefined : modules.part("adminCookie").sessionRemover(options.adminCookie);
    const recentPart = modules.partIfLoaded("recentRequests");
    const recent = recentPart && new recentPart.RecentRequests(this.#runtime);
    this.#requests = new Requests({ ...parts, recent, withoutSessions, configuration: this.#configuration, activate: () => this.#activate() });
    this.#listener = this.#createListener(threads, following);
    this.#configuration.onReplaced = (before, next) => this.#renewSessions(before, next);
    const counted = { ...parts, configuration: this.#configuration, listener: this.#listener, spans: this.#spans };
    const reports = threads.count === 1 || metrics === null ? null : new (modules.part("workerReports").WorkerReports)({ ...counted, metrics });
    const listening = () => ({ state: this.#shutdown.state, hasPlain: this.#hasPlain, https: this.#https });
    this.#reported = { ...counted, requests: this.#requests, reports, recent, startedAt: clock.now(), listening, reporting: null, onActivate() {} };
    const closeReports = () => [this.#reported.reporting, reports].forEach((each) => each?.close());
    this.#shutdown = new Shutdown({ ...this.#reported, spans: this.#spans, closeReports });
  }

  /** What the threads of one program need of a gateway, besides its members, which are for programs that embed it. */
  static partsOf(gateway: GatewayCore): GatewayParts {
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
      receiving: following === null ? this.#requests.receiving : () => inForce().snapshot.receiving,
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
    this.#reported.onActivate();
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

function tracerOf(settings: TracingSettings, parts: Parts, tools: { readonly clock: Clock; readonly log: Log }, secretParameters: ReadonlySet<string>): [OtlpExporter, Tracer] {
  const { createSampler, OtlpExporter, Tracer } = parts.part("tracing");
  const { sampler = "parentbased_always_on", ratio = 1 } = settings;
  const spans = new OtlpExporter({ settings, ...tools });
  return [spans, new Tracer({ clock: tools.clock, sampler: createSampler(sampler, ratio), sink: spans, secretParameters })];
}
