/**
 * Distinguishes HTTP/2 by prior knowledge (RFC 9113 §3.3) from HTTP/1 on a plain port, by the first bytes of a connection.
 */
import type { Socket } from "node:net";
import type { Clock } from "../base/clock.ts";

type Protocol = "HTTP/1" | "HTTP/2" | "unknown";

/** The part of the preface that no HTTP/1 request can start with; the HTTP/2 parser checks the rest. */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n");

/**
 * Calls `decided` once, unless the connection closes before; bytes read are put back. "unknown": the client has not sent enough within
 * `timeoutMs`.
 */
export function detectProtocol(socket: Socket, clock: Clock, timeoutMs: number, decided: (protocol: Protocol) => void): void {
  let seen: Buffer = Buffer.alloc(0);
  const onReadable = () => {
    for (let chunk = read(socket); chunk !== null; chunk = read(socket)) seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
    const length = Math.min(seen.length, PREFACE.length);
    if (seen.compare(PREFACE, 0, length, 0, length) !== 0) decide("HTTP/1");
    else if (length === PREFACE.length) decide("HTTP/2");
  };
  // The client has sent part of a preface at most, and sends nothing more.
  const onEnd = () => void socket.destroy();
  const stop = () => {
    timer.cancel();
    socket.off("readable", onReadable).off("end", onEnd).off("close", stop);
  };
  const decide = (protocol: Protocol) => {
    stop();
    if (socket.destroyed) return;
    if (seen.length > 0) socket.unshift(seen);
    decided(protocol);
  };
  const timer = clock.after(timeoutMs, () => decide("unknown"));
  socket.on("readable", onReadable).on("end", onEnd).on("close", stop);
}

function read(socket: Socket): Buffer | null {
  return socket.read() as Buffer | null;
}
