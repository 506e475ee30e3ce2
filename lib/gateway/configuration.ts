/**
 * The configuration in force: has it read, tested and compiled, and replaces it as a whole or not at all, in all threads of the program.
 */
import type { Clock } from "../base/clock.ts";
import { readRegularFile } from "../base/regular_file.ts";
import type { ConfigSource } from "../config/source.ts";
import type { Call } from "../http/exchange.ts";
import type { AccessLog } from "../observe/access_log.ts";
import { whyUnwritable } from "../observe/line_writer.ts";
import type { Link } from "../plugins/chain.ts";
import type { Bundle, Followers, Following } from "./bundle.ts";
import { ConfigError, fileOf } from "./config_error.ts";
import type { ConfigInput } from "./config_input.ts";
import { ConfigReader, readNoFile, type ConfigurationOptions, type ReadConfig } from "./config_reader.ts";
import type { CompileTools } from "./plugin_instances.ts";
import { logFault } from "./serve.ts";
import { compile, redirectOf, type Loaded, type Snapshot } from "./snapshot.ts";
import type { ConfigWarning, GatewayStatus, LastReload, LastTests, PluginFaults, ReloadCause, Reloaded, TestReport } from "./status.ts";

/** The parts of a gateway that a configuration is compiled with, and that a new configuration changes. */
export type ConfigurationTools = Omit<CompileTools, "onFault"> & { readonly clock: Clock; readonly accessLog: AccessLog };

/** A configuration that is checked and compiled. */
interface Prepared extends Omit<ReadConfig, "loaded"> {
  readonly next: Snapshot;
  /** See `Bundle`. */
  readonly version: number;
}

export class Configuration {
  readonly #tools: ConfigurationTools;
  readonly #reader: ConfigReader;
  /** In force. */
  snapshot: Snapshot;
  /** The same, with what it was compiled from. */
  #inForce: Prepared;
  /** About the snapshot; computed when they are needed first. */
  #warnings: readonly ConfigWarning[] | null = null;
  /** When the snapshot was loaded, in milliseconds since 1970. */
  loadedAt: number;
  lastReload: LastReload | null = null;
  lastChange: GatewayStatus["lastChange"] = null;
  /** The last run of tests, also of a configuration that was refused; null before the first one. */
  lastTests: LastTests | null = null;
  /** Of the first configuration; null: not run yet. */
  #proven: Promise<void> | null = null;
  /** Resolves when the reloads so far are over. */
  #queue: Promise<unknown> = Promise.resolve();
  /** The last reload in the queue, if it is to read the gateway's own source and has not begun. */
  #waiting: Promise<Reloaded> | null = null;
  /** Whether files were reread since a reload has begun. */
  #isReread = false;
  /** Aborted when the gateway has been closed. */
  readonly closing = new AbortController();
  /** By the key of the plugin instance. */
  readonly pluginFaults = new Map<string, PluginFaults>();
  /** Called after a snapshot has replaced another one. */
  onReplaced: (before: Snapshot, next: Snapshot) => void = () => {};
  /** The workers, in the main thread of a program that has some. */
  followers: Followers | null = null;
  /** In a worker; null elsewhere. */
  readonly #following: Following | null;
  /** In a worker: compiled, and not in force yet. */
  #prepared: Prepared | null = null;
  /** Of the configuration that was compiled last. */
  #lastVersion = 0;
  /** Whether plugins are being created: what they log now is logged by every thread. */
  isCompiling = false;

