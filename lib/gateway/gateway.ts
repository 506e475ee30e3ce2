/**
 * The gateway as one object: holds the snapshot in force, listens, reloads, and ends. Joins all floors below; the data path itself
 * is `serve.ts`.
 */
import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex, Readable } from "node:stream";
import { LONGEST_TIMER_MS, systemClock, type Clock } from "../base/clock.ts";
import { silentLog, type Log } from "../base/log.ts";
import { factsOf } from "../base/pem.ts";
import { waitAtMost } from "../base/wait_at_most.ts";
import { version } from "../base/version.ts";
import type { Json } from "../config/json.ts";
import { formatIssues, loadConfig, readConfigFile, type ConfigIssue, type ConfigSource } from "../config/load.ts";
import type { ConfigInput } from "../config/model.ts";
import { tracingProblem, type TracingSettings } from "../config/tracing.ts";
import type { HeaderList } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { AccessLog } from "../observe/access_log.ts";
import { exposition, expositionStream, type Family } from "../observe/exposition.ts";
import { whyUnwritable } from "../observe/line_writer.ts";
import { Metrics } from "../observe/metrics.ts";
import { stopPluginTime } from "../observe/plugin_meter.ts";
import { OtlpExporter } from "../observe/otlp.ts";
import { createProcessFigures, type ProcessFigures } from "../observe/process.ts";
import { createSampler } from "../observe/sampling.ts";
import { withServerTiming } from "../observe/server_timing.ts";
import { Stats, type GatewayStats, type StatsExtent } from "../observe/stats.ts";
import { Tracer } from "../observe/trace.ts";
import { builtinPlugins } from "../plugins/builtin.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { OnFault } from "../plugins/chain.ts";
import { kindProblem } from "../plugins/kit.ts";
import { checkRoutes } from "../route/table.ts";
import { createListener, type Listener } from "../server/listener.ts";
import type { Inbound, ReceiveOptions } from "../server/receive.ts";
import type { TlsFiles } from "../server/tls.ts";
import type { UpstreamSetReport } from "../upstream/upstream_set.ts";
import { joinTunnel } from "../upstream/tunnel.ts";
import { changesBetween } from "./config_diff.ts";
import { explain, type Explanation, type Question } from "./explain.ts";
import { collected, injected, type InjectRequest, type InjectResponse } from "./inject.ts";
import { families } from "./metrics.ts";
import { PluginModules } from "./plugin_modules.ts";
import { Runtime } from "./runtime.ts";
import { logFault, serve, type ServeTools } from "./serve.ts";
import type { DisplayedConfig } from "./displayed_config.ts";
import { compile, type Loaded, type Snapshot } from "./snapshot.ts";
import type { GatewayStatus, LastReload, PluginFaults, Reloaded, ReloadCause, ShownCertificate, State } from "./status.ts";
import { warningsOf } from "./warnings.ts";

export type { GatewayStatus, LastReload, PluginFaults, Reloaded, ReloadCause } from "./status.ts";

export interface GatewayOptions {
  /** The configuration as a value; either this or `configFile`. */
  readonly config?: ConfigInput;
  /** Path of the JSON configuration file. */
  readonly configFile?: string;
  /** Plugin kinds beside the built-in ones. */
  readonly plugins?: readonly AnyPlugin[];
  /** What `loadPluginModules` gave for the same configuration; needed where it has `global.plugin_modules`. */
  readonly modules?: PluginModules;
  /** Where the gateway tells of faults and reloads. Default: nowhere. */
  readonly log?: Log;
  /** Gets the access log, whole lines, where `global.access_log` is enabled and names no file. Default: nowhere. */
  readonly accessLog?: (lines: string) => void;
  /** Where traces are sent, and which. Default: nowhere, and `traceparent` passes through as it came. */
  readonly tracing?: TracingSettings;
  /** What `${env:NAME}` refers to. Default `process.env`. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Default: the system's clock. */
  readonly clock?: Clock;
  /** Gives all addresses of an upstream's host name, at least one; rejects when there is none. Default: as the system does (getaddrinfo). */
  readonly lookup?: (host: string) => Promise<readonly { readonly address: string; readonly family: number }[]>;
}

