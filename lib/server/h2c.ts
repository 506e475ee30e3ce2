/**
 * Distinguishes HTTP/2 by prior knowledge (RFC 9113 §3.3) from HTTP/1 on a plain port, by the first bytes of a connection.
 */
import type { Socket } from "node:net";
import type { Clock } from "../base/clock.ts";

export interface H2cOptions {
  readonly clock: Clock;
  /** Milliseconds a client has for its first bytes. */
  readonly timeoutMs: () => number;
  readonly tooLate: (socket: Socket) => void;
  readonly serveHttp1: (socket: Socket) => void;
  readonly serveHttp2: (socket: Socket) => void;
}

/** The part of the preface that no HTTP/1 request can start with; the HTTP/2 parser checks the rest. */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n");

export class H2c {
  readonly #options: H2cOptions;
  /** Connections whose protocol is not known yet. */
  readonly #undecided = new Set<Socket>();

  constructor(options: H2cOptions) {
    this.#options = options;
  }

  /** Reads the first bytes of a connection and has it served by the protocol that they belong to. */
  add(socket: Socket): void {
    const { clock, timeoutMs, tooLate, serveHttp1, serveHttp2 } = this.#options;
    let seen: Buffer = Buffer.alloc(0);
    const onReadable = () => {
      for (let chunk = read(socket); chunk !== null; chunk = read(socket)) seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
      const length = Math.min(seen.length, PREFACE.length);
      if (seen.compare(PREFACE, 0, length, 0, length) !== 0) decide(serveHttp1);
      else if (length === PREFACE.length) decide(serveHttp2);
    };
    // The client has sent part of a preface at most, and sends nothing more.
    const onEnd = () => void socket.destroy();
    const forget = () => {
      this.#undecided.delete(socket);
      timer.cancel();
      socket.off("readable", onReadable).off("end", onEnd).off("close", forget);
    };
    const decide = (serve: (socket: Socket) => void) => {
      forget();
      if (socket.destroyed) return;
      if (seen.length > 0) socket.unshift(seen);
      serve(socket);
    };
    const timer = clock.after(timeoutMs(), () => decide(tooLate));
    this.#undecided.add(socket);
    socket.on("readable", onReadable).on("end", onEnd).on("close", forget);
  }

  /** Ends connections that have not sent a byte. */
  drain(): void {
    for (const socket of this.#undecided) if (socket.bytesRead === 0) socket.destroy();
  }
}

function read(socket: Socket): Buffer | null {
  return socket.read() as Buffer | null;
}
