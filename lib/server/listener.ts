/**
 * The sockets that clients come to: plain and TLS, HTTP/1.1 and HTTP/2, until they are drained. Each request is received, given to
 * `serve`, and answered. What `serve` does is `gateway/serve.ts`.
 */
import { randomUUID } from "node:crypto";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import http2, { type IncomingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo, Server, Socket } from "node:net";
import type { Duplex } from "node:stream";
import tls from "node:tls";
import type { Clock } from "../base/clock.ts";
import type { ErrorCode } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Call } from "../http/exchange.ts";
import type { HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { head, refuseBare, respondBare } from "./bare.ts";
import { receiveStream, respondStream } from "./h2.ts";
import { isWebSocket, MAX_HEAD_BYTES, MAX_TARGET_BYTES, receive, type Inbound, type ReceiveOptions, type Refusal } from "./receive.ts";
import { respond } from "./respond.ts";
import { createTurns } from "./turns.ts";

export interface ListenerOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Answers a request. Must not throw; a rejected promise closes the connection. */
  readonly serve: (inbound: Inbound) => Reply | Promise<Reply>;
  /** What to believe at this moment; asked once a request. */
  readonly receiving: () => ReceiveOptions;
  /** Called once for each request, when its reply is out or its client is gone. */
  readonly ended: (inbound: Inbound) => void;
  /** Joins an upgraded client with its tunnel. */
  readonly join: (client: Duplex, behind: Buffer, tunnel: NonNullable<Reply["tunnel"]>) => void;
}

export interface TlsFiles {
  readonly cert: Buffer;
  readonly key: Buffer;
  /** Certificates that sign clients' ones; null: clients are not asked for one. */
  readonly ca: Buffer | null;
  /** Whether a handshake without a valid client certificate fails. */
  readonly requireClientCert: boolean;
}

export interface Listener {
  /** Listens for HTTP/1.1. Rejects with node's listen error. */
  listenPlain(host: string, port: number): Promise<AddressInfo>;
  /** Listens for HTTP/2 and HTTP/1.1 over TLS ≥ 1.2, chosen by ALPN. Rejects with node's listen or certificate error. */
  listenSecure(host: string, port: number, files: TlsFiles): Promise<AddressInfo>;
  /** For a host's own `http.Server`: its `request` and `upgrade` events. */
  readonly onRequest: (request: IncomingMessage, response: ServerResponse) => void;
  readonly onUpgrade: (request: IncomingMessage, socket: Duplex, behind: Buffer) => void;
  /** Stops accepting; connections end as their last reply goes out. Resolves when all have. */
  drain(): Promise<void>;
  /** Ends every connection at once, upgraded ones too. */
  destroy(): void;
}

/** Node's slow-head protection (408): the whole head must have come within this time, in milliseconds. */
const HEADERS_TIMEOUT_MS = 60_000;
const CONNECTIONS_CHECK_MS = 5_000;
const TLS_HANDSHAKE_MS = 10_000;
/** How long an idle client connection is kept, in milliseconds. Longer than the 60 s that load balancers before us usually keep theirs. */
const KEEP_ALIVE_MS = 75_000;
/** What a client may leave unread, in time. */
const CLIENT_IDLE_MS = 60_000;

