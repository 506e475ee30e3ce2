/**
 * The body of a request while it arrives on a connection of our own codec, with back-pressure and within its limits.
 */
import { GuardedReadable } from "../base/event_loop.ts";
import { Fault, ignore } from "../base/errors.ts";
import { NO_TRAILERS } from "../http/body_reader.ts";
import type { HeaderList } from "../http/headers.ts";
import { UploadPace, type Limits } from "./limits.ts";

export class RequestBody extends GuardedReadable {
  /** Complete once the body has ended. */
  trailers: HeaderList = NO_TRAILERS;
  /** When bytes last arrived. */
  arrivedAt = 0;
  /** Bytes that its reader gets. */
  received = 0;
  readonly #source: { readOn(): void };
  readonly #maxBytes: number;
  readonly #pace: UploadPace;
  #hasRoom = true;
  /** How many pieces have arrived since its reader had read all before. */
  #pieces = 0;

  /** `readOn` is called when `wantsBytes` may have changed. */
  constructor(source: { readOn(): void }, { maxBodyBytes, minBodyBytesPerS }: Limits) {
    super();
    this.#source = source;
    this.#maxBytes = maxBodyBytes;
    this.#pace = new UploadPace(minBodyBytesPerS);
    // An error of a body without a reader must not end the process.
    this.on("error", ignore);
  }

  /** Whether its reader has room for more, or wants none. */
  get wantsBytes(): boolean {
    return this.destroyed || (this.#hasRoom && this.#pieces < MAX_PIECES);
  }

  /** Whether it arrives too slowly for a reader that reads it, see `UploadPace`. */
  isTooSlow(elapsedMs: number): boolean {
    return this.readableFlowing === true && this.#pace.isTooSlow(this.received, elapsedMs);
  }

  /** Adds what has arrived; once the reader wants none, that is discarded. Returns how many bytes were. */
  arrived(bytes: Buffer, now: number): number {
    this.arrivedAt = now;
    if (this.destroyed) return bytes.length;
    if (this.#maxBytes === 0 || this.received + bytes.length <= this.#maxBytes) {
      this.received += bytes.length;
      this.#pieces = this.readableLength === 0 ? 1 : this.#pieces + 1;
      this.#hasRoom = this.push(bytes);
    } else this.destroy(new Fault("body_too_large", `the body has more than ${this.#maxBytes} bytes`));
    return 0;
  }

  override read(bytes?: number): unknown {
    const read: unknown = super.read(bytes);
    // The reader has all, or wants more than there is; 0: it is Node that looks.
    if (this.#pieces >= MAX_PIECES && bytes !== 0 && (read === null || this.readableLength === 0)) {
      this.#pieces = 0;
      this.#source.readOn();
    }
    return read;
  }

  override _read(): void {
    this.#hasRoom = true;
    this.#source.readOn();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#source.readOn();
    done(error);
  }
}

/**
 * Each piece takes a hundred bytes besides its own: a client that sends single bytes would have us hold a hundred times
 * as much as it sends.
 */
const MAX_PIECES = 256;
