/**
 * The heads of messages as they are passed on: a request to the upstream, with X-Forwarded-*, Via, X-Request-Id and
 * traceparent; and a response and the trailers of either.
 */
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { FIELD_LINE, FIELD_VALUE, FORWARDING, HOP_BY_HOP, TOKEN_CHARACTERS } from "../base/http_grammar.ts";
import { CREDENTIAL_HEADERS } from "../base/secret_names.ts";
import { BODILESS } from "../http/body.ts";
import type { Exchange } from "../http/exchange.ts";
import {
  dashed,
  endToEnd,
  hasToken,
  headerValue,
  headerValues,
  withHeader,
  withoutHeader,
  withoutNamed,
  MAX_CONNECTION_OPTIONS,
  NameMap,
  nameSet,
  type HeaderList,
} from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";

export interface HeadOptions {
  /** Keep the client's Host instead of naming the upstream. */
  readonly preserveHost: boolean;
  /** Our name in Via (RFC 9110 §7.6.3). */
  readonly viaName: string;
}

export interface UpstreamRequestHead {
  readonly headers: HeaderList;
  /** Bytes of the body, 0 without one; Infinity if it is chunked. */
  readonly length: number;
  /**
   * The expected Sec-WebSocket-Accept if the gateway chose the key; null if the client chose it and checks the answer.
   */
  readonly accept: string | null;
}

/** Throws a `TypeError` if the body and the headers of the request do not fit. */
export function requestHead(
  exchange: Exchange,
  upstream: { readonly authority: string },
  options: HeadOptions,
): UpstreamRequestHead {
  const { call, upgrade } = exchange;
  const { span } = call.notes;
  const length = exchange.body === null ? 0 : bodyLength(exchange);
  // HTTP/2 opens a WebSocket without a key (RFC 8441 §5), HTTP/1.1 with one.
  const needsKey = upgrade !== null && exchange.httpVersion === "2.0";
  // Only a chunked body can be followed by trailers (RFC 9112 §7.1.2), so that only its head may announce some.
  let dropped = ALWAYS | TE | (length === Infinity ? 0 : TRAILER);
  if (needsKey) dropped |= KEY;
  if (span !== null) dropped |= TRACE;
  const headers: string[] = [
    "Host",
    options.preserveHost && exchange.authority !== "" ? exchange.authority : upstream.authority,
  ];
  let isStated = false;
  let takesTrailers = false;
  const received = withoutNamed(exchange.headers);
  for (let i = 0; i < received.length; i += 2) {
    const name = received[i]!;
    const value = received[i + 1]!;
    const kind = KINDS.get(name) ?? 0;
    if (kind === LENGTH) {
      // The length of a body that a plugin has removed is not sent.
      if (exchange.body === null && (value !== "0" || headerValues(received, "content-length").length > 1)) continue;
      isStated = true;
    }
    if ((kind & dropped) === 0) headers.push(name, kind === LENGTH ? String(length) : value);
    else if (kind === TE && hasToken(value, "trailers")) takesTrailers = true;
  }
  pushForwarded(headers, exchange);
  headers.push("X-Request-Id", call.id, "Via", `${exchange.httpVersion} ${options.viaName}`);
  // In lower case, the only form that some programs know (W3C Trace Context §3.2.1).
  if (span !== null) headers.push("traceparent", span.traceparent);
  if (span !== null && span.tracestate !== null) headers.push("tracestate", span.tracestate);
  let accept: string | null = null;
  if (upgrade !== null) {
    headers.push("Connection", "Upgrade", "Upgrade", upgrade);
    if (needsKey) {
      const key = randomBytes(16).toString("base64");
      headers.push("Sec-WebSocket-Key", key);
      accept = websocketAccept(key);
    }
  } else if (takesTrailers) headers.push("TE", "trailers", "Connection", "TE");
  if (length === Infinity) headers.push("Transfer-Encoding", "chunked");
  // An empty body is stated with every method that may have one (RFC 9110 §8.6).
  else if (!isStated && !BODILESS.has(exchange.method)) headers.push("Content-Length", "0");
  return { headers, length, accept };
}

/**
 * Every message to the upstream states its length, and a chunked body is chunked again (RFC 9112 §6). If a plugin left
 * two lengths, or the length of a body that it removed, the upstream would read the next request as the rest of this
 * one.
 */
function bodyLength({ body, headers }: Exchange): number {
  if (!(body instanceof Readable)) throw new TypeError("the body of the request is no stream of node:stream");
  const lengths = headerValues(headers, "content-length");
  if (lengths.length === 0) return Infinity;
  if (lengths.length > 1 || !/^\d{1,15}$/.test(lengths[0]!))
    throw new TypeError("the Content-Length of the request is no plain number");
  return Number(lengths[0]);
}

