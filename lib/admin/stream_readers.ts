/**
 * The readers of streams of server-sent events (HTML standard §9.2): how many there may be, which of them do not read,
 * and when they end.
 */
import type { Readable } from "node:stream";
import type { Clock } from "../base/clock.ts";

export interface StreamReader {
  readonly user: string;
  readonly body: Readable;
  readonly mayRead: () => boolean;
  /** When its connection was first found full; null while it accepts data. */
  blockedAt: number | null;
}

const MAX_READERS = 32;
/** Others always find some places. */
const MAX_OF_USER = 24;
/** After this time a browser reconnects when a stream breaks. */
export const RETRY_MS = 2_000;
/** A reader that reads nothing for this long is cut off. */
const MAX_BLOCKED_MS = 30_000;

export class StreamReaders<Reader extends StreamReader> {
  readonly #clock: Clock;
  /** Called when one has come or gone. */
  readonly #changed: () => void;
  readonly #all = new Set<Reader>();

  constructor(clock: Clock, changed: () => void) {
    this.#clock = clock;
    this.#changed = changed;
  }

  get size(): number {
    return this.#all.size;
  }

  /** Whether this user may have one more reader. */
  hasRoomFor(user: string): boolean {
    const own = Array.from(this.#all).filter((reader) => reader.user === user);
    return this.#all.size < MAX_READERS && own.length < MAX_OF_USER;
  }

  [Symbol.iterator](): IterableIterator<Reader> {
    return this.#all.values();
  }

  add(reader: Reader): void {
    this.#all.add(reader);
    reader.body.once("close", () => this.#remove(reader));
    this.#changed();
  }

  /** Ends the streams of readers that may no longer read. */
  review(): void {
    for (const reader of this.#all) if (!reader.mayRead()) this.end(reader);
  }

  /** A full connection gets no events until it has drained, and is cut off after a while: nothing accumulates. */
  isBlocked(reader: Reader): boolean {
    if (!reader.body.isPaused()) {
      reader.blockedAt = null;
      return false;
    }
    const now = this.#clock.now();
    reader.blockedAt ??= now;
    if (now - reader.blockedAt >= MAX_BLOCKED_MS) this.end(reader);
    return true;
  }

  /** Written events are still sent, unless the reader is blocked. */
  end(reader: Reader): void {
    this.#remove(reader);
    if (reader.body.isPaused()) reader.body.destroy();
    else reader.body.push(null);
  }

  #remove(reader: Reader): void {
    if (this.#all.delete(reader)) this.#changed();
  }
}

/** JSON contains no line breaks, so it fits one `data` line. */
export function event(name: string, json: string): string {
  return `event: ${name}\ndata: ${json}\n\n`;
}
