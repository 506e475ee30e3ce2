/** A backend over HTTPS, which answers 200 "ok" and is closed when the test ends. */
import { once } from "node:events";
import https from "node:https";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import { onTestFinished } from "vitest";

export interface HttpsOrigin {
  readonly port: number;
  /** The connections that are open, in the order of their handshakes. */
  readonly sockets: ReadonlySet<TLSSocket>;
}

export async function httpsOrigin(options: https.ServerOptions): Promise<HttpsOrigin> {
  const server = https.createServer(options, (_request, response) => response.end("ok"));
  const sockets = new Set<TLSSocket>();
  server.on("secureConnection", (socket: TLSSocket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, sockets };
}
