/**
 * The body of a request while it arrives on a connection of our own codec, with back-pressure and within its limit.
 */
import { GuardedReadable } from "../base/event_loop.ts";
import { Fault, ignore } from "../base/errors.ts";
import { NO_TRAILERS } from "../http/body_reader.ts";
import type { HeaderList } from "../http/headers.ts";

export class RequestBody extends GuardedReadable {
  /** Complete once the body has ended. */
  trailers: HeaderList = NO_TRAILERS;
  /** Bytes that have arrived. */
  received = 0;
  readonly #source: { readOn(): void };
  readonly #maxBytes: number;
  #hasRoom = true;
  /** When bytes last arrived. */
  arrivedAt = 0;

  /** `readOn` is called when `wantsBytes` may have changed; `maxBytes` 0: no limit. */
  constructor(source: { readOn(): void }, maxBytes: number) {
    super();
    this.#source = source;
    this.#maxBytes = maxBytes;
    // An error of a body without a reader must not end the process.
    this.on("error", ignore);
  }

  /** Whether its reader has room for more, or wants none. */
  get wantsBytes(): boolean {
    return this.destroyed || this.#hasRoom;
  }

  /** Adds what has arrived; once the reader wants none, that is discarded. */
  arrived(bytes: Buffer, now: number): void {
    this.arrivedAt = now;
    if (this.destroyed) return;
    this.received += bytes.length;
    if (this.#maxBytes === 0 || this.received <= this.#maxBytes) this.#hasRoom = this.push(bytes);
    else this.destroy(new Fault("body_too_large", `the body has more than ${this.#maxBytes} bytes`));
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
