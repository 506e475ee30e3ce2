/**
 * Ends connections whose clients may still be sending or reading: closed at once, a connection answers bytes with a
 * reset, and a reset makes a client lose a reply that it has not read yet (RFC 9112 §9.6).
 */
import type { Socket } from "node:net";
import type { Duplex, Readable } from "node:stream";
import { DeadlineTimer, type Clock } from "../base/clock.ts";
import { PacedSink } from "../http/delivery.ts";

/** Milliseconds a client may leave the last reply unread, beyond what `DeliveryOptions` say. */
const MAX_UNREAD_MS = 60_000;
/**
 * Milliseconds for which an unwanted request body is discarded, in all, and while nothing arrives. By time, not by
 * bytes: many clients read the reply only when they have sent all of their body.
 */
export const MAX_DISCARD_MS = 30_000;
export const MAX_QUIET_MS = 5_000;
/** Most bytes of it that are read in a second: to discard must not keep the process busy. */
export const MAX_DISCARDED_PER_S = 8 * 1024 * 1024;

/**
 * Flushes written data, half-closes the socket, discards input as `discardRest` does, for `mostMs` at most, then
 * destroys the socket.
 */
export function endSoon(
  socket: Duplex & { setTimeout?(ms: number): void },
  clock: Clock,
  mostMs = MAX_DISCARD_MS,
): void {
  if (socket.destroyed) return;
  const cut = () => void socket.destroy();
  socket.resume();
  // Not the socket's own timeout: bytes that the client sends would restart it, although the client reads nothing.
  socket.setTimeout?.(0);
  const options = { clock, watch: new DeadlineTimer(clock), idleMs: MAX_UNREAD_MS, leastBytesPerS: () => 0 };
  const last = new PacedSink(socket, options, () => (socket as Partial<Socket>).bytesWritten ?? 0, cut);
  last.wait();
  let stop = () => last.stop();
  socket.once("close", () => stop());
  const wait = () => {
    stop();
    stop = discardRest(socket, clock, cut, mostMs);
  };
  socket.end();
  if (socket.writableFinished) wait();
  else socket.once("finish", wait);
}

/**
 * Discards what arrives, even if another reader pauses it; calls `cut` after 5 s without a byte, and after `mostMs`.
 * Returns what ends these deadlines.
 */
export function discardRest(from: Readable, clock: Clock, cut: () => void, mostMs = MAX_DISCARD_MS): () => void {
  const endsAt = clock.now() + mostMs;
  const { pause } = from;
  let discarded = 0;
  let heardAt = clock.now();
  from.on("data", (chunk: Buffer) => {
    discarded += chunk.length;
    heardAt = clock.now();
    if (discarded > MAX_DISCARDED_PER_S) pause.call(from);
  });
  letFlow(from);
  const timer = clock.after(LOOK_MS, () => {
    const now = clock.now();
    if (now - heardAt >= MAX_QUIET_MS || now >= endsAt) return cut();
    discarded = 0;
    from.resume();
    timer.restart();
  });
  return () => timer.cancel();
}

const LOOK_MS = 1_000;

/** Drains an unwanted body, even if its reader has paused it for an upstream that has answered and stopped reading. */
export function letFlow(body: Readable): void {
  body.pause = () => body;
  body.resume();
}