export interface ListenOptions {
  /** 0: any free port. Default 8008. */
  readonly port?: number;
  /** Default "127.0.0.1". */
  readonly host?: string;
  /** Makes it an HTTPS listener: HTTP/2 and HTTP/1.1 by ALPN. A plain listener has to be there before. */
  readonly tls?: TlsFiles;
}

export interface GatewayHealth {
  /** In the order of the configuration. */
  readonly services: readonly UpstreamSetReport[];
}

/** A configuration that cannot be taken; `message` lists every issue on a line of its own. */
export class ConfigError extends Error {
  readonly issues: readonly ConfigIssue[];

  constructor(issues: readonly ConfigIssue[], file: string | undefined) {
    super(formatIssues(issues, file));
    this.name = "ConfigError";
    this.issues = issues;
  }
}

export class Gateway {
  readonly #options: GatewayOptions;
  readonly #kinds: readonly AnyPlugin[];
  readonly #modules: PluginModules;
  /** By the instance's key. */
  readonly #pluginFaults = new Map<string, PluginFaults>();
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #tools: ServeTools;
  readonly #runtime: Runtime;
  readonly #accessLog: AccessLog;
  /** Null: requests are not traced. */
  readonly #spans: OtlpExporter | null;
  readonly #tracer: Tracer | null;
  readonly #metrics = new Metrics();
  readonly #stats: Stats;
  readonly #process: ProcessFigures;
  readonly #listener: Listener;
  /** What the HTTPS listeners have of their own; null as long as there are none. */
  #https: { readonly certificate: ShownCertificate; readonly asksForCertificates: boolean } | null = null;
  /** What the snapshot in force was made from. */
  #source: ConfigSource;
  #inputs: Inputs;
  #snapshot: Snapshot;
  /** What the snapshot in force says of receiving, made once for all requests. */
  #receiving: ReceiveOptions;
  readonly #startedAt: number;
  #loadedAt: number;
  #lastReload: LastReload | null = null;
  #lastChange: GatewayStatus["lastChange"] = null;
  #state: State = "serving";
  #closing: Promise<"drained" | "cut"> | null = null;
  /** Ends the grace of a `close` under way. */
  #cut = () => {};
  /** Both ends of every upgraded connection: in a host's server nobody else would close them. */
  readonly #tunnels = new Set<Duplex>();
  #hasPlain = false;
  #inFlight = 0;
  /** Those of them that are being refused because there are too many: they take no place, however slowly they are read. */
  readonly #shed = new Set<Inbound>();
  #noneInFlight: (() => void) | null = null;

  /** For mounting in a host's own server: `http.createServer(gateway.handler)`. */
  readonly handler: (request: IncomingMessage, response: ServerResponse) => void;
  /** For the host's `upgrade` event, so that WebSockets pass: `server.on("upgrade", gateway.upgrade)`. */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;

