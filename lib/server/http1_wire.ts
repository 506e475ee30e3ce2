/**
 * HTTP/1 towards clients by our own codec (`global.http1: "wire"`): one `ClientConnection` for each socket, and one timer for the deadlines
 * of all of them.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { ClientConnection, type ConnectionServer } from "./client_connection.ts";
import type { Http1, Http1Options } from "./http1.ts";
import { createUploads } from "./limits.ts";

const LOOK_MS = 1_000;

export function createWireHttp1(options: Http1Options): Http1 {
  const { clock } = options;
  const connections = new Set<ClientConnection>();
  let isLeaving = false;
  let looking: Timer | null = null;
  let endIdleLater: Timer | null = null;
  const server: ConnectionServer = {
    ...options,
    uploads: createUploads(clock),
    isLeaving: () => isLeaving,
    dateLine: createDateLine(clock),
    gone(connection) {
      connections.delete(connection);
      if (connections.size > 0) return;
      looking?.cancel();
      looking = null;
    },
    // A reply may have left before the drain began: its client knows nothing of it.
    replied: () => endIdleLater?.restart(),
  };

  function look(): void {
    const now = clock.now();
    for (const connection of connections) connection.look(now);
    looking = connections.size > 0 ? clock.after(LOOK_MS, look) : null;
  }

  function endIdle(): void {
    for (const connection of connections) connection.endIfIdle();
  }

  return {
    serve(socket) {
      connections.add(new ClientConnection(socket, server));
      endIdleLater?.restart();
      looking ??= clock.after(LOOK_MS, look);
    },
    sendAway(away) {
      isLeaving = away;
    },
    drain(lingerMs) {
      isLeaving = true;
      endIdleLater = clock.after(lingerMs, endIdle);
      if (lingerMs === 0) endIdle();
    },
    destroy() {
      looking?.cancel();
      endIdleLater?.cancel();
      endIdleLater = null;
    },
  };
}

/** `Date: Sun, 06 Nov 1994 08:49:37 GMT`, made once a second. */
function createDateLine(clock: Clock): () => string {
  let second = -1;
  let line = "";
  return () => {
    const now = Math.floor(clock.wall() / 1000);
    if (now !== second) {
      second = now;
      line = `Date: ${new Date(now * 1000).toUTCString()}\r\n`;
    }
    return line;
  };
}
