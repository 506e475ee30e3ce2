/**
 * A body that is handed to its reader as it comes and recorded at the same time. What becomes of the record is the affair of whoever
 * asked for it.
 *
 * While it is recorded, the source is read as fast as it comes, however slow the reader: what the reader has not taken yet is in the
 * record. A body that grows too long for that goes on at the reader's pace. Where all of it has come, nobody upstream waits for the reader
 * any more: one that takes nothing for a minute is given up here.
 */
import { Readable } from "node:stream";
import type { Clock, Timer } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";

export interface RecorderOptions {
  readonly clock: Clock;
  /** Bytes that are recorded at most. */
  readonly most: number;
  /** Bytes that there will be by Content-Length; null where it does not say. */
  readonly expected: number | null;
  /** Asks for memory; `release` gives it back. */
  readonly reserve: (bytes: number) => boolean;
  readonly release: (bytes: number) => void;
  /** Called once: with the whole body, or why there will be no record. The memory reserved for it has been given back, or will be. */
  readonly recorded: (body: Buffer | "too much" | "broken") => void;
  /** The reader has gone. Gives whether to go on without it. */
  readonly readerLeft: () => boolean;
}

export class Recorder extends Readable {
  readonly #source: Readable;
  readonly #options: RecorderOptions;
  #record: Buffer = NOTHING;
  #filled = 0;
  /** Of the record: what the reader has. */
  #given = 0;
  #reserved = 0;
  #state: "recording" | "passing" | "whole" | "broken" = "recording";
  #isReaderWaiting = false;
  /** Runs when the source has ended. */
  #patience: Timer | null = null;

  constructor(source: Readable, options: RecorderOptions) {
    super();
    this.#source = source;
    this.#options = options;
    // Its reader may have stopped listening.
    this.on("error", ignore);
    if (source.destroyed || source.readableEnded) this.#broken(source.errored);
    else source.on("data", this.#onData).on("end", this.#onEnd).on("error", this.#broken).on("close", this.#onClose);
  }

  override _read(): void {
    this.#patience?.restart();
    switch (this.#state) {
      case "passing":
        // The reader has taken what was recorded.
        this.#releaseAll();
        this.#source.resume();
        break;
      case "recording":
      case "whole":
        this.#give();
    }
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#patience?.cancel();
    if (this.#state === "passing" || (this.#state === "recording" && !this.#options.readerLeft())) {
      this.#stopRecording("broken");
      this.#source.destroy();
    }
    done(error);
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#state === "recording") {
      if (this.#append(chunk)) {
        if (this.#isReaderWaiting) this.#give();
        return;
      }
      const rest = this.#record.subarray(this.#given, this.#filled);
      this.#stopRecording("passing");
      if (this.destroyed) return void this.#source.destroy();
      if (rest.length > 0) this.push(rest);
    }
    if (this.#state === "passing" && !this.push(chunk)) this.#source.pause();
  };

  readonly #onEnd = (): void => {
    if (this.#state === "passing") {
      this.#releaseAll();
      this.push(null);
    } else if (this.#state === "recording") {
      const { expected, recorded } = this.#options;
      this.#state = "whole";
      if (this.#record.length > this.#filled) this.#record = exactly(this.#record.subarray(0, this.#filled), this.#filled);
      this.#releaseAll();
      recorded(expected === null || expected === this.#filled ? this.#record : "broken");
      if (this.#isReaderWaiting) this.#give();
    }
    if (!this.destroyed) this.#patience = this.#options.clock.after(MOST_UNREAD_MS, this.#giveUp);
  };

  readonly #giveUp = (): void => void this.destroy(new Fault("request_timeout", "the client reads no more"));

  readonly #broken = (cause: Error | null): void => {
    if (this.#state === "whole" || this.#state === "broken") return;
    this.#stopRecording("broken");
    this.destroy(cause ?? new Error("the body broke off"));
  };

  readonly #onClose = (): void => {
    if (!this.#source.readableEnded) this.#broken(this.#source.errored);
  };

  #give(): void {
    if (this.destroyed) return;
    if (this.#given < this.#filled) {
      const end = Math.min(this.#filled, this.#given + MOST_AT_ONCE);
      const part = this.#record.subarray(this.#given, end);
      this.#given = end;
      this.#isReaderWaiting = false;
      this.push(part);
    } else if (this.#state === "whole") {
      this.push(null);
    } else {
      this.#isReaderWaiting = true;
    }
  }

  /** False, and nothing is changed, when there would be too much. */
  #append(chunk: Buffer): boolean {
    const { most, expected, reserve, release } = this.#options;
    const needed = this.#filled + chunk.length;
    if (needed > most || (expected !== null && needed > expected)) return false;
    if (needed > this.#record.length) {
      const room = expected ?? Math.min(most, Math.max(needed, this.#record.length * 2, LEAST_ROOM));
      if (!reserve(room)) return false;
      const before = this.#reserved;
      this.#record = exactly(this.#record.subarray(0, this.#filled), room);
      this.#reserved = room;
      release(before);
    }
    chunk.copy(this.#record, this.#filled);
    this.#filled = needed;
    return true;
  }

  #stopRecording(next: "passing" | "broken"): void {
    const wasRecording = this.#state === "recording";
    this.#state = next;
    // What the reader has yet to take is still held: that memory is given back when it asks for more.
    if (next === "broken" || this.#given === this.#filled || this.destroyed) this.#releaseAll();
    this.#record = NOTHING;
    if (wasRecording) this.#options.recorded(next === "passing" ? "too much" : "broken");
  }

  #releaseAll(): void {
    if (this.#reserved > 0) this.#options.release(this.#reserved);
    this.#reserved = 0;
  }
}

const NOTHING = Buffer.alloc(0);
const MOST_UNREAD_MS = 60_000;
const LEAST_ROOM = 16 * 1024;
/** What the reader is given in one go. */
const MOST_AT_ONCE = 64 * 1024;

/** A copy in memory of its own: parts of the buffers that node reads into keep the whole of them. */
function exactly(bytes: Buffer, length: number): Buffer {
  const copy = Buffer.allocUnsafeSlow(length);
  bytes.copy(copy);
  return copy;
}

/** The bytes of a body at hand, in memory of their own. */
export function recordOf(body: Buffer): Buffer {
  return body.buffer.byteLength === body.length ? body : exactly(body, body.length);
}

function ignore(): void {}
