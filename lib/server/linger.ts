/**
 * Ends connections whose clients may still be sending or reading. A connection closed at once would answer their bytes with a reset, and a
 * reset makes a client lose a reply that it has not read yet (RFC 9112 §9.6).
 */
import { Socket } from "node:net";
import type { Duplex, Readable } from "node:stream";
import { TLSSocket } from "node:tls";
import type { Clock } from "../base/clock.ts";

/** Milliseconds a client may leave the last reply unread. Any byte it reads restarts the time. */
const MAX_UNREAD_MS = 60_000;
/** Limits, in bytes and milliseconds, for discarding an unread request body, so that its connection can be reused or closed normally. */
export const MAX_DISCARDED_BYTES = 1024 * 1024;
export const MAX_DISCARD_MS = 5_000;

/** Flushes written data, half-closes the socket, discards input for up to `lingerMs` (default 5 000), then destroys the socket. */
export function endSoon(socket: Duplex & { setTimeout?(ms: number): void }, clock: Clock, lingerMs = MAX_DISCARD_MS): void {
  if (socket.destroyed) return;
  const cut = () => void socket.destroy();
  let discarded = 0;
  socket.on("data", (chunk: Buffer) => {
    discarded += chunk.length;
    if (discarded > MAX_DISCARDED_BYTES) cut();
  });
  socket.resume();
  // Not the socket's own timeout: bytes that the client sends would restart it, although the client reads nothing.
  socket.setTimeout?.(0);
  let before = acknowledgedBytes(socket);
  const look = () => {
    const now = acknowledgedBytes(socket);
    if (now === before) return cut();
    before = now;
    timer = clock.after(MAX_UNREAD_MS, look);
  };
  let timer = clock.after(MAX_UNREAD_MS, look);
  socket.once("close", () => timer.cancel());
  const wait = () => {
    timer.cancel();
    timer = clock.after(lingerMs, cut);
  };
  socket.end();
  if (socket.writableFinished) wait();
  else socket.once("finish", wait);
}

/**
 * Ends a connection in the middle of a body. A body that lasts until the connection closes (`isUntilClose`) would look complete, so its
 * connection is reset; TLS shows it by the missing close_notify.
 */
export function breakOff(socket: Duplex, isUntilClose: boolean): void {
  if (isUntilClose && socket instanceof Socket && !(socket instanceof TLSSocket)) socket.resetAndDestroy();
  else socket.destroy();
}

/**
 * Returns a number that grows whenever the peer accepts written bytes: the bytes handed to the system, minus, on a socket, the bytes that the
 * system has not sent yet.
 */
export function acknowledgedBytes(outlet: Duplex): number {
  if (!(outlet instanceof Socket)) return -outlet.writableLength;
  const { _handle: handle } = outlet as { _handle?: { readonly writeQueueSize?: number } | null };
  return outlet.bytesWritten - outlet.writableLength - (handle?.writeQueueSize ?? 0);
}

/** Drains an unwanted body, even if its reader has paused it for an upstream that has answered and stopped reading. */
export function letFlow(body: Readable): void {
  body.pause = () => body;
  body.resume();
}
