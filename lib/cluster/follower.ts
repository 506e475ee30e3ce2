/**
 * Has the gateway of a worker follow the one of the main thread: a configuration is prepared, and comes into force once
 * the main thread says so.
 */
import { inSlices, paced } from "../base/time_slices.ts";
import { parseInSlices } from "../config/source.ts";
import type { Bundle, Watch } from "../gateway/bundle.ts";
import { readNoFile } from "../gateway/config_reader.ts";
import type { Configuration, Prepared } from "../gateway/configuration.ts";
import type { Following } from "../gateway/internals.ts";

export class Follower implements Following {
  readonly bundle: Bundle;
  readonly watched: Watch;
  /** The version of the configuration that the main thread has brought into force. */
  readonly #committed: () => number;
  /** Compiled, and not in force yet. */
  #prepared: Prepared | null = null;
  /** Whether plugins are being created for a further configuration: what they log now is logged by every thread. */
  isCompiling = false;

  constructor(bundle: Bundle, watched: Watch, committed: () => number) {
    this.bundle = bundle;
    this.watched = watched;
    this.#committed = committed;
  }

  /**
   * Compiles what the main thread has compiled. Rejects with a `ConfigError`, or the error that a plugin threw at its
   * creation.
   */
  async prepare(configuration: Configuration, { version, source, environment, files }: Bundle): Promise<void> {
    const { features, reader } = configuration;
    await parseInSlices(source, configuration.snapshot.checked);
    await features.load(source, environment, (path) => files.get(path) ?? readNoFile(path));
    const { callers, outbound, serverTls } = features.loaded;
    const readFile = (path: string) => files.get(path) ?? readNoFile(path);
    await callers?.callerReaderOf(features).readAhead(source, readFile);
    const given = Array.from(files, ([path, content]) => ({ path, content }));
    const endReading = await (outbound ?? serverTls)?.readRevocationListsAhead(given, readFile);
    const known = { environment, files };
    const steps = reader.loadSteps(source, { known, before: configuration.snapshot });
    const read = await inSlices(steps, paced()).finally(endReading);
    this.#prepared = await configuration.compileInSlices(read, { version, during: this.#compiling });
  }

  readonly #compiling = <T>(run: () => T): T => {
    this.isCompiling = true;
    try {
      return run();
    } finally {
      this.isCompiling = false;
    }
  };

  catchUp(configuration: Configuration): void {
    const prepared = this.#prepared;
    if (prepared === null || this.#committed() !== prepared.version) return;
    this.#prepared = null;
    configuration.apply(prepared);
  }

  /** Drops the prepared configuration. */
  abandon(configuration: Configuration): void {
    if (this.#prepared !== null) configuration.drop(this.#prepared);
    this.#prepared = null;
  }
}
