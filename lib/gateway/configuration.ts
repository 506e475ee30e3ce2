/**
 * The configuration in force: has the first one read and compiled, and puts each next one in its place as a whole.
 * `reloads.ts` reads those.
 */
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { atOnce, paced } from "../base/time_slices.ts";
import { readRegularFile } from "../base/regular_file.ts";
import type { Call } from "../http/exchange.ts";
import type { AccessLog } from "../observe/access_log.ts";
import type { Link } from "../plugins/plugin.ts";
import type { Bundle, Followers } from "./bundle.ts";
import { ConfigError } from "./config_error.ts";
import { ConfigReader, readNoFile, type ReadConfig } from "./config_reader.ts";
import type { AuditTrail, ConfigurationOptions } from "./options.ts";
import type { Validity } from "./features.ts";
import type { LoadedFeatures } from "./loaded_features.ts";
import type { ValidConfig } from "./compile_types.ts";
import { logFault } from "./serve.ts";
import { compileSteps, type Snapshot, type SnapshotTools } from "./snapshot.ts";
import type {
  AskedBy,
  ConfigWarning,
  GatewayStatus,
  LastReload,
  LastTests,
  PluginFaults,
  Reloaded,
  TestReport,
} from "./status.ts";

/** What a configuration is compiled with, and what of a gateway a new configuration changes. */
export type ConfigurationTools = Omit<SnapshotTools, "onFault"> & {
  readonly clock: Clock;
  readonly accessLog: AccessLog;
  /** Null: there is no audit log. */
  readonly audit: AuditTrail | null;
};

/** A configuration that is checked and compiled. */
export interface Prepared extends ReadConfig {
  readonly snapshot: Snapshot;
  /** See `Bundle`. */
  readonly version: number;
}

/** A configuration that has been read and checked, before anything of a gateway is made with it. */
export interface FirstConfiguration {
  readonly options: ConfigurationOptions;
  readonly reader: ConfigReader;
  readonly read: ReadConfig;
  /** Null: configurations need no signature. */
  readonly validity: Validity | null;
}

/**
 * `bundle`: of the main thread, in a worker. Throws a `ConfigError` when it is refused, a `TypeError` for other
 * options.
 */
export function readFirst(options: ConfigurationOptions, clock: Clock, bundle?: Bundle): FirstConfiguration {
  const { modules: features, configKeyFile } = options;
  const reader = new ConfigReader(options, bundle === undefined ? readRegularFile : readNoFile);
  const source = bundle?.source ?? options.source ?? reader.source();
  const read = reader.load(source, bundle);
  const validity = configKeyFile === undefined ? null : features.sources.validityOf(options, clock);
  validity?.check(read);
  return { options, reader, read, validity };
}

/** A configuration that has come into force in place of another one, whatever is in force by now. */
export interface Applied extends Reloaded {
  /** When it was read, in milliseconds since 1970. */
  readonly at: number;
  /** In the order in which they asked; all of them before it was read. */
  readonly askers: Askers;
  /** The digest of the configuration that it has replaced. */
  readonly before: string;
  readonly inForce: Prepared;
  /** See `Configuration.signer`. */
  readonly signer: string | undefined;
}

interface CompileOptions {
  /** See `Bundle`; default: a new one. */
  readonly version?: number;
  /** Gets each step to run. */
  readonly during?: <T>(run: () => T) => T;
}

export type Askers = readonly [AskedBy, ...AskedBy[]];

export class Configuration {
  readonly options: ConfigurationOptions;
  readonly reader: ConfigReader;
  readonly tools: ConfigurationTools;
  readonly features: LoadedFeatures;
  /** In force. */
  snapshot: Snapshot;
  /** The same, with what it was compiled from. */
  inForce: Prepared;
  /** About the snapshot; null: not computed yet. */
  warnings: readonly ConfigWarning[] | null = null;
  /** See `ProofMemory`. */
  readonly proofs = { kept: null as object | null };
  /** When the snapshot was loaded, in milliseconds since 1970. */
  loadedAt: number;
  lastReload: LastReload | null = null;
  lastChange: GatewayStatus["lastChange"] = null;
  /** The last run of tests, also of a configuration that was refused; null before the first one. */
  lastTests: LastTests | null = null;
  /** Of the first configuration, or of the one that a reload brought; null: not run yet. */
  tested: Promise<void> | null = null;
  /** Null: configurations need no signature. */
  readonly validity: Validity | null;
  /** Aborted when the gateway has been closed. */
  readonly closing = new AbortController();
  /** By the key of the plugin instance. */
  readonly pluginFaults = new Map<string, PluginFaults>();
  /** Called after a snapshot has replaced another one. */
  onReplaced: (before: Snapshot, next: Snapshot) => void = () => {};
  /** Called in the order in which configurations came into force, before the next one can. */
  onApplied: (applied: Applied) => void = () => {};
  /** The workers, in the main thread of a program that has some. */
  followers: Followers | null = null;
  /** Of the configuration that was compiled last. */
  #lastVersion = 0;

  /** Throws a `ConfigError` when a plugin cannot be created. */
  constructor({ options, reader, read, validity }: FirstConfiguration, tools: ConfigurationTools) {
    this.options = options;
    this.tools = tools;
    this.features = tools.features;
    this.reader = reader;
    this.validity = validity;
    this.loadedAt = tools.clock.wall();
    this.inForce = this.compile(read, null);
    this.snapshot = this.inForce.snapshot;
    this.apply(this.inForce);
  }

