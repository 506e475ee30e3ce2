/**
 * Serves HTTP/1 clients by our own codec (`global.http1: "wire"`): one `ClientConnection` a socket.
 */
import { ClientConnection } from "./client_connection.ts";
import type { Http1, Http1Options } from "./http1.ts";

export function createWireHttp1(server: Http1Options): Http1 {
  const connections = new Set<ClientConnection>();
  return {
    serve(socket) {
      const connection = new ClientConnection(socket, server);
      connections.add(connection);
      socket.once("close", () => connections.delete(connection));
      server.drain.postpone();
    },
    endIdle() {
      for (const connection of connections) connection.endIfIdle();
    },
  };
}
