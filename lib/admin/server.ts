/**
 * The admin interface on its listener: connections, time limits, what is broken before it is a request, start and end.
 * What is answered is `endpoints.ts`.
 */
import { randomUUID } from "node:crypto";
import { createServer, STATUS_CODES, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from "node:http";
import { createServer as createTlsServer, Server as TlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { pipeline, Readable, type Duplex } from "node:stream";
import type { ErrorCode } from "../base/errors.ts";
import { passwordProblem } from "../base/password.ts";
import { COMMON, createEndpoints, refusal, type Answer, type AnswersOptions } from "./endpoints.ts";
import { MOST_BODY } from "./request_body.ts";

export type { AdminSettings, AdminSource, ProxyConfig } from "./views.ts";

export interface AdminOptions extends AnswersOptions {
  /** PEM. Null: plain HTTP. */
  readonly tls: { readonly cert: Buffer | string; readonly key: Buffer | string } | null;
  /** Milliseconds a client has to send a request's head, and the whole of it; the latter also to read more of a long answer. Default 10 000 and 30 000. */
  readonly timeouts?: { readonly headMs: number; readonly requestMs: number };
}

export interface Admin {
  /** Answers one request; for servers of others. */
  handle(request: IncomingMessage, response: ServerResponse): void;
  /** Rejects with the error of `net.Server.listen` (EADDRINUSE, EACCES, …). Port 0 takes any free one. */
  listen(where: { readonly host: string; readonly port: number }): Promise<{ address: string; port: number }>;
  /** Shows another certificate to connections that begin from now on; does nothing on plain HTTP. Throws for one that cannot be used. */
  renewTls(files: NonNullable<AdminOptions["tls"]>): void;
  /** Takes no more connections, ends idle ones, and gives requests two seconds to be answered. May be called twice. */
  close(): Promise<void>;
}

/** Throws for options nobody could log in with safely, and for a certificate that does not fit its key. */
export function createAdmin(options: AdminOptions): Admin {
  const wrong = optionsProblem(options);
  if (wrong !== null) throw new Error(`admin interface: ${wrong}`);
  const answers = createEndpoints(options);
  /** All that is connected; with TLS, what lies under `connections`, and handshakes that are not done. */
  const sockets = new Set<Socket>();
  const connections = new Map<Duplex, Connection>();
  let closing: Promise<void> | null = null;

  const server = createListener(options);
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  server.on(options.tls === null ? "connection" : "secureConnection", connectionOf);
  server.on("request", handle);
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    answerWith(request, response, (id) => Promise.resolve(addCommon(refusal("expectation_failed", id), id)));
  });
  server.on("clientError", refuseUnread);

  return { handle, listen, renewTls, close };

  function handle(request: IncomingMessage, response: ServerResponse): void {
    answerWith(request, response, (id) => answers.answer(request, id));
  }

  function answerWith(request: IncomingMessage, response: ServerResponse, find: (id: string) => Promise<Answer>): void {
    const connection = connectionOf(request.socket);
    connection.unanswered += 1;
    connection.latest = request;
    response.on("error", () => {}); // The client is gone; nobody is left to be told.
    const isCutShort = drain(request, response);
    find(randomUUID())
      .then(({ status, headers, body }) => {
        const isLast = typeof body === "function" || closing !== null || connection.broken || isCutShort();
        response.writeHead(status, (isLast ? [...headers, "Connection", "close"] : headers) as string[]);
        if (typeof body === "function") return stream(body, connection, response);
        if (body instanceof Readable && request.method !== "HEAD") return send(body, connection, response);
        connection.unanswered -= 1;
        response.end(body instanceof Readable ? null : body);
      })
      .catch(() => request.socket.destroy());
  }

  /** A body that breaks off, or a client that reads nothing of it for long, ends the connection. */
  function send(body: Readable, connection: Connection, response: ServerResponse): void {
    response.setTimeout((options.timeouts ?? TIMEOUTS).requestMs, () => response.destroy());
    pipeline(body, response, () => (connection.unanswered -= 1));
  }

  /** The connection counts as one that waits for an answer as long as it lasts: nothing else is written into it. */
  function stream(body: (response: ServerResponse) => void, connection: Connection, response: ServerResponse): void {
    response.once("close", () => (connection.unanswered -= 1));
    body(response);
    if (closing !== null || connection.broken) response.end();
  }

  function connectionOf(socket: Duplex): Connection {
    let connection = connections.get(socket);
    if (connection === undefined) {
      connection = { unanswered: 0, broken: false, latest: null };
      connections.set(socket, connection);
      socket.once("close", () => connections.delete(socket));
    }
    return connection;
  }

  /** Bytes that are no request, or came too late to be one. Answered here, for no request event follows. */
  function refuseUnread(fault: NodeJS.ErrnoException, socket: Duplex): void {
    const connection = connections.get(socket);
    if (fault.code === "ECONNRESET" || !socket.writable || connection === undefined) {
      socket.destroy();
    } else if (connection.unanswered > 0) {
      // An error written now would be taken for the answer to a request before it: that answer ends the connection instead.
      connection.broken = true;
      // Who waits for the rest of its body waits in vain. node says so itself only when the connection is gone.
      if (connection.latest?.complete === false) connection.latest.emit("aborted");
    } else {
      socket.end(rawRefusal(UNREAD[fault.code ?? ""] ?? "bad_request"), () => socket.destroy());
    }
  }

  function listen({ host, port }: { readonly host: string; readonly port: number }): Promise<{ address: string; port: number }> {
    return new Promise((resolve, reject) => {
      server.once("error", reject);
      server.listen({ host, port }, () => {
        server.off("error", reject);
        server.on("error", (fault) => options.log.error("admin listener failed", { error: fault.message }));
        const { address, port: bound } = server.address() as AddressInfo;
        resolve({ address, port: bound });
      });
    });
  }

  function renewTls({ cert, key }: NonNullable<AdminOptions["tls"]>): void {
    if (server instanceof TlsServer) server.setSecureContext({ cert, key, minVersion: "TLSv1.2" });
  }

  function close(): Promise<void> {
    return (closing ??= new Promise((resolve) => {
      const grace = options.clock.after(CLOSE_GRACE_MS, () => {
        for (const socket of sockets) socket.destroy();
      });
      server.close(() => {
        grace.cancel();
        resolve();
      });
      answers.close();
      // `closeIdleConnections` spares those that never sent a request; `destroySoon` lets a written answer out first.
      for (const [socket, { unanswered }] of connections) if (unanswered === 0) (socket as Socket).destroySoon();
    }));
  }
}

