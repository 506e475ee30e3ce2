/**
 * One exchange at a time on each HTTP/1 connection: what a client pipelines waits for its turn. Answers keep their order then, and a
 * request that changes something is over before the next one is looked at (RFC 9112 §9.3.2). What an exchange is made of is
 * `listener.ts`.
 */
import type { Duplex } from "node:stream";

export interface TaskQueue {
  /** Runs `begin` once all before it on this connection are over: at once on an idle one, never on one that is ending. */
  take(socket: Duplex, begin: () => void): void;
  /** The exchange under way is over; the next one begins. */
  over(socket: Duplex): void;
}

/** Requests of one connection that wait before its socket is left unread. */
const MAX_WAITING = 64;

/**
 * Requests of one connection that wait before it is reset. Node parses everything that one read has brought, 64 KiB or some 3,600 of the
 * shortest requests, before a pause takes effect; a socket that brings more than that does not pause.
 */
const MAX_PARSED = 4_096;

interface Line {
  readonly waiting: (() => void)[];
  /** The socket's own `resume` while it is left unread. */
  resume: (() => Duplex) | null;
}

export function createTaskQueue(): TaskQueue {
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
      if (line === null) return void lines.set(socket, { waiting: [begin], resume: null });
      line.waiting.push(begin);
      if (line.waiting.length >= MAX_PARSED) socket.destroy();
      else if (line.waiting.length >= MAX_WAITING && line.resume === null) pause(socket, line);
    },
    over(socket) {
      const line = lines.get(socket) ?? null;
      const begin = socket.writable ? line?.waiting.shift() : undefined;
      if (line === null || begin === undefined) return void lines.delete(socket);
      if (line.resume !== null && line.waiting.length === 0) {
        socket.resume = line.resume as typeof socket.resume;
        line.resume = null;
        socket.resume();
      }
      begin();
    },
  };
}

/**
 * Leaves the socket unread. Node's HTTP parser resumes it at the end of each message, so it gets nothing to resume it with; one such call
 * may be waiting for the end of this tick already, and would undo a pause before it.
 */
function pause(socket: Duplex, line: Line): void {
  line.resume = socket.resume;
  socket.resume = () => socket;
  process.nextTick(() => {
    if (line.resume !== null) socket.pause();
  });
}
