/**
 * Serves HTTP/1 clients by node's own parser (`global.http1: "node"`, and a host's own `http.Server`), one request at a time on each connection.
 */
import { randomUUID } from "node:crypto";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import type { Server, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { Call } from "../http/exchange.ts";
import type { HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { readFraming } from "./framing.ts";
import { clientErrorDetail, createDrain, KEEP_ALIVE_MS, type Http1, type Http1Options } from "./http1.ts";
import { createUploads, isLive, type Limits } from "./limits.ts";
import { endSoon } from "./linger.ts";
import { respond } from "./node_reply.ts";
import { createRequestQueue } from "./node_request_queue.ts";
import { receive } from "./receive.ts";
import { head, refuseBare } from "./socket_reply.ts";

export interface NodeHttp1 extends Http1 {
  /** For a host's own `http.Server`. */
  readonly onRequest: (request: IncomingMessage, response: ServerResponse) => void;
  readonly onUpgrade: (request: IncomingMessage, socket: Duplex, behind: Buffer) => void;
}

const CONNECTIONS_CHECK_MS = 1_000;
/**
 * From Node 25 on, the connection of an upgrade with a body is hidden until node has parsed the body, so the request cannot be put back
 * (`putBack`). Node asks before, and serves as an ordinary request what is not to be an upgrade; but it loses what was read behind its body,
 * so such a request has to be the last one of its connection.
 */
const HIDES_UPGRADED = Number.parseInt(process.versions.node, 10) >= 25;

interface Current {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly call: Call;
}

/** `serveUpgrade` serves a connection that begins with a request for a WebSocket. */
export function createNodeHttp1(options: Http1Options, serveUpgrade: (socket: Socket) => void): NodeHttp1 {
  const { clock, log, writeBatch, delivery } = options;
  let own: http.Server | null = null;
  /** Connections that have not asked for anything yet: before Node 26 they are not among those that node counts as idle. */
  const fresh = new Set<Socket>();
  const queue = createRequestQueue();
  const uploads = createUploads(clock);
  const drain = createDrain(clock, endIdle);
  /** The request under way on each connection, upgrades left out. */
  const current = new WeakMap<Duplex, Current>();
  /** Connections whose end is heard of here before node hears of it. */
  const watched = new WeakSet<Duplex>();
  /** Connections on which node's parser has given up, and why. */
  const broken = new WeakMap<Duplex, NodeJS.ErrnoException>();
  /** Replies that are written whole while their clients have yet to take some of them. */
  const leaving = new Set<ServerResponse>();
  /** Requests behind which node loses what has come. */
  const losesRest = new WeakSet<IncomingMessage>();

  function onRequest(request: IncomingMessage, response: ServerResponse): void {
    enqueue(request, response, true);
  }

  /** `isContinued`: false where the client expects something before it sends the body. */
  function enqueue(request: IncomingMessage, response: ServerResponse, isContinued: boolean): void {
    const { socket } = request;
    request.on("error", ignore);
    response.on("error", ignore);
    fresh.delete(socket);
    // Node ends its side with the client's, and over TLS a client's end is often read together with its request: what is ready has to leave first.
    if (!watched.has(socket)) socket.prependListener("end", () => writeBatch.now());
    watched.add(socket);
    queue.take(socket, () => accept(request, response, isContinued));
  }

  function accept(request: IncomingMessage, response: ServerResponse, isContinuedAtFirst: boolean): void {
    const { socket } = request;
    // Its body was found to be broken while it waited.
    const error = broken.get(socket);
    if (error !== undefined && !request.complete) return refuse(socket, error);
    let isContinued = isContinuedAtFirst;
    const rules = options.receiving();
    const inbound = receive(request, rules, (status, headers) => {
      if (status !== 100) return writeInformation(request, response, status, headers);
      if (!isContinued && !response.headersSent) response.writeContinue();
      isContinued = true;
    });
    const { call, body } = inbound;
    const exchange: Current = { request, response, call };
    current.set(socket, exchange);
    const { minBodyBytesPerS } = rules.limits;
    const bytesBefore = socket.bytesRead;
    const upload = {
      received: () => socket.bytesRead - bytesBefore,
      awaited: () => isContinued && request.readableFlowing === true && !request.complete && !(response.headersSent && isLive(inbound.headers)),
      tooSlow: () => giveUp(socket, exchange, TOO_SLOW),
    };
    const endUpload = body === null || minBodyBytesPerS === 0 ? ignore : uploads.watch(upload, minBodyBytesPerS);
    response.once("close", () => {
      endUpload();
      if (response.writableFinished) call.close();
      else call.abort();
      current.delete(socket);
      options.ended(inbound);
      queue.over(socket);
      // Its head may have been out before the drain: then the client knows nothing of it.
      drain.postpone();
    });
    const send = (reply: Reply) => {
      // A client that was not told to continue may send its body or not: where its next request starts is open (RFC 9110 §10.1.1).
      const isLast = drain.isLeaving() || !isContinued || inbound.refusal !== null || losesRest.has(request);
      respond({ request, response, call, body, isLast }, reply, { ...delivery, writeBatch, heldUp });
    };
    options.answer(inbound, { send, giveUp: () => void response.destroy() });
  }

  function onUpgrade(request: IncomingMessage, socket: Duplex, behind: Buffer): void {
    const { server, encrypted } = request.socket as Socket & { server?: Server; encrypted?: boolean };
    enqueueUpgrade(request, socket, behind, () => {
      if (server === undefined) socket.destroy();
      else server.emit(encrypted === true ? "secureConnection" : "connection", socket);
    });
  }

  /** Puts the request back on its connection: to be served as an upgrade by our own codec, or without its Upgrade by `serveAgain`. */
  function enqueueUpgrade(request: IncomingMessage, socket: Duplex, behind: Buffer, serveAgain: () => void): void {
    quiet(socket);
    fresh.delete(request.socket);
    // Not `socket`, which may be a view of it.
    queue.take(request.socket, () => {
      if (socket !== request.socket) return refuseWith(socket, "A request for an upgrade cannot have a body here.");
      const isUpgrade = readFraming(request.method!, request.rawHeaders, request.httpVersion).upgrade !== null;
      putBack(request, behind, isUpgrade ? request.rawHeaders : withoutUpgrade(request.rawHeaders));
      queue.over(request.socket);
      if (isUpgrade) serveUpgrade(request.socket);
      else serveAgain();
    });
  }

  function onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
    // node tells again with every further segment, and once more at the end.
    if (broken.has(socket)) return;
    broken.set(socket, error);
    // The reply to what came before it may be among them.
    writeBatch.now();
    // On a connection that is ending already, its reply is on the way: nothing to add.
    if (socket.writableEnded && error.code !== "ECONNRESET") return;
    if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
    const exchange = current.get(socket);
    if (exchange === undefined) return refuse(socket, error);
    // A fault behind the request under way has to wait for its reply.
    if (exchange.request.complete) return queue.take(socket, () => refuse(socket, error));
    giveUp(socket, exchange, error);
  }

  /** Ends an exchange whose request will not come whole: the client is told why where that is still possible. */
  function giveUp(socket: Duplex, { response, call }: Current, error: NodeJS.ErrnoException): void {
    // One that has ended its side in the middle has gone; all else is us ending it, and the access log has to say so.
    const gone = error.code === "HPE_INVALID_EOF_STATE";
    // A reply that is whole may wait for the end of this round. It is the answer: nobody wants the rest of the request.
    writeBatch.now();
    if (response.writableEnded) return endSoon(socket, clock);
    const code = clientErrorCode(error, options.receiving().limits.maxUriBytes);
    if (!gone) call.fail(code, error.message);
    if (response.headersSent) return void socket.destroy();
    if (!gone) call.notes.status = ERRORS[code].status;
    call.abort();
    refuse(socket, error, call.id);
  }

  function refuse(socket: Duplex, error: NodeJS.ErrnoException, requestId: string = randomUUID()): void {
    const { limits } = options.receiving();
    const code = clientErrorCode(error, limits.maxUriBytes);
    log.debug("a request could not be read", { request_id: requestId, code, error: error.message });
    refuseBare(socket, code, { requestId, clock, detail: clientErrorDetail(code, limits) });
  }

  function refuseWith(socket: Duplex, detail: string): void {
    refuseBare(socket, "bad_request", { requestId: randomUUID(), clock, detail });
  }

  /** As node's `shouldUpgradeCallback`. */
  function asUpgrade(request: IncomingMessage): boolean {
    if (readFraming(request.method!, request.rawHeaders, request.httpVersion).bodyLength === 0) return true;
    losesRest.add(request);
    return false;
  }

  function createServer(): http.Server {
    const server = http.createServer({
      ...(HIDES_UPGRADED ? { shouldUpgradeCallback: asUpgrade } : {}),
      requireHostHeader: false, // asked for in receive.ts, where the refusal has a body
      insecureHTTPParser: false,
      keepAliveTimeout: KEEP_ALIVE_MS,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
      noDelay: true,
    });
    server.maxHeadersCount = 0; // counted in receive.ts; node would drop the surplus in silence
    server.on("request", onRequest);
    server.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => enqueue(request, response, false));
    server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => enqueue(request, response, false));
    server.on("upgrade", (request: IncomingMessage, socket: Duplex, behind: Buffer) => {
      enqueueUpgrade(request, socket, behind, () => server.emit("connection", socket));
    });
    server.on("connect", (request: IncomingMessage, socket: Duplex) => {
      quiet(socket);
      queue.take(request.socket, () => refuseWith(socket, "The gateway is no forward proxy: CONNECT is not served."));
    });
    server.on("clientError", onClientError);
    // node looks for requests that never come whole once a server is said to listen.
    server.emit("listening");
    return server;
  }

  function heldUp(response: ServerResponse): void {
    leaving.add(response);
    response.once("close", () => leaving.delete(response));
  }

  function endIdle(): void {
    // Node counts a connection as idle once its reply is written, whatever the client has yet to take of it.
    for (const response of leaving) response.finished = false;
    own?.closeIdleConnections();
    for (const response of leaving) response.finished = true;
    // One that has sent the beginning of a request may finish it.
    for (const socket of fresh) if (socket.bytesRead === 0 || socket instanceof TLSSocket) socket.destroy();
  }

  return {
    onRequest,
    onUpgrade,
    serve(socket) {
      own ??= createServer();
      fresh.add(socket);
      drain.postpone();
      socket.once("close", () => fresh.delete(socket));
      enforce(own, options.receiving().limits);
      own.emit("connection", socket);
    },
    sendAway: drain.sendAway,
    drain: drain.begin,
    destroy: () => void own?.close(),
  };
}

