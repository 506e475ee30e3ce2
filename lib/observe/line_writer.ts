/**
 * Appends lines to a file or a pipe without ever holding up or breaking those that write them: one write at a time goes on in the
 * background, each with what has come together in a moment. What a line says is `access_line.ts`.
 */
import { accessSync, close, constants, openSync, statSync, write } from "node:fs";
import { dirname } from "node:path";
import type { Clock, Timer } from "../base/clock.ts";
import type { Log } from "../base/log.ts";

/** A file by its path, or what is open already and stays so: `{ fd: 1 }`. */
export type LineTarget = { readonly path: string } | { readonly fd: number };

/** Lines wait this long for others, or until about so many bytes have come: a write for each would cost more than all else about it. */
const HOLD_MS = 50;
const BATCH_BYTES = 64 * 1024;
/** So many characters are encoded together. Strings of a whole batch would be carried about by the collector meanwhile. */
const PIECE_CHARACTERS = 8 * 1024;
/** A batch, and the piece with which it gets full. */
const BUFFER_BYTES = BATCH_BYTES + 4 * PIECE_CHARACTERS;
/** What may wait while the disk or the reader is behind; lines beyond it are lost. In characters. */
const MOST_HELD = 8 * 1024 * 1024;
/** How long after a full pipe was met it is tried again. */
const RETRY_MS = 20;

export class LineWriter {
  readonly #target: LineTarget;
  readonly #log: Log;
  readonly #clock: Clock;
  #fd: number;
  /** Takes over once the write under way is through. */
  #nextFd: number | null = null;
  /** Gets what is encoded, from FIRST to `#filled`. */
  #buffer: Buffer | null = null;
  #filled = FIRST;
  /** The other one, which is being written or free. */
  #other: Buffer | null = null;
  /** What is not encoded yet; all in the buffer came before it. */
  #held = "";
  #isWriting = false;
  #holding: Timer | null = null;
  /** The last write ended inside a line. */
  #isTorn = false;
  /** Lines lost since it was said that they are; null while all goes well. */
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
    if (this.#filled + this.#held.length + lines.length > MOST_HELD) return this.#lose(linesIn(lines), "they come faster than they can be written");
    this.#held += lines;
    if (this.#held.length >= PIECE_CHARACTERS) this.#encode();
    if (!this.#isWriting) this.#startSoon();
  }

  /** Opens the path anew, for whoever has renamed the file; what is open stays when that fails. */
  reopen(): void {
    if ("fd" in this.#target) return;
    const { path } = this.#target;
    let fd: number;
    try {
      fd = open(path);
    } catch (error) {
      this.#log.error("the access log cannot be opened anew; lines still go to the old file", { file: path, error: whyUnwritable(error) });
      return;
    }
    if (this.#nextFd !== null) close(this.#nextFd, ignore);
    this.#nextFd = fd;
    if (!this.#isWriting) this.#exchange();
    this.#log.info("the access log has been opened anew", { file: path });
  }

  /**
   * Resolves when what was given before is written, and the file closed. Asked for again it is the same end: the number of a file that
   * was closed may be another file's by now.
   */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    if (!this.#isWriting && this.#holdsAny) this.#start();
    if (this.#isWriting) await new Promise<void>((resolve) => this.#whenIdle.push(resolve));
    this.#exchange();
    if ("path" in this.#target) close(this.#fd, ignore);
  }

  get #holdsAny(): boolean {
    return this.#filled > FIRST || this.#held !== "";
  }

  #startSoon(): void {
    if (this.#filled + this.#held.length >= BATCH_BYTES) this.#start();
    else this.#holding ??= this.#clock.after(HOLD_MS, () => this.#start());
  }

  /** Leaves them as they are where they might not fit in. */
  #encode(): void {
    if (this.#held.length * MOST_BYTES > BUFFER_BYTES - this.#filled) return;
    this.#buffer ??= emptyBuffer();
    this.#filled += this.#buffer.write(this.#held, this.#filled);
    this.#held = "";
  }

  #start(): void {
    this.#holding?.cancel();
    this.#holding = null;
    this.#isWriting = true;
    this.#encode();
    const { bytes, end } = this.#taken();
    this.#put(bytes, this.#isTorn ? 0 : FIRST, end);
  }

  /** What has come together, or the first of it, with FIRST before it. */
  #taken(): { readonly bytes: Buffer; readonly end: number } {
    if (this.#buffer === null || this.#filled === FIRST) {
      const bytes = Buffer.from(`\n${this.#held}`);
      this.#held = "";
      return { bytes, end: bytes.length };
    }
    const taken = { bytes: this.#buffer, end: this.#filled };
    this.#buffer = this.#other;
    this.#other = taken.bytes;
    this.#filled = FIRST;
    return taken;
  }

  #put(bytes: Buffer, from: number, end: number): void {
    write(this.#fd, bytes, from, end - from, null, (error, written) => {
      if (error?.code === "EAGAIN") return void this.#clock.after(RETRY_MS, () => this.#put(bytes, from, end));
      if (error === null && from + written < end) return this.#put(bytes, from + written, end);
      if (error === null) this.#recover();
      else this.#lose(linesIn(bytes.toString("latin1", Math.max(from, FIRST), end)), error.message);
      const last = bytes[(error === null ? end : from) - 1];
      if (last !== undefined) this.#isTorn = last !== NEWLINE;
      this.#goOn();
    });
  }

  #goOn(): void {
    this.#exchange();
    if (this.#holdsAny && this.#whenIdle.length > 0) return this.#start();
    this.#isWriting = false;
    if (this.#holdsAny) return this.#startSoon();
    const waiting = this.#whenIdle;
    this.#whenIdle = [];
    for (const run of waiting) run();
  }

  #exchange(): void {
    if (this.#nextFd === null) return;
    close(this.#fd, ignore);
    this.#fd = this.#nextFd;
    this.#nextFd = null;
    this.#isTorn = false;
  }

  /** Said once, however long it lasts: a full disk must not fill the other log too. */
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

/**
 * Throws the system's error when lines could not be appended to this path. Opens and creates nothing: opening and closing a pipe would
 * end it for its reader.
 */
export function checkWritable(path: string): void {
  const existing = statSync(path, { throwIfNoEntry: false });
  if (existing?.isDirectory() === true) throw Object.assign(new Error("it is a folder"), { code: "EISDIR" });
  accessSync(existing === undefined ? dirname(path) : path, constants.W_OK);
}

/** Why a file cannot be opened, in words. */
export function whyUnwritable(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === "ENOENT" || code === "ENOTDIR") return "there is no such folder";
  if (code === "EACCES" || code === "EPERM") return "permission denied";
  if (code === "EISDIR") return "it is a folder";
  return code === "ENXIO" ? "it is a pipe that nobody reads" : message;
}

const NEWLINE = 0x0a;
/** Where lines begin: behind a newline, which is written as well when the line before was torn. */
const FIRST = 1;
/** That a UTF-16 code unit takes in UTF-8. */
const MOST_BYTES = 3;

/** Readable by the owner and its group. A pipe that nobody reads is an error, not a wait. */
function open(path: string): number {
  return openSync(path, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK, 0o640);
}

/** Memory of its own, so that a part that is never filled is never taken. */
function emptyBuffer(): Buffer {
  const buffer = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  buffer[0] = NEWLINE;
  return buffer;
}

function linesIn(text: string): number {
  let lines = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines++;
  return lines;
}

function ignore(): void {}
