/**
 * Serves one request at a time on each HTTP/1 connection of node's parser: pipelined requests wait. Replies keep their
 * order, and a request that changes something is over before the next one begins (RFC 9112 §9.3.2).
 */
import type { Duplex } from "node:stream";
import { entry } from "../base/event_loop.ts";

/** Requests of one connection that wait before its socket is left unread. */
const MAX_WAITING = 64;

/**
 * Requests of one connection that wait before it is reset. One read brings 64 KiB or 3,600 of the shortest, which node
 * parses before it pauses.
 */
const MAX_PARSED = 4_096;

interface Waiting {
  readonly requests: (() => void)[];
  /** The socket's own `resume` while it is left unread. */
  resume: (() => Duplex) | null;
}

export class RequestQueue {
  /** Connections with an exchange in progress; null while no request waits behind it. */
  readonly #connections = new WeakMap<Duplex, Waiting | null>();

  /**
   * Runs `begin` once all earlier requests of this connection are over: at once if it is idle, never if it is ending.
   */
  take(socket: Duplex, begin: () => void): void {
    if (!socket.writable) return;
    const waiting = this.#connections.get(socket);
    if (waiting === undefined) {
      this.#connections.set(socket, null);
      return begin();
    }
    if (waiting === null) return void this.#connections.set(socket, { requests: [begin], resume: null });
    waiting.requests.push(begin);
    if (waiting.requests.length >= MAX_PARSED) socket.destroy();
    else if (waiting.requests.length >= MAX_WAITING && waiting.resume === null) pause(socket, waiting);
  }

  /** Ends the current exchange and starts the next one. */
  over(socket: Duplex): void {
    const waiting = this.#connections.get(socket) ?? null;
    const begin = socket.writable ? waiting?.requests.shift() : undefined;
    if (waiting === null || begin === undefined) return void this.#connections.delete(socket);
    if (waiting.resume !== null && waiting.requests.length === 0) {
      socket.resume = waiting.resume as typeof socket.resume;
      waiting.resume = null;
      socket.resume();
    }
    begin();
  }
}

/**
 * Leaves the socket unread. Node's parser resumes it at the end of each message, perhaps at the end of this tick:
 * `resume` does nothing meanwhile.
 */
function pause(socket: Duplex, waiting: Waiting): void {
  waiting.resume = socket.resume;
  socket.resume = () => socket;
  process.nextTick(
    entry("a pause", () => {
      if (waiting.resume !== null) socket.pause();
    }),
  );
}
