/**
 * Writes a reply to an HTTP/2 stream: head, body with back-pressure, trailers. A fault after the head resets only the
 * stream.
 */
import http2, { type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import { Readable } from "node:stream";
import { entry } from "../base/event_loop.ts";
import { Delivery, type DeliveryOptions } from "../http/delivery.ts";
import type { Call } from "../http/exchange.ts";
import { grpcReply } from "../http/grpc.ts";
import { h2Fields } from "../http/h2_fields.ts";
import type { HeaderList } from "../http/headers.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import { bodyToSend, replyTrailers, sendableReply, statedLength } from "./client_reply.ts";
import { letFlow } from "./linger.ts";
import type { Inbound } from "./inbound.ts";
import { ownBody, replyHeaders, withLength } from "./reply_headers.ts";

const { NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR } = http2.constants;

/** Resets a stream with an error code of HTTP/2. */
type GiveUp = (code: number) => void;

/**
 * "tunnel": it owns the stream from then on; "unwatched": the reply was written whole, and has no delivery, see
 * `watchReply`.
 */
export type Sent = "tunnel" | "unwatched" | "watched";

/** Sends `reply` on the stream. */
export function respondStream(
  stream: ServerHttp2Stream,
  inbound: Inbound,
  given: Reply,
  options: DeliveryOptions,
  giveUp: GiveUp,
): Sent {
  const { call } = inbound;
  if (call.aborted || stream.destroyed || stream.closed || stream.headersSent) {
    discard(given);
    // An earlier reply failed after its head: that cannot be taken back.
    if (!call.aborted && !stream.destroyed && !stream.closed) giveUp(NGHTTP2_INTERNAL_ERROR);
    return "watched";
  }
  const reply = grpcReply(call, inbound.headers, sendableReply(call, given));
  // Node's HTTP/2 sends no such status, and RFC 9110 §15 calls it invalid.
  const refusal = reply.status > 599 ? problem(call, "upstream_invalid", { why: `status ${reply.status}` }) : null;
  const fields = refusal === null ? headFields(inbound, reply) : null;
  if (fields === null) {
    discard(reply);
    const instead = refusal ?? problem(call, "internal", { why: "the reply's head cannot be written" });
    return respondStream(stream, inbound, instead, options, giveUp);
  }
  // Node keeps a body until the client's windows have room for it: too long for a lent one.
  const body = ownBody(bodyToSend(inbound.method, reply));
  call.notes.status = reply.status;
  const waitForTrailers = body !== null && !Buffer.isBuffer(body) && reply.trailers !== undefined;
  stream.respond(fields, { endStream: body === null && reply.tunnel === undefined, waitForTrailers });
  if (reply.tunnel !== undefined) return "tunnel";
  call.notes.sent = 0;
  // Signals a client that is still sending that the rest is not read (RFC 9113 §8.1).
  if (inbound.body !== null || inbound.upgrade !== null)
    stream.once("finish", () => setImmediate(stopUpload, stream, inbound.body));
  if (body !== null) return sendBody(stream, body, call, reply, options, giveUp);
  discard(reply);
  return "watched";
}

/** Holds what a client has yet to read of a reply to its deadlines. */
export function watchReply(stream: ServerHttp2Stream, call: Call, options: DeliveryOptions, giveUp: GiveUp): Delivery {
  // No END_STREAM if the body ended early: the client must not mistake the part for the whole. Node's own timeout of a
  // stream is restarted by anything that the connection sends, answers to PINGs included.
  return new Delivery(call, stream, options, (why) =>
    giveUp(why === "broken" ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_CANCEL),
  );
}

/** Sends informational responses ahead of the reply, at most 16: an upstream could send such hints without end. */
export function informStream(stream: ServerHttp2Stream): (status: number, headers: HeaderList) => void {
  let left = MAX_INFORMATIONAL;
  return (status, headers) => {
    if (stream.headersSent || stream.destroyed || stream.closed || status === 101 || left-- <= 0) return;
    const fields = fieldsOf(headers, status);
    if (fields !== null) stream.additionalHeaders(fields);
  };
}

const MAX_INFORMATIONAL = 16;

function sendBody(
  stream: ServerHttp2Stream,
  body: Buffer | Readable,
  call: Call,
  reply: Reply,
  options: DeliveryOptions,
  giveUp: GiveUp,
): Sent {
  if (Buffer.isBuffer(body) && body.length <= PIECE_BYTES) {
    call.notes.sent = body.length;
    stream.end(body);
    return "unwatched";
  }
  if (reply.trailers !== undefined) {
    // Trailers that HTTP/2 cannot carry are left out; the body is complete without them.
    stream.once("wantTrailers", () => stream.sendTrailers(fieldsOf(replyTrailers(call, reply), null) ?? {}));
  }
  const source = Buffer.isBuffer(body) ? Readable.from(piecesOf(body), { objectMode: false }) : body;
  const sink = watchReply(stream, call, options, giveUp);
  sink.stream(source, statedLength(reply.headers), () => {
    stream.end();
    sink.ended();
  });
  return "watched";
}

/** Most bytes in one write: node reports progress only when all of them have been sent. */
const PIECE_BYTES = 64 * 1024;

function* piecesOf(body: Buffer): Generator<Buffer> {
  for (let at = 0; at < body.length; at += PIECE_BYTES) yield body.subarray(at, at + PIECE_BYTES);
}

/** Runs after the END_STREAM was sent: nghttp2 sends a reset first, and a reply without its end looks broken. */
const stopUpload = entry("an unread upload", (stream: ServerHttp2Stream, body: Readable | null) => {
  if (stream.readableEnded || stream.destroyed) return;
  // An unread part of a body would keep the stream for ever: node waits until its end is read.
  if (body !== stream) body?.destroy();
  letFlow(stream);
  stream.close(NGHTTP2_NO_ERROR);
});

function headFields({ method, call }: Inbound, reply: Reply): OutgoingHttpHeaders | null {
  const list = withLength(replyHeaders(reply, call.id), method, reply);
  if (reply.tunnel === undefined) return fieldsOf(list, reply.status);
  // HTTP/2 opens a WebSocket with status 200, without HTTP/1.1's 101 and Sec-WebSocket-Accept (RFC 8441 §5).
  const fields = fieldsOf(list, 200);
  if (fields !== null) delete fields["sec-websocket-accept"];
  return fields;
}

/** Null when HTTP/2 cannot carry it. */
function fieldsOf(list: HeaderList, status: number | null): OutgoingHttpHeaders | null {
  const fields = Object.create(null) as OutgoingHttpHeaders;
  if (status !== null) fields[":status"] = status;
  return h2Fields(list, fields);
}
