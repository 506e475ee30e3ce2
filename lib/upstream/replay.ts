/**
 * What retries use up: a request's body that can be sent more than once, whose bytes are kept, up to a limit, until no
 * other try can follow; and the budget of a service.
 */
import type { Readable } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { ignore } from "../base/errors.ts";
import { GuardedReadable } from "../base/event_loop.ts";
import { RollingCount } from "../base/rolling_count.ts";

const MAX_REPLAY_BYTES = 64 * 1024 * 1024;

/** The memory that all kept bodies together may take. */
export class ReplayMemory {
  readonly #most: number;
  used = 0;

  constructor(mostBytes = MAX_REPLAY_BYTES) {
    this.#most = mostBytes;
  }

  take(bytes: number): boolean {
    if (this.used + bytes > this.#most) return false;
    this.used += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.used -= bytes;
  }
}

export class Replay {
  readonly #source: Readable;
  readonly #most: number;
  readonly #memory: ReplayMemory;
  #kept: Buffer[] = [];
  /** The first of the kept chunks that the reader has not been given. */
  #next = 0;
  /** How many of the kept chunks are not to be joined any more. */
  #joined = 0;
  #bytes = 0;
  #isKeeping = true;
  #hasBegun = false;
  #isReleased = false;
  #reader: Readable | null = null;

  /** Keeps up to `mostBytes` of `source`, which must be unread. */
  constructor(source: Readable, mostBytes: number, memory: ReplayMemory) {
    this.#source = source;
    this.#most = mostBytes;
    this.#memory = memory;
  }

  /** Whether all that was read is still there. */
  get isWhole(): boolean {
    return this.#isKeeping;
  }

  /** The body from its beginning, only while `isWhole`; the reader that was opened before gets no more. */
  open(): Readable {
    this.#reader?.destroy();
    this.#next = 0;
    const reader: Readable = new GuardedReadable({ read: () => this.#read(reader) });
    // An error that comes when no reader listens must not end the process.
    return (this.#reader = reader.on("error", ignore));
  }

  /** There is no other try: bytes that the reader has got are no longer kept. */
  release(): void {
    this.#isReleased = true;
    this.#stopKeeping();
  }

  #stopKeeping(): void {
    if (!this.#isKeeping) return;
    this.#isKeeping = false;
    this.#memory.giveBack(this.#bytes);
    this.#bytes = 0;
  }

  #read(reader: Readable): void {
    if (reader !== this.#reader || !this.#deliver(reader)) return;
    const source = this.#source;
    if (source.readableEnded) return void reader.push(null);
    // The client disconnected before anything was read: the source has had its events.
    if (source.destroyed) return void reader.destroy(source.errored ?? new Error("the body ended early"));
    if (!this.#hasBegun) this.#begin(source);
    source.resume();
  }

  #begin(source: Readable): void {
    this.#hasBegun = true;
    source.on("data", (chunk: Buffer) => this.#receive(chunk));
    source.on("end", () => {
      if (this.#next === this.#kept.length) this.#reader!.push(null);
    });
    source.on("error", (error) => void this.#reader!.destroy(error));
    source.on("close", () => {
      if (!source.readableEnded) this.#reader!.destroy(new Error("the body ended early"));
    });
  }

  #receive(chunk: Buffer): void {
    this.#kept.push(this.#isKeeping ? withoutSurroundings(chunk) : chunk);
    if (this.#isKeeping) {
      if (this.#bytes + chunk.length <= this.#most && this.#memory.take(chunk.length)) this.#bytes += chunk.length;
      else this.#stopKeeping();
    }
    const reader = this.#reader!;
    if (reader.listenerCount("data") > 0 || reader.listenerCount("readable") > 0) {
      if (!this.#deliver(reader)) this.#source.pause();
      if (this.#isKeeping) this.#join();
    } else if (reader.readableFlowing === null && !this.#isReleased) {
      // It will be read once it has a connection: until then nothing may be lost.
      this.#source.pause();
    } else if (!this.#isKeeping) {
      // It is read no more, and the server discards the rest, which must not be held back.
      this.#kept = [];
      this.#next = 0;
    }
  }

  /** Gives the reader the bytes that it has not got yet; false if it has enough for now. */
  #deliver(reader: Readable): boolean {
    let wantsMore = true;
    while (wantsMore && reader === this.#reader && this.#next < this.#kept.length)
      wantsMore = reader.push(this.#kept[this.#next++]);
    if (!this.#isKeeping) {
      this.#kept = this.#kept.slice(this.#next);
      this.#next = 0;
    }
    return wantsMore;
  }

  /** Joins many small chunks: each takes hundreds of bytes besides its own, which are not counted. */
  #join(): void {
    if (this.#kept.length - this.#joined < MAX_CHUNKS || this.#next < this.#kept.length) return;
    const chunks = this.#kept.splice(this.#joined);
    const bytes = chunks.reduce((sum, { length }) => sum + length, 0);
    this.#kept.push(...(bytes < chunks.length * SMALL_BYTES ? [copied(chunks, bytes)] : chunks));
    this.#joined = this.#next = this.#kept.length;
  }
}

const MAX_CHUNKS = 256;
const SMALL_BYTES = 1024;

/** A small part of a large block, as HTTP/2 gives them, would keep all of the block. */
function withoutSurroundings(chunk: Buffer): Buffer {
  return chunk.buffer.byteLength > 4 * chunk.length ? copied([chunk], chunk.length) : chunk;
}

/** In a separate block: `Buffer.concat` shares a block with other buffers. */
function copied(chunks: readonly Buffer[], bytes: number): Buffer {
  const block = Buffer.alloc(bytes);
  let end = 0;
  for (const chunk of chunks) end += chunk.copy(block, end);
  return block;
}

const BUDGET_WINDOW_MS = 10_000;
/** In that time, for a service with few requests. */
const FREE_RETRIES = 10;

/** Limits the retries of one service to a share of its requests: they must not overload upstreams that are failing. */
export class RetryBudget {
  readonly #clock: Clock;
  readonly #requests = new RollingCount(BUDGET_WINDOW_MS);
  readonly #retries = new RollingCount(BUDGET_WINDOW_MS);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts a request, not a retry. */
  request(): void {
    this.#requests.add(this.#clock.now());
  }

  /** Takes the right to one retry; false if there is none left. */
  take(ratio: number): boolean {
    const now = this.#clock.now();
    const most = Math.max(FREE_RETRIES, ratio * this.#requests.total(now));
    if (this.#retries.total(now) + 1 > most) return false;
    this.#retries.add(now);
    return true;
  }
}
