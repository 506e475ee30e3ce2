/**
 * The body of a request while it arrives on a connection of our own codec, with back-pressure and within its limit.
 */
import { GuardedReadable } from "../base/event_loop.ts";
import { Fault, ignore } from "../base/errors.ts";
import { NO_TRAILERS } from "../http/body_reader.ts";
import type { HeaderList } from "../http/headers.ts";

export interface BodySource {
  /** The reader has room again, or wants no more. */
  readOn(): void;
}

export class RequestBody extends GuardedReadable {
  /** Complete once the body has ended. */
  trailers: HeaderList = NO_TRAILERS;
  /** Bytes that have arrived. */
  received = 0;
  readonly #source: BodySource;
  readonly #maxBytes: number;

  /** `maxBytes` 0: no limit. */
  constructor(source: BodySource, maxBytes: number) {
    super();
    this.#source = source;
    this.#maxBytes = maxBytes;
    // An error of a body without a reader must not end the process.
    this.on("error", ignore);
  }

  /** Adds what has arrived; false: the reader wants no more for now. */
  arrived(bytes: Buffer): boolean {
    this.received += bytes.length;
    if (this.#maxBytes === 0 || this.received <= this.#maxBytes) return this.push(bytes);
    this.destroy(new Fault("body_too_large", `the body has more than ${this.#maxBytes} bytes`));
    return true;
  }

  override _read(): void {
    this.#source.readOn();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#source.readOn();
    done(error);
  }
}