  /**
   * The fingerprint of the key that has signed the configuration in force; undefined: it needs no signature. See
   * `PublicKey.fingerprint`.
   */
  get signer(): string | undefined {
    const { source } = this.inForce;
    return "value" in source ? undefined : source.signer;
  }

  /** The files that a refused configuration names; none if the last reload was accepted. */
  get refusedFiles(): readonly string[] {
    return this.lastReload?.outcome === "refused" ? this.reader.namedFiles : [];
  }

  /** See `Gateway.configWarnings`. There are none while no configuration could have any, see `canWarn`. */
  get configWarnings(): readonly ConfigWarning[] {
    return (this.warnings ??= this.features.loaded.proof?.configWarnings(this.snapshot) ?? []);
  }

  /** Computes the warnings in slices, beside the traffic. Until then those that are known stay, if there are any. */
  async findWarnings(): Promise<void> {
    const { snapshot } = this;
    const warnings = await this.features.loaded.proof?.configWarningsInSlices(snapshot, this.proofs);
    if (this.snapshot === snapshot) this.warnings = warnings ?? [];
  }

  /**
   * Runs the tests of the first configuration, once. Rejects with a `ConfigError` if one fails; if all that failed ran
   * out of time, only with "strict".
   */
  testFirst(late: "strict" | "lenient"): Promise<void> {
    return (this.tested ??= this.runTests(this.inForce, late).then(() => this.validity?.applied(this.snapshot.config)));
  }

  async runTests(read: ReadConfig, late: "strict" | "lenient"): Promise<void> {
    if (this.options.tests === "skip") return;
    if (read.valid.tests.length > 0) return (await this.features.onDemand.tests()).mustPass(this, read, late);
    this.checkOpen();
    this.noteTests(read.valid, NO_TESTS);
  }

  noteTests({ digest }: ValidConfig, report: TestReport): void {
    this.lastTests = { at: this.tools.clock.wall(), digest, report };
  }

  /** The inputs of the configuration in force, for a worker that starts. */
  get bundle(): Bundle {
    return this.bundleOf(this.inForce);
  }

  bundleOf({ version, source, inputs, snapshot }: Prepared): Bundle {
    return { version, source, ...inputs, memory: this.tools.runtime.sharedMemory(snapshot.inUse) };
  }

  /** Nothing would end the probes and look-ups that a configuration starts. */
  checkOpen(): void {
    if (this.closing.signal.aborted) throw new Error("the gateway has been closed");
  }

  /** From now on it is not replaced. */
  close(): void {
    this.closing.abort();
  }

  /** At once. `before`: see `compileSteps`. */
  compile(read: ReadConfig, before: Snapshot | null): Prepared {
    return this.#prepared(read, atOnce(this.#steps(read, before)), {});
  }

  /** Beside the traffic. What has not changed stays as it is in force. */
  async compileInSlices(read: ReadConfig, options: CompileOptions = {}): Promise<Prepared> {
    const { during = (run) => run() } = options;
    const slice = paced();
    for (;;) {
      const before = this.snapshot;
      const steps = this.#steps(read, before);
      // Files that were read again meanwhile have brought another snapshot into force: from the beginning.
      while (this.snapshot === before) {
        const { done, value } = during(() => steps.next());
        if (done) return this.#prepared(read, value, options);
        await slice();
      }
      steps.return(before);
    }
  }

  #steps({ valid }: ReadConfig, before: Snapshot | null): Generator<void, Snapshot> {
    return compileSteps(valid, { ...this.tools, onFault: this.#onFault }, before);
  }

  #prepared(read: ReadConfig, snapshot: Snapshot, { version = ++this.#lastVersion }: CompileOptions): Prepared {
    return { ...read, version, snapshot };
  }

  /**
   * Puts a configuration into force. Throws, and changes nothing, when the file of the access log cannot be opened: the
   * last step that can fail.
   */
  apply(prepared: Prepared): void {
    const before = this.snapshot;
    const next = prepared.snapshot;
    const { accessLog, runtime } = this.tools;
    try {
      accessLog.apply(next.global.accessLog);
    } catch (error) {
      this.drop(prepared);
      throw this.accessLogError(error, next);
    }
    this.followers?.commit(this.bundleOf(prepared));
    runtime.apply(next.inUse);
    next.metrics?.apply();
    this.inForce = prepared;
    this.snapshot = next;
    for (const key of this.pluginFaults.keys()) if (!next.instances.has(key)) this.pluginFaults.delete(key);
    this.onReplaced(before, next);
  }

  /** For a configuration that does not come into force. */
  drop({ snapshot }: Prepared): void {
    this.followers?.abandon();
    this.tools.runtime.abandon(snapshot.inUse);
  }

  /** For the system's error when the access log's file cannot be opened. */
  accessLogError(error: unknown, { global }: Snapshot = this.snapshot): ConfigError {
    const message = `cannot write to ${global.accessLog.file}: ${messageOf(error)}`;
    return new ConfigError(
      [{ at: ["global", "access_log", "file"], message, position: null }],
      this.options.configFile,
    );
  }

  readonly #onFault = (link: Link, call: Call, error: unknown): void => {
    logFault(this.tools.log, call, error, link);
    const {
      name,
      scope: { key, id, level, service, route },
    } = link;
    this.tools.metrics?.pluginFailed(name);
    // A request may outlive the configuration under which it arrived.
    if (!this.snapshot.instances.has(key)) return;
    this.pluginFaults.set(key, {
      plugin: name,
      id,
      level,
      service,
      route,
      count: (this.pluginFaults.get(key)?.count ?? 0) + 1,
    });
  };
}

/** What is reported where there are no tests. */
export const NO_TESTS: TestReport = { passed: 0, failed: 0, tests: [] };
