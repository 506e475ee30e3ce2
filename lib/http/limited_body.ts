/**
 * A request's body that breaks off once more bytes have come than it may have. What breaks off is the view of it: the connection it
 * comes from stays, so that the client can be told why.
 */
import { Readable } from "node:stream";
import { Fault } from "../base/errors.ts";

/** Gives what `body` gives; destroyed with a `Fault` "body_too_large" at the first byte beyond `most`. Reads only when it is read. */
export class LimitedBody extends Readable {
  readonly #source: Readable;
  readonly #most: number;
  #left: number;
  #begun = false;

  constructor(source: Readable, most: number) {
    super();
    this.#source = source;
    this.#most = most;
    this.#left = most;
    // Its reader may have stopped listening: the end of a body nobody reads any more is no event.
    this.on("error", ignore);
  }

  override _read(): void {
    const source = this.#source;
    if (!this.#begun) {
      this.#begun = true;
      // A client that went away before anybody read: its body never tells of an end again.
      if (source.destroyed) return void this.destroy(source.errored ?? new Error("the body broke off"));
      source.on("data", this.#onData).on("end", this.#onEnd).on("error", this.#onError).on("close", this.#onClose);
    }
    source.resume();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const source = this.#source;
    source.off("data", this.#onData).off("end", this.#onEnd).off("error", this.#onError).off("close", this.#onClose);
    done(error);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#left -= chunk.length;
    if (this.#left < 0) return void this.destroy(new Fault("body_too_large", `the body has more than ${this.#most} bytes`));
    if (!this.push(chunk)) this.#source.pause();
  };

  readonly #onEnd = (): void => void this.push(null);

  readonly #onError = (error: Error): void => void this.destroy(error);

  readonly #onClose = (): void => {
    if (!this.#source.readableEnded) this.destroy(new Error("the body broke off"));
  };
}

function ignore(): void {}
