/**
 * Has requests answered, and decides which parts of a Reply are sent, for every protocol; and the text that HTTP/1
 * clients of the gateway's own codec get of it.
 */
import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import { Fault, messageOf } from "../base/errors.ts";
import { FIELD_LINE } from "../base/http_grammar.ts";
import { breakOff, SMALL_BYTES, writeChunk, type Sink } from "../http/body.ts";
import { Delivery } from "../http/delivery.ts";
import type { Call } from "../http/exchange.ts";
import { headerProblem, isEventStream, NameMap, sameName, type HeaderList } from "../http/headers.ts";
import { LentBody } from "../http/lent_body.ts";
import { asSent, discard, problem, type Reply } from "../http/reply.ts";
import { head, type Http1Options, type Responder } from "./http1.ts";
import type { Inbound } from "./inbound.ts";

/**
 * Has the request answered, waiting only for a promise, and sends the reply. One that cannot be sent becomes a 500, or
 * is broken off if it has begun.
 */
export function answer(inbound: Inbound, responder: Responder, server: Http1Options): void {
  try {
    const reply = server.serve(inbound);
    if (reply instanceof Promise)
      reply.then(
        (late) => sendLate(inbound, responder, server, late),
        (error: unknown) => failed(inbound, responder, server, error),
      );
    else responder.send(reply);
  } catch (error) {
    failed(inbound, responder, server, error);
  }
}

function sendLate(inbound: Inbound, responder: Responder, server: Http1Options, reply: Reply): void {
  try {
    responder.send(reply);
  } catch (error) {
    failed(inbound, responder, server, error);
  }
}

function failed({ call }: Inbound, responder: Responder, { log }: Http1Options, error: unknown): void {
  log.error("a reply could not be sent", { request_id: call.id, error: messageOf(error, "stack") });
  try {
    responder.send(problem(call, "internal", { why: messageOf(error) }));
  } catch {
    responder.giveUp();
  }
}

/**
 * The reply, or the error to send instead: its body ended early, was read or sent before, or Content-Length occurs
 * twice or is no number.
 */
export function sendableReply(call: Call, reply: Reply): Reply {
  const sound = soundReply(call, reply);
  return call.ownBody === null ? sound : asSent(sound);
}

function soundReply(call: Call, reply: Reply): Reply {
  const { body, headers } = reply;
  if (Number.isNaN(statedLength(headers))) {
    discard(reply);
    return problem(call, "internal", { why: "the reply's Content-Length is stated twice or is no plain number" });
  }
  if (body === null || Buffer.isBuffer(body)) return reply;
  // A plugin may give two clients the same reply: the bytes that the first client got cannot be sent to the second.
  const isLent = body instanceof LentBody && body.isLent;
  if (!body.destroyed && !body.readableDidRead && !isLent) {
    if (!(body instanceof LentBody) && isEventStream(headers)) call.notes.isTimed = false;
    return reply;
  }
  const done = isLent
    ? "sent to another client"
    : body.readableEnded
      ? "read to its end"
      : body.destroyed
        ? null
        : "read in part";
  if (done !== null) return problem(call, "internal", { why: `the reply's body had been ${done}` });
  const cause = body.errored;
  return problem(call, cause instanceof Fault ? cause.code : "upstream_reset", {
    why: cause === null ? "the body ended early" : messageOf(cause),
  });
}

/** The body to send, null if there is none (RFC 9110 §6.4.1, §15.3.6). */
export function bodyToSend(method: string, { status, body }: Reply): Reply["body"] {
  return method === "HEAD" || status === 204 || status === 205 || status === 304 ? null : body;
}

/**
 * How the end of the body is marked: by this Content-Length, by the header Content-Length, by chunks, or by the end of
 * the connection.
 */
export type BodyFraming = number | "stated" | "chunked" | "until close" | "none";

/**
 * The HTTP/1 framing of `body`, as it is sent (RFC 9112 §6.3). HEAD and 304 state the length of the omitted body; a
 * refused upgrade closes the connection.
 */
export function framingOf(
  { method, httpVersion, upgrade }: Pick<Inbound, "method" | "httpVersion" | "upgrade">,
  { status, headers, body: given }: Reply,
  body: Reply["body"],
): BodyFraming {
  if (status === 204 || status === 101) return "none";
  if (status === 205) return 0;
  if (given === null) return method === "HEAD" || status === 304 ? "stated" : 0;
  if (Buffer.isBuffer(given) || given instanceof LentBody) return given.byteLength;
  if (body === null || statedLength(headers) !== Infinity) return "stated";
  return httpVersion === "1.0" || upgrade !== null ? "until close" : "chunked";
}

/**
 * The value of Content-Length in bytes; Infinity without the header, NaN if it is not a plain number or occurs twice.
 */
export function statedLength(headers: HeaderList): number {
  let length = Infinity;
  for (let i = 0; i < headers.length; i += 2) {
    if (!sameName(headers[i]!, "content-length")) continue;
    const value = headers[i + 1]!;
    if (length !== Infinity || value.length > 15 || !DIGITS.test(value)) return NaN;
    length = Number(value);
  }
  return length;
}

const DIGITS = /^[0-9]+$/;

/** The reply's trailers. A plugin's function that fails gives none: the body is whole without them. */
export function replyTrailers(call: Call, { trailers }: Reply): HeaderList {
  if (trailers === undefined) return NONE;
  try {
    const list = trailers();
    if (Array.isArray(list) && list.length % 2 === 0 && list.every((each) => typeof each === "string")) return list;
    call.fail("internal", "the reply's trailers are no list of names and values");
  } catch (error) {
    call.fail("internal", `the reply's trailers could not be read: ${messageOf(error)}`);
  }
  return NONE;
}

