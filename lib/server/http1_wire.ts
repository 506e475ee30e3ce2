/**
 * Serves HTTP/1 clients by our own codec (`global.http1: "wire"`): one `ClientConnection` a socket, one timer for the deadlines of all.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { ClientConnection, type ConnectionServer } from "./client_connection.ts";
import { createDrain, type Http1, type Http1Options } from "./http1.ts";
import { createUploads } from "./limits.ts";

const LOOK_MS = 1_000;

export function createWireHttp1(options: Http1Options): Http1 {
  const { clock } = options;
  const connections = new Set<ClientConnection>();
  let looking: Timer | null = null;
  const drain = createDrain(clock, () => {
    for (const connection of connections) connection.endIfIdle();
  });
  const server: ConnectionServer = {
    ...options,
    uploads: createUploads(clock),
    isLeaving: drain.isLeaving,
    dateLine: createDateLine(clock),
    gone(connection) {
      connections.delete(connection);
      if (connections.size > 0) return;
      looking?.cancel();
      looking = null;
    },
    // A reply may have left before the drain began: its client knows nothing of it.
    replied: drain.postpone,
  };

  function look(): void {
    const now = clock.now();
    for (const connection of connections) connection.look(now);
    looking = connections.size > 0 ? clock.after(LOOK_MS, look) : null;
  }

  return {
    serve(socket) {
      connections.add(new ClientConnection(socket, server));
      drain.postpone();
      looking ??= clock.after(LOOK_MS, look);
    },
    sendAway: drain.sendAway,
    drain: drain.begin,
    destroy() {
      looking?.cancel();
      drain.cancel();
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
