/**
 * Replaces the configuration in force, one job after the other: each reads a configuration or files, and brings them
 * into force in all threads of the program or in none.
 */
import { ignore } from "../base/errors.ts";
import { readRegularFile } from "../base/regular_file.ts";
import { atOnce, inSlices, paced } from "../base/time_slices.ts";
import { parseInSlices, type ConfigSource } from "../config/source.ts";
import type { TextSource } from "../config/text_source.ts";
import { changeSteps } from "./config_diff.ts";
import type { ConfigInput } from "./config_input.ts";
import type { ReadConfig } from "./config_reader.ts";
import type { Applied, Askers, Configuration, Prepared } from "./configuration.ts";
import type { ValidConfig } from "./compile_types.ts";
import { whyRefused } from "./refusal.ts";
import type { AskedBy } from "./status.ts";

/** A text that is to become the content of the configuration's file. */
export interface Replacement {
  readonly text: Buffer;
  /**
   * Puts it there, once every thread can use it. `expect`: see `TextSource`. Returns what takes it back; `why`: the
   * error for which.
   */
  readonly write: (expect?: TextSource["expect"]) => Promise<(why: unknown) => Promise<void>>;
}

/** Whether the plugin modules that a configuration names have been loaded. */
type Modules = "loaded" | "to load";

/** Whether what is compiled for a configuration, and proved of it, is the same as before. */
function isSame(before: ValidConfig, { config, callers }: ValidConfig): boolean {
  const { global, services } = before.config;
  const isAll = services.length === config.services.length && services.every((each, i) => each === config.services[i]);
  return isAll && global === config.global && callers === before.callers;
}

export class Reloads {
  readonly #configuration: Configuration;
  /** Resolves when the jobs so far are over. */
  #queue: Promise<unknown> = Promise.resolve();
  /** The last reload in the queue, if it is to read the gateway's own source and has not begun. */
  #waiting: { readonly applied: Promise<Applied>; readonly askers: [AskedBy, ...AskedBy[]] } | null = null;
  /** How many jobs are in the queue, the one that runs included. */
  #jobs = 0;
  /** Whether files were reread since a reload has begun. */
  #isReread = false;

  constructor(configuration: Configuration) {
    this.#configuration = configuration;
  }

  /** Whether a reload runs, or waits. */
  get isBusy(): boolean {
    return this.#jobs > 0;
  }

