/**
 * Writes a Reply to an HTTP/2 stream: head, body with back-pressure, trailers; a fault after the head resets the stream, and leaves
 * the connection alone. Taking the request is `h2_receive.ts`.
 */
import http2, { type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import { Readable } from "node:stream";
import { Fault } from "../base/errors.ts";
import { pump } from "../http/body.ts";
import type { Call } from "../http/exchange.ts";
import { grpcReply } from "../http/grpc.ts";
import { h2Fields } from "../http/h2_fields.ts";
import type { HeaderList } from "../http/headers.ts";
import { ownBody } from "../http/lent_body.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import { Delivery, type DeliveryOptions } from "./delivery.ts";
import { letFlow } from "./linger.ts";
import { hasContent, replyHeaders, replyTrailers, spoiltReply, statedLength, withLength } from "./reply_checks.ts";
import type { Inbound } from "./receive.ts";

export interface StreamOptions extends DeliveryOptions {
  /** Resets the stream with an error code of HTTP/2; default: INTERNAL_ERROR, for a fault that is not the client's. */
  readonly giveUp: (code?: number) => void;
}

/** Sends `reply` on the stream. True when it opened a tunnel and the stream now belongs to that. */
export function respondStream(stream: ServerHttp2Stream, inbound: Inbound, given: Reply, options: StreamOptions): boolean {
  const { call } = inbound;
  if (call.aborted || stream.destroyed || stream.closed) {
    discard(given);
    return false;
  }
  if (stream.headersSent) {
    // Sending another reply has failed half-way: what is out cannot be taken back.
    discard(given);
    options.giveUp();
    return false;
  }
  const reply = grpcReply(call, inbound.headers, given);
  const spoilt = spoiltReply(call, reply);
  if (spoilt !== null) return respondStream(stream, inbound, spoilt, options);
  if (reply.status > 599) {
    // node's HTTP/2 sends no such status, and RFC 9110 §15 calls it invalid.
    discard(reply);
    return respondStream(stream, inbound, problem(call, "upstream_invalid", { why: `status ${reply.status}` }), options);
  }
  // Node keeps what it is given until the client's windows let it go: nothing to lend for so long.
  const body = hasContent(inbound.method, reply) ? ownBody(reply.body) : null;
  const bodiless = body === null;
  const switches = reply.tunnel !== undefined;
  const list = withLength(replyHeaders(reply, call.id), inbound.method, reply);
  const fields = switches ? switchFields(list) : fieldsOf(list, reply.status);
  if (fields === null) {
    discard(reply);
    return respondStream(stream, inbound, problem(call, "internal", { why: "the reply's head cannot be written" }), options);
  }
  call.notes.status = reply.status;
  const streams = body !== null && !Buffer.isBuffer(body);
  stream.respond(fields, { endStream: bodiless && !switches, waitForTrailers: streams && reply.trailers !== undefined });
  if (switches) return true;
  call.notes.sent = 0;
  // A client that is still sending is told that nobody reads on (RFC 9113 §8.1).
  if (inbound.body !== null || inbound.upgrade !== null) stream.once("finish", () => setImmediate(stopUpload, stream, inbound.body));
  if (bodiless) {
    discard(reply);
  } else if (Buffer.isBuffer(body) && body.length <= PIECE_BYTES) {
    call.notes.sent = body.length;
    stream.end(body);
    if (stream.writableLength > 0) deliveryOn(stream, call, options).ended();
  } else {
    sendBody(stream, Buffer.isBuffer(body) ? Readable.from(piecesOf(body), { objectMode: false }) : body, inbound, reply, options);
  }
  return false;
}

/** Most bytes that are written at once: only when all of them have left does node tell that the client has taken any. */
const PIECE_BYTES = 64 * 1024;

function* piecesOf(body: Buffer): Generator<Buffer> {
  for (let at = 0; at < body.length; at += PIECE_BYTES) yield body.subarray(at, at + PIECE_BYTES);
}

/** Sends informational responses ahead of the reply. Being hints, all but a few are dropped: an upstream could send them without end. */
export function informStream(stream: ServerHttp2Stream): (status: number, headers: HeaderList) => void {
  let left = MAX_INFORMATIONS;
  return (status, headers) => {
    if (stream.headersSent || stream.destroyed || stream.closed || status === 101 || left-- <= 0) return;
    const fields = fieldsOf(headers, status);
    if (fields !== null) stream.additionalHeaders(fields);
  };
}

const MAX_INFORMATIONS = 16;

function sendBody(stream: ServerHttp2Stream, body: Readable, { call }: Inbound, reply: Reply, options: StreamOptions): void {
  if (reply.trailers !== undefined) {
    stream.once("wantTrailers", () => {
      // Trailers that HTTP/2 cannot carry are left out; the body is whole without them.
      stream.sendTrailers(fieldsOf(replyTrailers(call, reply), null) ?? {});
    });
  }
  call.onAbort(() => body.destroy());
  const delivery = deliveryOn(stream, call, options);
  const end = {
    passed: (bytes: number) => (call.notes.sent! += bytes),
    done() {
      stream.end();
      delivery.ended();
    },
    broken(cause: Error | null) {
      // The client must not take the part it has for the whole: no END_STREAM.
      call.fail(cause instanceof Fault ? cause.code : "upstream_reset", cause?.message ?? "the body broke off");
      options.giveUp();
    },
  };
  pump(body, delivery, end, statedLength(reply.headers));
}

/** node's own timeout of a stream is put off by whatever the connection sends, answers to PINGs included. */
function deliveryOn(stream: ServerHttp2Stream, call: Call, options: StreamOptions): Delivery {
  return new Delivery(call, { to: stream, outlet: stream, cut: () => options.giveUp(http2.constants.NGHTTP2_CANCEL) }, options);
}

/** Not before the END_STREAM is out: nghttp2 sends a reset first, and a reply without its end looks broken. */
function stopUpload(stream: ServerHttp2Stream, body: Readable | null): void {
  if (stream.readableEnded || stream.destroyed) return;
  // What has come of a body and was left unread would keep the stream for ever: node waits for its end to be read.
  if (body !== stream) body?.destroy();
  letFlow(stream);
  stream.close(http2.constants.NGHTTP2_NO_ERROR);
}

/** Where HTTP/1.1 switches with a 101 and proves it, HTTP/2 says 200 (RFC 8441 §5). */
function switchFields(list: HeaderList): OutgoingHttpHeaders | null {
  const fields = fieldsOf(list, 200);
  if (fields !== null) delete fields["sec-websocket-accept"];
  return fields;
}

/** Null when HTTP cannot carry it. */
function fieldsOf(list: HeaderList, status: number | null): OutgoingHttpHeaders | null {
  const fields = Object.create(null) as OutgoingHttpHeaders;
  if (status !== null) fields[":status"] = status;
  return h2Fields(list, fields);
}
