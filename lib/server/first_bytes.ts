/**
 * Reads the first bytes of a connection until they say what it is, before anything else reads from it.
 */
import type { Socket } from "node:net";
import type { Clock } from "../base/clock.ts";
import type { Drain } from "./http1.ts";

interface Reading {
  readonly clock: Clock;
  readonly drain: Pick<Drain, "add" | "remove">;
  readonly receiving: () => { readonly limits: { readonly headersTimeoutMs: number } };
}

interface FirstBytes<Found> {
  /** What the bytes so far say, all of them in each call; null: more have to come. */
  readonly read: (bytes: Buffer) => Found | null;
  /** Called once, with all that was read. */
  readonly decided: (found: Found, bytes: Buffer) => void;
  /** The client has not sent enough within `limits.headersTimeoutMs`. */
  readonly late: () => void;
}

/** Calls neither where the connection ends before: what has arrived of it says nothing. */
export function readFirstBytes<Found>(
  socket: Socket,
  { clock, drain, receiving }: Reading,
  { read, decided, late }: FirstBytes<Found>,
): void {
  const seen = new SeenBytes();
  const onReadable = () => {
    for (let chunk: Buffer | null; (chunk = socket.read() as Buffer | null) !== null;) seen.add(chunk);
    const found = read(seen.bytes);
    if (found === null) return;
    stop();
    if (!socket.destroyed) decided(found, seen.bytes);
  };
  const onEnd = () => void socket.destroy();
  const undecided = { endIdle: () => void (socket.bytesRead === 0 && socket.destroy()) };
  const stop = () => {
    timer.cancel();
    drain.remove(undecided);
    socket.off("readable", onReadable).off("end", onEnd).off("close", stop);
  };
  const timer = clock.after(receiving().limits.headersTimeoutMs, () => {
    stop();
    late();
  });
  drain.add(undecided);
  socket.on("readable", onReadable).on("end", onEnd).on("close", stop);
}

/** All bytes so far as one buffer. Its room doubles: in however small chunks they come, each is copied few times. */
class SeenBytes {
  #room = Buffer.alloc(0);
  #length = 0;

  get bytes(): Buffer {
    return this.#room.subarray(0, this.#length);
  }

  add(chunk: Buffer): void {
    const length = this.#length + chunk.length;
    if (length > this.#room.length) {
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#room.length));
      this.#room.copy(larger, 0, 0, this.#length);
      this.#room = larger;
    }
    chunk.copy(this.#room, this.#length);
    this.#length = length;
  }
}
