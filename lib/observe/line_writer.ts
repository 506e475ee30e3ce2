/**
 * Appends lines to a file or pipe without blocking or failing its callers: one write at a time runs in the background, each with the lines
 * of the last 50 ms.
 */
import { accessSync, close, constants, openSync, statSync, write } from "node:fs";
import { dirname } from "node:path";
import type { Clock, Timer } from "../base/clock.ts";
import { ignore, missingPermission } from "../base/errors.ts";
import type { Log } from "../base/log.ts";

/** A file by its path, or one that is open and stays open: `{ fd: 1 }`. */
export type LineTarget = { readonly path: string } | { readonly fd: number };

/** Lines wait this long for others, or until this many characters have arrived: a write for each would cost more than making it. */
const HOLD_MS = 50;
const BATCH_CHARACTERS = 64 * 1024;
/** Lines wait while the disk or the reader is slow, up to this many characters; further lines are lost. */
const MAX_HELD = 8 * 1024 * 1024;
/** Pause before a full pipe is tried again. */
const RETRY_MS = 20;

export class LineWriter {
  readonly #target: LineTarget;
  readonly #log: Log;
  readonly #clock: Clock;
  #fd: number;
  /** Replaces `#fd` after the current write. */
  #nextFd: number | null = null;
  #held = "";
  #isWriting = false;
  #holding: Timer | null = null;
  /** The last write ended inside a line. */
  #isTorn = false;
  /** Lines lost since the loss was logged; null while none is lost. */
  #lost: number | null = null;
  #whenIdle: (() => void)[] = [];
  #closing: Promise<void> | null = null;

  /** Throws the system's error when the file cannot be opened. */
  constructor(target: LineTarget, { log, clock }: { readonly log: Log; readonly clock: Clock }) {
    this.#target = target;
    this.#log = log;
    this.#clock = clock;
    this.#fd = "fd" in target ? target.fd : open(target.path);
  }

  /** Whole lines, each with its newline. */
  write(lines: string): void {
    if (this.#closing !== null) return this.#lose(linesIn(lines), "the file has been closed");
    if (this.#held.length + lines.length > MAX_HELD) return this.#lose(linesIn(lines), "they come faster than they can be written");
    this.#held += lines;
    if (!this.#isWriting) this.#startSoon();
  }

  /** Opens the path again, after the file has been renamed. If that fails, the open file stays. */
  reopen(): void {
    if ("fd" in this.#target) return;
    const { path } = this.#target;
    let fd: number;
    try {
      fd = open(path);
    } catch (error) {
      this.#log.error("the access log cannot be reopened; lines still go to the old file", { file: path, error: whyUnwritable(error) });
      return;
    }
    if (this.#nextFd !== null) close(this.#nextFd, ignore);
    this.#nextFd = fd;
    if (!this.#isWriting) this.#replaceFile();
    this.#log.info("the access log has been reopened", { file: path });
  }

  /** Resolves when all lines are written and the file is closed. Closes once: by the next call, the number may be another file's. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    if (!this.#isWriting && this.#held !== "") this.#start();
    if (this.#isWriting) await new Promise<void>((resolve) => this.#whenIdle.push(resolve));
    this.#replaceFile();
    if ("path" in this.#target) close(this.#fd, ignore);
  }

  #startSoon(): void {
    if (this.#held.length >= BATCH_CHARACTERS) this.#start();
    else this.#holding ??= this.#clock.after(HOLD_MS, () => this.#start());
  }

  #start(): void {
    this.#holding?.cancel();
    this.#holding = null;
    this.#isWriting = true;
    const bytes = Buffer.from(this.#isTorn ? `\n${this.#held}` : this.#held);
    this.#held = "";
    this.#put(bytes, 0);
  }

  #put(bytes: Buffer, from: number): void {
    write(this.#fd, bytes, from, bytes.length - from, null, (error, written) => {
      if (error?.code === "EAGAIN") return void this.#clock.after(RETRY_MS, () => this.#put(bytes, from));
      if (error === null && from + written < bytes.length) return this.#put(bytes, from + written);
      if (error === null) this.#recover();
      else this.#lose(linesIn(bytes.toString("latin1", Math.max(from, this.#isTorn ? 1 : 0))), error.message);
      const last = bytes[(error === null ? bytes.length : from) - 1];
      if (last !== undefined) this.#isTorn = last !== NEWLINE;
      this.#finishWrite();
    });
  }

  #finishWrite(): void {
    this.#replaceFile();
    if (this.#held !== "" && this.#whenIdle.length > 0) return this.#start();
    this.#isWriting = false;
    if (this.#held !== "") return this.#startSoon();
    const waiting = this.#whenIdle;
    this.#whenIdle = [];
    for (const run of waiting) run();
  }

  #replaceFile(): void {
    if (this.#nextFd === null) return;
    close(this.#fd, ignore);
    this.#fd = this.#nextFd;
    this.#nextFd = null;
    this.#isTorn = false;
  }

  /** Logged once, however long it lasts: a full disk must not fill the other log too. */
  #lose(lines: number, why: string): void {
    if (this.#lost === null) this.#log.error("lines of the access log are lost", { ...this.#place, error: why });
    this.#lost = (this.#lost ?? 0) + lines;
  }

  #recover(): void {
    if (this.#lost === null) return;
    this.#log.info("the access log is written again", { ...this.#place, lost: this.#lost });
    this.#lost = null;
  }

  get #place(): { readonly file?: string } {
    return "path" in this.#target ? { file: this.#target.path } : {};
  }
}

const NEWLINE = 0x0a;

/** Throws the system's error when the path cannot be written. Does not open it: that would end a pipe for its reader. */
export function checkWritable(path: string): void {
  const existing = statSync(path, { throwIfNoEntry: false });
  if (existing?.isDirectory() === true) throw Object.assign(new Error("it is a folder"), { code: "EISDIR" });
  // Under Node's permission model the file may be created without a permission for its folder, which would open all files in it.
  if (existing !== undefined || process.permission === undefined) accessSync(existing === undefined ? dirname(path) : path, constants.W_OK);
}

/** The reason for an error of `open` in plain words. */
export function whyUnwritable(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === "ENOENT" || code === "ENOTDIR") return "there is no such folder";
  if (code === "EACCES" || code === "EPERM") return "permission denied";
  if (code === "EISDIR") return "it is a folder";
  return code === "ENXIO" ? "it is a pipe without a reader" : (missingPermission(error) ?? message);
}

/** For the owner and its group to read. Without a reader a pipe is an error (O_NONBLOCK), and not a wait. */
function open(path: string): number {
  return openSync(path, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK, 0o640);
}

function linesIn(text: string): number {
  let lines = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines++;
  return lines;
}
