/**
 * Ends a connection whose client may still be sending. Closed at once, the system would answer its bytes with a reset, and a reset
 * takes the reply from a client that has not read it yet (RFC 9112 §9.6). When a connection has to end is decided by the callers.
 */
import type { Duplex } from "node:stream";
import type { Clock } from "../base/clock.ts";

/** What a client may leave of the last reply unread, in time. */
const MAX_UNREAD_MS = 60_000;
/** What is read and thrown away before the connection is cut after all. */
const MAX_LINGER_MS = 5_000;
const MAX_LINGER_BYTES = 1024 * 1024;

/** Sends what is written and our end, reads on for a while, and destroys the socket at the latest then. */
export function endSoon(socket: Duplex & { setTimeout?(ms: number, run?: () => void): void }, clock: Clock): void {
  if (socket.destroyed) return;
  const cut = () => void socket.destroy();
  let discarded = 0;
  socket.on("data", (chunk: Buffer) => {
    discarded += chunk.length;
    if (discarded > MAX_LINGER_BYTES) cut();
  });
  socket.resume();
  const wait = () => {
    socket.setTimeout?.(0);
    const timer = clock.after(MAX_LINGER_MS, cut);
    socket.once("close", () => timer.cancel());
  };
  socket.setTimeout?.(MAX_UNREAD_MS, cut);
  socket.end();
  if (socket.writableFinished) wait();
  else socket.once("finish", wait);
}
