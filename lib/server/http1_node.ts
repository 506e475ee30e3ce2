/**
 * Serves HTTP/1 clients by node's own parser (`global.http1: "node"`, and a host's own `http.Server`), one request at a
 * time on each connection.
 */
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import type { Server, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { guardedEmitter } from "../base/event_loop.ts";
import { ignore, type ErrorCode } from "../base/errors.ts";
import { FORBIDDEN_TRAILER, isForbiddenTrailer } from "../http/body_reader.ts";
import type { Call } from "../http/exchange.ts";
import type { HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { answer } from "./client_reply.ts";
import {
  isKnownMethod,
  malformed,
  NO_TUNNEL,
  readFraming,
  requestLineFault,
  type RequestRefusal,
} from "./request_head.ts";
import { CUT_OFF, head, KEEP_ALIVE_MS, NOTHING, refuseUnread, writeInformation, type Http1Options } from "./http1.ts";
import { isLive, UploadPace, type Limits } from "./limits.ts";
import { endSoon } from "./linger.ts";
import { respond } from "./node_reply.ts";
import { RequestQueue } from "./node_request_queue.ts";
import { receive } from "./node_request.ts";

const CONNECTIONS_CHECK_MS = 1_000;
/**
 * From Node 25 on, an upgrade with a body cannot be put back (`putBack`): its connection is hidden until node has
 * parsed the body. Node asks first, and serves a refused upgrade as an ordinary request, but loses the bytes behind it:
 * it must be the last one of its connection.
 */
const HIDES_UPGRADED = Number.parseInt(process.versions.node, 10) >= 25;

interface Current {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly call: Call;
}

export class NodeHttp1 {
  readonly #options: Http1Options;
  readonly #serveUpgrade: (socket: Socket) => void;
  #own: http.Server | null = null;
  /** Connections without a request so far: before Node 26, node does not count them as idle. */
  readonly #fresh = new Set<Socket>();
  readonly #queue = new RequestQueue();
  /** The current request of each connection, upgrades excluded. */
  readonly #current = new WeakMap<Duplex, Current>();
  /** Connections whose "end" listener was added before node's own. */
  readonly #watched = new WeakSet<Duplex>();
  /** Connections on which node's parser has given up, and why. */
  readonly #broken = new WeakMap<Duplex, NodeJS.ErrnoException>();
  /** Replies that are written whole while their clients have yet to read some of them. */
  readonly #leaving = new Set<ServerResponse>();
  /** Requests after which node loses the bytes that have arrived. */
  readonly #losesRest = new WeakSet<IncomingMessage>();

  /** `serveUpgrade` serves a connection that begins with a request for a WebSocket. */
  constructor(options: Http1Options, serveUpgrade: (socket: Socket) => void) {
    this.#options = options;
    this.#serveUpgrade = serveUpgrade;
    options.drain.add(this);
  }

  /** For a host's own `http.Server`. */
  readonly onRequest = (request: IncomingMessage, response: ServerResponse): void =>
    this.#enqueue(request, response, true);

  /** `isContinued`: false where the client expects something before it sends the body. */
  #enqueue(request: IncomingMessage, response: ServerResponse, isContinued: boolean): void {
    const { socket } = request;
    request.on("error", ignore);
    response.on("error", ignore);
    this.#fresh.delete(socket);
    // Node closes its side when the client half-closes, and over TLS the end often arrives with the request: flush
    // ready replies first.
    if (!this.#watched.has(socket)) socket.prependListener("end", () => this.#options.writeBatch.now());
    this.#watched.add(socket);
    this.#queue.take(socket, () => this.#accept(request, response, isContinued));
  }

  #accept(request: IncomingMessage, response: ServerResponse, isContinuedAtFirst: boolean): void {
    const { socket } = request;
    // Its body was found to be broken while it waited.
    const error = this.#broken.get(socket);
    if (error !== undefined && !request.complete) return this.#refuse(socket, error);
    let isContinued = isContinuedAtFirst;
    const rules = this.#options.receiving();
    const inbound = receive(request, this.#options.connectionOf(socket), rules, (status, headers) => {
      if (status === 100) {
        if (!isContinued && !response.headersSent) response.writeContinue();
        isContinued = true;
      } else if (!response.headersSent && response.socket?.writable === true)
        writeInformation(response.socket, request.httpVersion, status, headers);
    });
    const { call, body } = inbound;
    const { deadlines, delivery, drain, writeBatch } = this.#options;
    const exchange: Current = { request, response, call };
    this.#current.set(socket, exchange);
    const { minBodyBytesPerS } = rules.limits;
    const bytesBefore = socket.bytesRead;
    const pace = new UploadPace(minBodyBytesPerS);
    const look = (_now: number, elapsedMs: number) => {
      const isAwaited =
        isContinued &&
        request.readableFlowing === true &&
        !request.complete &&
        !(response.headersSent && isLive(inbound.headers));
      if (!isAwaited || !pace.isTooSlow(socket.bytesRead - bytesBefore, elapsedMs)) return;
      endLooks();
      this.#giveUp(socket, exchange, TOO_SLOW);
    };
    const endLooks = body === null || minBodyBytesPerS === 0 ? ignore : deadlines.everySecond(look);
    response.once("close", () => {
      endLooks();
      if (response.writableFinished) call.close();
      else call.abort();
      this.#current.delete(socket);
      this.#options.ended(inbound);
      this.#queue.over(socket);
      // Its head may have been sent before the drain: then the client does not know of the drain.
      drain.postpone();
    });
    // Before its readers learn that the body is whole.
    if (body !== null)
      request.prependOnceListener("end", () => {
        if (hasForbiddenTrailer(request.rawTrailers)) this.#giveUp(socket, exchange, BAD_TRAILER);
      });
    const send = (reply: Reply) => {
      // A client that did not get 100 (Continue) may send its body or not: where its next request starts is not known
      // (RFC 9110 §10.1.1).
      const isLost = !isContinued || inbound.refusal !== null || this.#losesRest.has(request);
      const isLast = drain.isLeaving || isLost || !inbound.isPersistent;
      respond({ request, response, call, body, isLast }, reply, { ...delivery, writeBatch, heldUp: this.#heldUp });
    };
    answer(inbound, { send, giveUp: () => void response.destroy() }, this.#options);
  }

  /** For a host's own `http.Server`. */
  readonly onUpgrade = (request: IncomingMessage, socket: Duplex, firstBytes: Buffer): void => {
    const { server, encrypted } = request.socket as Socket & { server?: Server; encrypted?: boolean };
    this.#enqueueUpgrade(request, socket, firstBytes, () => {
      if (server === undefined) socket.destroy();
      else server.emit(encrypted === true ? "secureConnection" : "connection", socket);
    });
  };

  /**
   * Puts the request back on its connection: to be served as an upgrade by our own codec, or without its Upgrade by
   * `serveAgain`.
   */
  #enqueueUpgrade(request: IncomingMessage, socket: Duplex, firstBytes: Buffer, serveAgain: () => void): void {
    quiet(socket);
    this.#fresh.delete(request.socket);
    const stopRelay = this.#relayDrain(request.socket);
    // Not `socket`, which may be a view of it.
    this.#queue.take(request.socket, () => {
      stopRelay();
      if (socket !== request.socket)
        return this.#refuseBare(socket, request, malformed("A request for an upgrade cannot have a body here."));
      const isUpgrade = readFraming(request.method!, request.rawHeaders, request.httpVersion).upgrade !== null;
      putBack(request, firstBytes, isUpgrade ? request.rawHeaders : withoutUpgrade(request.rawHeaders));
      this.#queue.over(request.socket);
      if (isUpgrade) this.#serveUpgrade(request.socket);
      else serveAgain();
    });
  }

  /**
   * Node has removed its listeners from a socket that it hands over: without "drain", the replies before the upgrade
   * would stop half-way.
   */
  #relayDrain(socket: Duplex): () => void {
    const relay = () => void this.#current.get(socket)?.response.emit("drain");
    socket.on("drain", relay);
    return () => void socket.removeListener("drain", relay);
  }

  readonly #onClientError = (error: NodeJS.ErrnoException, socket: Duplex): void => {
    // Node emits it again with every further segment, and at the end.
    if (this.#broken.has(socket)) return;
    this.#broken.set(socket, error);
    // The batch may contain the reply to the request before it.
    this.#options.writeBatch.now();
    // A connection that is already ending has its reply: nothing is added.
    if (socket.writableEnded && error.code !== "ECONNRESET") return;
    if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
    const exchange = this.#current.get(socket);
    if (exchange === undefined) return this.#refuse(socket, error);
    // A parse error after the current request must wait for its reply.
    if (exchange.request.complete) return this.#queue.take(socket, () => this.#refuse(socket, error));
    this.#giveUp(socket, exchange, error);
  };

  /** Ends an exchange whose request will not arrive whole; the client gets the reason where no reply has begun. */
  #giveUp(socket: Duplex, { response, call }: Current, error: NodeJS.ErrnoException): void {
    // If the client closed its side, it disconnected; in all other cases the gateway ends the exchange, and the access
    // log must show that.
    const gone = isCutOff(error);
    // A complete reply may wait for the end of this turn. It is the answer, so the rest of the request is not needed.
    this.#options.writeBatch.now();
    if (response.writableEnded) return endSoon(socket, this.#options.clock);
    const code = clientErrorCode(error, this.#options.receiving().limits);
    if (!gone) call.fail(code, error.message);
    if (response.headersSent) return void socket.destroy();
    this.#refuse(socket, error, call);
    call.abort();
  }

  #refuse(socket: Duplex, error: NodeJS.ErrnoException, call?: Call): void {
    const code = clientErrorCode(error, this.#options.receiving().limits);
    const refusal = isCutOff(error) ? CUT_OFF : { code, detail: error.message };
    refuseUnread(socket, this.#options, refusal, { call });
  }

  /** `socket` may be a view of that of the request. */
  #refuseBare(
    socket: Duplex,
    { method, url, httpVersion, socket: own }: IncomingMessage,
    refusal: RequestRefusal,
  ): void {
    const line = { method: method!, target: url!, httpVersion };
    refuseUnread(socket, this.#options, refusal, { socket: own, line, said: refusal.detail });
  }

  /** As node's `shouldUpgradeCallback`. */
  readonly #asUpgrade = (request: IncomingMessage): boolean => {
    if (readFraming(request.method!, request.rawHeaders, request.httpVersion).bodyLength === 0) return true;
    this.#losesRest.add(request);
    return false;
  };

  #createServer(): http.Server {
    const server = http.createServer({
      ...(HIDES_UPGRADED ? { shouldUpgradeCallback: this.#asUpgrade } : {}),
      requireHostHeader: false, // asked for in request_head.ts, where the refusal has a body
      insecureHTTPParser: false,
      keepAliveTimeout: KEEP_ALIVE_MS,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
      noDelay: true,
    });
    server.maxHeadersCount = 0; // counted in inbound.ts; node would drop the surplus in silence
    const take = (isContinued: boolean) => (request: IncomingMessage, response: ServerResponse) =>
      this.#enqueue(guardedEmitter(request), guardedEmitter(response), isContinued);
    guardedEmitter(server).on("request", take(true));
    server.on("checkContinue", take(false));
    server.on("checkExpectation", take(false));
    server.on("upgrade", (request: IncomingMessage, socket: Duplex, firstBytes: Buffer) => {
      this.#enqueueUpgrade(request, socket, firstBytes, () => server.emit("connection", socket));
    });
    server.on("connect", (request: IncomingMessage, socket: Duplex) => {
      quiet(socket);
      this.#relayDrain(request.socket);
      this.#queue.take(request.socket, () => this.#refuseBare(socket, request, NO_TUNNEL));
    });
    server.on("clientError", this.#onClientError);
    // Node looks for requests that never arrive whole once the server emits this.
    server.emit("listening");
    return server;
  }

  readonly #heldUp = (response: ServerResponse): void => {
    this.#leaving.add(response);
    response.once("close", () => this.#leaving.delete(response));
  };

  endIdle(): void {
    // Node counts a connection as idle once its reply is written, whatever the client has yet to read of it.
    for (const response of this.#leaving) response.finished = false;
    this.#own?.closeIdleConnections();
    for (const response of this.#leaving) response.finished = true;
    // A client that has sent the beginning of a request may finish it.
    for (const socket of this.#fresh) if (socket.bytesRead === 0 || socket instanceof TLSSocket) socket.destroy();
  }

  serve(socket: Socket): void {
    this.#own ??= this.#createServer();
    this.#fresh.add(socket);
    this.#options.drain.postpone();
    socket.once("close", () => this.#fresh.delete(socket));
    enforce(this.#own, this.#options.receiving().limits);
    this.#own.emit("connection", socket);
  }

  destroy(): void {
    this.#own?.close();
  }
}

/** Puts a request that node has parsed back on its connection, to be parsed again. */
function putBack({ method, url, httpVersion, socket }: IncomingMessage, firstBytes: Buffer, headers: HeaderList): void {
  socket.unshift(
    Buffer.concat([Buffer.from(head(`${method} ${url} HTTP/${httpVersion}`, headers), "latin1"), firstBytes]),
  );
}

/**
 * Node gives up parsing at any Upgrade header. One that is not for us (`h2c`, `TLS/1.0`) is ignored (RFC 9110 §7.8).
 */
function withoutUpgrade(headers: HeaderList): HeaderList {
  const kept: string[] = [];
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!.toLowerCase();
    let value = headers[i + 1]!;
    if (name === "upgrade" || name === "http2-settings") continue;
    // `Connection: close, X-Hop, Upgrade` keeps its other options.
    if (name === "connection")
      value = value
        .split(",")
        .filter((option) => !UPGRADE_OPTION.test(option))
        .join(",")
        .trim();
    kept.push(headers[i]!, value);
  }
  return kept;
}

const UPGRADE_OPTION = /^\s*(?:upgrade|http2-settings)\s*$/i;

/** A socket without an `error` listener ends the process. One connection may come here many times. */
function quiet(socket: Duplex): void {
  if (!socket.listeners("error").includes(ignore)) socket.on("error", ignore);
}

/** Sets what node looks up for each connection as it begins (the size), or at each check of all of them (the times). */
function enforce(
  server: http.Server & { maxHeaderSize?: number },
  { maxHeaderBytes, headersTimeoutMs, requestTimeoutMs }: Limits,
): void {
  server.maxHeaderSize = maxHeaderBytes;
  server.requestTimeout = requestTimeoutMs;
  // node exchanges the two where the head may take longer than the whole.
  server.headersTimeout = requestTimeoutMs === 0 ? headersTimeoutMs : Math.min(headersTimeoutMs, requestTimeoutMs);
}

/** Whether the client has closed its side before it sent all of its request. */
function isCutOff(error: NodeJS.ErrnoException): boolean {
  return error.code === "HPE_INVALID_EOF_STATE";
}

function clientErrorCode(error: NodeJS.ErrnoException & { rawPacket?: Buffer }, limits: Limits): ErrorCode {
  if (error.code === "HPE_HEADER_OVERFLOW")
    return hasLongTarget(error.rawPacket, limits) ? "uri_too_long" : "headers_too_large";
  return error.code === "ERR_HTTP_REQUEST_TIMEOUT" ? "request_timeout" : "bad_request";
}

/** Whether a request begins with this packet whose target is longer than the limit. */
function hasLongTarget(packet: Buffer = NOTHING, limits: Limits): boolean {
  const [method = ""] = packet.toString("latin1", 0, 32).split(" ");
  return isKnownMethod(method) && requestLineFault(packet, limits)?.code === "uri_too_long";
}

function hasForbiddenTrailer(trailers: HeaderList): boolean {
  return trailers.some((name, i) => i % 2 === 0 && isForbiddenTrailer(name, trailers[i + 1]!));
}

/** As the error that node reports. */
const BAD_TRAILER: NodeJS.ErrnoException = new Error(FORBIDDEN_TRAILER);

/**
 * The error that node reports for a head that is too slow. One object for all: it is made once, since its stack is of
 * no use.
 */
const TOO_SLOW: NodeJS.ErrnoException = Object.assign(new Error("the body arrives too slowly"), {
  code: "ERR_HTTP_REQUEST_TIMEOUT",
});