/** Puts a request that node has parsed back on its connection, to be parsed again. */
function putBack({ method, url, httpVersion, socket }: IncomingMessage, behind: Buffer, headers: HeaderList): void {
  socket.unshift(Buffer.concat([Buffer.from(head(`${method} ${url} HTTP/${httpVersion}`, headers), "latin1"), behind]));
}

/** Node gives up parsing at any Upgrade header. One that is not for us (`h2c`, `TLS/1.0`) is ignored (RFC 9110 §7.8). */
function withoutUpgrade(headers: HeaderList): HeaderList {
  const kept: string[] = [];
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!.toLowerCase();
    let value = headers[i + 1]!;
    if (name === "upgrade" || name === "http2-settings") continue;
    // `Connection: close, X-Hop, Upgrade` still says what else it says.
    if (name === "connection") value = value.split(",").filter((option) => !UPGRADE_OPTION.test(option)).join(",").trim();
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
function enforce(server: http.Server & { maxHeaderSize?: number }, { maxHeaderBytes, headersTimeoutMs, requestTimeoutMs }: Limits): void {
  server.maxHeaderSize = maxHeaderBytes;
  server.requestTimeout = requestTimeoutMs;
  // node exchanges the two where the head may take longer than the whole.
  server.headersTimeout = requestTimeoutMs === 0 ? headersTimeoutMs : Math.min(headersTimeoutMs, requestTimeoutMs);
}

/**
 * 102, 103 and the like go straight to the socket: node has no general call for them. HTTP/1.0 knows none (RFC 9110 §15.2). Being
 * hints, they are dropped where the client is behind with reading: an upstream could send them without end.
 */
function writeInformation(request: IncomingMessage, response: ServerResponse, status: number, headers: HeaderList): void {
  const { socket } = response;
  if (request.httpVersion === "1.0" || response.headersSent || socket === null || !socket.writable || socket.writableNeedDrain) return;
  socket.write(head(`HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? ""}`, headers), "latin1");
}

function clientErrorCode(error: NodeJS.ErrnoException & { rawPacket?: Buffer }, maxUriBytes: number): ErrorCode {
  if (error.code === "HPE_HEADER_OVERFLOW") return isLongTarget(error.rawPacket, maxUriBytes) ? "uri_too_long" : "headers_too_large";
  return error.code === "ERR_HTTP_REQUEST_TIMEOUT" ? "request_timeout" : "bad_request";
}

/** Whether the head was too large because of its first line. */
function isLongTarget(packet: Buffer | undefined, maxUriBytes: number): boolean {
  if (packet === undefined || !/^[A-Z]+ [/h]/.test(packet.toString("latin1", 0, 32))) return false;
  const end = packet.indexOf("\n");
  return end < 0 || end > maxUriBytes;
}

/** As node says it of a head that is too slow. One object for all: it is made once, and its stack says nothing. */
const TOO_SLOW: NodeJS.ErrnoException = Object.assign(new Error("the body arrives too slowly"), { code: "ERR_HTTP_REQUEST_TIMEOUT" });

function ignore(): void {}
