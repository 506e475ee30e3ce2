/**
 * Replaces the configuration in force, one job after the other: each reads a configuration or files, and brings them
 * into force in all threads of the program or in none.
 */
import { ignore } from "../base/errors.ts";
import { parseInSlices, type ConfigSource } from "../config/source.ts";
import type { ConfigInput } from "./config_input.ts";
import type { ReadConfig } from "./config_reader.ts";
import type { Configuration } from "./configuration.ts";
import { whyRefused } from "./refusal.ts";
import type { Reloaded, ReloadCause } from "./status.ts";

/** A text that is to become the content of the configuration's file. */
export interface Replacement {
  readonly text: Buffer;
  /**
   * Puts it there, once every thread can use it. `expect`: see `watchFiles`. Returns what takes it back; `why`: the
   * error for which.
   */
  readonly write: (expect?: (path: string, signature: string) => void) => Promise<(why: unknown) => Promise<void>>;
}

export class Reloads {
  readonly #configuration: Configuration;
  /** Resolves when the jobs so far are over. */
  #queue: Promise<unknown> = Promise.resolve();
  /** The last reload in the queue, if it is to read the gateway's own source and has not begun. */
  #waiting: Promise<Reloaded> | null = null;
  /** Whether files were reread since a reload has begun. */
  #isReread = false;

  constructor(configuration: Configuration) {
    this.#configuration = configuration;
  }

  /** See `Gateway.reload`. */
  reload(config: ConfigInput | undefined, by: ReloadCause): Promise<Reloaded> {
    // The last in the queue reads the same source, as it is by then.
    if (config === undefined && this.#waiting !== null) return this.#waiting;
    const reloaded = this.#inTurn(() => {
      if (this.#waiting === reloaded) this.#waiting = null;
      return this.#reloadSource(config, by);
    });
    this.#waiting = config === undefined ? reloaded : null;
    return reloaded;
  }

  /**
   * As `reload`, of the text, which replaces the file. Where it is refused, the file stays as it is, and so does
   * `lastReload`.
   */
  replaceFile(replacement: Replacement, by: ReloadCause): Promise<Reloaded> {
    this.#waiting = null;
    return this.#inTurn(async () => {
      const { reader, parts, options } = this.#configuration;
      const { named } = reader;
      const source = { text: replacement.text, file: options.configFile! };
      try {
        // The reload fails for the same reason, and reports it.
        await parts.load(source, options.environment ?? process.env).catch(ignore);
        return await this.#reload(source, by, replacement.write);
      } catch (error) {
        reader.named = named;
        throw error;
      }
    });
  }

  /** See `Gateway.rereadFiles`. */
  rereadFiles(): boolean {
    const reread = this.#reread();
    if (reread === null) return false;
    const configuration = this.#configuration;
    configuration.enforce(configuration.compile(reread, undefined, configuration.inForce.reload));
    this.#findWarningsLater();
    return true;
  }

  /** As `rereadFiles`, in all threads of the program. */
  rereadFilesInAll(): Promise<boolean> {
    return this.#inTurn(async () => {
      await parseInSlices(this.#configuration.inForce.source);
      const reread = this.#reread();
      if (reread === null) return false;
      await this.#replace(reread, { isReread: true });
      this.#findWarningsLater();
      return true;
    });
  }

  /** Configurations replace one another in the order in which that was asked for. */
  #inTurn<T>(replace: () => Promise<T>): Promise<T> {
    const replaced = this.#queue.then(replace);
    this.#queue = replaced.catch(() => {});
    return replaced;
  }

  async #reloadSource(config: ConfigInput | undefined, by: ReloadCause): Promise<Reloaded> {
    const configuration = this.#configuration;
    const at = configuration.tools.clock.wall();
    try {
      configuration.checkOpen();
      return await this.#reload(configuration.reader.source(config), by);
    } catch (error) {
      configuration.lastReload = {
        at,
        by,
        digest: configuration.snapshot.digest,
        outcome: "refused",
        ...whyRefused(error),
      };
      throw error;
    }
  }

  async #reload(source: ConfigSource, by: ReloadCause, write?: Replacement["write"]): Promise<Reloaded> {
    const configuration = this.#configuration;
    const { parts, reader } = configuration;
    const at = configuration.tools.clock.wall();
    await parts.loadParts(source);
    await parts.loadPart("changes");
    this.#isReread = false;
    await parts.partIfLoaded("callers")?.callerReaderOf(parts).readAhead(source);
    const read = reader.load(source);
    configuration.validity?.check(read);
    await configuration.runTests(read, "strict");
    // In slices before the configuration is in force: status and log need them at once afterwards.
    const warnings = await parts.partIfLoaded("warnings")?.configWarningsInSlices(read.loaded);
    const before = configuration.snapshot;
    await this.#replace(read, { write });
    configuration.validity?.take(configuration.snapshot.config);
    configuration.warnings = warnings ?? [];
    configuration.proven = Promise.resolve();
    if (this.#isReread) this.#rereadLater();
    configuration.loadedAt = at;
    const { digest, shown } = configuration.snapshot;
    const changed = digest !== before.digest;
    const changes = changed ? parts.part("changes").changesBetween(before.shown, shown) : [];
    const taken = { at, by, digest, outcome: "taken", changes } as const;
    configuration.lastReload = taken;
    if (changed) configuration.lastChange = taken;
    return { digest, changed, changes };
  }

  /** `write` is called when all threads can use the configuration, and just before they do. */
  async #replace(
    read: ReadConfig,
    { write, isReread = false }: { readonly write?: Replacement["write"] | undefined; readonly isReread?: boolean },
  ): Promise<void> {
    const configuration = this.#configuration;
    configuration.checkOpen();
    const { metrics, clock } = configuration.tools;
    const reader = metrics?.decisions ? await configuration.parts.onDemand.decisions() : null;
    const prepared = configuration.compile(read, undefined, isReread ? configuration.inForce.reload : undefined);
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
      configuration.enforce(prepared);
    } catch (error) {
      await takeBack?.(error);
      throw error;
    }
    void follow?.();
  }

  /** Files were reread while their new configuration was tested, with its older content of them. */
  #rereadLater(): void {
    try {
      this.rereadFiles();
    } catch {
      // They are not usable under the new configuration: it keeps those that it was loaded with.
    }
  }

  /** Null: no file has changed. */
  #reread(): ReadConfig | null {
    const {
      snapshot: { files, testFiles, callerFiles, global },
      inForce: { source, inputs },
      reader,
      closing,
    } = this.#configuration;
    this.#isReread = true;
    if (files.length === 0 || closing.signal.aborted) return null;
    // Modules, callers and tests stay as they were loaded: one that has changed by now must not keep a certificate from
    // being renewed.
    const staying = new Set([...testFiles, ...callerFiles, ...global.pluginModules.map(({ path }) => path.path)]);
    const kept = new Map(inputs.files);
    for (const { path } of files) if (!staying.has(path)) kept.delete(path);
    const read = reader.load(source, { ...inputs, files: kept });
    return read.loaded.files.every(({ content }, i) => files[i]?.content.equals(content)) ? null : read;
  }

  /** Only the content of files has changed: the warnings of before stay until the new ones are known. */
  #findWarningsLater(): void {
    const configuration = this.#configuration;
    if (configuration.warnings !== null) configuration.findWarnings().catch(() => (configuration.warnings = null));
  }
}
