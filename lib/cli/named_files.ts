/**
 * Reads and writes files that a setting or the command line names.
 */
import { chmodSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { certificatesProblem } from "../base/pem.ts";
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { Failure } from "./failure.ts";

/** `read`: default: also waits for what is written into a pipe. */
export function readNamedFile(
  path: string,
  setting: string,
  what: string,
  read: (path: string) => Buffer = readRegularFile,
): Buffer {
  try {
    return read(path);
  } catch (error) {
    throw new Failure(`cannot read the ${what} ${path} (${setting}): ${whyUnreadable(error)}`, 2);
  }
}

/** CA certificates that verify the certificate of another server. */
export function readAuthorities(path: string, setting: string): Buffer {
  const content = readNamedFile(path, setting, "CA certificate of the admin interface", readRegularFile);
  refuse(`${path} (${setting})`, certificatesProblem(content));
  return content;
}

/** Throws a `Failure` where there is a problem, which completes "the file …". */
export function refuse(file: string, problem: string | undefined): void {
  if (problem !== undefined) throw new Failure(`${file} ${problem}`, 2);
}

/**
 * Writes a file beside `path` and renames it, so that a running gateway never reads half of it. `mode`: of the file,
 * which may have secrets, from its first byte on. Default: as the system makes files.
 */
export function writeWhole(path: string, text: string, mode?: number): void {
  const fresh = `${path}.${process.pid}.new`;
  try {
    writeFileSync(fresh, text, { flag: "wx", ...(mode !== undefined && { mode: 0o600 }) });
    if (mode !== undefined) chmodSync(fresh, mode);
    renameSync(fresh, path);
  } catch (error) {
    rmSync(fresh, { force: true });
    throw new Failure(`cannot write ${path}: ${whyUnreadable(error)}`, 1);
  }
}
