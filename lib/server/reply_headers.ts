/**
 * Headers and body of a reply as they are given to Node, which writes those of HTTP/2, and of HTTP/1 by its own codec.
 */
import { headerValue, nameSet, withHeader, withoutHeader, withoutHeaders, type HeaderList } from "../http/headers.ts";
import { LentBody } from "../http/lent_body.ts";
import type { Reply } from "../http/reply.ts";

/**
 * End-to-end headers of a reply with one request id, without a framing that a plugin has left in them. The caller may
 * append to the list.
 */
export function replyHeaders({ headers, requestId }: Reply, callId: string): string[] {
  const kept = withoutHeaders(headers, REPLACED);
  kept.push("X-Request-Id", requestId ?? callId);
  return kept;
}

/** The body for a sender that keeps it: bytes of its own instead of memory that is used again. */
export function ownBody(body: Reply["body"]): Reply["body"] {
  const lent = body instanceof LentBody ? body.lend() : null;
  if (lent === null) return body;
  const own = Buffer.from(lent);
  (body as LentBody).giveBack();
  return own;
}

const REPLACED = nameSet(["x-request-id", "transfer-encoding"]);

/** `[["Name", "value"], …]`, as node wants trailers. */
export function pairs(list: HeaderList): [string, string][] {
  const result: [string, string][] = [];
  for (let i = 0; i < list.length; i += 2) result.push([list[i]!, list[i + 1]!]);
  return result;
}

/**
 * A body in memory has a known length, whatever its headers say: bytes beyond a stated length would be read as the next
 * reply. Where there is no body, a client must not wait for one; HEAD and 304 say how long it would be.
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
