/**
 * The text of a configuration in a file: reads it, with its signature where it has to be signed, and reports changes of
 * both.
 */
import { dirname, resolve } from "node:path";
import { systemClock, type Timer } from "../base/clock.ts";
import { readFileSteps, readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { SourceFailure, type SourceText, type TextSource } from "./text_source.ts";
import { watchFiles } from "./watch.ts";

export class FileTextSource implements TextSource {
  readonly name: string;
  readonly folder: string;
  readonly cause = "file";
  readonly state = null;
  readonly #file: string;
  /** Null: it is not read. */
  readonly #signatureFile: string | null;
  readonly #listeners = new Set<() => void>();
  readonly #watched = watchFiles(() => this.#changed());
  /** Null: no change waits for another one. */
  #settling: Timer | null = null;

  /** `keyFile`: where the public keys are; null: the file need not be signed, and its signature is not read. */
  constructor(path: string, keyFile: string | null) {
    this.name = path;
    this.#file = resolve(path);
    this.folder = dirname(this.#file);
    this.#signatureFile = keyFile === null ? null : signatureFile(this.#file);
  }

  *current(): Generator<void, SourceText> {
    const unsigned = { revision: null, signature: null };
    try {
      const text = yield* readFileSteps(this.#file);
      return { text, ...unsigned, ...(this.#signatureFile !== null && readSignature(this.#signatureFile)) };
    } catch (error) {
      const why = `cannot read ${this.#file}: ${whyUnreadable(error)}`;
      throw new SourceFailure("missing", `${why}; name another file with --config PATH or CONFIG_FILE_PATH`);
    }
  }

  async refresh(): Promise<void> {}

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    this.#watched.follow([this.#file, this.#signatureFile ?? []].flat());
    return () => void this.#listeners.delete(listener);
  }

  readonly expect = (signature: string): void => this.#watched.expect(this.#file, signature);

  /** A text and its signature are replaced one after the other, or at once: that is one change. */
  #changed(): void {
    const report = () => {
      for (const listener of this.#listeners) listener();
    };
    if (this.#signatureFile === null) return report();
    this.#settling?.cancel();
    this.#settling = systemClock.after(PAIR_MS, report);
  }

  close(): void {
    this.#settling?.cancel();
    this.#listeners.clear();
    this.#watched.close();
  }
}

/** Besides the time in which each of the files settles. */
const PAIR_MS = 100;

/** Where the signature of a file is. */
export function signatureFile(path: string): string {
  return `${path}.sig`;
}

function readSignature(path: string): Pick<SourceText, "signature" | "whyUnsigned"> {
  try {
    return { signature: readRegularFile(path).toString("latin1") };
  } catch (error) {
    return { signature: null, whyUnsigned: whyUnreadable(error) };
  }
}
