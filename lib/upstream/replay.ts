/**
 * A request's body that can be sent more than once: what has been read of it is kept, up to a bound, until it is known that no other
 * try will be needed. Whether one is right is `retries.ts`.
 */
import { Readable } from "node:stream";

/** The memory that all kept bodies together may take. */
export class ReplayMemory {
  readonly #most: number;
  #used = 0;

  constructor(mostBytes: number) {
    this.#most = mostBytes;
  }

  get used(): number {
    return this.#used;
  }

  take(bytes: number): boolean {
    if (this.#used + bytes > this.#most) return false;
    this.#used += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#used -= bytes;
  }
}

export class Replay {
  readonly #source: Readable;
  readonly #most: number;
  readonly #memory: ReplayMemory;
  #kept: Buffer[] = [];
  /** How many of them are as large as they will get. */
  #joined = 0;
  #bytes = 0;
  #keeps = true;
  #begun = false;
  #released = false;
  #reader: Reader | null = null;

  /** Keeps up to `mostBytes` of `source`, which nobody has read from. */
  constructor(source: Readable, mostBytes: number, memory: ReplayMemory) {
    this.#source = source;
    this.#most = mostBytes;
    this.#memory = memory;
  }

  /** Whether all that was read is still there. */
  get isWhole(): boolean {
    return this.#keeps;
  }

  /** The body from its beginning; a view opened before gets no more. Only while `isWhole`. */
  open(): Readable {
    this.#reader?.destroy();
    this.#reader = new Reader((reader) => this.#read(reader));
    return this.#reader;
  }

  /** There will be no other try: what was kept is let go as far as the view has it. */
  release(): void {
    this.#released = true;
    this.#keepNoMore();
  }

  #keepNoMore(): void {
    if (!this.#keeps) return;
    this.#keeps = false;
    this.#memory.giveBack(this.#bytes);
    this.#bytes = 0;
  }

  #read(reader: Reader): void {
    if (reader !== this.#reader || !this.#deliver(reader)) return;
    const source = this.#source;
    if (source.readableEnded) return void reader.push(null);
    // A client that went away before anybody read: its body never tells of an end again.
    if (source.destroyed) return void reader.destroy(source.errored ?? new Error("the body broke off"));
    if (!this.#begun) this.#begin(source);
    source.resume();
  }

  #begin(source: Readable): void {
    this.#begun = true;
    source.on("data", this.#onData);
    source.on("end", () => {
      const reader = this.#reader!;
      if (reader.next === this.#kept.length) reader.push(null);
    });
    source.on("error", (error) => void this.#reader!.destroy(error));
    source.on("close", () => {
      if (!source.readableEnded) this.#reader!.destroy(new Error("the body broke off"));
    });
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#kept.push(this.#keeps ? own(chunk) : chunk);
    if (this.#keeps) {
      if (this.#bytes + chunk.length <= this.#most && this.#memory.take(chunk.length)) this.#bytes += chunk.length;
      else this.#keepNoMore();
    }
    const reader = this.#reader!;
    if (isRead(reader)) {
      if (!this.#deliver(reader)) this.#source.pause();
      if (this.#keeps) this.#join(reader);
    } else if (reader.readableFlowing === null && !this.#released) {
      // It will be read once there is a connection for it, and what comes till then must not be lost.
      this.#source.pause();
    } else if (!this.#keeps) {
      // Whoever read it has stopped, and the server disposes of the rest: it must not be held back for nobody.
      this.#kept = [];
      reader.next = 0;
    }
  };

  /** Gives the view what it has not had; false when it has enough for now. */
  #deliver(reader: Reader): boolean {
    let wantsMore = true;
    while (wantsMore && reader.next < this.#kept.length) wantsMore = reader.push(this.#kept[reader.next++]);
    if (!this.#keeps) {
      this.#kept = this.#kept.slice(reader.next);
      reader.next = 0;
    }
    return wantsMore;
  }

  /** Makes one of many small pieces: each of them takes hundreds of bytes besides its own, which nobody counts. */
  #join(reader: Reader): void {
    if (this.#kept.length - this.#joined < MOST_PIECES || reader.next < this.#kept.length) return;
    const pieces = this.#kept.splice(this.#joined);
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
    this.#kept.push(...(bytes < pieces.length * SMALL_BYTES ? [copied(pieces, bytes)] : pieces));
    this.#joined = reader.next = this.#kept.length;
  }
}

const MOST_PIECES = 256;
const SMALL_BYTES = 1024;

/** What is a small part of a large block, as HTTP/2 hands it over, would keep all of it. */
function own(chunk: Buffer): Buffer {
  return chunk.buffer.byteLength > 4 * chunk.length ? copied([chunk], chunk.length) : chunk;
}

/** In a block of its own: `Buffer.concat` shares one with others. */
function copied(pieces: readonly Buffer[], bytes: number): Buffer {
  const block = Buffer.alloc(bytes);
  let end = 0;
  for (const piece of pieces) end += piece.copy(block, end);
  return block;
}

function isRead(reader: Reader): boolean {
  return reader.listenerCount("data") > 0 || reader.listenerCount("readable") > 0;
}

/** One view of the body. `next` is the first of the kept chunks that it has not been given. */
class Reader extends Readable {
  next = 0;
  readonly #wanted: (reader: Reader) => void;

  constructor(wanted: (reader: Reader) => void) {
    super();
    this.#wanted = wanted;
    // Its reader may have stopped listening: the end of a body nobody reads any more is no event.
    this.on("error", ignore);
  }

  override _read(): void {
    this.#wanted(this);
  }
}

function ignore(): void {}
