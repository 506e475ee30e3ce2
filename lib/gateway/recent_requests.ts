/**
 * The requests of late, for dry runs of another configuration.
 */
import { ALONE } from "../base/threads.ts";

/** In bytes. A request whose method, host and path are longer is left out. */
const SLOT_BYTES = 512;
const MAX_RECENT = 1_000;
const LINE_FEED = 0x0a;

export interface RecentRequest {
  readonly method: string;
  /** As the client sent it, with or without port. */
  readonly authority: string;
  /** Normalised, without the query. */
  readonly path: string;
}

/**
 * The last 1000 requests that were looked up in the route table, for a dry run of another configuration. They are kept
 * as bytes in one buffer: a string would keep the whole head that it was cut from in memory, with its query and
 * credentials. Each worker has a buffer for its part of the 1000, and the main thread reads all of them: a request that
 * is written at that moment may be mixed with an earlier one.
 */
export class RecentRequests {
  /** Those of all workers in the main thread, else the own one alone. */
  readonly #buffers: readonly Buffer[];
  readonly #bytes: Buffer;
  #next = 0;

  constructor({ worker, count, memory } = ALONE) {
    const numbers = worker >= 0 ? [worker] : Array.from({ length: count }, (_, each) => each);
    this.#buffers = numbers.map((each) =>
      Buffer.from(memory(`recent requests ${each}`, Math.ceil(MAX_RECENT / count) * SLOT_BYTES)),
    );
    this.#bytes = this.#buffers[0]!;
  }

  add(method: string, authority: string, path: string): void {
    if (method.length + authority.length + path.length > SLOT_BYTES - 3) return;
    const at = writeLine(this.#bytes, this.#next, method);
    writeLine(this.#bytes, writeLine(this.#bytes, at, authority), path);
    this.#next = (this.#next + SLOT_BYTES) % this.#bytes.length;
  }

  /** In no particular order. */
  list(): readonly RecentRequest[] {
    const found: RecentRequest[] = [];
    for (const bytes of this.#buffers) {
      for (let at = 0; at < bytes.length && bytes[at] !== 0; at += SLOT_BYTES) {
        // What follows the third line is left from an earlier request.
        const [method = "", authority = "", path = ""] = bytes.toString("latin1", at, at + SLOT_BYTES).split("\n", 3);
        found.push({ method, authority, path });
      }
    }
    return found;
  }
}

/**
 * Returns the index behind the line. None of the texts has a line feed. A loop is faster than `Buffer.write` for texts
 * this short.
 */
function writeLine(bytes: Buffer, at: number, text: string): number {
  for (let i = 0; i < text.length; i++) bytes[at++] = text.charCodeAt(i);
  bytes[at] = LINE_FEED;
  return at + 1;
}
