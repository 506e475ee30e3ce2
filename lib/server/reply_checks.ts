/**
 * Decides what is sent of a Reply, for every protocol: whether it can be sent at all, which headers, which body, and how its end is marked.
 */
import { Fault, messageOf } from "../base/errors.ts";
import type { Call } from "../http/exchange.ts";
import { grpcReply } from "../http/grpc.ts";
import { headerValue, withHeader, withoutHeader, type HeaderList } from "../http/headers.ts";
import { LentBody, ownBody } from "../http/lent_body.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import type { BodyFraming } from "./reply_text.ts";

/** The reply in the form that its client understands (gRPC), or a 500 or 502 instead of one that cannot be sent. */
export function sendableReply(call: Call, requestHeaders: HeaderList, given: Reply): Reply {
  const reply = grpcReply(call, requestHeaders, given);
  const instead = spoiltReply(call, reply);
  return instead === null ? reply : grpcReply(call, requestHeaders, instead);
}

/**
 * What to send instead of a reply whose body broke off, was read by a plugin or was sent already, or whose Content-Length is stated twice
 * or is no number. Null when the reply can be sent.
 */
export function spoiltReply(call: Call, reply: Reply): Reply | null {
  const { body, headers } = reply;
  if (Number.isNaN(statedLength(headers))) {
    discard(reply);
    return problem(call, "internal", { why: "the reply's Content-Length is stated twice or is no plain number" });
  }
  if (body === null || Buffer.isBuffer(body)) return null;
  // A plugin may give two clients the same reply: the bytes that the first got cannot be sent to the second.
  const isLent = body instanceof LentBody && body.isLent;
  if (!body.destroyed && !body.readableDidRead && !isLent) return null;
  if (isLent) return problem(call, "internal", { why: "the reply's body had been sent to another client" });
  if (body.readableEnded) return problem(call, "internal", { why: "the reply's body had been read to its end" });
  if (!body.destroyed) return problem(call, "internal", { why: "the reply's body had been read in part" });
  const cause = body.errored;
  return problem(call, cause instanceof Fault ? cause.code : "upstream_reset", { why: cause === null ? "the body broke off" : messageOf(cause) });
}

/** Whether the reply has a body on the wire (RFC 9110 §6.4.1, §15.3.6). */
export function hasContent(method: string | undefined, { status, body }: Reply): boolean {
  return body !== null && method !== "HEAD" && status !== 204 && status !== 205 && status !== 304;
}

/** What is sent of the body. A lent body stays one only where `mayLend`: its sender gives it back when it has left. */
export function bodyToSend(method: string, reply: Reply, mayLend: boolean): Reply["body"] {
  if (!hasContent(method, reply)) return null;
  return mayLend ? reply.body : ownBody(reply.body);
}

/** How the end of `body`, what is sent of the reply's, is marked in HTTP/1 (RFC 9112 §6.3). HEAD and 304 say how long it would be. */
export function framingOf({ method, httpVersion, upgrade }: RequestFraming, { status, headers, body: given }: Reply, body: Reply["body"]): BodyFraming {
  if (status === 204 || status === 101) return "none";
  if (status === 205) return 0;
  if (given === null) return method === "HEAD" || status === 304 ? "stated" : 0;
  if (Buffer.isBuffer(given) || given instanceof LentBody) return given.byteLength;
  if (body === null || statedLength(headers) !== Infinity) return "stated";
  return httpVersion === "1.0" || upgrade !== null ? "until close" : "chunked";
}

export interface RequestFraming {
  readonly method: string;
  readonly httpVersion: string;
  /** The connection of a request for an upgrade ends with any other reply. */
  readonly upgrade: string | null;
}

/** Bytes that Content-Length promises, Infinity where there is none, NaN where it is no plain number or stands there twice. */
export function statedLength(headers: HeaderList): number {
  let length = Infinity;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    if (name.length !== 14 || name.toLowerCase() !== "content-length") continue;
    const value = headers[i + 1]!;
    if (length !== Infinity || value.length > 15 || !DIGITS.test(value)) return NaN;
    length = Number(value);
  }
  return length;
}

const DIGITS = /^[0-9]+$/;

/** End-to-end headers of a reply with one request id, without a framing that a plugin has left in them. The caller may append to the list. */
export function replyHeaders({ headers, requestId }: Reply, callId: string): string[] {
  const kept: string[] = [];
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    if (name.length === 12 && name.toLowerCase() === "x-request-id") continue;
    if (name.length === 17 && name.toLowerCase() === "transfer-encoding") continue;
    kept.push(name, headers[i + 1]!);
  }
  kept.push("X-Request-Id", requestId ?? callId);
  return kept;
}

/**
 * A body at hand is as long as it is, whatever its headers say: bytes beyond a stated length would be read as the next reply. Where there
 * is no body, a client must not wait for one; HEAD and 304 say how long it would be.
 */
export function withLength(headers: string[], method: string | undefined, { status, body }: Reply): string[] {
  let length: string;
  if (status === 204) return withoutHeader(headers, "content-length") as string[];
  if (Buffer.isBuffer(body) || body instanceof LentBody) length = status === 205 ? "0" : String(body.byteLength);
  else if (status === 205 || (body === null && method !== "HEAD" && status !== 304)) length = "0";
  else return headers;
  const stated = headerValue(headers, "content-length");
  if (stated === length || (stated === undefined && body === null)) return headers;
  return withHeader(headers, "Content-Length", length) as string[];
}

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
