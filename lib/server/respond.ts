/**
 * Writes a Reply to an HTTP/1 client: head, body with back-pressure, trailers; a fault after the head destroys the connection.
 * Replies to HTTP/2 streams are `h2_respond.ts`'s, replies on bare sockets (upgrades, broken requests) `bare.ts`'s.
 */
import { ServerResponse, type IncomingMessage } from "node:http";
import { Socket } from "node:net";
import type { Duplex, Readable } from "node:stream";
import { TLSSocket } from "node:tls";
import type { Clock } from "../base/clock.ts";
import type { Departures } from "../base/departures.ts";
import { Fault } from "../base/errors.ts";
import { pump } from "../http/body.ts";
import type { Call } from "../http/exchange.ts";
import { grpcReply } from "../http/grpc.ts";
import { hasHeader, headerValue, pairs, withHeader, withoutHeader, type HeaderList } from "../http/headers.ts";
import { LentBody, ownBody } from "../http/lent_body.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import { endSoon, letFlow } from "./linger.ts";

export interface RespondOptions {
  readonly clock: Clock;
  /** With what a reply leaves of which all is at hand. */
  readonly departures: Departures;
  /** The body as it was given to whoever answered: the request itself, a view of it, or null where there is none. */
  readonly body: Readable | null;
  /** Milliseconds a client may leave the rest of a finished reply unread before it is cut off. */
  readonly idleMs: number;
  /** Told that all of the reply is written, and its client has yet to take some of it. */
  readonly heldUp: (response: ServerResponse) => void;
  /** True when the connection ends with this reply: the gateway shuts down, or where the next request starts is in doubt. */
  readonly lastOne: boolean;
}

/** Sends `reply`. The call is closed when it is out, aborted when the client goes first. */
export function respond(request: IncomingMessage, response: ServerResponse, call: Call, given: Reply, options: RespondOptions): void {
  if (call.aborted || response.destroyed) return discard(given);
  const reply = grpcReply(call, request.rawHeaders, given);
  const spoilt = spoiltReply(call, reply);
  if (spoilt !== null) return respond(request, response, call, spoilt, options);
  const isLent = reply.body instanceof LentBody && reply.body.isUntouched && request.method !== "HEAD" && tellsWhenSent(response);
  const lent = isLent ? (reply.body as LentBody) : null;
  const body = lent ?? ownBody(reply.body);
  call.notes.status = reply.status;
  const stream = body !== null && lent === null && !Buffer.isBuffer(body) && request.method !== "HEAD" ? body : null;
  const delimited = hasHeader(reply.headers, "content-length");
  // Without a word from the upstream on how long the body is, it is chunked, or ends with the connection for HTTP/1.0.
  const chunked = stream !== null && request.httpVersion !== "1.0" && !delimited;
  const headers = withLength(replyHeaders(reply, call.id), body);
  if (options.lastOne) headers.push("Connection", "close");
  try {
    response.writeHead(reply.status, reply.reason, (chunked ? headers : withoutHeader(headers, "trailer")) as string[]);
  } catch (error) {
    // A plugin's head that HTTP cannot carry: nothing of it has been sent, but node has kept its reason phrase.
    response.statusMessage = "";
    discard(reply);
    const why = `the reply's head cannot be written: ${(error as Error).message}`;
    return respond(request, response, call, problem(call, "internal", { why }), options);
  }
  if (!request.complete) request.socket.destroySoon = () => endSoon(request.socket, options.clock);
  call.notes.sent = 0;
  if (lent !== null) {
    call.onEnd(() => {
      if (response.writableFinished) lent.giveBack();
    });
    // At once: much of it is still in the processor's cache, and its memory is wanted back.
    return sendWhole(request, response, call, lent.lend(), options);
  }
  if (stream === null) {
    const whole = Buffer.isBuffer(body) && request.method !== "HEAD" ? body : null;
    if (whole === null) discard(reply);
    return options.departures.add(() => sendDeparting(request, response, call, whole, options));
  }
  call.onAbort(() => stream.destroy());
  sendHeadSoon(stream, response);
  pump(stream, response, {
    passed: (bytes) => (call.notes.sent! += bytes),
    done() {
      if (chunked) addTrailers(response, reply.trailers?.() ?? []);
      response.end();
      finish(request, response, options);
    },
    broken(cause) {
      // The client must not take the part it has for the whole: no clean end.
      call.fail(cause instanceof Fault ? cause.code : "upstream_reset", cause?.message ?? "the body broke off");
      breakOff(request.socket, chunked || delimited ? "delimited" : "until close");
      response.destroy();
    },
  });
}

/** All of the body, or null where there is none, with the head. */
function sendWhole(request: IncomingMessage, response: ServerResponse, call: Call, whole: Buffer | null, options: RespondOptions): void {
  if (whole === null) response.end();
  else {
    call.notes.sent = whole.length;
    response.end(whole);
  }
  finish(request, response, options);
}

