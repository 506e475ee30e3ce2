/**
 * The gateway as one object: joins all that it consists of, starts, listens, drains and closes. The data path is
 * `serve.ts`.
 */
import type { AddressInfo } from "node:net";
import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { silentLog } from "../base/log.ts";
import { ALONE, type Threads } from "../base/threads.ts";
import { AccessLog } from "../observe/access_log.ts";
import type { Http1Options } from "../server/http1.ts";
import { Listener } from "../server/listener.ts";
import type { TlsFiles } from "../server/certificates.ts";
import { joinTunnel } from "../upstream/tunnel.ts";
import { Configuration, readFirst } from "./configuration.ts";
import type { Following, GatewayInternals } from "./internals.ts";
import type { CompleteOptions, ListenOptions } from "./options.ts";
import { Reloads } from "./reloads.ts";
import { Runtime } from "./runtime.ts";
import { Requests } from "./serve.ts";
import { Shutdown } from "./shutdown.ts";
import { UnreadRequests } from "./unread_requests.ts";
import type { Snapshot } from "./snapshot.ts";
import type { ConfigWarning, Listening } from "./status.ts";

export { ConfigError } from "./config_error.ts";
export type { GatewayInternals } from "./internals.ts";
export type { GatewayHealth, CompleteOptions, ListenOptions } from "./options.ts";
export type { GatewayStatus, LastReload, LastTests, PluginFaults, Reloaded, ReloadCause } from "./status.ts";

/** The kernel: what a program's own gateway does. What one can ask it besides is in `embed/gateway.ts`. */
export class GatewayCore {
  readonly #internals: GatewayInternals;
  readonly #shutdown: Shutdown;

