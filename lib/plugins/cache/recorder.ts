/**
 * Forwards a body to its reader and records it at the same time.
 *
 * While it is recorded, the source is read at full speed, however slow the reader: the record holds what the reader has
 * not read yet.
 * A body that is too long to be recorded continues at the reader's pace. Once the whole body is received, no upstream
 * timeout covers the reader any more: a reader that reads nothing for a minute is dropped here.
 */
import { Readable } from "node:stream";
import type { Clock, Timer } from "../../base/clock.ts";
import { GuardedReadable } from "../../base/event_loop.ts";
import { Fault, ignore } from "../../base/errors.ts";
import type { CacheStore } from "./store.ts";

export interface RecorderOptions {
  readonly clock: Clock;
  /** Maximum bytes of a record. */
  readonly most: number;
  /** Content-Length; null without one. */
  readonly expected: number | null;
  /** Accounts for the memory while the body is recorded. */
  readonly store: Pick<CacheStore, "reserve" | "release">;
  /**
   * Called once: with the whole body, or the reason why there is no record. The reserved memory is released separately.
   */
  readonly recorded: (body: Buffer | "too much" | "broken") => void;
  /** The reader disconnected. Returns whether to continue without it. */
  readonly readerLeft: () => boolean;
}

export class Recorder extends GuardedReadable {
  readonly #source: Readable;
  readonly #options: RecorderOptions;
  #record: Buffer = NOTHING;
  #filled = 0;
  /** Bytes of the record that were sent to the reader. */
  #given = 0;
  #reserved = 0;
  #state: "recording" | "passing" | "whole" | "broken" = "recording";
  #isReaderWaiting = false;
  /** Runs once the source has ended. */
  #patience: Timer | null = null;

  constructor(source: Readable, options: RecorderOptions) {
    super();
    this.#source = source;
    this.#options = options;
    // Its reader may have removed its listeners.
    this.on("error", ignore);
    if (source.destroyed || source.readableEnded) this.#broken(source.errored);
    else source.on("data", this.#onData).on("end", this.#onEnd).on("error", this.#broken).on("close", this.#onClose);
  }

  override _read(): void {
    this.#patience?.restart();
    if (this.#state === "passing") {
      // The reader has read all recorded data.
      this.#releaseAll();
      this.#source.resume();
    } else if (this.#state !== "broken") this.#give();
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
      if (this.#record.length > this.#filled)
        this.#record = copied(this.#record.subarray(0, this.#filled), this.#filled);
      this.#releaseAll();
      recorded(expected === null || expected === this.#filled ? this.#record : "broken");
      if (this.#isReaderWaiting) this.#give();
    }
    const giveUp = () => this.destroy(new Fault("request_timeout", "the client reads no more"));
    if (!this.destroyed) this.#patience = this.#options.clock.after(MAX_UNREAD_MS, giveUp);
  };

  readonly #broken = (cause: Error | null): void => {
    if (this.#state === "whole" || this.#state === "broken") return;
    this.#stopRecording("broken");
    this.destroy(cause ?? new Error("the body ended early"));
  };

  readonly #onClose = (): void => {
    if (!this.#source.readableEnded) this.#broken(this.#source.errored);
  };

  #give(): void {
    if (this.destroyed) return;
    if (this.#given < this.#filled) {
      const end = Math.min(this.#filled, this.#given + MAX_AT_ONCE);
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

  /** Returns false, and changes nothing, when the record would grow too large. */
  #append(chunk: Buffer): boolean {
    const { most, expected, store } = this.#options;
    const needed = this.#filled + chunk.length;
    if (needed > most || (expected !== null && needed > expected)) return false;
    if (needed > this.#record.length) {
      const room = expected ?? Math.min(most, Math.max(needed, this.#record.length * 2, LEAST_ROOM));
      if (!store.reserve(room)) return false;
      const before = this.#reserved;
      this.#record = copied(this.#record.subarray(0, this.#filled), room);
      this.#reserved = room;
      store.release(before);
    }
    chunk.copy(this.#record, this.#filled);
    this.#filled = needed;
    return true;
  }

  #stopRecording(next: "passing" | "broken"): void {
    const wasRecording = this.#state === "recording";
    this.#state = next;
    // Bytes the reader has not read stay in memory, which is released when it asks for more.
    if (next === "broken" || this.#given === this.#filled || this.destroyed) this.#releaseAll();
    this.#record = NOTHING;
    if (wasRecording) this.#options.recorded(next === "passing" ? "too much" : "broken");
  }

  #releaseAll(): void {
    if (this.#reserved > 0) this.#options.store.release(this.#reserved);
    this.#reserved = 0;
  }
}

const NOTHING = Buffer.alloc(0);
const MAX_UNREAD_MS = 60_000;
const LEAST_ROOM = 16 * 1024;
/** Maximum bytes that the reader gets at once. */
const MAX_AT_ONCE = 64 * 1024;

/** A copy: a slice of one of Node's read buffers would keep the whole buffer alive. */
function copied(bytes: Buffer, length: number): Buffer {
  const copy = Buffer.allocUnsafeSlow(length);
  bytes.copy(copy);
  return copy;
}

/** A copy of the body. */
export function recordOf(body: Buffer): Buffer {
  return body.buffer.byteLength === body.length ? body : copied(body, body.length);
}
