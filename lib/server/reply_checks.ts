/**
 * What every sender of replies asks of a Reply before it sends it, whatever the protocol: whether it can be sent, what its headers say,
 * whether it has a body, how long that has to be, and its trailers.
 */
import { Fault, messageOf } from "../base/errors.ts";
import type { Call } from "../http/exchange.ts";
import { headerValue, withHeader, withoutHeader, type HeaderList } from "../http/headers.ts";
import { LentBody } from "../http/lent_body.ts";
import { problem, type Reply } from "../http/reply.ts";

/**
 * What to send instead of a reply that cannot be sent: whose body broke off, was read by a plugin, or sent already, before anything was
 * sent, or whose Content-Length is stated twice or is no number. Null when the reply can be sent.
 */
export function spoiltReply(call: Call, { body, headers }: Reply): Reply | null {
  if (Number.isNaN(statedLength(headers))) return problem(call, "internal", { why: "the reply's Content-Length is stated twice or is no plain number" });
  if (body === null || Buffer.isBuffer(body)) return null;
  // A plugin may give two clients the same reply: a second one has nothing to be sent of what the first was.
  const isTaken = body instanceof LentBody && body.isTaken;
  if (!body.destroyed && !body.readableDidRead && !isTaken) return null;
  if (isTaken) return problem(call, "internal", { why: "the reply's body had been sent to another client" });
  if (body.readableEnded) return problem(call, "internal", { why: "the reply's body had been read to its end" });
  if (!body.destroyed) return problem(call, "internal", { why: "the reply's body had been read in part" });
  const cause = body.errored;
  return problem(call, cause instanceof Fault ? cause.code : "upstream_reset", { why: cause === null ? "the body broke off" : messageOf(cause) });
}

/** Whether the reply has a body on the wire (RFC 9110 §6.4.1, §15.3.6). */
export function hasContent(method: string | undefined, { status, body }: Reply): boolean {
  return body !== null && method !== "HEAD" && status !== 204 && status !== 205 && status !== 304;
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

/** Trailers that cannot be had are left out: the body is whole without them. */
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
