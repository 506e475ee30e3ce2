/**
 * The memory that responses over plain connections are read into, shared by all of them: a new buffer for each read is garbage to collect.
 */
import { LentBody } from "../http/lent_body.ts";

/** Twice what Node reads at a time: a response of 64 KiB and its head come in one read, and are then one write to the client. */
const BUFFER_BYTES = 128 * 1024;
/** Unused copies that are kept: 2 MiB. */
const MOST_FREE = 16;

export class ReadBuffer {
  #buffer: Buffer | null = null;
  readonly #free: Buffer[] = [];

  /** Made for the first connection. What is read into it has to be used or copied before the next read. */
  get buffer(): Buffer {
    return (this.#buffer ??= Buffer.allocUnsafeSlow(BUFFER_BYTES));
  }

  /** A complete body that lies in `buffer`, copied into memory that is used again when the body has been sent. */
  lend(bytes: Buffer): LentBody {
    const copy = this.#free.pop() ?? Buffer.allocUnsafeSlow(BUFFER_BYTES);
    copy.set(bytes);
    return new LentBody(copy.subarray(0, bytes.length), () => {
      if (this.#free.length < MOST_FREE) this.#free.push(copy);
    });
  }
}
