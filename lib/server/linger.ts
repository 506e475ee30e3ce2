/**
 * Deals with clients that are still sending when their reply is out. A connection closed at once would answer their bytes with a reset,
 * and a reset takes the reply from a client that has not read it yet (RFC 9112 §9.6). When one has to end is decided by the callers.
 */
import { Socket } from "node:net";
import type { Duplex, Readable } from "node:stream";
import type { Clock } from "../base/clock.ts";

/** Milliseconds a client may leave the last reply unread. Any byte it takes counts anew. */
const MAX_UNREAD_MS = 60_000;
/** What is read and thrown away before the connection is cut after all. */
const MAX_LINGER_MS = 5_000;
const MAX_LINGER_BYTES = 1024 * 1024;

/** Sends what is written and our end, discards what arrives for up to `lingerMs` (default 5 000) after that, then destroys the socket. */
export function endSoon(socket: Duplex & { setTimeout?(ms: number): void }, clock: Clock, lingerMs = MAX_LINGER_MS): void {
  if (socket.destroyed) return;
  const cut = () => void socket.destroy();
  let discarded = 0;
  socket.on("data", (chunk: Buffer) => {
    discarded += chunk.length;
    if (discarded > MAX_LINGER_BYTES) cut();
  });
  socket.resume();
  // Not the socket's own timeout: bytes that the client sends would put it off, while it reads nothing.
  socket.setTimeout?.(0);
  let before = taken(socket);
  const look = () => {
    const now = taken(socket);
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
 * A figure that changes whenever the other side takes bytes of what was written: those that have left us, and on a socket those that the
 * system has yet to send.
 */
export function taken(outlet: Duplex): number {
  if (!(outlet instanceof Socket)) return -outlet.writableLength;
  const { _handle: handle } = outlet as { _handle?: { readonly writeQueueSize?: number } | null };
  return outlet.bytesWritten - outlet.writableLength - (handle?.writeQueueSize ?? 0);
}

/**
 * Reads on a body that is not wanted any more, whoever would hold it back: an upload may be waiting for an upstream that has answered
 * and reads no more. How much is read is bounded by the callers.
 */
export function letFlow(body: Readable): void {
  body.pause = () => body;
  body.resume();
}
