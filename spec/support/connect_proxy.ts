/** An HTTP proxy that answers CONNECT, and a proxy that answers as a spec says. */
import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import net, { type AddressInfo, type Socket } from "node:net";
import { onTestFinished } from "vitest";

export interface ConnectProxy {
  readonly port: number;
  /** The targets that it was asked for. */
  readonly asked: string[];
  /** `Proxy-Authorization` of each request. */
  readonly authorizations: (string | undefined)[];
  readonly sockets: Set<Socket>;
}

/** Leads every name to this machine. `tls`: it is reached over TLS. */
export async function connectProxy(tls?: { readonly cert: string; readonly key: string }): Promise<ConnectProxy> {
  const server = tls === undefined ? http.createServer() : https.createServer(tls);
  const asked: string[] = [];
  const authorizations: (string | undefined)[] = [];
  const sockets = new Set<Socket>();
  server.on("connect", ({ url = "", headers }, client: Socket, head: Buffer) => {
    asked.push(url);
    authorizations.push(headers["proxy-authorization"]);
    const onwards = net.connect(Number(url.slice(url.lastIndexOf(":") + 1)), "127.0.0.1", () => {
      client.write("HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n");
      onwards.write(head);
      client.pipe(onwards).pipe(client);
    });
    for (const [side, other] of [
      [client, onwards],
      [onwards, client],
    ] as const) {
      sockets.add(side);
      side.on("error", () => other.destroy());
      side.on("close", () => {
        sockets.delete(side);
        other.destroy();
      });
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, asked, authorizations, sockets };
}

/** A server for one test that gets each connection once a CONNECT has arrived. */
export async function strangeProxy(answer: (socket: Socket) => void): Promise<number> {
  const open = new Set<Socket>();
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => open.delete(socket));
    socket.once("data", () => answer(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}
