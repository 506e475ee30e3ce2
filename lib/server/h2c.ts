/**
 * Distinguishes HTTP/2 by prior knowledge (RFC 9113 §3.3) from HTTP/1 on a plain port, by the first bytes of a
 * connection.
 */
import type { Socket } from "node:net";
import { LATE_HEAD, refuseUnread, type Http1Options } from "./http1.ts";

/** The part of the preface that no HTTP/1 request can start with; the HTTP/2 parser checks the rest. */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n");

/**
 * Calls `decided` once; bytes read are put back. Ends a connection that has not sent enough within
 * `limits.headersTimeoutMs`.
 */
export function detectProtocol(
  socket: Socket,
  options: Http1Options,
  decided: (protocol: "HTTP/1" | "HTTP/2") => void,
): void {
  const { clock, drain, receiving } = options;
  let seen: Buffer = Buffer.alloc(0);
  const onReadable = () => {
    for (let chunk: Buffer | null; (chunk = socket.read() as Buffer | null) !== null;)
      seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
    const length = Math.min(seen.length, PREFACE.length);
    if (seen.compare(PREFACE, 0, length, 0, length) !== 0) decide("HTTP/1");
    else if (length === PREFACE.length) decide("HTTP/2");
  };
  // The client has sent part of a preface at most, and sends nothing more.
  const onEnd = () => void socket.destroy();
  const undecided = { endIdle: () => void (socket.bytesRead === 0 && socket.destroy()) };
  const stop = () => {
    timer.cancel();
    drain.remove(undecided);
    socket.off("readable", onReadable).off("end", onEnd).off("close", stop);
  };
  const decide = (protocol: "HTTP/1" | "HTTP/2") => {
    stop();
    if (socket.destroyed) return;
    if (seen.length > 0) socket.unshift(seen);
    decided(protocol);
  };
  const timer = clock.after(receiving().limits.headersTimeoutMs, () => {
    stop();
    refuseUnread(socket, options, LATE_HEAD);
  });
  drain.add(undecided);
  socket.on("readable", onReadable).on("end", onEnd).on("close", stop);
}