/** As `sendWhole`, a moment later. */
function sendDeparting(request: IncomingMessage, response: ServerResponse, call: Call, whole: Buffer | null, options: RespondOptions): void {
  // The client may have gone while it waited.
  if (response.destroyed) return;
  try {
    sendWhole(request, response, call, whole, options);
  } catch (error) {
    // A host's own `end` may throw: what else leaves now is not to suffer for it.
    call.fail("internal", `the reply could not be sent: ${(error as Error).message}`);
    response.destroy();
  }
}

/**
 * What to send instead of a reply whose body has broken off, was read by a plugin, or sent already, before anything was sent: such a
 * stream would never be heard of again. Null when the body can be sent.
 */
export function spoiltReply(call: Call, { body }: Reply): Reply | null {
  if (body === null || Buffer.isBuffer(body)) return null;
  // A plugin may give two clients the same reply: a second one has nothing to be sent of what the first was.
  const isTaken = body instanceof LentBody && body.isTaken;
  if (!body.destroyed && !body.readableEnded && !isTaken) return null;
  if (isTaken) return problem(call, "internal", { why: "the reply's body had been sent to another client" });
  if (body.readableEnded) return problem(call, "internal", { why: "the reply's body had been read to its end" });
  const cause = body.errored;
  return problem(call, cause instanceof Fault ? cause.code : "upstream_reset", { why: cause?.message ?? "the body broke off" });
}

/** End-to-end headers of a reply with one request id. The caller may append to the list. */
export function replyHeaders(reply: Reply, callId: string): string[] {
  const headers = withoutHeader(reply.headers, "x-request-id").slice();
  headers.push("X-Request-Id", reply.requestId ?? callId);
  return headers;
}

/** A body at hand is as long as it is, whatever its headers say: bytes beyond a stated length would be read as the next reply. */
export function withLength(headers: string[], body: Reply["body"]): string[] {
  if (!Buffer.isBuffer(body) && !(body instanceof LentBody)) return headers;
  const length = String(body.byteLength);
  return headerValue(headers, "content-length") === length ? headers : (withHeader(headers, "Content-Length", length) as string[]);
}

/**
 * Ends a connection in the middle of a body. One that is delimited is seen to be incomplete; one that lasts until the connection
 * closes would look whole, so the connection is reset instead. (TLS shows it by the missing close_notify.)
 */
export function breakOff(socket: Duplex, body: "delimited" | "until close"): void {
  if (body === "until close" && socket instanceof Socket && !(socket instanceof TLSSocket)) socket.resetAndDestroy();
  else socket.destroy();
}

/**
 * Whether what it was given is nobody's when it says that it is out. A host's own server may have put an `end` of its own in the place of
 * node's, or take requests from what is no socket of node's: such a one may keep what it is given.
 */
function tellsWhenSent(response: ServerResponse): boolean {
  return response.end === END && response.socket instanceof Socket;
}

const END = ServerResponse.prototype.end;

/** With the first bytes of the body where they are there already; a body that is still to come does not hold the head back. */
function sendHeadSoon(stream: Readable, response: ServerResponse): void {
  let begun = false;
  stream.once("data", () => {
    begun = true;
  });
  process.nextTick(() => {
    if (!begun && !response.writableEnded && !response.destroyed) response.write(NOTHING);
  });
}

/** Sends the head by itself; `flushHeaders` would encode its Latin-1 bytes as UTF-8. */
const NOTHING = Buffer.alloc(0);

function addTrailers(response: ServerResponse, trailers: HeaderList): void {
  if (trailers.length === 0) return;
  try {
    response.addTrailers(pairs(trailers));
  } catch {
    // A plugin's trailer that HTTP cannot carry. The body is whole without it.
  }
}

/** Bytes of an unwanted request body that are read and thrown away so that the connection can go on. */
const MAX_DISCARDED_BYTES = 1024 * 1024;
const MAX_DISCARD_MS = 5_000;

/** After the last byte was handed over: the client must take it, and stop sending what nobody reads. */
function finish(request: IncomingMessage, response: ServerResponse, options: RespondOptions): void {
  const { socket } = request;
  // node sets its own keep-alive timeout once everything is flushed; until then this one runs, and destroys the socket.
  if (socket.writableLength > 0) {
    socket.setTimeout(options.idleMs);
    options.heldUp(response);
  }
  // A view that has read a part of it would hold back the rest.
  if (options.body !== request) options.body?.destroy();
  if (request.complete) {
    // Left paused by its reader, it would keep the connection from being read on.
    if (options.body !== null && !request.readableEnded) letFlow(request);
    return;
  }
  // Given up with its connection: nothing more comes of it, its own end included.
  if (request.closed) return;
  let discarded = 0;
  const timer = options.clock.after(MAX_DISCARD_MS, () => socket.destroy());
  const count = (chunk: Buffer) => {
    discarded += chunk.length;
    if (discarded > MAX_DISCARDED_BYTES) socket.destroy();
  };
  request.on("data", count);
  // Whoever read the body before may have left it paused.
  letFlow(request);
  // node gives a body up with its connection only while the reply is not out; whoever reads it has to hear of its end later too.
  const giveUp = () => void request.destroy();
  socket.once("close", giveUp);
  const over = () => {
    timer.cancel();
    socket.removeListener("close", giveUp);
  };
  request.once("end", over);
  request.once("close", over);
  response.once("close", () => {
    if (request.complete) over();
  });
}
