/**
 * The file of the access log: a `LineWriter` that opens its file, and opens it again after it has been renamed.
 */
import { accessSync, close, constants, openSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { ignore, messageOf, missingPermission } from "../base/errors.ts";
import { LOG_FILE } from "../config/log_fields.ts";
import type { FeatureFields } from "../config/feature_fields.ts";
import type { OpenLogFile } from "./access_log.ts";
import { LineWriter } from "./line_writer.ts";

export const fields: FeatureFields = { schemas: { log_file: LOG_FILE } };

type Tools = ConstructorParameters<typeof LineWriter>[1];

/** See `LogFormats`. The reason is in plain words. */
export function logFile(
  path: string | undefined,
  current: OpenLogFile | null,
  isStarted: boolean,
  tools: Tools,
): OpenLogFile | null {
  if (!isStarted && path !== undefined) checkWritable(path);
  if (!isStarted || path === current?.path) return current;
  const next = path === undefined ? null : new LogFile(path, tools);
  void current?.close();
  return next;
}

export class LogFile extends LineWriter implements OpenLogFile {
  readonly path: string;
  /** Replaces `fd` after the current write. */
  #nextFd: number | null = null;

  /** Throws when the file cannot be opened, with the reason in plain words. */
  constructor(path: string, tools: Tools) {
    super(open(path), tools, { file: path });
    this.path = path;
  }

  /** If the path cannot be opened, the open file stays. */
  reopen(): void {
    let fd: number;
    try {
      fd = open(this.path);
    } catch (error) {
      this.log.error("the access log cannot be reopened; lines still go to the old file", {
        file: this.path,
        error: messageOf(error),
      });
      return;
    }
    if (this.#nextFd !== null) close(this.#nextFd, ignore);
    this.#nextFd = fd;
    if (!this.isWriting) this.written();
    this.log.info("the access log has been reopened", { file: this.path });
  }

  /** Closes the file, too. Only once: by the next call, the number may be another file's. */
  protected override async finish(): Promise<void> {
    await super.finish();
    this.written();
    close(this.fd, ignore);
  }

  protected override written(): void {
    if (this.#nextFd === null) return;
    close(this.fd, ignore);
    this.fd = this.#nextFd;
    this.#nextFd = null;
    this.isTorn = false;
  }
}

/** Does not open the path: that would end a pipe for its reader. */
function checkWritable(path: string): void {
  inWords(() => {
    const existing = statSync(path, { throwIfNoEntry: false });
    if (existing?.isDirectory() === true) throw new Error("it is a folder");
    // Under Node's permission model the file may be created without a permission for its folder, which would open all
    // files in it.
    if (existing !== undefined || process.permission === undefined)
      accessSync(existing === undefined ? dirname(path) : path, constants.W_OK);
  });
}

/** For the owner and its group to read. Without a reader a pipe is an error (O_NONBLOCK), and not a wait. */
function open(path: string): number {
  return inWords(() =>
    openSync(path, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK, 0o640),
  );
}

function inWords<T>(act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw new Error(whyUnwritable(error), { cause: error });
  }
}

/** The reason for an error of `open` in plain words. */
export function whyUnwritable(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === "ENOENT" || code === "ENOTDIR") return "there is no such folder";
  if (code === "EACCES" || code === "EPERM") return "permission denied";
  if (code === "EISDIR") return "it is a folder";
  return code === "ENXIO" ? "it is a pipe without a reader" : (missingPermission(error) ?? message);
}
