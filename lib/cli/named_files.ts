/**
 * Reads and writes files that a setting or the command line names.
 */
import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { whyUnreadable } from "../config/references.ts";
import { Failure } from "./failure.ts";

/** `read`: default: also waits for what is written into a pipe. */
export function readNamedFile(path: string, setting: string, what: string, read: (path: string) => Buffer = readFileSync): Buffer {
  try {
    return read(path);
  } catch (error) {
    throw new Failure(`cannot read the ${what} ${path} (${setting}): ${whyUnreadable(error)}`, 2);
  }
}

/** Writes a file beside `path` and renames it, so that a running gateway never reads half of it. `prepare` gets its path before. */
export function writeWhole(path: string, text: string, prepare: (fresh: string) => void = () => {}): void {
  const fresh = `${path}.${process.pid}.new`;
  try {
    writeFileSync(fresh, text, { flag: "wx" });
    prepare(fresh);
    renameSync(fresh, path);
  } catch (error) {
    rmSync(fresh, { force: true });
    throw new Failure(`cannot write ${path}: ${whyUnreadable(error)}`, 1);
  }
}
