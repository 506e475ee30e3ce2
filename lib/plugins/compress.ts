/**
 * The plugin kind `compress`: encodes replies with zstd, Brotli or gzip, depending on Accept-Encoding (RFC 9110
 * §12.5.3, §8.4).
 *
 * Not encoded: replies with an encoding or a digest, `no-transform` of request or reply (RFC 9111 §5.2), partial
 * content, 204, 205, other media types, lengths below `min_bytes`, upgrades. An encoded reply loses Content-Length and
 * Accept-Ranges, and its ETag becomes weak (RFC 9110 §8.8.1); every reply that could be encoded gets Vary. Replies to
 * HEAD and 304 have the headers of the GET (§9.3.2, §15.4.5).
 */
import { array, integer, object, string, withDefault } from "../config/schema.ts";
import { DIGESTS, withWeakTag } from "../http/changed_content.ts";
import { acceptedCodings } from "../http/content_coding.ts";
import type { Exchange } from "../http/exchange.ts";
import {
  hasHeader,
  hasToken,
  headerValue,
  headerValues,
  nameSet,
  tokens,
  withoutHeader,
  withoutHeaders,
  type HeaderList,
} from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { CODINGS, compressBuffer, compressStream, MAX_SYNC_BYTES, type Coding } from "./compressed_body.ts";
import type { Plugin } from "./plugin.ts";

const DEFAULT_TYPES = [
  "text/*",
  "application/json",
  "application/javascript",
  "application/xml",
  "application/wasm",
  "application/x-ndjson",
  "+json",
  "+xml",
];

