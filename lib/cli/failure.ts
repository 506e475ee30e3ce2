/**
 * Exit codes, and start-up failures as sentences that name the setting to change.
 */
import { isInBuild } from "../base/version.ts";
import { countOfIssues } from "../config/json.ts";
import type { SettingsRead } from "../config/settings_types.ts";
import type { ConfigError } from "../gateway/config_error.ts";

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

/** Throws a `Failure` where settings name what this build does not have. */
export function refuseLacking(names: readonly string[]): void {
  const [lacking] = names.filter((name) => !isInBuild(name));
  if (lacking === undefined) return;
  throw new Failure(
    `the settings name "${lacking}", which is not in this build: build again with these settings, ` +
      `or with --with ${lacking}`,
    2,
  );
}

/** Prints all errors of a configuration. `outcome`: what did not happen. */
export function reportErrors({ message, issues }: ConfigError, outcome = "nothing was started"): ExitCode {
  const count = countOfIssues(issues);
  const errors = count === 1 ? "an error" : `${count} errors`;
  process.stderr.write(`${message.trimEnd()}\nThe configuration has ${errors}; ${outcome}.\n`);
  return 2;
}

/** `port` and `host` are the names of the settings, `where` is the address that could not be bound: "0.0.0.0:8008". */
export function listenFailure(error: NodeJS.ErrnoException, where: string, port: string, host: string): Failure {
  const setting = (variable: string) => `${variable} (--${variable.toLowerCase().replaceAll("_", "-")})`;
  const remedy: { readonly [code: string]: string } = {
    EADDRINUSE:
      `the port is already in use; stop the program that listens there, ` +
      `or choose another port with ${setting(port)}`,
    EACCES: `this user may not listen there; choose a port above 1023 with ${setting(port)}`,
    EADDRNOTAVAIL: `this machine has no such address; choose another with ${setting(host)}`,
    ENOTFOUND: `the name has no address; choose another with ${setting(host)}`,
  };
  return new Failure(`cannot listen on ${where}: ${remedy[error.code ?? ""] ?? error.message}`, 1);
}
