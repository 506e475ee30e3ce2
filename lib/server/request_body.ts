/**
 * The body of a request while it arrives on a connection of our own codec, with back-pressure and within its limit.
 */
import { Readable } from "node:stream";
import { Fault, ignore } from "../base/errors.ts";
import { NO_TRAILERS } from "../http/body_reader.ts";
import type { HeaderList } from "../http/headers.ts";

export interface BodySource {
  /** `wantsBytes` may have changed. */
  readOn(): void;
}

export class RequestBody extends Readable {
  /** Complete once the body has ended. */
  trailers: HeaderList = NO_TRAILERS;
  /** Bytes that have arrived. */
  received = 0;
  readonly #source: BodySource;
  readonly #maxBytes: number;
  #hasRoom = true;

  /** `maxBytes` 0: no limit. */
  constructor(source: BodySource, maxBytes: number) {
    super();
    this.#source = source;
    this.#maxBytes = maxBytes;
    // An error of a body without a reader must not end the process.
    this.on("error", ignore);
  }

  /** Whether its reader has room for more, or wants none of it, so that the rest is discarded. */
  get wantsBytes(): boolean {
    return this.#hasRoom || this.destroyed;
  }

  /** Adds what has arrived. */
  arrived(bytes: Buffer): void {
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