const schema = object(
  {
    min_bytes: withDefault(
      integer({
        min: 0,
        max: 1_073_741_824,
        describe: "Shorter replies are not encoded; replies of unknown length are.",
      }),
      1024,
    ),
    types: withDefault(
      array(
        string({
          pattern: /^(?:[a-z0-9!#$&^_.-]+\/(?:\*|[a-z0-9!#$&^_.+-]+)|\+[a-z0-9.-]+)$/,
          hint: 'a media type in lower case ("text/html"), all of one kind ("text/*"), or a suffix ("+json")',
        }),
        { min: 1, describe: "Media types that are encoded." },
      ),
      DEFAULT_TYPES,
    ),
  },
  { describe: "Compresses replies." },
);

export const compress: Plugin<typeof schema> = {
  name: "compress",
  schema,
  create({ minBytes, types }) {
    const isListed = typeMatcher(types);
    const answer = (exchange: Exchange, reply: Reply): Reply => {
      if (!mayEncode(reply, minBytes, isListed)) return reply;
      const varied = withVary(reply.headers);
      const coding = chosenCoding(acceptedCodings(exchange.headers));
      const encoded = coding === null ? null : encode(exchange, reply, varied, coding);
      return encoded ?? { ...reply, headers: varied };
    };
    return (next) => (exchange) => {
      const reply = next(exchange);
      if (exchange.upgrade !== null || forbids(exchange.headers)) return reply;
      return reply instanceof Promise ? reply.then((later) => answer(exchange, later)) : answer(exchange, reply);
    };
  },
};

/** Whether the reply would be encoded for some client. A 304 has the same Vary as the full reply. */
function mayEncode({ status, headers, body }: Reply, minBytes: number, isListed: (type: string) => boolean): boolean {
  if (status < 200 || status === 204 || status === 205 || status === 206) return false;
  const type = headerValue(headers, "content-type");
  if (type === undefined ? status !== 304 : !isListed(type)) return false;
  const coding = headerValue(headers, "content-encoding");
  if (coding !== undefined && coding.toLowerCase() !== "identity") return false;
  if (forbids(headers) || FIXED.some((name) => hasHeader(headers, name))) return false;
  if (Buffer.isBuffer(body)) return body.length >= minBytes;
  const length = headerValue(headers, "content-length");
  return length === undefined || Number(length) >= minBytes;
}

/** Headers that describe the exact bytes of the content: Content-Range (RFC 9110 §14.4) and digests. */
const FIXED = ["content-range", ...DIGESTS];

function forbids(headers: HeaderList): boolean {
  return (
    hasHeader(headers, "cache-control") &&
    headerValues(headers, "cache-control").some((value) => hasToken(value, "no-transform"))
  );
}

function withVary(headers: HeaderList): HeaderList {
  const names = tokens(headers, "vary");
  return names.includes("*") || names.includes("accept-encoding") ? headers : [...headers, "Vary", "Accept-Encoding"];
}

/** Null if the reply is not encoded. */
function encode(exchange: Exchange, reply: Reply, headers: HeaderList, coding: Coding): Reply | null {
  const { body } = reply;
  if (reply.status === 304) {
    // Its length would be that of the plain reply (RFC 9110 §8.6).
    const unsized = withoutHeader(headers, "content-length");
    return { ...reply, headers: isOfEncoded(exchange.headers, headers) ? withWeakTag(unsized) : unsized };
  }
  if (exchange.method === "HEAD" && !Buffer.isBuffer(body)) {
    // Without a length, the reply to GET may be too short to be encoded.
    return hasHeader(headers, "content-length") ? { ...reply, headers: encodedHeaders(headers, coding) } : null;
  }
  if (body === null) return null;
  if (Buffer.isBuffer(body)) {
    if (body.length > MAX_SYNC_BYTES)
      return { ...reply, headers: encodedHeaders(headers, coding), body: compressStream(body, coding) };
    const smaller = compressBuffer(body, coding);
    if (smaller.length >= body.length) return null;
    return {
      ...reply,
      headers: [...encodedHeaders(headers, coding), "Content-Length", String(smaller.length)],
      body: smaller,
    };
  }
  // Aborted or already read: the server reports it when it sends the reply.
  if (body.destroyed || body.readableEnded) return null;
  const flushes = !hasHeader(headers, "content-length");
  return { ...reply, headers: encodedHeaders(headers, coding), body: compressStream(body, coding, flushes) };
}

/** Whether a 304 confirms an encoded reply: a strong tag would identify other bytes. */
function isOfEncoded(asked: HeaderList, headers: HeaderList): boolean {
  const etag = headerValue(headers, "etag");
  return (
    etag?.startsWith('"') === true && headerValues(asked, "if-none-match").some((value) => value.includes(`W/${etag}`))
  );
}

function encodedHeaders(headers: HeaderList, coding: Coding): HeaderList {
  return [...withoutHeaders(withWeakTag(headers), OF_PLAIN_BODY), "Content-Encoding", coding];
}

const OF_PLAIN_BODY = nameSet(["content-length", "content-encoding", "accept-ranges"]);

function typeMatcher(types: readonly string[]): (contentType: string) => boolean {
  const exact = new Set(types);
  return (contentType) => {
    const semicolon = contentType.indexOf(";");
    const type = (semicolon < 0 ? contentType : contentType.slice(0, semicolon)).trim().toLowerCase();
    const plus = type.lastIndexOf("+");
    if (plus === 0) return false;
    return (
      exact.has(type) || exact.has(`${type.slice(0, type.indexOf("/"))}/*`) || (plus > 0 && exact.has(type.slice(plus)))
    );
  };
}

/**
 * The coding with the greatest weight in Accept-Encoding, the first supported among equals; null for none, or if
 * `identity` has a greater weight.
 */
export function chosenCoding(weights: ReadonlyMap<string, number>): Coding | null {
  let best: Coding | null = null;
  let most = 0;
  for (const coding of CODINGS) {
    const weight = weights.get(coding) ?? weights.get("*") ?? 0;
    if (weight > most) [best, most] = [coding, weight];
  }
  return (weights.get("identity") ?? 0) > most ? null : best;
}
