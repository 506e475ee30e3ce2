/**
 * Exit codes, and start-up failures as sentences that name the setting to change.
 */
import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { whyUnreadable } from "../base/regular_file.ts";
import type { SettingsRead } from "../config/settings.ts";

/** 0: done as asked. 1: it failed while running. 2: the command line, the settings or the configuration are wrong. */
export type ExitCode = 0 | 1 | 2;

/** Ends the program with this message and exit code. */
export class Failure extends Error {
  readonly exitCode: ExitCode;

  constructor(message: string, exitCode: ExitCode) {
    super(message);
    this.exitCode = exitCode;
  }

  static ofUsage(issues: readonly string[]): Failure {
    return new Failure(issues.join("\nedge-gateway: "), 2);
  }
}

/** Throws a `Failure` with everything that is wrong. */
export function accepted<T>(read: SettingsRead<T>): T {
  if (!read.ok) throw Failure.ofUsage(read.issues);
  return read.settings;
}

/** `port` and `host` are the names of the settings, `where` is the address that could not be bound: "0.0.0.0:8008". */
export function listenFailure(error: NodeJS.ErrnoException, where: string, port: string, host: string): Failure {
  const setting = (variable: string) => `${variable} (--${variable.toLowerCase().replaceAll("_", "-")})`;
  const remedy: { readonly [code: string]: string } = {
    EADDRINUSE: `the port is already in use; stop the program that listens there, or choose another port with ${setting(port)}`,
    EACCES: `this user may not listen there; choose a port above 1023 with ${setting(port)}`,
    EADDRNOTAVAIL: `this machine has no such address; choose another with ${setting(host)}`,
    ENOTFOUND: `the name has no address; choose another with ${setting(host)}`,
  };
  return new Failure(`cannot listen on ${where}: ${remedy[error.code ?? ""] ?? error.message}`, 1);
}

/** The bytes of a file that a setting or the command line names. `read`: default: also waits for what is written into a pipe. */
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
