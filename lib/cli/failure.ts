/**
 * How the program ends, and why a start failed, in a sentence that names the setting to change. Printing it is `main.ts`.
 */
import { readFileSync } from "node:fs";

/** 0: done as asked. 1: it failed while running. 2: the command line, the settings or the configuration are wrong. */
export type ExitCode = 0 | 1 | 2;

/** Ends the program with this message and exit code. */
export class StartError extends Error {
  readonly exitCode: ExitCode;

  constructor(message: string, exitCode: ExitCode) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** `port` and `hosts` are the names of the settings, `where` is what could not be bound: "0.0.0.0:8008". */
export function listenFailure(error: NodeJS.ErrnoException, where: string, port: string, host: string): StartError {
  const remedy: { readonly [code: string]: string } = {
    EADDRINUSE: `the port is already in use; stop what listens there, or choose another port with ${port} (${flag(port)})`,
    EACCES: `this user may not listen there; choose a port above 1023 with ${port} (${flag(port)})`,
    EADDRNOTAVAIL: `this machine has no such address; choose another with ${host} (${flag(host)})`,
    ENOTFOUND: `the name has no address; choose another with ${host} (${flag(host)})`,
  };
  return new StartError(`cannot listen on ${where}: ${remedy[error.code ?? ""] ?? error.message}`, 1);
}

/** The bytes of a file that a setting names. */
export function readNamedFile(path: string, setting: string, what: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const why: { readonly [code: string]: string } = {
      ENOENT: "there is no such file",
      EACCES: "this user may not read it",
      EISDIR: "it is a directory",
    };
    throw new StartError(`cannot read the ${what} ${path} (${setting}): ${why[code ?? ""] ?? message}`, 2);
  }
}

function flag(variable: string): string {
  return `--${variable.toLowerCase().replaceAll("_", "-")}`;
}