export function createListener(options: ListenerOptions): Listener {
  const { clock, log } = options;
  const servers: Server[] = [];
  const plainServers: http.Server[] = [];
  const sockets = new Set<Socket>();
  const sessions = new Set<ServerHttp2Session>();
  /** HTTP/1 connections that have not asked for anything yet: node does not count them among the idle ones. */
  const fresh = new Set<Socket>();
  const turns = createTurns();
  /** The exchange under way on each HTTP/1 connection, upgrades left out. */
  const current = new WeakMap<Duplex, { readonly request: IncomingMessage; readonly response: ServerResponse; readonly call: Call }>();
  /** Connections on which node's parser has given up, and why. */
  const broken = new WeakMap<Duplex, NodeJS.ErrnoException>();
  const h2 = http2.createServer({ maxSessionMemory: 10, settings: { maxConcurrentStreams: 128, maxHeaderListSize: MAX_HEAD_BYTES } });
  let draining = false;
  let allGone: (() => void) | null = null;

  h2.on("session", (session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
    session.on("error", (error) => log.debug("HTTP/2 session error", { error: error.message }));
    if (draining) session.close();
  });
  h2.on("stream", onStream);
  h2.on("sessionError", ignore);

  function onRequest(request: IncomingMessage, response: ServerResponse): void {
    enqueue(request, response, "nothing");
  }

  function enqueue(request: IncomingMessage, response: ServerResponse, expects: Expects): void {
    request.on("error", ignore);
    response.on("error", ignore);
    fresh.delete(request.socket);
    turns.take(request.socket, () => accept(request, response, expects));
  }

  function accept(request: IncomingMessage, response: ServerResponse, expects: Expects): void {
    const { socket } = request;
    // Its body was found to be broken while it waited.
    const error = broken.get(socket);
    if (error !== undefined && !request.complete) return refuse(socket, error);
    let told = expects === "nothing";
    const received = receive(request, null, options.receiving(), (status, headers) => {
      if (status !== 100) return writeInformation(request, response, status, headers);
      if (!told && !response.headersSent) response.writeContinue();
      told = true;
    });
    const inbound: Inbound = expects === "unknown" ? { ...received, refusal: UNKNOWN_EXPECTATION } : received;
    const { call } = inbound;
    current.set(socket, { request, response, call });
    response.once("close", () => {
      if (response.writableFinished) call.close();
      else call.abort();
      current.delete(socket);
      options.ended(inbound);
      turns.over(socket);
      if (draining) closeIdle();
    });
    const send = (reply: Reply) => {
      // A client that was not told to continue may send its body or not: where its next request starts is open (RFC 9110 §10.1.1).
      const lastOne = draining || !told || inbound.refusal !== null;
      respond(request, response, call, reply, { clock, idleMs: CLIENT_IDLE_MS, lastOne });
    };
    answer(inbound, send, () => response.destroy());
  }

  function onUpgrade(request: IncomingMessage, socket: Duplex, behind: Buffer): void {
    const { server, encrypted } = request.socket as Socket & { server?: Server; encrypted?: boolean };
    const serveAgain = () => {
      if (server === undefined) socket.destroy();
      else server.emit(encrypted === true ? "secureConnection" : "connection", socket);
    };
    enqueueUpgrade(request, socket, behind, serveAgain);
  }

  function enqueueUpgrade(request: IncomingMessage, socket: Duplex, behind: Buffer, serveAgain: () => void): void {
    quiet(socket);
    fresh.delete(request.socket);
    turns.take(socket, () => {
      if (isWebSocket(request)) return acceptUpgrade(request, socket, behind);
      putBackWithoutUpgrade(request, socket, behind);
      turns.over(socket);
      serveAgain();
    });
  }

  function acceptUpgrade(request: IncomingMessage, socket: Duplex, behind: Buffer): void {
    const inbound = receive(request, "websocket", options.receiving(), ignore);
    const { call } = inbound;
    let tunnelled = false;
    socket.once("close", () => {
      if (!tunnelled && !socket.writableFinished) call.abort();
      else call.close();
      options.ended(inbound);
    });
    const release = holdBack(socket, behind, () => {
      call.abort();
      socket.destroy();
    });
    const send = (reply: Reply) => {
      const held = release();
      tunnelled = respondBare(socket, call, reply, clock);
      if (!tunnelled) return;
      call.close();
      options.join(socket, held, reply.tunnel!);
      socket.resume();
    };
    answer(inbound, send, () => socket.destroy());
  }

  function onStream(stream: ServerHttp2Stream, _headers: IncomingHttpHeaders, flags: number, block: readonly string[]): void {
    stream.on("error", ignore);
    const endOfStream = (flags & http2.constants.NGHTTP2_FLAG_END_STREAM) !== 0;
    const inbound = receiveStream(stream, block, endOfStream, options.receiving());
    const { call } = inbound;
    stream.once("close", () => {
      // A stream that the client resets has ended its writing side by itself: `aborted` tells the difference.
      if (stream.writableFinished && !stream.aborted) call.close();
      else call.abort();
      options.ended(inbound);
    });
    answer(
      inbound,
      (reply) => respondStream(stream, inbound.method, call, reply),
      () => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR),
    );
  }

  /** Hands the request on and its reply back; waits only where a promise comes. What cannot be sent at all is given up. */
  function answer(inbound: Inbound, send: (reply: Reply) => void, giveUp: () => void): void {
    const failed = (error: unknown) => {
      const said = error instanceof Error ? (error.stack ?? error.message) : String(error);
      log.error("a reply could not be sent", { request_id: inbound.call.id, error: said });
      giveUp();
    };
    const attempt = (reply: Reply) => {
      try {
        send(reply);
      } catch (error) {
        failed(error);
      }
    };
    const reply = options.serve(inbound);
    if (reply instanceof Promise) reply.then(attempt, failed);
    else attempt(reply);
  }

  function onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
    // node tells again with every further segment, and once more at the end.
    if (broken.has(socket)) return;
    broken.set(socket, error);
    // On a connection that is ending already, its reply is on the way: nothing to add.
    if (socket.writableEnded && error.code !== "ECONNRESET") return;
    if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
    const under = current.get(socket);
    if (under === undefined) return refuse(socket, error);
    // A fault behind the request under way has to wait for its reply.
    if (under.request.complete) return turns.take(socket, () => refuse(socket, error));
    if (under.response.headersSent) return void socket.destroy();
    under.call.abort();
    refuse(socket, error);
  }

  function refuse(socket: Duplex, error: NodeJS.ErrnoException): void {
    const code = clientErrorCode(error);
    const requestId = randomUUID();
    log.debug("a request could not be read", { request_id: requestId, code, error: error.message });
    refuseBare(socket, code, { requestId, clock, detail: CLIENT_ERROR_DETAILS[code] });
  }

  function track(socket: Socket): void {
    sockets.add(socket);
    socket.once("close", () => {
      sockets.delete(socket);
      if (sockets.size === 0) allGone?.();
    });
  }

  function createPlain(): http.Server {
    const server = http.createServer({
      maxHeaderSize: MAX_HEAD_BYTES,
      requireHostHeader: false, // asked for in receive.ts, where the refusal has a body
      insecureHTTPParser: false,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: 0, // uploads may take long; idle_ms of the service ends those that stand still
      keepAliveTimeout: KEEP_ALIVE_MS,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
      noDelay: true,
    });
    server.maxHeadersCount = 0; // counted in receive.ts; node would drop the surplus in silence
    server.on("connection", (socket: Socket) => {
      if (sockets.has(socket)) return;
      track(socket);
      fresh.add(socket);
      socket.once("close", () => fresh.delete(socket));
    });
    server.on("request", onRequest);
    server.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => enqueue(request, response, "continue"));
    server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => enqueue(request, response, "unknown"));
    server.on("upgrade", (request: IncomingMessage, socket: Duplex, behind: Buffer) => {
      enqueueUpgrade(request, socket, behind, () => server.emit("connection", socket));
    });
    server.on("connect", (_request: IncomingMessage, socket: Duplex) => {
      quiet(socket);
      const detail = "The gateway is no forward proxy: CONNECT is not served.";
      turns.take(socket, () => refuseBare(socket, "bad_request", { requestId: randomUUID(), clock, detail }));
    });
    server.on("clientError", onClientError);
    return server;
  }

  function closeIdle(): void {
    for (const server of plainServers) server.closeIdleConnections();
  }

  return {
    onRequest,
    onUpgrade,
    async listenPlain(host, port) {
      const server = createPlain();
      const address = await listen(server, host, port);
      plainServers.push(server);
      servers.push(server);
      return address;
    },
    async listenSecure(host, port, files) {
      const server = tls.createServer({
        cert: files.cert,
        key: files.key,
        minVersion: "TLSv1.2",
        ALPNProtocols: ["h2", "http/1.1"],
        handshakeTimeout: TLS_HANDSHAKE_MS,
        noDelay: true,
        allowHalfOpen: true,
        ...(files.ca === null ? {} : { ca: files.ca, requestCert: true, rejectUnauthorized: files.requireClientCert }),
      });
      server.on("connection", track);
      server.on("secureConnection", (socket) => {
        quiet(socket);
        if (socket.alpnProtocol === "h2") h2.emit("connection", socket);
        // Any plain server serves HTTP/1.1 on a socket it is given; the first one does, with all its limits.
        else plainServers[0]!.emit("connection", socket);
      });
      server.on("tlsClientError", (error) => log.debug("TLS handshake failed", { error: error.message }));
      const address = await listen(server, host, port);
      servers.push(server);
      return address;
    },
    drain() {
      draining = true;
      for (const server of servers) server.close();
      for (const session of sessions) session.close();
      closeIdle();
      // One that has sent the beginning of a request may finish it.
      for (const socket of fresh) if (socket.bytesRead === 0 || socket instanceof tls.TLSSocket) socket.destroy();
      if (sockets.size === 0) return Promise.resolve();
      return new Promise((resolve) => {
        allGone = resolve;
      });
    },
    destroy() {
      draining = true;
      for (const server of servers) server.close();
      for (const session of sessions) session.destroy();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function listen(server: Server, host: string, port: number): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    // "::" alone would take the IPv4 port too and clash with 0.0.0.0.
    server.listen({ host, port, ipv6Only: host.includes(":") }, () => {
      server.removeListener("error", reject);
      server.on("error", ignore);
      resolve(server.address() as AddressInfo);
    });
  });
}

