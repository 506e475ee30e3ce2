/** Backends and clients that close themselves when the test ends, and bytes read as messages. */
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import http2 from "node:http2";
import https from "node:https";
import type { AddressInfo, Server, Socket } from "node:net";
import { onTestFinished } from "vitest";
import { createLog, type Log } from "../../lib/base/log.ts";
import { SERVER } from "../support/certs.ts";
import { rawOrigin, socketOrigin, type Origin, type SocketOrigin } from "../support/origin.ts";
import { ask, connect, type Ask, type RawConnection } from "../support/raw_client.ts";

export { backend } from "../support/gateway.ts";

/** Gets each request unread. */
export async function rawBackend(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<Origin> {
  const made = await rawOrigin(answer);
  onTestFinished(() => made.close());
  return made;
}

/** Gets each connection. */
export async function byteBackend(serve: (socket: Socket) => void): Promise<SocketOrigin> {
  const made = await socketOrigin(serve);
  onTestFinished(() => made.close());
  return made;
}

export interface Head {
  readonly text: string;
  readonly socket: Socket;
  /** Which head it is on its connection, from 0. */
  readonly nth: number;
}

/** Calls `answer` for every request head that arrives, bodies being skipped as if they were none: for requests without a body. */
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

export async function client(port: number): Promise<RawConnection> {
  const connection = await connect(port);
  onTestFinished(() => void connection.socket.destroy());
  return connection;
}

/** `GET /a/x` as a client without a library writes it. */
export function get(path = "/a/x", ...lines: string[]): string {
  return ["GET " + path + " HTTP/1.1", "Host: gw.example", ...lines, "", ""].join("\r\n");
}

/** The code of the problem document in what a client received. */
export function codeIn(received: string): string | undefined {
  return /"code":"(\w+)"/.exec(received)?.[1];
}

/** How many final responses there are in what a client received. */
export function statusesIn(received: string): number[] {
  return [...received.matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));
}

/** Resolves when the promise of this object is kept from outside. */
export function gate<T = void>(): { readonly opened: Promise<T>; open(value: T): void } {
  let open!: (value: T) => void;
  const opened = new Promise<T>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

export const PROTOCOLS = ["http", "https", "h2c", "h2"] as const;
export type Protocol = (typeof PROTOCOLS)[number];

/** What a service needs to say of upstreams with this protocol, whose certificate is `SERVER`'s. */
export function speaking(protocol: Protocol) {
  return protocol === "https" || protocol === "h2" ? { protocol, tls: { verify: false } } : { protocol };
}

export interface MortalBackend {
  readonly port: number;
  /** "127.0.0.1:PORT", as the log names it. */
  readonly id: string;
  /** Requests that have reached it. */
  requests: number;
  /** What it does with a request; by default 200 with its id. */
  answer: (request: IncomingMessage, response: ServerResponse) => void;
  /** It takes up no request any more; once the responses begun are whole, its port closes and every connection to it breaks. */
  kill(): Promise<void>;
  /** It listens again, on the same port. */
  start(): Promise<void>;
}

/** A backend of any protocol that goes and comes back. */
export async function mortalBackend(protocol: Protocol = "http"): Promise<MortalBackend> {
  const sockets = new Set<Socket>();
  let server: Server;
  let port = 0;
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
      server.listen(port, "127.0.0.1", resolve);
    });
  const kill = async () => {
    dying = true;
    // A response that breaks off in the middle is lost, whoever stands in front: it is not what this is for.
    while ([...unfinished].some(({ headersSent }) => headersSent)) await new Promise((resolve) => setImmediate(resolve));
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  await listen();
  port = (server!.address() as AddressInfo).port;
  onTestFinished(kill);
  const self: MortalBackend = {
    port,
    id: `127.0.0.1:${port}`,
    requests: 0,
    answer: (_request, response) => void response.end(`from ${self.id}`),
    kill,
    async start() {
      // Somebody's outgoing connection may have been given the port meanwhile, for a moment.
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
  // The compatibility layer of HTTP/2 hands over what looks like a message of HTTP/1.
  const listener2 = listener as unknown as (request: http2.Http2ServerRequest, response: http2.Http2ServerResponse) => void;
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
  /** Requests begun. */
  readonly requests: number;
  /** What those that have ended came to: status and body, or how they failed. */
  readonly outcomes: readonly string[];
  /** Those that did not come to 200. */
  readonly lost: readonly string[];
  /** Resolves when so many more have ended. */
  more(requests: number): Promise<void>;
  /** Begins no more; resolves when all that were begun have ended. */
  stop(): Promise<void>;
}

/** Clients that each keep one connection and ask again as soon as they have their answer. */
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
  /** Of the lines that begin so: the upstreams they name, in order. */
  upstreams(message: string): unknown[];
}

export function recordedLog(): RecordedLog {
  const lines: Record<string, unknown>[] = [];
  return {
    log: createLog({ format: "json", write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) }),
    lines,
    upstreams: (message) => lines.filter((line) => String(line.message).startsWith(message)).map(({ upstream }) => upstream),
  };
}

function ignore(): void {}
