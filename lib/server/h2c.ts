/**
 * Tells HTTP/2 by prior knowledge (RFC 9113 §3.3) from HTTP/1 on a plain port, by the first bytes of a connection. What is spoken
 * then is the callers' affair.
 */
import type { Socket } from "node:net";
import type { Clock, Timer } from "../base/clock.ts";

export interface H2cOptions {
  readonly clock: Clock;
  /** Milliseconds that a client may take for its first bytes. */
  readonly timeoutMs: () => number;
  readonly tooLate: (socket: Socket) => void;
  readonly serveHttp2: (socket: Socket) => void;
}

export interface H2c {
  /** Reads what a connection begins with; calls `serveHttp1` for those that are not HTTP/2. */
  look(socket: Socket, serveHttp1: (socket: Socket) => void): void;
  /** Ends connections that have sent nothing yet. */
  drain(): void;
}

/** The part of the preface that no HTTP/1 request can begin with; the rest is checked by the HTTP/2 parser. */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n");

export function createH2c(options: H2cOptions): H2c {
  /** Connections of which it is not known yet what they speak. */
  const silent = new Set<Socket>();

  function look(socket: Socket, serveHttp1: (socket: Socket) => void): void {
    silent.add(socket);
    const tooLate: Timer = options.clock.after(options.timeoutMs(), () => decide(() => options.tooLate(socket)));
    let seen: Buffer = Buffer.alloc(0);
    const onReadable = () => {
      for (let chunk = read(socket); chunk !== null; chunk = read(socket)) seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
      const length = Math.min(seen.length, PREFACE.length);
      if (seen.compare(PREFACE, 0, length, 0, length) !== 0) decide(() => serveHttp1(socket));
      else if (length === PREFACE.length) decide(() => options.serveHttp2(socket));
    };
    // Part of a preface at most, and nothing to come.
    const onEnd = () => void socket.destroy();
    const over = () => {
      silent.delete(socket);
      tooLate.cancel();
      socket.off("readable", onReadable).off("end", onEnd).off("close", over);
    };
    const decide = (then: () => void) => {
      over();
      if (socket.destroyed) return;
      if (seen.length > 0) socket.unshift(seen);
      then();
    };
    socket.on("readable", onReadable).on("end", onEnd).on("close", over);
  }

  return {
    look,
    drain() {
      for (const socket of silent) if (socket.bytesRead === 0) socket.destroy();
    },
  };
}

function read(socket: Socket): Buffer | null {
  return socket.read() as Buffer | null;
}
