/**
 * The body of an HTTP/1.1 response while it is received, as a stream that pauses its connection while it is not read.
 */
import { ignore } from "../base/errors.ts";
import { GuardedReadable } from "../base/event_loop.ts";
import type { Connection } from "./pool.ts";

export class ResponseBody extends GuardedReadable {
  readonly #connection: Connection;
  readonly #givenUp: () => void;
  #isComplete = false;

  constructor(connection: Connection, givenUp: () => void) {
    super();
    this.#connection = connection;
    this.#givenUp = givenUp;
    // An error that comes when no reader listens must not end the process.
    this.on("error", ignore);
  }

  deliver(bytes: Buffer): void {
    if (!this.push(bytes)) this.#connection.socket.pause();
  }

  complete(): void {
    this.#isComplete = true;
    this.push(null);
  }

  override _read(): void {
    if (!this.#isComplete) this.#connection.socket.resume();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#isComplete) {
      this.#isComplete = true;
      this.#givenUp();
    }
    done(error);
  }
}