  /** See `Gateway.reload`. */
  reload(config: ConfigInput | undefined, asked: AskedBy, modules: Modules = "loaded"): Promise<Applied> {
    // The last in the queue reads the same source, as it is by then.
    if (config === undefined && this.#waiting !== null) {
      this.#waiting.askers.push(asked);
      return this.#waiting.applied;
    }
    const askers: [AskedBy] = [asked];
    const applied = this.#inTurn(askers, () => {
      if (this.#waiting?.askers === askers) this.#waiting = null;
      return this.#reloadSource(config, askers, modules);
    });
    this.#waiting = config === undefined ? { applied, askers } : null;
    return applied;
  }

  /**
   * As `reload`, of the text, which replaces the file. Where it is refused, the file stays as it is, and so does
   * `lastReload`.
   */
  replaceFile(replacement: Replacement, asked: AskedBy): Promise<Applied> {
    this.#waiting = null;
    const askers: Askers = [asked];
    return this.#inTurn(askers, async () => {
      const { reader, options } = this.#configuration;
      const { namedFiles } = reader;
      const source = { text: replacement.text, file: options.configFile! };
      try {
        return await this.#reload(source, askers, { modules: "to load", write: replacement.write });
      } catch (error) {
        reader.namedFiles = namedFiles;
        throw error;
      }
    });
  }

  /** See `Gateway.rereadFiles`. */
  rereadFiles(): boolean {
    const reread = atOnce(this.#rereadSteps());
    if (reread === null) return false;
    const configuration = this.#configuration;
    configuration.apply(configuration.compile(reread, configuration.snapshot));
    this.#findWarningsLater();
    return true;
  }

  /** As `rereadFiles`, in all threads of the program. */
  async rereadFilesInAll(): Promise<boolean> {
    if (this.#configuration.snapshot.files.length === 0) return false;
    const askers: Askers = [{ by: "file" }];
    return this.#inTurn(askers, async () => {
      const at = this.#configuration.tools.clock.wall();
      const reread = await this.#rereadInSlices();
      if (reread === null) return false;
      this.#isReread = false;
      const inForce = await this.#replace(reread);
      if (this.#isReread) this.#rereadLater();
      const { digest } = inForce.snapshot;
      this.#report({ at, askers, before: digest, digest, changed: false, changes: [], inForce });
      this.#findWarningsLater();
      return true;
    });
  }

  /** Configurations replace one another in the order in which that was asked for. */
  #inTurn<T>(askers: Askers, replace: () => Promise<T>): Promise<T> {
    this.#jobs++;
    const replaced = this.#queue
      .then(replace)
      .finally(() => this.#jobs--)
      .catch((error: unknown) => {
        // Before the next one in the queue can come into force.
        const { snapshot, tools } = this.#configuration;
        for (const asked of askers) tools.audit?.refused(asked, error, snapshot.digest);
        throw error;
      });
    this.#queue = replaced.catch(() => {});
    return replaced;
  }

  /** Those who asked meanwhile have asked for what is in force. */
  #report(facts: Omit<Applied, "signer">): Applied {
    const { onApplied, signer, tools } = this.#configuration;
    const applied = { ...facts, signer };
    const { askers, before, digest } = facts;
    askers.forEach((asked, i) => tools.audit?.applied(asked, i === 0 ? before : digest, applied));
    onApplied(applied);
    return applied;
  }

  async #reloadSource(config: ConfigInput | undefined, askers: Askers, modules: Modules): Promise<Applied> {
    const configuration = this.#configuration;
    const at = configuration.tools.clock.wall();
    try {
      configuration.checkOpen();
      const source = await inSlices(configuration.reader.sourceSteps(config), paced());
      return await this.#reload(source, askers, { modules });
    } catch (error) {
      configuration.lastReload = {
        at,
        by: askers[0].by,
        digest: configuration.snapshot.digest,
        outcome: "refused",
        ...whyRefused(error),
      };
      throw error;
    }
  }

  async #reload(
    source: ConfigSource,
    askers: Askers,
    { modules, write }: { readonly modules: Modules; readonly write?: Replacement["write"] },
  ): Promise<Applied> {
    const configuration = this.#configuration;
    const { features, reader, options } = configuration;
    const at = configuration.tools.clock.wall();
    await parseInSlices(source, configuration.snapshot.checked);
    await features.loadNeeded(source);
    // What cannot be loaded is an error of the configuration.
    if (modules === "to load") await features.loadModules(source, options.environment ?? process.env).catch(ignore);
    this.#isReread = false;
    await features.loaded.callers?.callerReaderOf(features).readAhead(source);
    const endReading = await this.#readListsAhead();
    const steps = reader.loadSteps(source, { before: configuration.snapshot });
    const read = await inSlices(steps, paced()).finally(endReading);
    configuration.validity?.check(read);
    await configuration.runTests(read, "strict");
    // In slices before the configuration is in force: status and log need them at once afterwards.
    const before = configuration.snapshot;
    const isKnown = isSame(before, read.valid) && configuration.warnings !== null;
    const warnings = isKnown
      ? configuration.warnings
      : await features.loaded.proof?.configWarningsInSlices(read.valid, configuration.proofs);
    const { digest, shown } = read.valid;
    const changed = digest !== before.digest;
    const changes = changed ? await inSlices(changeSteps(before.shown, shown), paced()) : [];
    const inForce = await this.#replace(read, write);
    configuration.validity?.applied(configuration.snapshot.config);
    configuration.warnings = warnings ?? [];
    configuration.tested = Promise.resolve();
    if (this.#isReread) this.#rereadLater();
    configuration.loadedAt = at;
    const taken = { at, by: askers[0].by, digest, outcome: "taken", changes } as const;
    configuration.lastReload = taken;
    if (changed) configuration.lastChange = taken;
    return this.#report({ at, askers, before: before.digest, digest, changed, changes, inForce });
  }

  /** `write` is called when all threads can use the configuration, and just before they do. */
  async #replace(read: ReadConfig, write?: Replacement["write"]): Promise<Prepared> {
    const configuration = this.#configuration;
    configuration.checkOpen();
    const { metrics, clock } = configuration.tools;
    const reader = metrics?.decisions ? await configuration.features.onDemand.decisions() : null;
    await reader?.learnNames(metrics!.decisions!, metrics!.inForce);
    const prepared = await configuration.compileInSlices(read);
    let takeBack: Awaited<ReturnType<Replacement["write"]>> | undefined;
    try {
      await configuration.followers?.prepare(configuration.bundleOf(prepared));
      configuration.checkOpen();
      takeBack = await write?.();
    } catch (error) {
      configuration.drop(prepared);
      throw error;
    }
    const follow = reader?.followDecisions(metrics!, clock);
    try {
      configuration.apply(prepared);
    } catch (error) {
      await takeBack?.(error);
      throw error;
    }
    void follow?.();
    return prepared;
  }

  /** Files were reread while their new configuration was tested, with its older content of them. */
  #rereadLater(): void {
    try {
      this.rereadFiles();
    } catch {
      // They are not usable under the new configuration: it keeps those that it was loaded with.
    }
  }

  /** Null: no file has changed. Of the configuration in force, also where that is read again meanwhile. */
  async #rereadInSlices(): Promise<ReadConfig | null> {
    for (;;) {
      const { snapshot, inForce } = this.#configuration;
      await parseInSlices(inForce.source, snapshot.checked);
      const endReading = await this.#readListsAhead();
      const read = await inSlices(this.#rereadSteps(), paced()).finally(endReading);
      if (this.#configuration.snapshot === snapshot) return read;
    }
  }

  async #readListsAhead(): Promise<(() => void) | undefined> {
    const { features, snapshot } = this.#configuration;
    const { outbound, serverTls } = features.loaded;
    return (outbound ?? serverTls)?.readRevocationListsAhead(snapshot.files, readRegularFile);
  }

  *#rereadSteps(): Generator<void, ReadConfig | null> {
    const {
      snapshot,
      inForce: { source, inputs },
      reader,
      closing,
    } = this.#configuration;
    const { files, testFiles, callerFiles, global } = snapshot;
    this.#isReread = true;
    if (files.length === 0 || closing.signal.aborted) return null;
    // Modules, callers and tests stay as they were loaded: one that has changed by now must not keep a certificate from
    // being renewed.
    const staying = new Set([...testFiles, ...callerFiles, ...global.pluginModules.map(({ path }) => path.path)]);
    const kept = new Map(inputs.files);
    for (const { path } of files) if (!staying.has(path)) kept.delete(path);
    const read = yield* reader.loadSteps(source, { known: { ...inputs, files: kept }, before: snapshot });
    return read.valid.files.every(({ content }, i) => files[i]?.content.equals(content)) ? null : read;
  }

  /** Only the content of files has changed: the warnings of before stay until the new ones are known. */
  #findWarningsLater(): void {
    const configuration = this.#configuration;
    if (configuration.warnings !== null) configuration.findWarnings().catch(() => (configuration.warnings = null));
  }
}