  /** Throws a `ConfigError` when it is refused, a `TypeError` for other options. */
  constructor(options: ConfigurationOptions, tools: ConfigurationTools, following: Following | null = null) {
    const bundle = following?.bundle;
    this.#tools = tools;
    this.#reader = new ConfigReader(options, bundle !== undefined ? readNoFile : readRegularFile);
    this.loadedAt = tools.clock.wall();
    this.#following = following;
    if (following !== null) this.#proven = Promise.resolve();
    const first = this.#compile(this.#reader.load(bundle?.source ?? this.#reader.source(), bundle));
    [this.#inForce, this.snapshot] = [first, first.next];
    this.#enforce(first);
  }

  /** For another `Configuration` of the same plugin kinds, modules and environment. */
  get options(): ConfigurationOptions {
    return this.#reader.options;
  }

  /** What the configuration in force was compiled from. */
  get source(): ConfigSource {
    return this.#inForce.source;
  }

  /** The fingerprint of the key that has signed the configuration in force; undefined: it needs no signature. See `PublicKey.fingerprint`. */
  get signer(): string | undefined {
    return "file" in this.source ? this.source.signer : undefined;
  }

  /** The files that a refused configuration names; none if the last reload was accepted. */
  get refusedFiles(): readonly string[] {
    return this.lastReload?.outcome === "refused" ? this.#reader.named : [];
  }

  /** See `Gateway.configWarnings`. */
  get configWarnings(): readonly ConfigWarning[] {
    return (this.#warnings ??= this.#finder?.configWarnings(this.snapshot) ?? []);
  }

  /** Computes the warnings in slices, beside the traffic. Until then those that are known stay, if there are any. */
  async findWarnings(): Promise<void> {
    const { snapshot } = this;
    const warnings = await this.#finder?.configWarningsInSlices(snapshot);
    if (this.snapshot === snapshot) this.#warnings = warnings ?? [];
  }

  /** Null: no configuration so far can have warnings, see `canHaveWarnings`. */
  get #finder() {
    return this.#parts.partIfLoaded("warnings");
  }

  get #parts() {
    return this.#tools.runtime.parts;
  }

  /** See `Gateway.loadModules`. */
  loadModules(config?: ConfigInput): Promise<void> {
    return this.#reader.loadModules(config);
  }

  /** See `Gateway.reload`. */
  reload(config: ConfigInput | undefined, by: ReloadCause): Promise<Reloaded> {
    // The last in the queue reads the same source, as it is by then.
    if (config === undefined && this.#waiting !== null) return this.#waiting;
    const reloaded = this.#inTurn(() => {
      if (this.#waiting === reloaded) this.#waiting = null;
      return this.#reload(config, by);
    });
    this.#waiting = config === undefined ? reloaded : null;
    return reloaded;
  }

