/**
 * HTTP/1 on sockets that clients come to: requests in their turn, upgrades, and what could not be parsed. Each request is received,
 * given to be answered, and its reply sent. Where the sockets come from is `listener.ts`, what an answer is `gateway/serve.ts`.
 */
import { randomUUID } from "node:crypto";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import type { Server, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import type { Timer } from "../base/clock.ts";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { Call } from "../http/exchange.ts";
import type { HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { head, refuseBare } from "./socket_reply.ts";
import { readFraming, type Framing } from "./framing.ts";
import { clientErrorDetail, KEEP_ALIVE_MS, type Http1, type Http1Options } from "./http1.ts";
import { createUploads, isLive, type Limits } from "./limits.ts";
import { endSoon } from "./linger.ts";
import { receive } from "./receive.ts";
import { respond } from "./node_reply.ts";
import { createTaskQueue } from "./node_request_queue.ts";
import { answerUpgrade } from "./upgrade.ts";

export interface NodeHttp1 extends Http1 {
  /** For a host's own `http.Server`. */
  readonly onRequest: (request: IncomingMessage, response: ServerResponse) => void;
  readonly onUpgrade: (request: IncomingMessage, socket: Duplex, behind: Buffer) => void;
}

const CONNECTIONS_CHECK_MS = 1_000;
/**
 * From Node 25 on, the connection of an upgrade with a body is hidden until node has parsed that, so the request cannot be put back
 * (`putBackWithoutUpgrade`). Nothing else tells. Node asks before, and serves as an ordinary request what is not to be an upgrade; but of
 * what was read behind its body it loses the rest, so that such a request has to be the last one.
 */
const HIDES_UPGRADED = Number.parseInt(process.versions.node, 10) >= 25;
interface Under {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly call: Call;
}

export function createNodeHttp1(options: Http1Options): NodeHttp1 {
  const { clock, log, writeBatch, delivery } = options;
  let own: http.Server | null = null;
  /** HTTP/1 connections that have not asked for anything yet: before Node 26 they are not among those that it counts as idle. */
  const fresh = new Set<Socket>();
  const turns = createTaskQueue();
  const uploads = createUploads(clock);
  /** The exchange under way on each HTTP/1 connection, upgrades left out. */
  const current = new WeakMap<Duplex, Under>();
  /** Connections whose clients' end is heard of here before it is by node. */
  const heeded = new WeakSet<Duplex>();
  /** Connections on which node's parser has given up, and why. */
  const broken = new WeakMap<Duplex, NodeJS.ErrnoException>();
  /** Replies that are written whole while their clients have yet to take some of them. */
  const onTheirWay = new Set<ServerResponse>();
  /** Requests behind which node loses what has come. */
  const lossy = new WeakSet<IncomingMessage>();
  let leaving = false;
  let endIdleLater: Timer | null = null;

  function onRequest(request: IncomingMessage, response: ServerResponse): void {
    enqueue(request, response, "nothing");
  }

  function enqueue(request: IncomingMessage, response: ServerResponse, expects: Expects): void {
    request.on("error", ignore);
    response.on("error", ignore);
    fresh.delete(request.socket);
    heedEnd(request.socket);
    turns.take(request.socket, () => accept(request, response, expects));
  }

  /**
   * Node ends its side with the client's. What is ready has to leave before: over TLS a client's end is often read together with its
   * request.
   */
  function heedEnd(socket: Socket): void {
    if (heeded.has(socket)) return;
    heeded.add(socket);
    socket.prependListener("end", () => writeBatch.now());
  }

  function accept(request: IncomingMessage, response: ServerResponse, expects: Expects): void {
    const { socket } = request;
    // Its body was found to be broken while it waited.
    const error = broken.get(socket);
    if (error !== undefined && !request.complete) return refuse(socket, error);
    let told = expects === "nothing";
    const rules = options.receiving();
    const inbound = receive(request, rules, (status, headers) => {
      if (status !== 100) return writeInformation(request, response, status, headers);
      if (!told && !response.headersSent) response.writeContinue();
      told = true;
    });
    const { call } = inbound;
    const under: Under = { request, response, call };
    current.set(socket, under);
    const { minBodyBytesPerS } = rules.limits;
    const bytesBefore = socket.bytesRead;
    const endWatch =
      inbound.body === null || minBodyBytesPerS === 0
        ? ignore
        : uploads.watch(
            {
              received: () => socket.bytesRead - bytesBefore,
              awaited: () => told && request.readableFlowing === true && !request.complete && !(response.headersSent && isLive(inbound.headers)),
              tooSlow: () => giveUp(socket, under, TOO_SLOW),
            },
            minBodyBytesPerS,
          );
    response.once("close", () => {
      endWatch();
      if (response.writableFinished) call.close();
      else call.abort();
      current.delete(socket);
      options.ended(inbound);
      turns.over(socket);
      // Its head may have been out before the drain: then the client knows nothing of it.
      endIdleLater?.restart();
    });
    const send = (reply: Reply) => {
      // A client that was not told to continue may send its body or not: where its next request starts is open (RFC 9110 §10.1.1).
      const lastOne = leaving || !told || inbound.refusal !== null || lossy.has(request);
      respond(request, response, call, reply, { ...delivery, writeBatch, body: inbound.body, heldUp, lastOne });
    };
    options.answer(inbound, { send, giveUp: () => void response.destroy() });
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
    // Not `socket`, which may be a view of it.
    turns.take(request.socket, () => {
      if (framingOf(request).upgrade !== null) return acceptUpgrade(request, socket, behind);
      if (socket !== request.socket) {
        const detail = "An Upgrade other than to a WebSocket cannot have a body here.";
        return refuseBare(socket, "bad_request", { requestId: randomUUID(), clock, detail });
      }
      putBackWithoutUpgrade(request, socket, behind);
      turns.over(request.socket);
      serveAgain();
    });
  }

  function acceptUpgrade(request: IncomingMessage, socket: Duplex, behind: Buffer): void {
    answerUpgrade(socket, behind, receive(request, options.receiving(), ignore), options);
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
    const under = current.get(socket);
    if (under === undefined) return refuse(socket, error);
    // A fault behind the request under way has to wait for its reply.
    if (under.request.complete) return turns.take(socket, () => refuse(socket, error));
    giveUp(socket, under, error);
  }

  /** Ends an exchange whose request will not come whole: the client is told why where that is still possible. */
  function giveUp(socket: Duplex, { response, call }: Under, error: NodeJS.ErrnoException): void {
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

  function asUpgrade(request: IncomingMessage): boolean {
    const { upgrade, bodyLength } = framingOf(request);
    if (upgrade !== null || bodyLength === 0) return true;
    lossy.add(request);
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
    server.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => enqueue(request, response, "continue"));
    server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => enqueue(request, response, "unknown"));
    server.on("upgrade", (request: IncomingMessage, socket: Duplex, behind: Buffer) => {
      enqueueUpgrade(request, socket, behind, () => server.emit("connection", socket));
    });
    server.on("connect", (request: IncomingMessage, socket: Duplex) => {
      quiet(socket);
      const detail = "The gateway is no forward proxy: CONNECT is not served.";
      turns.take(request.socket, () => refuseBare(socket, "bad_request", { requestId: randomUUID(), clock, detail }));
    });
    server.on("clientError", onClientError);
    // node looks for requests that never come whole once a server is said to listen.
    server.emit("listening");
    return server;
  }

  function heldUp(response: ServerResponse): void {
    onTheirWay.add(response);
    response.once("close", () => onTheirWay.delete(response));
  }

  function endIdle(): void {
    // Node counts a connection as idle once its reply is written, whatever the client has yet to take of it.
    for (const response of onTheirWay) response.finished = false;
    own?.closeIdleConnections();
    for (const response of onTheirWay) response.finished = true;
    // One that has sent the beginning of a request may finish it.
    for (const socket of fresh) if (socket.bytesRead === 0 || socket instanceof TLSSocket) socket.destroy();
  }

  return {
    onRequest,
    onUpgrade,
    serve(socket) {
      own ??= createServer();
      fresh.add(socket);
      endIdleLater?.restart();
      socket.once("close", () => fresh.delete(socket));
      enforce(own, options.receiving().limits);
      own.emit("connection", socket);
    },
    destroy: () => void own?.close(),
    sendAway(away) {
      leaving = away;
    },
    drain(lingerMs) {
      leaving = true;
      endIdleLater = clock.after(lingerMs, endIdle);
      if (lingerMs === 0) endIdle();
    },
  };
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

function framingOf({ method, rawHeaders, httpVersion }: IncomingMessage): Framing {
  return readFraming(method!, rawHeaders, httpVersion);
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
