/**
 * The memory that responses over plain connections come into, the same for all of them: what is made anew for each reading makes work
 * for the collector. What is made of the bytes is `forward_wire.ts`.
 */
import { LentBody } from "../http/lent_body.ts";

/** Twice what node reads at a time: a response of 64 KiB and its head come in one reading, and are then one write to the client. */
const INLET_BYTES = 128 * 1024;
/** Slabs that are kept while nobody needs them: 2 MiB. */
const MOST_FREE = 16;

export class ReadBuffer {
  #buffer: Buffer | null = null;
  readonly #slabs: Buffer[] = [];

  /** What is read into, made for the first connection: what comes is taken out of it before anything else is read. */
  get buffer(): Buffer {
    return (this.#buffer ??= Buffer.allocUnsafeSlow(INLET_BYTES));
  }

  /** A body that is whole, out of `buffer`: its bytes wait for their client in a slab of their own, which others have when it is sent. */
  body(bytes: Buffer): LentBody {
    const slab = this.#slabs.pop() ?? Buffer.allocUnsafeSlow(INLET_BYTES);
    slab.set(bytes);
    return new LentBody(slab.subarray(0, bytes.length), () => {
      if (this.#slabs.length < MOST_FREE) this.#slabs.push(slab);
    });
  }
}
