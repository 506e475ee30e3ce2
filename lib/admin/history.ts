/**
 * The last configurations that were in force, in a folder beside the configuration's file, which survives restarts.
 * What is a secret in them is masked: such an entry can be read, and cannot come into force again.
 */
import { randomBytes } from "node:crypto";
import { chmod, lstat, mkdir, open, readdir, readFile, rm } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { Fault, messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { replaceFile } from "../base/replaced_file.ts";
import { sourceDigest } from "../config/load.ts";
import type { Change } from "../gateway/config_diff.ts";
import type { ReloadCause } from "../gateway/status.ts";

export type ChangedBy = { readonly user: string; readonly address: string } | { readonly cause: ReloadCause | "start" };

export interface HistoryEntry {
  readonly digest: string;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly by: ChangedBy;
  readonly changes: readonly Change[];
  /** How many of its texts are masked. */
  readonly masked: number;
}

/** The history of a configuration's file is beside it. */
export function historyBeside(configPath: string): string {
  return join(dirname(resolve(configPath)), `.${basename(configPath)}.history`);
}

/** That of a configuration from a URL is in the folder of STATE_DIR. */
export function historyIn(stateDir: string): string {
  return join(resolve(stateDir), "history");
}

type Stored = HistoryEntry & { readonly name: string; readonly bytes: number };

const MAX_ENTRIES = 20;
/** Of all entries; the last one stays, however long it is. */
const MAX_BYTES = 64 * 1024 * 1024;
/** The first line of a file, which describes the text behind it. */
const MAX_HEAD = 256 * 1024;
const MAX_CHANGES = 200;
const NAME = /^\d{15}-[0-9a-f]{12}$/;
const UNFINISHED = /^[0-9a-f]{24}\.new$/;

export class ConfigHistory {
  readonly folder: string;
  readonly #log: Log;
  /** The newest first. */
  #entries: Stored[] = [];
  /** Resolves when all so far has been read and written. */
  #last: Promise<void>;

  constructor(folder: string, log: Log) {
    this.folder = folder;
    this.#log = log;
    this.#last = this.#open();
  }

  /** Once what was added so far is there. */
  async entries(): Promise<readonly HistoryEntry[]> {
    await this.#last;
    return this.#entries;
  }

  /** As it is stored. Rejects with a `Fault`. */
  async text(digest: string): Promise<{ readonly entry: HistoryEntry; readonly text: Buffer }> {
    await this.#last;
    const entry = this.#entries.find((each) => each.digest === digest);
    if (entry === undefined) throw new Fault("route_not_found", "The history has no configuration with this digest.");
    const content = await readFile(join(this.folder, entry.name)).catch(() => null);
    const text = content?.subarray(content.indexOf(10) + 1);
    if (text === undefined || (entry.masked === 0 && sourceDigest(text) !== digest))
      throw new Fault("conflict", `The entry in ${this.folder} is gone or damaged.`);
    return { entry, text };
  }

  /** Does nothing where it is the newest already: a start with what was in force before, a file that is read again. */
  add(entry: HistoryEntry, text: Buffer): void {
    this.#last = this.#last
      .then(async () => {
        if (this.#entries[0]?.digest === entry.digest) return;
        await this.#write(entry, text);
        await this.#bound();
      })
      .catch((error: unknown) =>
        this.#log.error("the history of configurations cannot be written", {
          folder: this.folder,
          error: messageOf(error),
        }),
      );
  }

  async #open(): Promise<void> {
    try {
      await mkdir(this.folder, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) =>
        error.code === "EEXIST" ? undefined : Promise.reject(error),
      );
      if (!(await lstat(this.folder)).isDirectory()) throw new Error("it is no folder");
      await chmod(this.folder, 0o700);
      const skipped: string[] = [];
      for (const name of await readdir(this.folder)) {
        const found = NAME.test(name) ? await this.#read(name).catch(() => null) : null;
        if (found !== null) this.#entries.push(found);
        else if (UNFINISHED.test(name)) await rm(join(this.folder, name), { force: true });
        else skipped.push(name);
      }
      this.#entries.sort((a, b) => (a.name < b.name ? 1 : -1));
      if (skipped.length > 0)
        this.#log.warn("files in the folder of the history are no entries, and are left alone", {
          folder: this.folder,
          files: skipped.slice(0, 10),
          count: skipped.length,
        });
      await this.#bound();
    } catch (error) {
      this.#log.error("the history of configurations cannot be read", { folder: this.folder, error: messageOf(error) });
    }
  }

  /** Null: it is damaged. */
  async #read(name: string): Promise<Stored | null> {
    const path = join(this.folder, name);
    const found = await lstat(path);
    if (!found.isFile()) return null;
    const handle = await open(path);
    try {
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(Math.min(found.size, MAX_HEAD)), 0);
      const end = buffer.subarray(0, bytesRead).indexOf(10);
      const entry = end < 0 ? null : entryOf(JSON.parse(buffer.toString("utf8", 0, end)));
      return entry !== null && name.endsWith(`-${entry.digest}`) ? { ...entry, name, bytes: found.size } : null;
    } finally {
      await handle.close();
    }
  }

  async #write(entry: HistoryEntry, text: Buffer): Promise<void> {
    // Two within a millisecond, or a clock that was set back.
    const at = Math.max(entry.at, Number(this.#entries[0]?.name.slice(0, 15) ?? 0) + 1);
    const name = `${String(at).padStart(15, "0")}-${entry.digest}`;
    const content = Buffer.concat([
      Buffer.from(`${JSON.stringify({ ...entry, changes: entry.changes.slice(0, MAX_CHANGES) })}\n`),
      text,
    ]);
    await replaceFile(join(this.folder, name), [content], {
      beside: join(this.folder, `${randomBytes(12).toString("hex")}.new`),
    });
    this.#entries.unshift({ ...entry, name, bytes: content.length });
  }

  async #bound(): Promise<void> {
    let bytes = 0;
    const isKept = (entry: Stored, i: number) => ((bytes += entry.bytes) <= MAX_BYTES ? i < MAX_ENTRIES : i === 0);
    const kept = this.#entries.filter(isKept);
    const dropped = this.#entries.filter((entry) => !kept.includes(entry));
    this.#entries = kept;
    for (const { name } of dropped) await rm(join(this.folder, name), { force: true });
  }
}

/** Null: it is none. */
function entryOf(value: unknown): HistoryEntry | null {
  const { digest, at, by, changes, masked } = (value ?? {}) as Readonly<Record<string, any>>;
  const isBy = typeof by?.cause === "string" || (typeof by?.user === "string" && typeof by?.address === "string");
  if (
    typeof digest !== "string" ||
    !Number.isSafeInteger(at) ||
    at < 0 ||
    !isBy ||
    !Array.isArray(changes) ||
    !Number.isSafeInteger(masked)
  )
    return null;
  return {
    digest,
    at,
    by: typeof by.cause === "string" ? { cause: by.cause } : { user: by.user, address: by.address },
    changes,
    masked,
  };
}
