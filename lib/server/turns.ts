/**
 * One exchange at a time on each HTTP/1 connection: what a client pipelines waits for its turn. Answers keep their order then, and a
 * request that changes something is over before the next one is looked at (RFC 9112 §9.3.2). What an exchange is made of is
 * `listener.ts`.
 */
import type { Duplex } from "node:stream";

export interface Turns {
  /** Runs `begin` once all before it on this connection are over: at once on an idle one, never on one that is ending. */
  take(socket: Duplex, begin: () => void): void;
  /** The exchange under way is over; the next one begins. */
  over(socket: Duplex): void;
}

/** So many requests of one connection wait before the rest of what it sends is left unread. */
const MAX_WAITING = 32;

interface Line {
  readonly waiting: (() => void)[];
  paused: boolean;
}

export function createTurns(): Turns {
  /** Connections with an exchange under way; null while nothing waits behind it. */
  const lines = new WeakMap<Duplex, Line | null>();
  return {
    take(socket, begin) {
      if (!socket.writable) return;
      const line = lines.get(socket);
      if (line === undefined) {
        lines.set(socket, null);
        return begin();
      }
      if (line === null) return void lines.set(socket, { waiting: [begin], paused: false });
      line.waiting.push(begin);
      if (line.waiting.length < MAX_WAITING || line.paused) return;
      line.paused = true;
      socket.pause();
    },
    over(socket) {
      const line = lines.get(socket) ?? null;
      const begin = socket.writable ? line?.waiting.shift() : undefined;
      if (line === null || begin === undefined) return void lines.delete(socket);
      if (line.paused && line.waiting.length === 0) {
        line.paused = false;
        socket.resume();
      }
      begin();
    },
  };
}