interface Connection {
  /** Requests that have been read and not yet answered; several when the client pipelines. */
  unanswered: number;
  /** What follows the unanswered ones cannot be read. */
  broken: boolean;
  /** The last request whose head has been read. */
  latest: IncomingMessage | null;
}

function optionsProblem({ user, password, jwtSecret, sessionTtlS }: AdminOptions): string | null {
  if (user === "" || user.includes(":")) return "the user name is empty or holds a colon, which HTTP Basic cannot carry";
  if (jwtSecret !== null && Buffer.byteLength(jwtSecret) < 32) return "the JWT secret has fewer than 32 bytes";
  if (!Number.isSafeInteger(sessionTtlS) || sessionTtlS < 1) return "the life of a session is a whole number of seconds, at least 1";
  return passwordProblem(password);
}

const TIMEOUTS = { headMs: 10_000, requestMs: 30_000 };

function createListener({ tls, timeouts = TIMEOUTS }: AdminOptions): Server | TlsServer {
  const limits: ServerOptions = {
    headersTimeout: timeouts.headMs,
    requestTimeout: timeouts.requestMs,
    connectionsCheckingInterval: Math.min(timeouts.headMs, 5000),
    requireHostHeader: false, // Answered by us, with a problem document.
  };
  const server =
    tls === null
      ? createServer(limits)
      : createTlsServer({ ...limits, ...tls, minVersion: "TLSv1.2", handshakeTimeout: timeouts.headMs });
  server.maxConnections = MOST_CONNECTIONS;
  return server;
}

/**
 * Reads and drops a body, since few endpoints take one, so that the connection can serve again. Returns whether the body was too long to be
 * read to its end.
 */
function drain(request: IncomingMessage, response: ServerResponse): () => boolean {
  let seen = 0;
  request.on("data", (chunk: Buffer) => {
    seen += chunk.length;
    if (seen <= MOST_BODY) return;
    request.pause();
    if (response.writableEnded) request.socket.destroySoon();
  });
  return () => seen > MOST_BODY;
}

const MOST_CONNECTIONS = 1024;
const CLOSE_GRACE_MS = 2000;

const UNREAD: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: "headers_too_large",
  ERR_HTTP_REQUEST_TIMEOUT: "request_timeout",
};

function rawRefusal(code: ErrorCode): string {
  const id = randomUUID();
  const { status, headers, body } = addCommon(refusal(code, id), id);
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`;
  for (let i = 0; i < headers.length; i += 2) head += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return `${head}Connection: close\r\n\r\n${body.toString()}`;
}

function addCommon<T extends Answer>(answer: T, id: string): T {
  return { ...answer, headers: [...COMMON, "X-Request-Id", id, "Vary", "Origin", ...answer.headers] };
}
