/**
 * The file of the configuration, as the admin interface reads and replaces it. The file stays the truth: a change by
 * another program is never overwritten, and after a crash the file has its former content or the new one, as a whole.
 */
import { randomBytes } from "node:crypto";
import { accessSync, constants, realpathSync, statSync, type Stats } from "node:fs";
import { chmod, chown, lstat, readdir, rm, type FileHandle } from "node:fs/promises";
import { basename, dirname, join, resolve, sep } from "node:path";
import { Fault, ignore, messageOf } from "../base/errors.ts";
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { replaceFile } from "../base/replaced_file.ts";
import { sourceDigest } from "../config/load.ts";
import { signature } from "../config/watch.ts";
import type { Replacement } from "../gateway/reloads.ts";
import { whyUnwritable } from "../observe/log_file.ts";

export interface FileState {
  /** Where the links of the path lead. */
  readonly target: string;
  readonly text: Buffer;
  readonly digest: string;
}

const UNFINISHED = /^[0-9a-f]{24}\.new$/;
/** A replacement takes seconds at most. */
const UNFINISHED_MS = 60_000;

export class SourceFile {
  readonly #path: string;

  constructor(path: string) {
    this.#path = resolve(path);
  }

  /** Throws a `Fault` with a sentence for the administrator. */
  read(): FileState {
    try {
      const target = realpathSync(this.#path);
      const text = readRegularFile(target);
      return { target, text, digest: sourceDigest(text) };
    } catch (error) {
      throw new Fault("conflict", `The configuration file ${this.#path} cannot be read: ${whyUnreadable(error)}.`);
    }
  }

  /**
   * Files of replacements that a crash has interrupted. Another program on the same file may be writing a younger one.
   */
  async removeUnfinished(): Promise<void> {
    const target = realpathSync(this.#path);
    const unfinished = (name: string) =>
      name.startsWith(`.${basename(target)}.`) && UNFINISHED.test(name.slice(basename(target).length + 2));
    for (const name of (await readdir(dirname(target))).filter(unfinished)) {
      const beside = join(dirname(target), name);
      if (Date.now() - (await lstat(beside)).mtimeMs > UNFINISHED_MS) await rm(beside, { force: true });
    }
  }

  /** Throws a `Fault` where the file cannot be replaced. */
  checkWritable({ target }: FileState): void {
    const folder = dirname(target);
    // Kubernetes puts the content of a ConfigMap into "..2026_01_02", and changes where the link "..data" leads.
    if (folder.split(sep).some((name) => name.startsWith("..")))
      throw new Fault(
        "conflict",
        `${this.#path} is from a ConfigMap or a Secret of Kubernetes, which would undo the change: change it there.`,
      );
    // Node's permission model allows names in the folder, and not to look at the folder itself.
    for (const path of process.permission === undefined ? [target, folder] : [target]) {
      // The system lets root write all the same.
      const why = (statSync(path).mode & 0o222) === 0 ? "nobody may write there" : unwritable(path);
      if (why !== null)
        throw new Fault(
          "conflict",
          `${path} is read-only (${why}): change the file where it comes from, or its permissions.`,
        );
    }
  }

  /**
   * Replaces the content, if it still is that of `before`; owner and mode stay. Rejects with a `Fault`, and nothing has
   * changed. `expect` gets the signature of the new file, so that a watcher does not take it for another change.
   * Returns what puts the former content back, or rejects with a `Fault` that says why the new one came not into force,
   * and why it may still be there.
   */
  async replace(
    text: Buffer,
    before: FileState,
    expect: NonNullable<Parameters<Replacement["write"]>[0]> = ignore,
  ): Promise<(why: unknown) => Promise<void>> {
    const { target } = before;
    const beside = join(dirname(target), `.${basename(target)}.${randomBytes(12).toString("hex")}.new`);
    const check = () => {
      const found = this.read();
      if (found.target !== target || !found.text.equals(before.text))
        throw new Fault(
          "precondition_failed",
          `${this.#path} has been changed meanwhile: its digest is ${found.digest}.`,
        );
      expect(signature(beside)!);
    };
    try {
      await replaceFile(target, [text], { beside, prepare: (file) => become(beside, file, statSync(target)), check });
    } catch (error) {
      throw error instanceof Fault
        ? error
        : new Fault("conflict", `${this.#path} cannot be replaced: ${whyNotReplaced(error)}.`);
    }
    return async (why) => {
      try {
        await this.replace(before.text, { target, text, digest: sourceDigest(text) }, expect);
      } catch (error) {
        throw new Fault(
          "conflict",
          `The configuration cannot come into force: ${messageOf(why)}. ` +
            `The former text of the file could not be put back: ${messageOf(error)}`,
        );
      }
    };
  }
}

/** Gives a new file the owner and the mode of another one. */
async function become(path: string, file: FileHandle, { mode, uid, gid }: Stats): Promise<void> {
  const own = await file.stat();
  // Node's permission model forbids these of handles, and checks the path.
  const [chownIt, chmodIt] =
    process.permission === undefined
      ? [file.chown.bind(file), file.chmod.bind(file)]
      : [chown.bind(null, path), chmod.bind(null, path)];
  if (own.uid !== uid || own.gid !== gid) await chownIt(uid, gid);
  await chmodIt(mode & 0o7777);
}

/** Null: this process may write there. */
function unwritable(path: string): string | null {
  try {
    accessSync(path, constants.W_OK);
    return null;
  } catch (error) {
    return whyUnwritable(error);
  }
}

function whyNotReplaced(error: unknown): string {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (code === "EBUSY") return "it is mounted by itself: mount its folder instead";
  if (code === "ENOSPC" || code === "EDQUOT") return "the disk is full";
  if (code === "EFBIG") return "it would be larger than files may be";
  return syscall === "fchown" || syscall === "chown"
    ? "a new file cannot have its owner and group"
    : whyUnwritable(error);
}