  /** Throws a `ConfigError` when the configuration cannot be taken, a `TypeError` for other options. Nothing listens yet. */
  constructor(options: GatewayOptions) {
    this.#options = options;
    this.#kinds = allKinds(options.plugins ?? []);
    this.#modules = options.modules ?? new PluginModules();
    this.#log = options.log ?? silentLog;
    this.#clock = options.clock ?? systemClock;
    this.#tools = { clock: this.#clock, log: this.#log };
    this.#startedAt = this.#clock.now();
    this.#loadedAt = this.#clock.wall();
    this.#runtime = new Runtime({ clock: this.#clock, log: this.#log, ...(options.lookup === undefined ? {} : { lookup: options.lookup }) });
    this.#accessLog = new AccessLog({ sink: options.accessLog ?? null, clock: this.#clock, log: this.#log });
    this.#spans = options.tracing === undefined ? null : spansTo(options.tracing, this.#clock, this.#log);
    this.#tracer = this.#spans === null ? null : tracerFor(options.tracing!, this.#spans, this.#clock);
    this.#process = createProcessFigures(this.#clock);
    this.#stats = new Stats(this.#clock, this.#metrics);
    this.#source = this.#read(options.config);
    const loaded = this.#load(this.#source);
    this.#inputs = loaded.inputs;
    this.#snapshot = this.#compile(loaded);
    this.#forAccessLog(this.#snapshot, (settings) => this.#accessLog.adopt(settings));
    this.#receiving = receivingBy(this.#snapshot, this.#clock);
    this.#runtime.adopt(this.#snapshot.inUse);
    this.#metrics.adopt(this.#snapshot.metrics);
    this.#listener = createListener({
      clock: this.#clock,
      log: this.#log,
      writeBatch: this.#runtime.writeBatch,
      receiving: () => this.#receiving,
      http1: () => this.#snapshot.http1,
      h2c: () => this.#snapshot.h2c,
      certificates: () => this.#snapshot.certificates,
      serve: (inbound) => {
        this.#inFlight++;
        return this.#serve(inbound);
      },
      ended: (inbound) => this.#ended(inbound),
      join: (client, behind, tunnel, notes) => {
        // A tunnel may last for days, and nobody would see the trace until it ends.
        this.#tracer?.end(notes);
        for (const end of [client, tunnel.socket]) this.#track(end);
        joinTunnel(client, behind, tunnel, notes);
      },
    });
    this.handler = this.#listener.onRequest;
    this.upgrade = this.#listener.onUpgrade;
  }

  /** The configuration in force, for display: as written, with defaults filled in and references unresolved. */
  get shownConfig(): Json {
    return this.#snapshot.shown;
  }

  /** The same for people who may not see secrets: a mask stands in the place of each literal one. */
  get maskedConfig(): Json {
    return this.#snapshot.masked();
  }

  /** Names the configuration in force: 12 hexadecimal digits. */
  get digest(): string {
    return this.#snapshot.digest;
  }

  get counts(): Snapshot["counts"] {
    return this.#snapshot.counts;
  }

  /** Whether new requests should come here: false from `announceStop` or `close` on. */
  get ready(): boolean {
    return this.#state === "serving";
  }

  /** All about the gateway at this moment, as the admin interface tells it. */
  get status(): GatewayStatus {
    const told = {
      version,
      state: this.#state,
      ready: this.ready,
      uptimeMs: this.#clock.now() - this.#startedAt,
      inFlight: this.#inFlight,
      digest: this.digest,
      loadedAt: this.#loadedAt,
      counts: this.counts,
      lastReload: this.#lastReload,
      lastChange: this.#lastChange,
      pluginFaults: [...this.#pluginFaults.values()],
      certificates: [
        ...(this.#https === null ? [] : [this.#https.certificate]),
        ...this.#snapshot.shownCertificates.map(({ where, path, names, commonName, notAfter }) => ({ where, path, names, commonName, notAfter })),
      ],
    };
    const https = this.#https;
    const listeners = this.#hasPlain ? { https: https !== null, asksForCertificates: https?.asksForCertificates === true } : null;
    const shown = this.shownConfig as unknown as DisplayedConfig;
    const guards = new Set(this.#snapshot.kinds.filter((kind) => kind.guards === true).map(({ name }) => name));
    return { ...told, warnings: warningsOf({ ...told, fleets: this.#runtime.health, shown, listeners, guards, wall: this.#clock.wall() }) };
  }

  /** How every upstream is, and every circuit breaker. */
  get health(): GatewayHealth {
    return { services: this.#runtime.health };
  }

  /** Requests, errors and times of the last minute for every route and upstream, and of the last 15 minutes in all. */
  get stats(): GatewayStats {
    return this.recentStats("all");
  }

  /** As `stats`; "active": without the history, and without routes and upstreams that nothing was asked of in the last minute. */
  recentStats(extent: StatsExtent = "active"): GatewayStats {
    const loads = new Map<string, Map<string, number>>();
    for (const { service, peers } of this.#runtime.fleets) loads.set(service, new Map(peers.map(({ id, load }) => [id, load])));
    return this.#stats.read(extent, { total: this.#inFlight, upstream: (service, id) => loads.get(service)?.get(id) ?? 0 });
  }

  /** Which route would take a request, which plugins it would pass and which upstreams could get it, and why; nothing is sent or counted. */
  explain(question: Question, secrets: "shown" | "masked" = "shown"): Explanation {
    const fleet = (service: string) => [...this.#runtime.fleets].find((each) => each.service === service);
    const snapshot = secrets === "shown" ? this.#snapshot : { ...this.#snapshot, shown: this.maskedConfig };
    return explain(question, { snapshot, receiving: this.#receiving, tools: this.#tools, fleet });
  }

  /** All metrics at this moment in Prometheus' text format 0.0.4. With thousands of busy routes it takes a while. */
  metrics(): string {
    return exposition(this.#families());
  }

  /** The same as a stream, which lets requests through between its slices and waits for a slow reader. */
  metricsStream(): Readable {
    return expositionStream(this.#families());
  }

  #families(): readonly Family[] {
    const status = { version, inFlight: this.#inFlight, loadedAt: this.#loadedAt, lastReload: this.#lastReload };
    const own = this.#https?.certificate ?? null;
    const fleets = [...this.#runtime.fleets];
    const { instances, shownCertificates } = this.#snapshot;
    const limiters = [...this.#runtime.counters.tables()].filter(([key]) => instances.has(key));
    const { connections } = this.#listener;
    const given = { status, metrics: this.#metrics, connections, limiters, spans: this.#spans, fleets, files: shownCertificates, own };
    return [...families(given), ...this.#process.families()];
  }

  /** Requests that are being answered, and open WebSockets. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /**
   * Starts one listener; may be called several times. Rejects with node's error (EADDRINUSE, EACCES, …), with a `ConfigError` when the
   * access log's file cannot be opened, and once the gateway is being closed.
   */
  async listen(options: ListenOptions = {}): Promise<AddressInfo> {
    const { host = "127.0.0.1", port = 8008, tls } = options;
    if (!this.#isOpen()) throw new Error("the gateway is being closed");
    this.#forAccessLog(this.#snapshot, () => this.#accessLog.start());
    this.#activate();
    if (tls !== undefined && !this.#hasPlain) throw new Error("a plain listener has to be there before an HTTPS one");
    const address = await (tls === undefined ? this.#listener.listenPlain(host, port) : this.#listener.listenSecure(host, port, tls));
    // Closed while the name was being looked up: the new socket must not outlive the gateway. A drain under way ends it itself.
    if (this.#isClosed()) this.#listener.destroy();
    if (!this.#isOpen()) throw new Error("the gateway is being closed");
    if (tls === undefined) this.#hasPlain = true;
    else this.#https = httpsOf(tls);
    return address;
  }

  /**
   * Takes a new configuration: the one given, else the file read anew. All or nothing: throws a `ConfigError` (or what a plugin threw
   * at its creation) and keeps the old one in force. Requests under way end as they began. `status.lastReload` tells of it either way,
   * with `by` as who asked for it. Throws, too, once the gateway has been closed.
   */
  reload(config: ConfigInput | undefined = this.#options.config, by: ReloadCause = "api"): Reloaded {
    const at = this.#clock.wall();
    try {
      // What a configuration in force starts, probes and look-ups, nobody would end any more.
      if (this.#isClosed()) throw new Error("the gateway has been closed");
      const source = this.#read(config);
      const loaded = this.#load(source);
      const next = this.#compile(loaded);
      const { digest } = next;
      const changed = digest !== this.#snapshot.digest;
      const changes = changed ? changesBetween(this.#snapshot.shown, next.shown) : [];
      this.#adopt(next);
      this.#source = source;
      this.#inputs = loaded.inputs;
      this.#loadedAt = at;
      const taken = { at, by, digest, outcome: "taken", changes } as const;
      this.#lastReload = taken;
      if (changed) this.#lastChange = taken;
      return { digest, changed, changes };
    } catch (error) {
      const issues = error instanceof ConfigError ? error.message.trimEnd().split("\n") : [(error as Error).message];
      this.#lastReload = { at, by, digest: this.digest, outcome: "refused", issues };
      throw error;
    }
  }

  /**
   * Loads the plugin modules that the configuration to come names and that are not loaded yet: `await` it before `reload`, which is
   * where it is said if one cannot be used. What is in force is not touched.
   */
  async loadModules(config: ConfigInput | undefined = this.#options.config): Promise<void> {
    const file = this.#options.configFile;
    const source = config !== undefined ? { ok: true as const, value: config } : file === undefined ? null : readConfigFile(file);
    if (source?.ok) await this.#modules.load(source, this.#options.environment ?? process.env);
  }

  /** The files that the configuration in force names: certificates, keys, authorities, plugins' files and plugin modules, as absolute paths. */
  get files(): readonly string[] {
    return this.#snapshot.files.map(({ path }) => path);
  }

  /**
   * Takes new content of `files` (of plugin modules never), under the configuration in force. Everything else stays as it was loaded,
   * whatever the configuration file, `${file:}` secrets and other files hold by now: a fault there must not let a certificate run out,
   * and a rotated secret is `reload`'s to take. All or nothing as `reload`. False when they hold what they held, and once it has been
   * closed.
   */
  rereadFiles(): boolean {
    if (this.#snapshot.files.length === 0 || this.#isClosed()) return false;
    const old = this.#snapshot.files;
    // Modules stay as they were loaded: one that has changed by now must not let a certificate run out either.
    const modules = new Set(this.#snapshot.modules.map(({ path }) => path));
    const kept = new Map(this.#inputs.files);
    for (const { path } of old) if (!modules.has(path)) kept.delete(path);
    const loaded = this.#load(this.#source, { ...this.#inputs, files: kept });
    if (loaded.files.every(({ content }, i) => old[i]?.content.equals(content))) return false;
    this.#adopt(this.#compile(loaded));
    this.#inputs = loaded.inputs;
    return true;
  }

  /** Opens `global.access_log.file` anew, after it has been renamed; when that fails, the log says so and the old one is written on. */
  reopenAccessLog(): void {
    this.#accessLog.reopen();
  }

  /**
   * Exchanges certificate, key and CA of all HTTPS listeners; connections stay, and sessions can be resumed unless the CA is another.
   * Throws, and keeps the old ones, when they cannot be used or would change whether clients are asked for a certificate.
   */
  renewTls(files: TlsFiles): void {
    this.#listener.renewTls(files);
    this.#https = httpsOf(files);
  }

  /** Sends one request through the gateway without a socket. Rejects when the reply breaks off. */
  async inject(request: InjectRequest): Promise<InjectResponse> {
    const inbound = injected(request, this.#receiving);
    this.#inFlight++;
    try {
      return await collected(inbound, await this.#serve(inbound));
    } catch (error) {
      inbound.call.fail("upstream_reset", (error as Error).message);
      throw error;
    } finally {
      inbound.call.close();
      inbound.body?.destroy();
      this.#ended(inbound);
    }
  }

  /**
   * The first half of a shutdown, for a load balancer that has to learn of it: `ready` turns false, requests and connections are still
   * taken, and HTTP/1 replies ask their clients to connect anew. The other half, `close`, is to follow. Does nothing after it.
   */
  announceStop(): void {
    if (this.#state !== "serving") return;
    this.#state = "stopping";
    this.#listener.announceStop();
  }

  /**
   * Ends the gateway: no new connections, requests under way finish, after `graceMs` (default 30000) what is left is cut off. KeptState
   * connections on which nothing is asked are ended after a second (or half of a shorter grace), so that a request that is on its way
   * still gets its answer. Resolves "drained" when nothing had to be cut off, else "cut". Called again, it gives the same outcome; the
   * shorter grace counts.
   */
  close(graceMs = 30_000): Promise<"drained" | "cut"> {
    this.#closing ??= this.#close(Math.min(IDLE_LINGER_MS, graceMs / 2));
    // A timer of its own, not the clock's: those let the process end, and it must not before the grace is over.
    const timer = setTimeout(this.#cut, Math.min(graceMs, LONGEST_TIMER_MS));
    return this.#closing.finally(() => clearTimeout(timer));
  }

  async #close(lingerMs: number): Promise<"drained" | "cut"> {
    this.#state = "draining";
    const expired = new Promise<"cut">((resolve) => {
      this.#cut = () => resolve("cut");
    });
    const drained = Promise.all([this.#listener.drain(lingerMs), this.#untilNoneInFlight()]).then(() => "drained" as const);
    const outcome = await Promise.race([drained, expired]);
    this.#state = "closed";
    this.#listener.destroy();
    for (const end of this.#tunnels) end.destroy();
    // The next turn but one knows that these clients are gone: their requests end as given up, not as failed by their upstreams.
    if (outcome === "cut") for (let i = 0; i < 2; i++) await new Promise((resolve) => setImmediate(resolve));
    this.#runtime.destroy();
    // The ends of what was cut off come in a moment later, and belong in the logs.
    if (outcome === "cut") await waitAtMost(this.#untilNoneInFlight(), MOST_CUTTING_MS);
    const told = this.#spans === null ? undefined : waitAtMost(this.#spans.close(), MOST_CUTTING_MS);
    await waitAtMost(this.#runtime.closeKept(), MOST_CUTTING_MS);
    await waitAtMost(this.#accessLog.close(), MOST_CUTTING_MS);
    await told;
    this.#process.close();
    this.#stats.close();
    return outcome;
  }

  /** Nothing runs, and no file is opened, for a configuration that is only looked at. */
  #activate(): void {
    this.#runtime.activate();
    this.#stats.start();
    if (this.#accessLog.isStarted) return;
    try {
      this.#accessLog.start();
    } catch (error) {
      // A request to a handler in a host's server cannot be answered with this.
      this.#log.error("the access log's file cannot be opened", { file: this.#snapshot.accessLog.file, error: whyUnwritable(error) });
    }
  }

  #serve(inbound: Inbound): Reply | Promise<Reply> {
    if (!this.#snapshot.serverTiming) return this.#answer(inbound);
    const { call } = inbound;
    const reply = this.#answer(inbound);
    const timed = (given: Reply) => withServerTiming(given, call, this.#clock.now());
    return reply instanceof Promise ? reply.then(timed) : timed(reply);
  }

  #answer(inbound: Inbound): Reply | Promise<Reply> {
    if (!this.#isClosed()) this.#activate();
    this.#accessLog.begin(inbound);
    this.#tracer?.begin(inbound);
    if (this.#isClosed()) return problem(inbound.call, "overloaded", { detail: "The gateway has been shut down." });
    const most = this.#snapshot.limits.maxRequestsInFlight;
    if (most > 0 && this.#inFlight - this.#shed.size > most) {
      this.#shed.add(inbound);
      return problem(inbound.call, "overloaded", { detail: "Too many requests are under way. Try again shortly.", headers: RETRY_SOON });
    }
    return serve(inbound, this.#snapshot, this.#tools);
  }

  readonly #onFault: OnFault = (link, call, error) => {
    logFault(this.#log, call, error, link);
    const { name, scope } = link;
    const { key, id, level, service, route } = scope;
    // A request may have outlived the configuration it came under.
    if (!this.#snapshot.instances.has(key)) return;
    const count = (this.#pluginFaults.get(key)?.count ?? 0) + 1;
    this.#pluginFaults.set(key, { plugin: name, id, level, service, route, count });
  };

  #ended(inbound: Inbound): void {
    const { call, method } = inbound;
    const now = this.#clock.now();
    stopPluginTime(call.notes, call.notes.answeredAt ?? now);
    (call.notes.meter ?? this.#metrics.unrouted).ended(method, call.notes, now - call.startedAt);
    this.#accessLog.write(inbound, now);
    this.#tracer?.end(call.notes);
    if (this.#shed.size > 0) this.#shed.delete(inbound);
    if (--this.#inFlight === 0) this.#noneInFlight?.();
  }

  #track(end: Duplex): void {
    this.#tunnels.add(end);
    end.once("close", () => this.#tunnels.delete(end));
  }

  #isOpen(): boolean {
    return this.#state === "serving" || this.#state === "stopping";
  }

  /** Asked after a wait, when what the compiler knows of the state is out of date. */
  #isClosed(): boolean {
    return this.#state === "closed";
  }

  #untilNoneInFlight(): Promise<void> {
    if (this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#noneInFlight = resolve;
    });
  }

  #read(config: ConfigInput | undefined): ConfigSource {
    if (config !== undefined) return { value: config };
    const file = this.#options.configFile;
    if (file === undefined) throw new TypeError("createGateway needs config or configFile");
    const read = readConfigFile(file);
    if (!read.ok) throw new ConfigError(read.issues, file);
    return read;
  }

  /** What `known` has is not read again. */
  #load(source: ConfigSource, known: Inputs = { environment: { ...(this.#options.environment ?? process.env) }, files: new Map() }): LoadedWhole {
    const { environment } = known;
    const files = new Map<string, Buffer>();
    const loaded = loadConfig(source, {
      kinds: this.#kinds,
      moduleKinds: (module) => this.#modules.kindsOf(module),
      environment,
      readFile(path) {
        const content = known.files.get(path) ?? readFileSync(path);
        files.set(path, content);
        return content;
      },
      checkRoutes,
    });
    if (!loaded.ok) throw new ConfigError(loaded.issues, "file" in source ? source.file : undefined);
    return { ...loaded, inputs: { environment, files } };
  }

  #adopt(next: Snapshot): void {
    const before = this.#snapshot;
    this.#forAccessLog(next, (settings) => this.#accessLog.adopt(settings));
    this.#runtime.adopt(next.inUse);
    this.#metrics.adopt(next.metrics);
    this.#snapshot = next;
    for (const key of this.#pluginFaults.keys()) if (!next.instances.has(key)) this.#pluginFaults.delete(key);
    this.#receiving = receivingBy(next, this.#clock);
    // What an HTTP/2 connection was told at its start holds for its life: clients are sent to new ones when it is true no more.
    if (headLimits(before) !== headLimits(next)) this.#listener.renewSessions("all");
    else if (before.h2c && !next.h2c) this.#listener.renewSessions("plain");
  }

  /** What may fail for the file of the access log, and so comes before anything else. Throws a `ConfigError` then. */
  #forAccessLog({ accessLog, inUse }: Snapshot, act: (settings: Snapshot["accessLog"]) => void): void {
    try {
      act(accessLog);
    } catch (error) {
      this.#runtime.abandon(inUse);
      const message = `cannot write to ${accessLog.file}: ${whyUnwritable(error)}`;
      throw new ConfigError([{ at: ["global", "access_log", "file"], message, position: null }], this.#options.configFile);
    }
  }

  #compile(loaded: LoadedWhole): Snapshot {
    const { kinds } = loaded;
    return compile(loaded, { runtime: this.#runtime, metrics: this.#metrics, kinds, log: this.#log, tracer: this.#tracer, onFault: this.#onFault });
  }
}

interface LoadedWhole extends Loaded {
  readonly kinds: readonly AnyPlugin[];
  readonly inputs: Inputs;
}

/** What a configuration was made from beside its own text. */
interface Inputs {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Certificates, secrets, modules and other files that it names, by absolute path. */
  readonly files: ReadonlyMap<string, Buffer>;
}

function headLimits({ limits }: Snapshot): string {
  return `${limits.maxHeaderBytes} ${limits.maxHeaders}`;
}

/** Longer than a request needs to get here that was sent before its client could know, and than busy clients leave between two. */
const IDLE_LINGER_MS = 1_000;

/** Plugins that never answer, or never let go of what they hold, must not hold up `close` for ever. In milliseconds. */
const MOST_CUTTING_MS = 1_000;

function httpsOf({ cert, ca, path }: TlsFiles): { readonly certificate: ShownCertificate; readonly asksForCertificates: boolean } {
  const where = path === undefined ? "listen" : "SERVER_CERT_PATH";
  return { certificate: { where, path: path ?? null, ...factsOf(cert) }, asksForCertificates: ca !== null };
}

const RETRY_SOON: HeaderList = ["Retry-After", "1"];

function receivingBy({ isTrusted, limits, underscores }: Snapshot, clock: Clock): ReceiveOptions {
  return { clock, isTrusted, limits, underscores };
}

function spansTo(settings: TracingSettings, clock: Clock, log: Log): OtlpExporter {
  const problem = tracingProblem(settings);
  if (problem !== undefined) throw new TypeError(problem);
  return new OtlpExporter({ settings, clock, log });
}

function tracerFor({ sampler = "parentbased_always_on", ratio = 1 }: TracingSettings, sink: OtlpExporter, clock: Clock): Tracer {
  return new Tracer({ clock, sampler: createSampler(sampler, ratio), sink });
}

function allKinds(own: readonly AnyPlugin[]): readonly AnyPlugin[] {
  const kinds = [...builtinPlugins];
  for (const kind of own) {
    const problem = kindProblem(kind);
    if (problem !== undefined) throw new TypeError(problem);
    if (kinds.some(({ name }) => name === kind.name)) throw new TypeError(`there is already a plugin named "${kind.name}"`);
    kinds.push(kind);
  }
  return kinds;
}
