/** Backends for specs: HTTP servers that record their requests, TCP servers, and free or closed ports. */
import { once } from "node:events";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import net, { type AddressInfo, type Socket } from "node:net";

export interface Seen {
  readonly method: string;
  readonly url: string;
  /** Flat list, as received. */
  readonly headers: readonly string[];
  readonly body: Buffer;
  readonly trailers: readonly string[];
}

export interface Origin {
  readonly port: number;
  readonly seen: Seen[];
  /** Connections made to it so far, and those open now. */
  readonly connections: { total: number; open: number };
  readonly server: http.Server;
  close(): Promise<void>;
}

type Answer = (request: IncomingMessage, response: ServerResponse, body: Buffer) => void;

/** Reads each request to its end, records it, then answers; by default 200 "ok". */
export async function origin(answer: Answer = (_request, response) => void response.end("ok")): Promise<Origin> {
  const seen: Seen[] = [];
  return start(seen, (request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("error", () => {});
    request.on("end", () => {
      const body = Buffer.concat(chunks);
      seen.push({
        method: request.method!,
        url: request.url!,
        headers: request.rawHeaders,
        body,
        trailers: request.rawTrailers,
      });
      answer(request, response, body);
    });
  });
}

/** Passes each request on unread. */
export async function rawOrigin(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<Origin> {
  return start([], answer);
}

async function start(
  seen: Seen[],
  listener: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<Origin> {
  const server = http.createServer({ keepAliveTimeout: 60_000 }, listener);
  const connections = { total: 0, open: 0 };
  server.on("connection", (socket) => {
    connections.total++;
    connections.open++;
    socket.on("close", () => connections.open--);
    socket.on("error", () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    seen,
    connections,
    server,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

export interface SocketOrigin {
  readonly port: number;
  readonly sockets: Set<Socket>;
  connections: number;
  close(): Promise<void>;
}

/** A TCP server that passes each connection to `serve`. */
export async function socketOrigin(serve: (socket: Socket) => void): Promise<SocketOrigin> {
  const sockets = new Set<Socket>();
  const server = net.createServer((socket) => {
    self.connections++;
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => {});
    serve(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const self: SocketOrigin = {
    port: (server.address() as AddressInfo).port,
    sockets,
    connections: 0,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
  return self;
}

/**
 * A port on which nothing listens: it is the local port of a connection that lasts as long as the process does, so that
 * the system gives it to no server of another spec.
 */
export async function closedPort(): Promise<number> {
  const server = net.createServer((socket) => socket.unref());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const held = net.connect((server.address() as AddressInfo).port, "127.0.0.1");
  await once(held, "connect");
  server.close();
  server.unref();
  held.unref();
  return held.localPort!;
}

/**
 * A free port. It is below those that the system gives to connections and to servers on port 0, and each process takes
 * others in turn, so that nothing else gets it before it is used.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = LOWEST_PORT + (portsTried++ % PORTS);
    const server = net.createServer();
    const isFree = new Promise<boolean>((resolve) =>
      server.once("error", () => resolve(false)).listen(port, () => resolve(true)),
    );
    if (!(await isFree)) continue;
    await new Promise<void>((resolve) => server.close(() => resolve()));
    return port;
  }
}

const LOWEST_PORT = 10_000;
const PORTS = 22_000;
let portsTried = process.pid * 97;
