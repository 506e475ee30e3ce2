/**
 * The body of a request while it arrives on a client's connection, with back-pressure.
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
    // The error of a body that nobody reads must not end the process.
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
