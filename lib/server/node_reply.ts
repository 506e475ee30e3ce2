/**
 * Writes a Reply to an HTTP/1 client: head, body with back-pressure, trailers; a fault after the head destroys the connection.
 * Replies to HTTP/2 streams are `h2_respond.ts`'s, replies on bare sockets (upgrades, broken requests) `socket_reply.ts`'s.
 */
import { ServerResponse, type IncomingMessage } from "node:http";
import { Socket } from "node:net";
import type { Duplex, Readable } from "node:stream";
import { TLSSocket } from "node:tls";
import type { WriteBatch } from "../base/write_batch.ts";
import { Fault } from "../base/errors.ts";
import { pump } from "../http/body.ts";
import type { Call } from "../http/exchange.ts";
import { grpcReply } from "../http/grpc.ts";
import { pairs, withoutHeader, type HeaderList } from "../http/headers.ts";
import { LentBody, ownBody } from "../http/lent_body.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import { Delivery, type DeliveryOptions } from "./delivery.ts";
import { endSoon, letFlow } from "./linger.ts";
import { hasContent, replyHeaders, replyTrailers, spoiltReply, statedLength, withLength } from "./reply_checks.ts";

export interface RespondOptions extends DeliveryOptions {
  /** With what a reply leaves of which all is at hand. */
  readonly writeBatch: WriteBatch;
  /** The body as it was given to whoever answered: the request itself, a view of it, or null where there is none. */
  readonly body: Readable | null;
  /** Told that all of the reply is written, and its client has yet to take some of it. */
  readonly heldUp: (response: ServerResponse) => void;
  /** True when the connection ends with this reply: the gateway shuts down, or where the next request starts is in doubt. */
  readonly lastOne: boolean;
}

/** Sends `reply`. The call is closed when it is out, aborted when the client goes first. */
export function respond(request: IncomingMessage, response: ServerResponse, call: Call, given: Reply, options: RespondOptions): void {
  if (call.aborted || response.destroyed) return discard(given);
  if (response.headersSent) {
    // Sending another reply has failed half-way: what is out cannot be taken back.
    discard(given);
    return void response.destroy();
  }
  const reply = grpcReply(call, request.rawHeaders, given);
  const spoilt = spoiltReply(call, reply);
  if (spoilt !== null) return respond(request, response, call, spoilt, options);
  const sent = hasContent(request.method, reply) ? reply.body : null;
  const lent = sent instanceof LentBody && sent.isUntouched && tellsWhenSent(response) ? sent : null;
  const body = lent ?? ownBody(sent);
  call.notes.status = reply.status;
  const stream = body !== null && lent === null && !Buffer.isBuffer(body) ? body : null;
  const length = stream === null ? 0 : statedLength(reply.headers);
  const delimited = length !== Infinity;
  // Without a word from the upstream on how long the body is, it is chunked, or ends with the connection for HTTP/1.0.
  const chunked = stream !== null && request.httpVersion !== "1.0" && !delimited;
  const headers = withLength(replyHeaders(reply, call.id), request.method, reply);
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
    const whole = Buffer.isBuffer(body) ? body : null;
    if (whole === null) discard(reply);
    return options.writeBatch.add(() => sendDeparting(request, response, call, whole, options));
  }
  call.onAbort(() => stream.destroy());
  sendHeadSoon(stream, response);
  const cut = () => {
    breakOff(request.socket, chunked || delimited ? "delimited" : "until close");
    response.destroy();
  };
  const delivery = new Delivery(call, { to: response, outlet: request.socket, cut }, options);
  const end = {
    passed: (bytes: number) => (call.notes.sent! += bytes),
    done() {
      if (chunked) addTrailers(response, replyTrailers(call, reply));
      response.end();
      if (delivery.ended()) options.heldUp(response);
      finish(request, response, options);
    },
    broken(cause: Error | null) {
      // The client must not take the part it has for the whole: no clean end.
      call.fail(cause instanceof Fault ? cause.code : "upstream_reset", cause?.message ?? "the body broke off");
      cut();
    },
  };
  pump(stream, delivery, end, length);
}

/** All of the body, or null where there is none, with the head. */
function sendWhole(request: IncomingMessage, response: ServerResponse, call: Call, whole: Buffer | null, options: RespondOptions): void {
  if (whole === null) response.end();
  else {
    call.notes.sent = whole.length;
    response.end(whole);
  }
  const { socket } = request;
  if (socket.writableLength > 0) {
    new Delivery(call, { to: response, outlet: socket, cut: () => void response.destroy() }, options).ended();
    options.heldUp(response);
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
export const MAX_DISCARDED_BYTES = 1024 * 1024;
export const MAX_DISCARD_MS = 5_000;

/** After the last byte was handed over: the client must stop sending what nobody reads. */
function finish(request: IncomingMessage, response: ServerResponse, options: RespondOptions): void {
  const { socket } = request;
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
