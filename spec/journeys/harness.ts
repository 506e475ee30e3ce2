/** Backends, clients and logs for whole-gateway specs; each is closed when its test ends. */
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import http2 from "node:http2";
import https from "node:https";
import type { AddressInfo, Server, Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { onTestFinished } from "vitest";
import { createLog, type Log } from "../../lib/base/log.ts";
import type { Gateway } from "../../lib/index.ts";
import { SERVER } from "../support/certs.ts";
import { freePort, rawOrigin, socketOrigin, type Origin, type SocketOrigin } from "../support/origin.ts";
import { ask, connect, type Ask, type RawConnection } from "../support/raw_client.ts";

export { backend } from "../support/gateway.ts";

/** An HTTP server whose requests are not read unless `answer` does. */
export async function rawBackend(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<Origin> {
  const made = await rawOrigin(answer);
  onTestFinished(() => made.close());
  return made;
}

/** A TCP server that passes each connection to `serve`. */
export async function byteBackend(serve: (socket: Socket) => void): Promise<SocketOrigin> {
  const made = await socketOrigin(serve);
  onTestFinished(() => made.close());
  return made;
}

export interface Head {
  readonly text: string;
  readonly socket: Socket;
  /** Index of the head on its connection, from 0. */
  readonly nth: number;
}

/** Calls `answer` for each request head that arrives. Only for requests without a body. */
export async function headBackend(answer: (head: Head) => void): Promise<SocketOrigin & { readonly heads: string[] }> {
  const heads: string[] = [];
  const made = await byteBackend((socket) => {
    let buffered = "";
    let nth = 0;
    socket.on("data", (chunk: Buffer) => {
      buffered += chunk.toString("latin1");
      for (let end = buffered.indexOf("\r\n\r\n"); end >= 0; end = buffered.indexOf("\r\n\r\n")) {
        const text = buffered.slice(0, end + 4);
        buffered = buffered.slice(end + 4);
        heads.push(text);
        answer({ text, socket, nth: nth++ });
      }
    });
  });
  return Object.assign(made, { heads });
}

/** What became of a request, once it is remembered. */
export async function decided(gateway: Gateway, id: string) {
  for (let turns = 0; turns < 1_000; turns++) {
    const found = await gateway.decision(id);
    if (found !== null) return found;
    await wait(2);
  }
  throw new Error(`the request ${id} is not remembered`);
}

export async function client(port: number, from?: string): Promise<RawConnection> {
  const connection = await connect(port, from);
  onTestFinished(() => void connection.socket.destroy());
  return connection;
}

/** The bytes of a GET request, by default for /a/x, with these header lines. */
export function get(path = "/a/x", ...lines: string[]): string {
  return ["GET " + path + " HTTP/1.1", "Host: gw.example", ...lines, "", ""].join("\r\n");
}

/** The error code of the problem document in the bytes that a client received. */
export function codeIn(received: string): string | undefined {
  return /"code":"(\w+)"/.exec(received)?.[1];
}

/** The status of each HTTP/1.1 response in the bytes that a client received. */
export function statusesIn(received: string): number[] {
  return [...received.matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));
}

/** A promise, `opened`, that the test resolves with `open()`. */
export function gate<T = void>(): { readonly opened: Promise<T>; open(value: T): void } {
  let open!: (value: T) => void;
  const opened = new Promise<T>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

export const PROTOCOLS = ["http", "https", "h2c", "h2"] as const;
export type Protocol = (typeof PROTOCOLS)[number];

/** The service options for upstreams of this protocol that present the certificate `SERVER`. */
export function speaking(protocol: Protocol) {
  return protocol === "https" || protocol === "h2" ? { protocol, tls: { verify: false } } : { protocol };
}

export interface RestartableBackend {
  readonly port: number;
  /** "127.0.0.1:PORT", as in the log. */
  readonly id: string;
  /** The number of requests that have arrived. */
  requests: number;
  /** Answers a request. Default: 200 with the backend's id. */
  answer: (request: IncomingMessage, response: ServerResponse) => void;
  /**
   * Answers no further request, finishes the responses that have begun, then closes its port and destroys its
   * connections.
   */
  kill(): Promise<void>;
  /** Listens again on the same port. */
  start(): Promise<void>;
}

/** A backend of any protocol that can be stopped and started again. */
export async function restartableBackend(
  protocol: Protocol = "http",
  { host = "127.0.0.1", port: wanted = 0 } = {},
): Promise<RestartableBackend> {
  const sockets = new Set<Socket>();
  let server: Server;
  // Not one that the system may give to another listener while this one is down.
  let port = wanted || (await freePort());
  const unfinished = new Set<ServerResponse>();
  let dying = false;
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    self.requests++;
    request.on("error", ignore);
    response.on("error", ignore);
    if (dying) return;
    unfinished.add(response);
    response.on("close", () => unfinished.delete(response));
    self.answer(request, response);
  };
  const listen = () =>
    new Promise<void>((resolve, reject) => {
      dying = false;
      server = serverOf(protocol, listener);
      for (const event of ["connection", "secureConnection"]) {
        server.on(event, (socket: Socket) => {
          sockets.add(socket);
          socket.on("error", ignore);
          socket.on("close", () => sockets.delete(socket));
        });
      }
      server.on("error", reject);
      server.listen(port, host, resolve);
    });
  const kill = async () => {
    dying = true;
    // No proxy can save a response that breaks off in the middle, so those are finished first.
    while ([...unfinished].some(({ headersSent }) => headersSent))
      await new Promise((resolve) => setImmediate(resolve));
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  await listen();
  port = (server!.address() as AddressInfo).port;
  onTestFinished(kill);
  const self: RestartableBackend = {
    port,
    id: `${host}:${port}`,
    requests: 0,
    answer: (_request, response) => void response.end(`from ${self.id}`),
    kill,
    async start() {
      // The system may have given the port to an outgoing connection for a moment.
      for (let tries = 0; ; tries++) {
        try {
          return await listen();
        } catch (error) {
          if (tries === 50) throw error;
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
      }
    },
  };
  return self;
}

function serverOf(protocol: Protocol, listener: (request: IncomingMessage, response: ServerResponse) => void): Server {
  const files = { cert: SERVER.cert, key: SERVER.key };
  // Node's HTTP/2 compatibility API passes objects that look like HTTP/1 messages.
  const listener2 = listener as unknown as (
    request: http2.Http2ServerRequest,
    response: http2.Http2ServerResponse,
  ) => void;
  switch (protocol) {
    case "http":
      return http.createServer({ keepAliveTimeout: 60_000 }, listener);
    case "https":
      return https.createServer({ ...files, keepAliveTimeout: 60_000 }, listener);
    case "h2c":
      return http2.createServer(listener2);
    case "h2":
      return http2.createSecureServer(files, listener2);
  }
}

export interface Load {
  /** The number of requests sent. */
  readonly requests: number;
  /** Status and body, or the error, of each request that has ended. */
  readonly outcomes: readonly string[];
  /** The outcomes other than 200. */
  readonly lost: readonly string[];
  /** Resolves when this many more requests have ended. */
  more(requests: number): Promise<void>;
  /** Sends no further request; resolves when all that were sent have ended. */
  stop(): Promise<void>;
}

/** Closed-loop load: each client keeps one connection and sends its next request as soon as it has its response. */
export function closedLoop(port: number, clients = 8, request: Ask = { path: "/a/x" }): Load {
  const outcomes: string[] = [];
  const waiting = new Set<() => void>();
  let requests = 0;
  let going = true;
  const loop = async () => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    while (going) {
      requests++;
      outcomes.push(await ask(port, { ...request, agent }).then(({ status, body }) => `${status} ${body}`, String));
      for (const look of [...waiting]) look();
    }
    agent.destroy();
  };
  const loops = Array.from({ length: clients }, loop);
  const stop = async () => {
    going = false;
    await Promise.all(loops);
  };
  onTestFinished(() => void (going = false));
  return {
    get requests() {
      return requests;
    },
    outcomes,
    get lost() {
      return outcomes.filter((outcome) => !outcome.startsWith("200 "));
    },
    more(requests) {
      const enough = outcomes.length + requests;
      return new Promise((resolve) => {
        const look = () => {
          if (outcomes.length < enough) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
      });
    },
    stop,
  };
}

export interface RecordedLog {
  readonly log: Log;
  readonly lines: Record<string, unknown>[];
  /** The upstreams in the lines whose message starts with `message`, in order. */
  upstreams(message: string): unknown[];
}

export function recordedLog(): RecordedLog {
  const lines: Record<string, unknown>[] = [];
  return {
    log: createLog({ format: "json", write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) }),
    lines,
    upstreams: (message) =>
      lines.filter((line) => String(line.message).startsWith(message)).map(({ upstream }) => upstream),
  };
}

function ignore(): void {}
