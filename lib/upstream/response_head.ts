/**
 * The head of a response as the client gets it, and what makes one unfit to be passed on. Receiving it is `forward.ts` and
 * `forward_wire.ts`.
 */
import type { Readable } from "node:stream";
import type { Exchange } from "../http/exchange.ts";
import { connectionOptions, endToEnd, headerValue, headerValues, MOST_CONNECTION_OPTIONS, withoutHeader, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";


/** As node's `IncomingMessage` calls it. */
export interface ResponseHead {
  readonly statusCode?: number | undefined;
  readonly statusMessage?: string | undefined;
  /** "1.0" or "1.1", or what node lets pass. */
  readonly httpVersion: string;
  readonly rawHeaders: string[];
}

/** Why the response cannot be passed on although node could parse it; null when it can. */
export function invalidity(response: ResponseHead): string | null {
  const status = response.statusCode!;
  // node's parser takes any version it knows, `HTTP/2.0` in a status line among them.
  if (response.httpVersion !== "1.1" && response.httpVersion !== "1.0") return `the upstream answered with HTTP/${response.httpVersion}`;
  // `101` without Upgrade comes as an ordinary response; nobody asked for it.
  if (status < 200) return `the upstream answered with status ${status}`;
  if (connectionOptions(headerValues(response.rawHeaders, "connection").join()) > MOST_CONNECTION_OPTIONS) return CROWDED;
  const codings = headerValues(response.rawHeaders, "transfer-encoding");
  if (codings.length === 0) return null;
  // Passed on without the name of its coding, the body would be taken for what it is not (RFC 9112 §6.1).
  if (codings.length > 1 || codings[0]!.toLowerCase() !== "chunked") return "the upstream used a transfer coding other than chunked";
  if (response.httpVersion === "1.0") return "the upstream used a transfer coding with HTTP/1.0";
  return null;
}

export const CROWDED = `the upstream named more than ${MOST_CONNECTION_OPTIONS} options in Connection`;

/** The response as a Reply with this body, unread. */
export function replyOf(exchange: Exchange, response: ResponseHead, viaName: string, body: Readable | Buffer, trailers?: () => HeaderList): Reply {
  const status = response.statusCode!;
  const all = replyHeaders(response, viaName);
  // A 204 has no length and a 205 no body (RFC 9110 §8.6, §15.3.6): a client that believes in one waits for bytes that never come.
  const headers = status === 204 || status === 205 ? withoutHeader(all, "content-length") : all;
  const empty = exchange.method === "HEAD" || status === 204 || status === 205 || status === 304 || headerValue(headers, "content-length") === "0";
  // Read to its end although it has none: the connection is free only then.
  if (empty && !Buffer.isBuffer(body)) body.resume();
  const reason = PHRASE.test(response.statusMessage!) ? response.statusMessage! : "";
  const sent = empty ? null : body;
  return trailers === undefined ? { status, reason, headers, body: sent } : { status, reason, headers, body: sent, trailers };
}

/** End-to-end headers, with our Via. */
export function replyHeaders(response: ResponseHead, viaName: string): string[] {
  const headers = endToEnd(response.rawHeaders);
  headers.push("Via", `${response.httpVersion} ${viaName}`);
  return headers;
}

/** The head of a 101: the switch concerns the client's connection too, and says so. A body it cannot have, whatever the upstream says. */
export function switchHeaders(protocol: string, headers: HeaderList): HeaderList {
  return ["Connection", "Upgrade", "Upgrade", protocol, ...withoutHeader(headers, "content-length")];
}

/** A 100 has none worth passing on; others have no body, so nothing may say how long it is. */
export function informationHeaders(status: number, headers: HeaderList): HeaderList {
  return status === 100 ? [] : withoutHeader(endToEnd(headers), "content-length");
}

/** RFC 9112 §4; node reads phrases more loosely than it writes them. */
const PHRASE = /^[\t\x20-\x7e\x80-\xff]*$/;
