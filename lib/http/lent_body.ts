/**
 * A complete body in memory: that of a request that arrived with its head, or that of a response, whose buffer is used
 * again. To allocate a buffer for each larger response costs more than to process it (16 µs of processor time for 64
 * KiB).
 *
 * To plugins it is a stream like any other. Only the sender of the reply asks for the bytes themselves, and only while
 * the stream has no reader and no listener, so no other code can hold bytes that a later response overwrites.
 */
import { GuardedReadable } from "../base/event_loop.ts";
import { ignore } from "../base/errors.ts";
import { SMALL_BYTES } from "./body.ts";

export class LentBody extends GuardedReadable {
  readonly byteLength: number;
  /** Whether a sender has got its bytes: they cannot be read from the stream any more. */
  isLent = false;
  /** Null once they were lent, or passed to a reader. */
  #bytes: Buffer | null;
  #giveBack: () => void;

  /** `giveBack` is called at most once, when `bytes` may be overwritten; never if they are lent and not given back. */
  constructor(bytes: Buffer, giveBack: () => void) {
    super();
    this.byteLength = bytes.length;
    this.#bytes = bytes;
    this.#giveBack = giveBack;
    // An error of a body without a reader must not end the process.
    this.on("error", ignore);
  }

  /** The bytes, to be used at once; null once the body has a reader or event listeners, or was lent. */
  get bytes(): Buffer | null {
    if (this.destroyed || this.readableFlowing !== null || this.readableDidRead) return null;
    // Not by `eventNames`, which makes a list of them and costs a microsecond.
    return this.listenerCount("error") === 1 && EVENTS.every((event) => this.listenerCount(event) === 0)
      ? this.#bytes
      : null;
  }

  /** The same bytes, which the sender may use until it calls `giveBack`; the body cannot be read any more. */
  lend(): Buffer | null {
    const { bytes } = this;
    if (bytes === null) return null;
    this.isLent = true;
    this.#bytes = null;
    return bytes;
  }

  giveBack(): void {
    const giveBack = this.#giveBack;
    this.#giveBack = ignore;
    giveBack();
  }

  override _read(): void {
    if (this.#bytes !== null) {
      this.push(Buffer.from(this.#bytes));
      this.#bytes = null;
      this.giveBack();
    }
    this.push(null);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.isLent) this.giveBack();
    done(error);
  }
}

const EVENTS = ["data", "end", "close", "readable", "newListener"] as const;

/** Free memory of one size that is kept: 512 KiB, 3 MiB of all sizes. */
const MAX_FREE_BYTES = 512 * 1024;
/** Free memory in front of the body in a block: most heads are shorter. */
const HEAD_BYTES = 1024;
/** Free blocks, by the exponent of their size; and all blocks. */
const FREE: Buffer[][] = Array.from({ length: 32 }, () => []);
const BLOCKS = new WeakSet<ArrayBufferLike>();

/** A copy of a complete body, in memory that is used again; Node gives a small one a part of a larger block anyway. */
export function lentCopy(bytes: Buffer): LentBody {
  if (bytes.length <= SMALL_BYTES) return new LentBody(Buffer.from(bytes), ignore);
  const exponent = 32 - Math.clz32(bytes.length - 1);
  const free = FREE[exponent]!;
  const block = free.pop() ?? newBlock(HEAD_BYTES + 2 ** exponent);
  block.set(bytes, HEAD_BYTES);
  return new LentBody(block.subarray(HEAD_BYTES, HEAD_BYTES + bytes.length), () => {
    if ((free.length + 1) * 2 ** exponent <= MAX_FREE_BYTES) free.push(block);
  });
}

function newBlock(size: number): Buffer {
  const block = Buffer.allocUnsafeSlow(size);
  BLOCKS.add(block.buffer);
  return block;
}

/**
 * What was lent, behind the head of its message in Latin-1: one part, in the same memory, or two where that has no room
 * for the head.
 */
export function withHead(head: string, bytes: Buffer): readonly (Buffer | string)[] {
  if (bytes.length <= SMALL_BYTES) return [head + bytes.toString("latin1")];
  const at = bytes.byteOffset - head.length;
  if (at < 0 || !BLOCKS.has(bytes.buffer)) return [head, bytes];
  const whole = Buffer.from(bytes.buffer, at, head.length + bytes.length);
  whole.write(head, "latin1");
  return [whole];
}
