/**
 * Writes a Reply on node's `ServerResponse`: head, body with back-pressure, trailers; a fault after the head destroys
 * the connection.
 */
import { ServerResponse, type IncomingMessage } from "node:http";
import { Socket } from "node:net";
import type { Readable } from "node:stream";
import { entry } from "../base/event_loop.ts";
import type { WriteBatch } from "../base/event_loop.ts";
import { breakOff } from "../http/body.ts";
import { Delivery, type DeliveryOptions } from "../http/delivery.ts";
import type { Call } from "../http/exchange.ts";
import { headerValue, withoutHeader, type HeaderList } from "../http/headers.ts";
import { LentBody } from "../http/lent_body.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import { discardRest, endSoon, letFlow } from "./linger.ts";
import { bodyToSend, framingOf, replyTrailers, sendableReply, statedLength } from "./client_reply.ts";
import { ownBody, pairs, replyHeaders, withLength } from "./reply_headers.ts";

export interface NodeRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly call: Call;
  /** The body as plugins got it: the request itself, a view of it, or null where there is none. */
  readonly body: Readable | null;
  /**
   * True when the connection ends with the reply: the gateway shuts down, or where the next request starts is not
   * certain.
   */
  readonly isLast: boolean;
}

export interface RespondOptions extends DeliveryOptions {
  readonly writeBatch: WriteBatch;
  /** Called when all of the reply is written and its client has yet to read some of it. */
  readonly heldUp: (response: ServerResponse) => void;
}

/** Sends `given`. The call is closed when the reply was sent, aborted when the client disconnects before. */
export function respond(to: NodeRequest, given: Reply, options: RespondOptions): void {
  const { request, response, call } = to;
  if (call.aborted || response.destroyed) return discard(given);
  if (response.headersSent) {
    // An earlier reply failed after its head was sent.
    discard(given);
    return void response.destroy();
  }
  const reply = sendableReply(call, given);
  const method = request.method!;
  const sent = bodyToSend(method, reply);
  const body = givesMemoryBack(response) ? sent : ownBody(sent);
  const framing = framingOf({ method, httpVersion: request.httpVersion, upgrade: null }, reply, body);
  const headers = withLength(replyHeaders(reply, call.id), method, reply);
  if (to.isLast) headers.push("Connection", "close");
  // RFC 9110 §7.8.
  if (reply.status === 426 && headerValue(headers, "upgrade") !== undefined) headers.push("Connection", "Upgrade");
  call.notes.status = reply.status;
  try {
    response.writeHead(
      reply.status,
      reply.reason,
      (framing === "chunked" ? headers : withoutHeader(headers, "trailer")) as string[],
    );
  } catch (error) {
    // A plugin's head that HTTP cannot carry: nothing of it has been sent, but node has kept its reason phrase.
    response.statusMessage = "";
    discard(reply);
    const why = `the reply's head cannot be written: ${(error as Error).message}`;
    return respond(to, problem(call, "internal", { why }), options);
  }
  if (!request.complete) request.socket.destroySoon = () => endSoon(request.socket, options.clock);
  call.notes.sent = 0;
  const lent = body instanceof LentBody ? body.lend() : null;
  if (lent !== null) {
    call.onEnd(() => {
      if (response.writableFinished) (body as LentBody).giveBack();
    });
    // At once: much of it is still in the processor's cache, and its memory can be reused.
    return sendWhole(to, lent, options);
  }
  if (body === null) discard(reply);
  if (body === null || Buffer.isBuffer(body))
    return options.writeBatch.add({ writeNow: () => sendReady(to, body, options) });
  sendHeadSoon(body, response);
  const cut = () => {
    if (framing === "until close") breakOff(request.socket);
    else request.socket.destroy();
    response.destroy();
  };
  const delivery = new Delivery(call, request.socket, options, cut, response);
  delivery.stream(body, statedLength(reply.headers), () => {
    if (framing === "chunked") addTrailers(response, replyTrailers(call, reply));
    response.end();
    if (delivery.ended()) options.heldUp(response);
    finish(to, options);
  });
}

/** Sends all of the body, or null where there is none, with the head. */
function sendWhole(to: NodeRequest, whole: Buffer | null, options: RespondOptions): void {
  const { request, response, call } = to;
  if (whole === null) response.end();
  else {
    call.notes.sent = whole.length;
    response.end(whole);
  }
  if (request.socket.writableLength > 0) {
    new Delivery(call, request.socket, options, () => void response.destroy(), response).ended();
    options.heldUp(response);
  }
  finish(to, options);
}

/** Sends a reply that became ready in the last turn of the event loop. */
function sendReady(to: NodeRequest, whole: Buffer | null, options: RespondOptions): void {
  // The client may have disconnected meanwhile.
  if (to.response.destroyed) return;
  try {
    sendWhole(to, whole, options);
  } catch (error) {
    // A host's own `end` may throw, and the other replies of this round must be sent all the same.
    to.call.fail("internal", `the reply could not be sent: ${(error as Error).message}`);
    to.response.destroy();
  }
}

/**
 * Whether bytes may be reused once they are written: a host's own server may have replaced node's `end` or sockets, and
 * keep what it gets.
 */
function givesMemoryBack(response: ServerResponse): boolean {
  return response.end === END && response.socket instanceof Socket;
}

const END = ServerResponse.prototype.end;

/**
 * With the first bytes of the body if they have arrived; the head does not wait for a body that has not arrived yet.
 */
function sendHeadSoon(stream: Readable, response: ServerResponse): void {
  let begun = false;
  stream.once("data", () => {
    begun = true;
  });
  process.nextTick(
    entry("a head without a body", () => {
      if (!begun && !response.writableEnded && !response.destroyed) response.write(NOTHING);
    }),
  );
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

/** After the last byte of the reply was handed over: discards the rest of the request, within bounds. */
function finish({ request, response, body }: NodeRequest, { clock }: RespondOptions): void {
  const { socket } = request;
  // A view that has read a part of it would hold back the rest.
  if (body !== request) body?.destroy();
  if (request.complete) {
    // Left paused by its reader, it would keep the connection from being read on.
    if (body !== null && !request.readableEnded) letFlow(request);
    return;
  }
  // Destroyed with its connection: it emits nothing more, not even its end.
  if (request.closed) return;
  const endWait = discardRest(request, clock, () => void socket.destroy());
  // Node ends a body with its connection only until the reply was sent; the reader of the body must get that end later,
  // too.
  const giveUp = () => void request.destroy();
  socket.once("close", giveUp);
  const over = () => {
    endWait();
    socket.removeListener("close", giveUp);
  };
  request.once("end", over);
  request.once("close", over);
  response.once("close", () => {
    if (request.complete) over();
  });
}