/**
 * node gives up parsing at any Upgrade header. One that is not for us (`h2c`, `TLS/1.0`) is ignored (RFC 9110 §7.8): the request is
 * put back on its connection without it, to be parsed again.
 */
function putBackWithoutUpgrade(request: IncomingMessage, socket: Duplex, behind: Buffer): void {
  const kept: string[] = [];
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    const name = request.rawHeaders[i]!;
    const lower = name.toLowerCase();
    if (lower === "upgrade" || lower === "http2-settings") continue;
    // `Connection: close, X-Hop, Upgrade` still says what else it says.
    kept.push(name, lower === "connection" ? withoutUpgrade(request.rawHeaders[i + 1]!) : request.rawHeaders[i + 1]!);
  }
  const text = head(`${request.method} ${request.url} HTTP/${request.httpVersion}`, kept);
  socket.unshift(Buffer.concat([Buffer.from(text, "latin1"), behind]));
}

function withoutUpgrade(connection: string): string {
  const options = connection.split(",").map((option) => option.trim());
  return options.filter((option) => !/^(upgrade|http2-settings)$/i.test(option)).join(", ");
}

/** Most bytes a client may send behind its upgrade request before the answer; the rest stays unread till then. */
const MAX_HELD_BYTES = 64 * 1024;

