/** Real connections over loopback that are closed when their test ends. */
import { once } from "node:events";
import http2, { type ClientHttp2Session, type ServerHttp2Session } from "node:http2";
import net, { type AddressInfo, type Socket } from "node:net";
import tls from "node:tls";
import { onTestFinished } from "vitest";
import { connect, type RawConnection } from "./raw_client.ts";

/** Listens on a free port of 127.0.0.1 until the test ends, then destroys every connection. */
export async function listening(server: net.Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", ignore);
    socket.once("close", () => sockets.delete(socket));
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

/** A client at the level of bytes. */
export async function client(port: number): Promise<RawConnection> {
  const connection = await connect(port);
  onTestFinished(() => void connection.socket.destroy());
  return connection;
}

/** Two ends of one TCP connection. */
export async function pair(options: net.ServerOpts = {}): Promise<{ near: Socket; far: Socket }> {
  const server = net.createServer(options);
  const port = await listening(server);
  const [[far], near] = await Promise.all([
    once(server, "connection") as Promise<[Socket]>,
    connected(net.connect(port, "127.0.0.1")),
  ]);
  return { near, far };
}

/** Resolves when the connection is established, TLS handshake included. */
export async function connected<T extends Socket>(socket: T): Promise<T> {
  socket.on("error", ignore);
  onTestFinished(() => void socket.destroy());
  await once(socket, socket instanceof tls.TLSSocket ? "secureConnect" : "connect");
  return socket;
}

/** One turn of the event loop. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Serves HTTP/2 without a server object, as the gateway does; resolves with the port. */
export async function h2Port(
  take: (session: ServerHttp2Session, socket: Socket) => void,
  options: http2.ServerOptions = {},
): Promise<number> {
  const server = net.createServer((socket) => {
    const session = http2.performServerHandshake(socket, options);
    session.on("error", ignore);
    session.on("stream", (stream) => void stream.on("error", ignore));
    take(session, socket);
  });
  return listening(server);
}

/** A session over a connection made before it. */
export async function h2Client(port: number): Promise<ClientHttp2Session> {
  const socket = await connected(net.connect(port, "127.0.0.1"));
  const session = http2.connect("http://upstream", { createConnection: () => socket });
  session.on("error", ignore);
  onTestFinished(() => session.destroy());
  return session;
}

function ignore(): void {}