  /** Configurations replace one another in the order in which that was asked for. */
  #inTurn<T>(replace: () => Promise<T>): Promise<T> {
    const replaced = this.#queue.then(replace);
    this.#queue = replaced.catch(() => {});
    return replaced;
  }

  async #reload(config: ConfigInput | undefined, by: ReloadCause): Promise<Reloaded> {
    const at = this.#tools.clock.wall();
    try {
      this.#checkOpen();
      const source = this.#reader.source(config);
      await this.#parts.loadParts(source);
      for (const name of ["changes", "jsonText"] as const) await this.#parts.loadPart(name);
      this.#isReread = false;
      const read = this.#reader.load(source);
      await this.#runTests(read, "strict");
      // In slices before the configuration is in force: status and log need them at once afterwards.
      const warnings = await this.#finder?.configWarningsInSlices(read.loaded);
      const before = this.snapshot;
      await this.#replace(read);
      this.#warnings = warnings ?? [];
      this.#proven = Promise.resolve();
      if (this.#isReread) this.#rereadLater();
      this.loadedAt = at;
      const { digest, shown } = this.snapshot;
      const changed = digest !== before.digest;
      const changes = changed ? this.#parts.part("changes").changesBetween(before.shown, shown) : [];
      const taken = { at, by, digest, outcome: "taken", changes } as const;
      this.lastReload = taken;
      if (changed) this.lastChange = taken;
      return { digest, changed, changes };
    } catch (error) {
      const issues = error instanceof ConfigError ? error.message.trimEnd().split("\n") : [(error as Error).message];
      this.lastReload = { at, by, digest: this.snapshot.digest, outcome: "refused", issues };
      throw error;
    }
  }

  /** Files were reread while their new configuration was tested, with its older content of them. */
  #rereadLater(): void {
    try {
      this.rereadFiles();
    } catch {
      // They are not usable under the new configuration: it keeps those that it was loaded with.
    }
  }

  /** See `Gateway.rereadFiles`. */
  rereadFiles(): boolean {
    const reread = this.#reread();
    if (reread === null) return false;
    this.#enforce(this.#compile(reread));
    this.#findWarningsLater();
    return true;
  }

  /** As `rereadFiles`, in all threads of the program. */
  rereadFilesInAll(): Promise<boolean> {
    return this.#inTurn(async () => {
      const reread = await this.#parts.withPositions(() => this.#reread());
      if (reread === null) return false;
      await this.#parts.loadPart("jsonText");
      await this.#replace(reread);
      this.#findWarningsLater();
      return true;
    });
  }

  /** Only the content of files has changed: the warnings of before stay until the new ones are known. */
  #findWarningsLater(): void {
    if (this.#warnings !== null) this.findWarnings().catch(() => (this.#warnings = null));
  }

  /** Null: no file has changed. */
  #reread(): ReadConfig | null {
    const { files, testFiles, global } = this.snapshot;
    this.#isReread = true;
    if (files.length === 0 || this.closing.signal.aborted) return null;
    // Modules and tests stay as they were loaded: one that has changed by now must not keep a certificate from being renewed.
    const staying = new Set([...testFiles, ...global.pluginModules.map(({ path }) => path.path)]);
    const { source, inputs } = this.#inForce;
    const kept = new Map(inputs.files);
    for (const { path } of files) if (!staying.has(path)) kept.delete(path);
    const read = this.#reader.load(source, { ...inputs, files: kept });
    return read.loaded.files.every(({ content }, i) => files[i]?.content.equals(content)) ? null : read;
  }

  /** Runs the tests of the first configuration, once. Rejects with a `ConfigError` if one fails; if all that failed ran out of time, only with "strict". */
  prove(late: "strict" | "lenient"): Promise<void> {
    return (this.#proven ??= this.#runTests({ ...this.#inForce, loaded: this.snapshot }, late));
  }

  /** See `Gateway.test`. */
  async test(only?: string): Promise<TestReport> {
    const { snapshot } = this;
    const report = await this.#reportOn(snapshot, only);
    if (only === undefined && !this.closing.signal.aborted) this.#note(snapshot, report);
    return report;
  }

  async #runTests({ loaded, source }: Pick<ReadConfig, "loaded" | "source">, late: "strict" | "lenient"): Promise<void> {
    if (this.options.tests === "skip") return;
    const report = await this.#reportOn(loaded);
    this.#checkOpen();
    this.#note(loaded, report);
    const [first, ...more] = report.tests.filter(({ passed }) => !passed);
    if (first === undefined) return;
    if (late === "lenient" && first.late && more.every((test) => test.late)) {
      const fields = { tests: report.failed, first: first.name, reason: first.differences.join("; ") };
      return this.#tools.log.warn("tests ran out of time; the gateway starts, a reload would be refused", fields);
    }
    throw new ConfigError((await this.#parts.onDemand.tests()).failuresOf(loaded.tests, report), fileOf(source));
  }

  async #reportOn(loaded: Loaded, only?: string): Promise<TestReport> {
    if (loaded.tests.length === 0) return { passed: 0, failed: 0, tests: [] };
    const { runTests } = await this.#parts.onDemand.tests();
    return runTests(loaded, { only, wall: this.#tools.clock.wall(), signal: this.closing.signal, redirect: redirectOf(loaded.config.global, this.#parts) });
  }

  #note({ digest }: Loaded, report: TestReport): void {
    this.lastTests = { at: this.#tools.clock.wall(), digest, report };
  }

  /** Nothing would end the probes and look-ups that a configuration starts. */
  #checkOpen(): void {
    if (this.closing.signal.aborted) throw new Error("the gateway has been closed");
  }

  /** The inputs of the configuration in force, for a worker that starts. */
  get bundle(): Bundle {
    return this.#bundleOf(this.#inForce);
  }

  #bundleOf({ version, source, inputs, next }: Prepared): Bundle {
    return { version, source, ...inputs, memory: this.#tools.runtime.sharedMemory(next.inUse) };
  }

  /** In a worker: compiles what the main thread has compiled. Rejects with a `ConfigError`, or the error that a plugin threw at its creation. */
  async prepare({ version, source, environment, files }: Bundle): Promise<void> {
    await this.#parts.loadPart("jsonText");
    await this.#parts.load(source, environment, (path) => files.get(path) ?? readNoFile(path));
    this.#prepared = this.#compile(this.#reader.load(source, { environment, files }), version);
  }

  /** In a worker: brings the prepared configuration into force if the main thread has done so. To be called when a request arrives. */
  catchUp(): void {
    const prepared = this.#prepared;
    if (prepared === null || this.#following!.committed() !== prepared.version) return;
    this.#prepared = null;
    this.#enforce(prepared);
  }

  /** In a worker: drops the prepared configuration. */
  abandon(): void {
    if (this.#prepared !== null) this.#drop(this.#prepared);
    this.#prepared = null;
  }

  /** From now on it is not replaced. */
  close(): void {
    this.closing.abort();
  }

  /** In all threads of the program, or in none. */
  async #replace(read: ReadConfig): Promise<void> {
    this.#checkOpen();
    const prepared = this.#compile(read);
    try {
      await this.followers?.prepare(this.#bundleOf(prepared));
      this.#checkOpen();
    } catch (error) {
      this.#drop(prepared);
      throw error;
    }
    this.#enforce(prepared);
  }

  #compile({ loaded, source, inputs }: ReadConfig, version = ++this.#lastVersion): Prepared {
    this.isCompiling = true;
    try {
      return { version, source, inputs, next: compile(loaded, { ...this.#tools, onFault: this.#onFault, watched: this.#following?.watched }) };
    } finally {
      this.isCompiling = false;
    }
  }

  /** Throws, and changes nothing, when the file of the access log cannot be opened: the last step that can fail. */
  #enforce(prepared: Prepared): void {
    const before = this.snapshot;
    const { next } = prepared;
    const { accessLog, runtime } = this.#tools;
    try {
      accessLog.adopt(next.global.accessLog);
    } catch (error) {
      this.#drop(prepared);
      throw this.accessLogError(error, next);
    }
    this.followers?.commit(this.#bundleOf(prepared));
    runtime.adopt(next.inUse);
    next.metrics?.adopt();
    this.#inForce = prepared;
    this.snapshot = next;
    for (const key of this.pluginFaults.keys()) if (!next.instances.has(key)) this.pluginFaults.delete(key);
    this.onReplaced(before, next);
  }

  #drop({ next }: Prepared): void {
    this.followers?.abandon();
    this.#tools.runtime.abandon(next.inUse);
  }

  /** For the system's error when the access log's file cannot be opened. */
  accessLogError(error: unknown, { global }: Snapshot = this.snapshot): ConfigError {
    const message = `cannot write to ${global.accessLog.file}: ${whyUnwritable(error)}`;
    return new ConfigError([{ at: ["global", "access_log", "file"], message, position: null }], this.options.configFile);
  }

  readonly #onFault = (link: Link, call: Call, error: unknown): void => {
    logFault(this.#tools.log, call, error, link);
    const { name, scope: { key, id, level, service, route } } = link;
    this.#tools.metrics?.pluginFailed(name);
    // A request may outlive the configuration under which it arrived.
    if (!this.snapshot.instances.has(key)) return;
    this.pluginFaults.set(key, { plugin: name, id, level, service, route, count: (this.pluginFaults.get(key)?.count ?? 0) + 1 });
  };
}