const NONE: HeaderList = [];

/**
 * The head of a reply to an HTTP/1 client, as Latin-1 text, with the gateway's own headers about the connection (RFC
 * 9110 §7.6.1) and the framing. `connectionLines`, and `date`, which the reply's own replaces (RFC 9110 §6.6.1), end
 * with CR LF. Throws a `TypeError` for what HTTP cannot carry: plugins write reason phrases, names and values, too.
 */
export function replyText(
  { status, reason, headers }: Omit<Reply, "body">,
  requestId: string,
  framing: BodyFraming,
  connectionLines: string,
  date: string,
): string {
  let text = `HTTP/1.1 ${status} ${reason ?? STATUS_CODES[status] ?? ""}\r\n`;
  let lines = 2;
  let hasDate = false;
  let hasLength = typeof framing !== "number" && framing !== "stated";
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    let value = headers[i + 1]!;
    const kind = KINDS.get(name);
    if (kind === "own" || (kind === "trailer" && framing !== "chunked")) continue;
    if (kind === "upgrade") {
      if (status !== 426) continue;
      // RFC 9110 §7.8.
      text += "Connection: Upgrade\r\n";
      lines++;
    } else if (kind === "date") hasDate = true;
    else if (kind === "length") {
      if (hasLength) continue;
      hasLength = true;
      if (typeof framing === "number") value = String(framing);
      else if (!DIGITS.test(value)) throw new TypeError(`the Content-Length "${value}" is not a number`);
    }
    // A colon in a name would move the rest of the name into the value, which the check of the whole text cannot
    // detect.
    if (name.includes(":")) throw new TypeError(`the name of the header "${name}" has a colon`);
    text += `${name}: ${value}\r\n`;
    lines++;
  }
  if (!hasLength && typeof framing === "number") {
    text += `Content-Length: ${framing}\r\n`;
    lines++;
  } else if (framing === "chunked") {
    text += "Transfer-Encoding: chunked\r\n";
    lines++;
  }
  text += `X-Request-Id: ${requestId}\r\n`;
  // One check of the whole text costs less than one of each name and value; the number of lines reveals a line break in
  // a value.
  if (!HEAD.test(text) || linesOf(text) !== lines)
    throw new TypeError("the reply's head has a name or value that HTTP cannot carry");
  return hasDate ? `${text}${connectionLines}\r\n` : `${text}${date}${connectionLines}\r\n`;
}

let dateSecond = -1;
let dateText = "";

/** `Date: Sun, 06 Nov 1994 08:49:37 GMT` with its CR LF, made once a second; `wall` in milliseconds since 1970. */
export function dateLine(wall: number): string {
  const second = Math.floor(wall / 1000);
  if (second !== dateSecond) {
    dateSecond = second;
    dateText = `Date: ${new Date(second * 1000).toUTCString()}\r\n`;
  }
  return dateText;
}

/** Headers that are checked; "own": the gateway sets them itself. */
const KINDS = new NameMap<"own" | "upgrade" | "date" | "length" | "trailer">([
  ...["connection", "keep-alive", "x-request-id", "proxy-connection", "transfer-encoding"].map(
    (name) => [name, "own"] as const,
  ),
  ["upgrade", "upgrade"],
  ["date", "date"],
  ["content-length", "length"],
  ["trailer", "trailer"],
]);

/**
 * The end of a chunked body: the last chunk and the trailers. Trailers that HTTP cannot carry are left out; the body is
 * whole without them.
 */
export function lastChunk(trailers: HeaderList): string {
  return head("0", headerProblem(trailers) === null ? trailers : NONE);
}

function linesOf(text: string): number {
  let found = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) found++;
  return found;
}

/** No character beyond a byte, no control character but the tab (RFC 9110 §5.5, RFC 9112 §4). */
const HEAD = new RegExp(String.raw`^HTTP/1\.1 [1-9]\d\d [\t\x20-\x7e\x80-\xff]*\r\n(?:${FIELD_LINE})*$`);

/** A reply whose body is a stream, and its head as text. */
interface StreamedReply {
  readonly call: Call;
  readonly reply: Reply;
  readonly text: string;
  readonly body: Readable;
  readonly framing: BodyFraming;
}

/** Sends a reply while its body arrives; `done` is called when the socket has been given all of it. */
export function streamReply(
  socket: Socket,
  server: Pick<Http1Options, "writeBatch" | "delivery">,
  streamed: StreamedReply,
  done: () => void,
): Delivery {
  const { call, reply, text, body, framing } = streamed;
  call.notes.sent = 0;
  const isChunked = framing === "chunked";
  // What is small leaves at the end of this round, together with that of others.
  const hold = () => {
    socket.cork();
    server.writeBatch.add(leaving);
  };
  const leaving = { writeNow: () => socket.uncork() };
  // The first bytes of the body are sent with the head if they have arrived; the head does not wait for a body that has
  // not arrived yet.
  hold();
  socket.write(text, "latin1");
  const write = (chunk: Buffer) => {
    if (socket.writableCorked === 0 && chunk.length <= SMALL_BYTES) hold();
    return isChunked ? writeChunk(socket, chunk) : socket.write(chunk);
  };
  const to: Sink = { write, once: (event, run) => socket.once(event, run) };
  const delivery = new Delivery(
    call,
    socket,
    server.delivery,
    () => (framing === "until close" ? breakOff(socket) : void socket.destroy()),
    to,
  );
  delivery.stream(body, statedLength(reply.headers), () => {
    // The client may have disconnected meanwhile.
    if (socket.destroyed) return;
    if (isChunked) socket.write(lastChunk(replyTrailers(call, reply)), "latin1");
    socket.uncork();
    delivery.ended();
    done();
  });
  return delivery;
}