  /**
   * `threads`: those of the program; `following`: the main thread's gateway, in a worker. Throws a `ConfigError` when
   * the configuration is refused, a `TypeError` for other options. Nothing listens yet.
   */
  constructor(options: CompleteOptions, threads: Threads = ALONE, following: Following | null = null) {
    const {
      log = silentLog,
      clock = systemClock,
      accessLog: sink = null,
      tracing,
      adminCookie,
      lookup,
      lookUpService,
      modules: features,
      asked = features.loaded.reporting === undefined ? "nobody" : "administrators",
      state,
      audit = null,
    } = options;
    const first = readFirst(options, clock, following?.bundle);
    const listening: Listening = { state: "serving", isListening: false, https: null };
    const hasAdministrators = asked === "administrators";
    const metrics =
      asked === "nobody"
        ? null
        : new features.reporting.Metrics(
            hasAdministrators ? new features.reporting.Decisions(clock) : null,
            options.areDurationsSent === true ? new features.tracing.ServerDurations() : null,
          );
    const lookUps = { ...(lookup && { lookup }), ...(lookUpService && { lookUpService }) };
    const runtime = new Runtime(clock, log, lookUps, threads, features, state);
    const accessLog = new AccessLog({
      sink,
      clock,
      log,
      features,
      isRemote: following !== null,
    });
    const { secretParameters } = runtime;
    const { spans, tracer } =
      tracing === undefined
        ? { spans: null, tracer: null }
        : features.tracing.openTracing(tracing, {
            clock,
            log,
            secretParameters,
            proxy: () => configuration.snapshot.egressProxy,
          });
    const tools = {
      features,
      clock,
      log,
      metrics,
      runtime,
      accessLog,
      tracer,
      watched: audit === null ? following?.watched : audit.watch(following?.watched),
      observed: audit?.observed,
      audit,
      defaultCertificate: () => listening.https,
    };
    const configuration = new Configuration(first, tools);
    const reloads = new Reloads(configuration);
    const recent = hasAdministrators ? new features.reporting.RecentRequests(runtime.lasting) : null;
    const withoutSessions = adminCookie === undefined ? undefined : features.reporting.sessionRemover(adminCookie);
    const serving = { ...tools, configuration, recent, withoutSessions, activate: () => this.#activate() };
    const requests = new Requests(serving);
    const join: Http1Options["join"] = (client, firstBytes, tunnel, notes, delivery) => {
      // A tunnel may last for days, and its trace would not be sent until it ends.
      tracer?.end(notes);
      this.#shutdown.addTunnel(client, tunnel.socket);
      joinTunnel(client, firstBytes, tunnel, notes, delivery);
    };
    const inForce = () => {
      following?.catchUp(configuration);
      return configuration.snapshot;
    };
    const listener = new Listener({
      features,
      clock,
      log,
      writeBatch: runtime.writeBatch,
      serve: requests.serve,
      ended: requests.ended,
      join,
      unread: new UnreadRequests(serving).add,
      ...(runtime.connections && { connections: runtime.connections }),
      receiving: following === null ? requests.receiving : () => inForce().receiving,
      ports: threads.worker < 0 ? "taken" : threads.count > 1 ? "shared" : "alone",
      protocols: () => inForce().global,
      certificates: () => inForce().certificates,
      rules: () => inForce().global.tls,
      ...(metrics !== null && { handshakes: metrics }),
    });
    configuration.onReplaced = (before, next) => renewSessions(listener, before.global, next.global);
    const internals = {
      ...tools,
      configuration,
      reloads,
      requests,
      listener,
      spans,
      recent,
      listening,
      startedAt: clock.now(),
      reporting: null,
      certificates: null,
      onActivate() {},
    };
    const reports =
      threads.count === 1 || metrics === null ? null : features.workers.workerReports({ ...internals, metrics });
    this.#internals = { ...internals, reports };
    this.#shutdown = new Shutdown(this.#internals);
  }

  /** What the threads of one program need of a gateway, besides its members, which are for programs that embed it. */
  static internalsOf(gateway: GatewayCore): GatewayInternals {
    return gateway.#internals;
  }

  /** Names the configuration in force: 12 hexadecimal digits. */
  get digest(): string {
    return this.#internals.configuration.snapshot.digest;
  }

  get counts(): Snapshot["counts"] {
    return this.#internals.configuration.snapshot.counts;
  }

  /** The warnings about the configuration in force, computed from it alone; `status.warnings` has them, too. */
  get configWarnings(): readonly ConfigWarning[] {
    return this.#internals.configuration.configWarnings;
  }

  /**
   * The files that the configuration in force names, as absolute paths: certificates, keys, authorities, plugins'
   * files, plugin modules and files with tests.
   */
  get files(): readonly string[] {
    return this.#internals.configuration.snapshot.files.map(({ path }) => path);
  }

  /** Those of `files` that hold tests: they are read again by `reload` only. */
  get testFiles(): readonly string[] {
    return this.#internals.configuration.snapshot.testFiles;
  }

  /**
   * Whether new requests should come here: false from `announceStop` or `close` on, while no worker of several serves,
   * and while `audit.isClosed`.
   */
  get ready(): boolean {
    const { listening, configuration, audit } = this.#internals;
    return listening.state === "serving" && configuration.followers?.serving !== 0 && audit?.isClosed !== true;
  }

  /** Requests that are being answered, and open WebSockets. */
  get inFlight(): number {
    return this.#internals.requests.inFlight;
  }

  /**
   * Starts one listener; may be called several times. The first call runs the tests of the configuration, if it has
   * some. Rejects with node's error (EADDRINUSE, EACCES, …), with a `ConfigError` when a test fails or the access log's
   * file cannot be opened, and once the gateway is being closed. Tests that only run out of time are logged.
   */
  async listen(options: ListenOptions = {}): Promise<AddressInfo> {
    const { host = "127.0.0.1", port = 8008, fd, tls } = options;
    const { configuration, accessLog, requests, listener, listening, features } = this.#internals;
    this.#shutdown.checkOpen();
    await configuration.testFirst("lenient");
    this.#shutdown.checkOpen();
    try {
      accessLog.start();
    } catch (error) {
      throw configuration.accessLogError(error);
    }
    requests.activate();
    const address = await (tls === undefined
      ? listener.listenPlain(host, port, fd)
      : listener.listenSecure(host, port, tls, fd));
    // Closed during the look-up of the host: the new socket must not outlive the gateway. A drain in progress closes it
    // itself.
    if (listening.state === "closed") listener.destroy();
    this.#shutdown.checkOpen();
    listening.isListening = true;
    if (tls !== undefined) listening.https = features.serverTls.httpsFacts(tls);
    return address;
  }

  /**
   * Reopens `global.access_log.file`, and the audit log, after they have been renamed; when that fails, logs it and
   * writes on to the old ones.
   */
  reopenAccessLog(): void {
    this.#internals.audit?.sink.reopen?.();
    this.#internals.accessLog.reopen();
  }

  /**
   * Replaces certificate, key and CA of all HTTPS listeners; connections stay, and sessions can be resumed unless the
   * CA is another.
   * Throws, and keeps the old ones, when they cannot be used or would change whether clients are asked for a
   * certificate.
   */
  renewTls(files: TlsFiles): void {
    const { configuration, listener, listening, features } = this.#internals;
    listener.tls.renew(files);
    listening.https = features.serverTls.httpsFacts(files);
    configuration.followers?.renewTls(files);
  }

  /**
   * The first half of a shutdown, for load balancers that notice it late: `ready` turns false, requests and connections
   * are still accepted, and HTTP/1 replies ask their clients to reconnect. `close` is to follow. Does nothing after it.
   */
  announceStop(): void {
    this.#shutdown.announce();
  }

  /**
   * Closes the gateway: no new connections, requests in progress finish, after `graceMs` (default 30000) the rest is
   * cut off. Keep-alive connections without a request are closed after a second (or half of a shorter grace), so that a
   * request that is on its way still gets its answer. Resolves "drained" when nothing had to be cut off, else "cut". A
   * further call gives the same outcome; the shorter grace counts.
   */
  close(graceMs = 30_000): Promise<"drained" | "cut"> {
    return this.#shutdown.close(graceMs);
  }

  /**
   * Starts probes, look-ups and logs with the first request or listener: a configuration that is only checked starts
   * nothing.
   */
  #activate(): void {
    const { configuration, runtime, accessLog, log, onActivate } = this.#internals;
    runtime.activate();
    this.#shutdown.answerForEntries();
    onActivate();
    try {
      accessLog.start();
    } catch (error) {
      // A request to a handler in a host's own server cannot be answered with this error.
      log.error("the access log's file cannot be opened", {
        file: configuration.snapshot.global.accessLog.file,
        error: messageOf(error),
      });
    }
  }
}

/** HTTP/2 settings are sent at the start of a connection: when they change, clients are asked to reconnect. */
function renewSessions(listener: Listener, { limits, h2c, http2 }: Snapshot["global"], next: Snapshot["global"]): void {
  if (next.limits.maxHeaderBytes !== limits.maxHeaderBytes || next.limits.maxHeaders !== limits.maxHeaders)
    listener.renewSessions("all");
  if (h2c && !next.h2c) listener.renewSessions("plain");
  if (http2 && !next.http2) listener.renewSessions("secure");
}
