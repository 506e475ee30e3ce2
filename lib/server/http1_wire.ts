/**
 * Serves HTTP/1 clients by our own codec (`global.http1: "wire"`): one `ClientConnection` a socket.
 */
import { ClientConnection, type ConnectionServer } from "./client_connection.ts";
import { Drain, type Http1, type Http1Options } from "./http1.ts";

export function createWireHttp1(options: Http1Options): Http1 {
  /** Each with the end of its looks. */
  const connections = new Map<ClientConnection, () => void>();
  const drain = new Drain(options.clock, () => {
    for (const connection of connections.keys()) connection.endIfIdle();
  });
  const server: ConnectionServer = {
    ...options,
    drain,
    gone(connection) {
      connections.get(connection)?.();
      connections.delete(connection);
    },
  };
  return {
    serve(socket) {
      const connection = new ClientConnection(socket, server);
      connections.set(connection, options.deadlines.everySecond((now) => connection.look(now)));
      drain.postpone();
    },
    sendAway: (away) => void (drain.isLeaving = away),
    drain: (lingerMs) => drain.begin(lingerMs),
    destroy: () => drain.cancel(),
  };
}