/** Kinds of headers that do not reach the upstream as they are; all but the first two only in some requests. */
const ALWAYS = 1;
const TE = 2;
const LENGTH = 4;
const KEY = 8;
/** If the gateway takes part in a trace, it alone knows the request's place in it. */
const TRACE = 16;
const TRAILER = 32;

const KINDS = new NameMap<number>([
  ...[...HOP_BY_HOP, "host", "x-request-id", ...FORWARDING].map((name) => [name, ALWAYS] as const),
  ["te", TE],
  ["content-length", LENGTH],
  ["sec-websocket-key", KEY],
  ["traceparent", TRACE],
  ["tracestate", TRACE],
  ["trailer", TRAILER],
]);

/**
 * States the origin of the request. If a trusted proxy has sent it, its own headers are continued: one more address in
 * the chain, its host, scheme and port, its prefix before ours. Any other client's forwarding headers are dropped.
 */
function pushForwarded(headers: string[], exchange: Exchange): void {
  const { call } = exchange;
  let chain = call.remoteAddress;
  let host = exchange.authority;
  let port: string | undefined;
  let prefix = consumedPrefix(exchange);
  if (call.trustedRemote) {
    const earlier = headerValues(exchange.headers, "x-forwarded-for");
    if (earlier.length > 0) chain = `${earlier.join(", ")}, ${chain}`;
    host = headerValue(exchange.headers, "x-forwarded-host") ?? host;
    port = headerValue(exchange.headers, "x-forwarded-port");
    prefix = (headerValue(exchange.headers, "x-forwarded-prefix") ?? "").replace(/\/$/, "") + prefix;
    for (const value of headerValues(exchange.headers, "forwarded")) headers.push("Forwarded", value);
    for (const value of headerValues(exchange.headers, "x-real-ip")) headers.push("X-Real-IP", value);
  }
  headers.push(
    "X-Forwarded-For",
    chain,
    "X-Forwarded-Proto",
    exchange.scheme,
    "X-Forwarded-Port",
    port ?? portOf(host, exchange.scheme),
  );
  if (host !== "") headers.push("X-Forwarded-Host", host);
  if (prefix !== "") headers.push("X-Forwarded-Prefix", prefix);
}

/** The part of the path that matched base_path: `/t/42` of `/t/42/orders` under base_path `/t/{tenant}`; "" for "/". */
function consumedPrefix(exchange: Exchange): string {
  const { basePath } = exchange.service;
  if (basePath === "/") return "";
  if (!basePath.includes("{") && !basePath.includes("<")) return basePath;
  let end = 0;
  for (let slash = 0; slash >= 0; slash = basePath.indexOf("/", slash + 1)) {
    end = exchange.path.indexOf("/", end + 1);
    if (end < 0) return exchange.path;
  }
  return exchange.path.slice(0, end);
}

function portOf(host: string, scheme: "http" | "https"): string {
  const colon = host.lastIndexOf(":");
  if (colon > host.lastIndexOf("]") && colon < host.length - 1) return host.slice(colon + 1);
  return scheme === "https" ? "443" : "80";
}

/**
 * Returns Sec-WebSocket-Accept for a Sec-WebSocket-Key: `dGhlIHNhbXBsZSBub25jZQ==` gives `s3pPLMBiTxaQ9kYGzzhZRbK+xOo=`
 * (RFC 6455 §4.2.2).
 */
export function websocketAccept(key: string): string {
  return createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
}

/**
 * The head as the text of HTTP/1.1, one byte a character (Latin-1). Throws a `TypeError` for a header that could be
 * read as more than one:
 * names, values and paths may come from plugins.
 */
export function headText(method: string, target: string, headers: HeaderList): string {
  const start = `${method} ${target} HTTP/1.1\r\n`;
  if (!START.test(start)) throw new TypeError("the method or the path of the request cannot be written");
  // As Node's client sends it: some servers of HTTP/1.0 keep a connection only then.
  const end = headerValue(headers, "connection") === undefined ? "Connection: keep-alive\r\n\r\n" : "\r\n";
  return start + fieldLines(headers) + end;
}

/** Headers or trailers, one line each. Throws a `TypeError` as `headText` does. */
export function fieldLines(list: HeaderList): string {
  let text = "";
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!;
    const value = list[i + 1]!;
    // The check of the whole text, which costs less than a check of each line, would read them as other lines and
    // names.
    if (name.includes(":") || value.includes("\n"))
      throw new TypeError("a header has a colon in its name, or a line break in its value");
    text += `${name}: ${value}\r\n`;
  }
  if (!FIELDS.test(text)) throw new TypeError("a header cannot be written");
  return text;
}

