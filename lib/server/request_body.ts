/**
 * The body of a request while it arrives on a client's connection, with back-pressure. Bodies that arrive with their head are a
 * `LentBody`.
 */
import { Readable } from "node:stream";
import { NO_TRAILERS } from "../http/body_reader.ts";
import type { HeaderList } from "../http/headers.ts";

export interface BodySource {
  /** The reader has room again, or wants no more. */
  readOn(): void;
}

export class RequestBody extends Readable {
  /** Complete once the body has ended. */
  trailers: HeaderList = NO_TRAILERS;
  readonly #source: BodySource;

  constructor(source: BodySource) {
    super();
    this.#source = source;
    // Its reader may have stopped listening: the end of a body that nobody reads is not an event.
    this.on("error", ignore);
  }

  override _read(): void {
    this.#source.readOn();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#source.readOn();
    done(error);
  }
}

function ignore(): void {}