/**
 * Reads an upgrading socket while its answer is awaited, for only a socket that is read tells of its end. Returns what stops that
 * and gives what was read. A client that ends its side before it is answered has gone.
 */
function holdBack(socket: Duplex, behind: Buffer, gone: () => void): () => Buffer {
  const chunks = [behind];
  let size = behind.length;
  const keep = (chunk: Buffer) => {
    chunks.push(chunk);
    size += chunk.length;
    if (size > MAX_HELD_BYTES) socket.pause();
  };
  socket.on("data", keep);
  socket.on("end", gone);
  return () => {
    socket.removeListener("data", keep);
    socket.removeListener("end", gone);
    return Buffer.concat(chunks);
  };
}

/** A socket without an `error` listener ends the process. One connection may come here many times. */
function quiet(socket: Duplex): void {
  if (!socket.listeners("error").includes(ignore)) socket.on("error", ignore);
}

type Expects = "nothing" | "continue" | "unknown";

/**
 * 102, 103 and the like go straight to the socket: node has no general call for them. HTTP/1.0 knows none (RFC 9110 §15.2). Being
 * hints, they are dropped where the client is behind with reading: an upstream could send them without end.
 */
function writeInformation(request: IncomingMessage, response: ServerResponse, status: number, headers: HeaderList): void {
  const { socket } = response;
  if (request.httpVersion === "1.0" || response.headersSent || socket === null || !socket.writable || socket.writableNeedDrain) return;
  socket.write(head(`HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? ""}`, headers), "latin1");
}

const UNKNOWN_EXPECTATION: Refusal = { code: "expectation_failed", detail: "The only expectation that can be met is 100-continue." };

function clientErrorCode(error: NodeJS.ErrnoException & { rawPacket?: Buffer }): ErrorCode {
  if (error.code === "HPE_HEADER_OVERFLOW") return isLongTarget(error.rawPacket) ? "uri_too_long" : "headers_too_large";
  return error.code === "ERR_HTTP_REQUEST_TIMEOUT" ? "request_timeout" : "bad_request";
}

/** Whether the head was too large because of its first line. */
function isLongTarget(packet: Buffer | undefined): boolean {
  if (packet === undefined || !/^[A-Z]+ [/h]/.test(packet.toString("latin1", 0, 32))) return false;
  const end = packet.indexOf("\n");
  return end < 0 || end > MAX_TARGET_BYTES;
}

const CLIENT_ERROR_DETAILS: { readonly [code in ErrorCode]?: string } = {
  bad_request: "The request is not valid HTTP/1.1.",
  headers_too_large: `The request line and header fields may have ${MAX_HEAD_BYTES} bytes together.`,
  request_timeout: "The request head did not arrive in time.",
  uri_too_long: `The request target may have ${MAX_TARGET_BYTES} bytes.`,
};

function ignore(): void {}
