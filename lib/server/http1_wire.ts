/**
 * Serves HTTP/1 clients by our own codec (`global.http1: "wire"`): one `ClientConnection` a socket, one timer for the deadlines of all.
 */
import type { Timer } from "../base/clock.ts";
import { ClientConnection, type ConnectionServer } from "./client_connection.ts";
import { Drain, type Http1, type Http1Options } from "./http1.ts";
import { Uploads } from "./limits.ts";

const LOOK_MS = 1_000;

export function createWireHttp1(options: Http1Options): Http1 {
  const { clock } = options;
  const connections = new Set<ClientConnection>();
  let looking: Timer | null = null;
  const drain = new Drain(clock, () => {
    for (const connection of connections) connection.endIfIdle();
  });
  const server: ConnectionServer = {
    ...options,
    uploads: new Uploads(clock),
    drain,
    gone(connection) {
      connections.delete(connection);
      if (connections.size > 0) return;
      looking?.cancel();
      looking = null;
    },
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
    sendAway: (away) => void (drain.isLeaving = away),
    drain: (lingerMs) => drain.begin(lingerMs),
    destroy() {
      looking?.cancel();
      drain.cancel();
    },
  };
}
