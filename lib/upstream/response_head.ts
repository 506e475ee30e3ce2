/**
 * The head of a response as the client gets it, what makes one unfit to be passed on, and which trailers are passed on either way.
 */
import type { Readable } from "node:stream";
import {
  connectionOptions,
  endToEnd,
  headerValue,
  headerValues,
  isHopByHop,
  MOST_CONNECTION_OPTIONS,
  withoutHeader,
  type HeaderList,
} from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";

/** As Node's `IncomingMessage` calls it. */
export interface ResponseHead {
  readonly statusCode?: number | undefined;
  readonly statusMessage?: string | undefined;
  /** "1.0", "1.1" or "2.0", or what Node accepts. */
  readonly httpVersion: string;
  readonly rawHeaders: string[];
}

/** Why a response that Node could parse cannot be passed on; null if it can. */
export function invalidity(response: ResponseHead): string | null {
  const status = response.statusCode!;
  // Node's parser accepts any version it knows, `HTTP/2.0` in a status line among them.
  if (response.httpVersion !== "1.1" && response.httpVersion !== "1.0") return `the upstream answered with HTTP/${response.httpVersion}`;
  // `101` without Upgrade comes as an ordinary response.
  if (status < 200) return `the upstream answered with status ${status}`;
  if (connectionOptions(headerValues(response.rawHeaders, "connection").join()) > MOST_CONNECTION_OPTIONS) return TOO_MANY_OPTIONS;
  const codings = headerValues(response.rawHeaders, "transfer-encoding");
  if (codings.length === 0) return null;
  // The client would get the coded body without the name of its coding (RFC 9112 §6.1).
  if (codings.length > 1 || codings[0]!.toLowerCase() !== "chunked") return "the upstream used a transfer coding other than chunked";
  if (response.httpVersion === "1.0") return "the upstream used a transfer coding with HTTP/1.0";
  return null;
}

export const TOO_MANY_OPTIONS = `the upstream named more than ${MOST_CONNECTION_OPTIONS} options in Connection`;

/** An HTTP/1.1 response as a Reply with this body, unread. */
export function replyOf(method: string, response: ResponseHead, via: string, body: Readable | Buffer, trailers?: () => HeaderList): Reply {
  const status = response.statusCode!;
  const headers = replyHeaders(response, via);
  const isEmpty = isBodiless(method, status) || headerValue(headers, "content-length") === "0";
  // Read to its end although it is empty: only then the connection is free.
  if (isEmpty && !Buffer.isBuffer(body)) body.resume();
  const reason = PHRASE.test(response.statusMessage!) ? response.statusMessage! : "";
  const sent = isEmpty ? null : body;
  return trailers === undefined ? { status, reason, headers, body: sent } : { status, reason, headers, body: sent, trailers };
}

/** A 205 has no body either (RFC 9110 §15.3.6): a client would wait for bytes that never come. */
export function isBodiless(method: string, status: number): boolean {
  return method === "HEAD" || status === 204 || status === 205 || status === 304;
}

/** End-to-end headers, with our Via. A 204 or 205 has no Content-Length (RFC 9110 §8.6). */
export function replyHeaders({ statusCode, httpVersion, rawHeaders }: ResponseHead, viaName: string): HeaderList {
  const headers = endToEnd(rawHeaders);
  headers.push("Via", `${httpVersion} ${viaName}`);
  return statusCode === 204 || statusCode === 205 ? withoutHeader(headers, "content-length") : headers;
}

/** The head of a 101 to the client. It cannot have a body, whatever the upstream says. */
export function switchHeaders(protocol: string, headers: HeaderList): HeaderList {
  return ["Connection", "Upgrade", "Upgrade", protocol, ...withoutHeader(headers, "content-length")];
}

/** Those of a 100 are not passed on. The others have no body, so that nothing may state its length. */
export function informationHeaders(status: number, headers: HeaderList): HeaderList {
  return status === 100 ? [] : withoutHeader(endToEnd(headers), "content-length");
}

/** RFC 9112 §4; Node reads phrases more leniently than it writes them. */
const PHRASE = /^[\t\x20-\x7e\x80-\xff]*$/;

/**
 * Without what trailers must not state (RFC 9110 §6.5.1): framing, routing, the sender and the content of a message. If its recipient
 * merges trailers into the headers, a client could otherwise rewrite what was checked.
 */
export function trailerFields(list: HeaderList): HeaderList {
  const kept: string[] = [];
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!.toLowerCase();
    if (!isHopByHop(name) && !NOT_IN_TRAILERS.has(name) && !name.startsWith("x-forwarded-")) kept.push(list[i]!, list[i + 1]!);
  }
  return kept;
}

const NOT_IN_TRAILERS = new Set([
  "authorization",
  "cache-control",
  "content-encoding",
  "content-length",
  "content-range",
  "content-type",
  "cookie",
  "expect",
  "forwarded",
  "host",
  "max-forwards",
  "proxy-authenticate",
  "proxy-authorization",
  "set-cookie",
  "trailer",
  "via",
  "x-request-id",
]);