/** No character outside Latin-1, no control character other than the tab. */
const START = new RegExp(String.raw`^[${TOKEN_CHARACTERS}]+ [\x21-\x7e\x80-\xff]+ HTTP/1\.1\r\n$`);
const FIELDS = new RegExp(`^(?:${FIELD_LINE})*$`);

/** As Node's `IncomingMessage` calls it. */
export interface ResponseHead {
  readonly statusCode: number;
  /** Undefined over HTTP/2. */
  readonly statusMessage?: string | undefined;
  /** "1.0", "1.1" or "2.0", or another version that Node accepts. */
  readonly httpVersion: string;
  readonly rawHeaders: string[];
}

export const TOO_MANY_OPTIONS = `the upstream named more than ${MAX_CONNECTION_OPTIONS} options in Connection`;

/** An HTTP/1.1 response as a Reply with this body, unread. */
export function replyOf(
  method: string,
  response: ResponseHead,
  via: string,
  body: Readable | Buffer,
  trailers?: () => HeaderList,
): Reply {
  const { statusCode: status, statusMessage = "" } = response;
  const headers = receivedHeaders(response, via);
  const isEmpty = isBodiless(method, status) || headerValue(headers, "content-length") === "0";
  // Read to its end although it is empty: only then the connection is free.
  if (isEmpty && !Buffer.isBuffer(body)) body.resume();
  // Node reads phrases more leniently than it writes them (RFC 9112 §4).
  const reason = FIELD_VALUE.test(statusMessage) ? statusMessage : "";
  const sent = isEmpty ? null : body;
  return trailers === undefined
    ? { status, reason, headers, body: sent }
    : { status, reason, headers, body: sent, trailers };
}

/** A 205 has no body either (RFC 9110 §15.3.6): a client would wait for bytes that never come. */
export function isBodiless(method: string, status: number): boolean {
  return method === "HEAD" || status === 204 || status === 205 || status === 304;
}

/** End-to-end headers, with our Via. A 204 or 205 has no Content-Length (RFC 9110 §8.6). */
export function receivedHeaders({ statusCode, httpVersion, rawHeaders }: ResponseHead, viaName: string): HeaderList {
  let headers = endToEnd(rawHeaders);
  const length = headerValue(headers, "content-length");
  // `010` is eight to a reader of octal numbers.
  if (length !== undefined && LEADING_ZERO.test(length))
    headers = [...withHeader(headers, "Content-Length", String(Number(length)))];
  headers.push("Via", `${httpVersion} ${viaName}`);
  // What the client has to upgrade to (RFC 9110 §15.5.22).
  if (statusCode === 426) {
    const protocols = headerValues(rawHeaders, "upgrade");
    if (protocols.length > 0) headers.push("Upgrade", protocols.join(", "));
  }
  return statusCode === 204 || statusCode === 205 ? withoutHeader(headers, "content-length") : headers;
}

const LEADING_ZERO = /^0\d+$/;

/** The head of a 101 to the client. It cannot have a body, whatever the upstream says. */
export function switchHeaders(protocol: string, headers: HeaderList): HeaderList {
  return ["Connection", "Upgrade", "Upgrade", protocol, ...withoutHeader(headers, "content-length")];
}

/**
 * Drops fields that trailers must not contain (RFC 9110 §6.5.1): framing, routing, authentication and content fields. A
 * recipient that merges trailers into the headers would otherwise let a client overwrite headers that were checked.
 */
export function trailerFields(list: HeaderList): HeaderList {
  return list.filter((_text, i) => !NOT_IN_TRAILERS.has(list[i & ~1]!) && !/^x-forwarded-/i.test(list[i & ~1]!));
}

/**
 * The trailers of a request for its upstream: without fields that the head has as well, which a plugin may have checked
 * there, and without those that its plugins read, set or remove, whether the head had them this time or not. For an
 * upstream that merges the two, a client could otherwise replace what a plugin has checked.
 */
export function requestTrailers({ headers, trailers, route: { ownHeaders } }: Exchange): HeaderList {
  const given = trailerFields(trailers());
  if (ownHeaders === undefined || given.length === 0) return given;
  const taken = new Set(headers.flatMap((name, i) => (i % 2 === 0 ? dashed(name) : [])));
  return given.filter((_text, i) => {
    const name = dashed(given[i & ~1]!);
    return !taken.has(name) && !ownHeaders.has(name);
  });
}

const NOT_IN_TRAILERS = nameSet([
  ...HOP_BY_HOP,
  ...CREDENTIAL_HEADERS,
  ...["content-length", "content-encoding", "content-range", "content-type", "trailer"],
  ...["host", "via", "max-forwards", "forwarded", "x-real-ip", "x-request-id"],
  ...["authorization", "proxy-authenticate", "proxy-authorization", "cookie", "set-cookie"],
  ...["cache-control", "expect"],
]);
