/**
 * Appends lines to an open file or pipe without blocking or failing its callers: one write at a time runs in the
 * background, each with the lines of the last 50 ms.
 */
import { write } from "node:fs";
import type { Clock, Timer } from "../base/clock.ts";
import type { Log } from "../base/log.ts";

/**
 * Lines wait this long for others, or until this many characters have arrived: a write for each would cost more than
 * making it.
 */
const HOLD_MS = 50;
const BATCH_CHARACTERS = 64 * 1024;
/** Lines wait while the disk or the reader is slow, up to this many characters; further lines are lost. */
const MAX_HELD = 8 * 1024 * 1024;
/** Pause before a full pipe is tried again. */
const RETRY_MS = 20;

export class LineWriter {
  protected fd: number;
  protected readonly log: Log;
  protected isWriting = false;
  /** The last write ended inside a line. */
  protected isTorn = false;
  readonly #clock: Clock;
  /** For the log: which file it is. */
  readonly #place: { readonly file?: string };
  #unwritten = "";
  #holding: Timer | null = null;
  /** Lines lost since the loss was logged; null while none is lost. */
  #lost: number | null = null;
  /** Called once nothing is left to write; null: the writer is not being closed. */
  #whenIdle: (() => void) | null = null;
  #closing: Promise<void> | null = null;

  /** `fd` stays open when the writer is closed. */
  constructor(
    fd: number,
    { log, clock }: { readonly log: Log; readonly clock: Clock },
    place: { readonly file?: string } = {},
  ) {
    this.fd = fd;
    this.log = log;
    this.#clock = clock;
    this.#place = place;
  }

  /** Whole lines, each with its newline. */
  write(lines: string): void {
    if (this.#closing !== null) return this.#lose(linesIn(lines), "the file has been closed");
    if (this.#unwritten.length + lines.length > MAX_HELD)
      return this.#lose(linesIn(lines), "they come faster than they can be written");
    this.#unwritten += lines;
    if (!this.isWriting) this.#startSoon();
  }

  /** Resolves when all lines are written. */
  close(): Promise<void> {
    return (this.#closing ??= this.finish());
  }

  protected async finish(): Promise<void> {
    if (!this.isWriting && this.#unwritten !== "") this.#start();
    if (this.isWriting) await new Promise<void>((resolve) => (this.#whenIdle = resolve));
  }

  /** No write is under way. */
  protected written(): void {}

  #startSoon(): void {
    if (this.#unwritten.length >= BATCH_CHARACTERS) this.#start();
    else this.#holding ??= this.#clock.after(HOLD_MS, () => this.#start());
  }

  #start(): void {
    this.#holding?.cancel();
    this.#holding = null;
    this.isWriting = true;
    const bytes = Buffer.from(this.isTorn ? `\n${this.#unwritten}` : this.#unwritten);
    this.#unwritten = "";
    this.#put(bytes, 0);
  }

  #put(bytes: Buffer, from: number): void {
    write(this.fd, bytes, from, bytes.length - from, null, (error, written) => {
      if (error?.code === "EAGAIN") return void this.#clock.after(RETRY_MS, () => this.#put(bytes, from));
      if (error === null && from + written < bytes.length) return this.#put(bytes, from + written);
      if (error === null) this.#recover();
      else this.#lose(linesIn(bytes.toString("latin1", Math.max(from, this.isTorn ? 1 : 0))), error.message);
      const last = bytes[(error === null ? bytes.length : from) - 1];
      if (last !== undefined) this.isTorn = last !== NEWLINE;
      this.#finishWrite();
    });
  }

  #finishWrite(): void {
    this.written();
    if (this.#unwritten !== "" && this.#whenIdle !== null) return this.#start();
    this.isWriting = false;
    if (this.#unwritten !== "") this.#startSoon();
    else this.#whenIdle?.();
  }

  /** Logged once, however long it lasts: a full disk must not fill the other log too. */
  #lose(lines: number, why: string): void {
    if (this.#lost === null) this.log.error("lines of the access log are lost", { ...this.#place, error: why });
    this.#lost = (this.#lost ?? 0) + lines;
  }

  #recover(): void {
    if (this.#lost === null) return;
    this.log.info("the access log is written again", { ...this.#place, lost: this.#lost });
    this.#lost = null;
  }
}

const NEWLINE = 0x0a;

function linesIn(text: string): number {
  let lines = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines++;
  return lines;
}
