/**
 * Writes a Reply to an HTTP/2 stream: head, body with back-pressure, trailers; a fault after the head resets the stream, and leaves
 * the connection alone. Taking the request is `h2_receive.ts`.
 */
import http2, { type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import type { Readable } from "node:stream";
import { Fault } from "../base/errors.ts";
import { pump } from "../http/body.ts";
import { grpcReply } from "../http/grpc.ts";
import { h2Fields } from "../http/h2_fields.ts";
import type { HeaderList } from "../http/headers.ts";
import { ownBody } from "../http/lent_body.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import { letFlow } from "./linger.ts";
import type { Inbound } from "./receive.ts";
import { replyHeaders, spoiltReply, withLength } from "./respond.ts";

export interface StreamOptions {
  /** Milliseconds a client may leave the rest of a finished reply unread before the stream is reset. */
  readonly idleMs: number;
  /** Resets the stream for a fault that is not the client's. */
  readonly giveUp: () => void;
}

/** Sends `reply` on the stream. True when it opened a tunnel and the stream now belongs to that. */
export function respondStream(stream: ServerHttp2Stream, inbound: Inbound, given: Reply, options: StreamOptions): boolean {
  const { call } = inbound;
  if (call.aborted || stream.destroyed || stream.closed) {
    discard(given);
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
  const body = ownBody(reply.body);
  const bodiless = inbound.method === "HEAD" || body === null;
  const switches = reply.tunnel !== undefined;
  const list = withLength(replyHeaders(reply, call.id), body);
  const fields = switches ? switchFields(list) : fieldsOf(list, reply.status);
  if (fields === null) {
    discard(reply);
    return respondStream(stream, inbound, problem(call, "internal", { why: "the reply's head cannot be written" }), options);
  }
  call.notes.status = reply.status;
  const streams = !bodiless && !Buffer.isBuffer(body);
  stream.respond(fields, { endStream: bodiless && !switches, waitForTrailers: streams && reply.trailers !== undefined });
  if (switches) return true;
  call.notes.sent = 0;
  // A client that is still sending is told that nobody reads on (RFC 9113 §8.1).
  if (inbound.body !== null || inbound.upgrade !== null) stream.once("finish", () => setImmediate(stopUpload, stream, inbound.body));
  if (bodiless) {
    discard(reply);
  } else if (Buffer.isBuffer(body)) {
    call.notes.sent = body.length;
    stream.end(body);
    expectRead(stream, options);
  } else {
    sendBody(stream, body, inbound, reply, options);
  }
  return false;
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
    const { trailers } = reply;
    stream.once("wantTrailers", () => {
      // Trailers that HTTP/2 cannot carry are left out; the body is whole without them.
      stream.sendTrailers(fieldsOf(trailers(), null) ?? {});
    });
  }
  call.onAbort(() => body.destroy());
  pump(body, stream, {
    passed: (bytes) => (call.notes.sent! += bytes),
    done() {
      stream.end();
      expectRead(stream, options);
    },
    broken(cause) {
      // The client must not take the part it has for the whole: no END_STREAM.
      call.fail(cause instanceof Fault ? cause.code : "upstream_reset", cause?.message ?? "the body broke off");
      options.giveUp();
    },
  });
}

/** The upstream is done with; a client that takes no byte of what is left must not hold the stream for ever. */
function expectRead(stream: ServerHttp2Stream, { idleMs }: StreamOptions): void {
  if (stream.writableLength > 0) stream.setTimeout(idleMs, () => stream.close(http2.constants.NGHTTP2_CANCEL));
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
