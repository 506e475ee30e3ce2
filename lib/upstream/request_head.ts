/**
 * The head of the request as the upstream gets it: what concerns the client's connection goes, what tells of the way here comes
 * (SPEC: hop-by-hop, X-Forwarded-*, Via, X-Request-Id, and traceparent where the gateway has a part in traces). Sending it is `forward.ts`.
 */
import { Readable } from "node:stream";
import type { Exchange } from "../http/exchange.ts";
import { endToEnd, hasToken, headerValue, headerValues, withoutHeader, type HeaderList } from "../http/headers.ts";
import type { Destination } from "./destination.ts";
import { websocketAccept, websocketKey } from "./websocket.ts";

export interface HeadOptions {
  /** Keep the client's Host instead of naming the upstream. */
  readonly preserveHost: boolean;
  /** Our name in Via (RFC 9110 §7.6.3). */
  readonly viaName: string;
}

export interface RequestHead {
  readonly headers: HeaderList;
  /** How the body is delimited: not there, by the Content-Length that stands in the headers, or chunked. */
  readonly framing: "none" | "length" | "chunked";
  /** What the upstream has to answer in Sec-WebSocket-Accept where the key is ours; null where it is the client's, who looks for himself. */
  readonly accept: string | null;
}

export function requestHead(exchange: Exchange, peer: Destination<unknown>, options: HeadOptions): RequestHead {
  const { call } = exchange;
  const headers: string[] = ["Host", options.preserveHost && exchange.authority !== "" ? exchange.authority : peer.authority];
  const received = endToEnd(exchange.headers);
  // HTTP/2 opens a WebSocket without a key (RFC 8441 §5), HTTP/1.1 with one.
  const ownKey = exchange.upgrade !== null && exchange.httpVersion === "2.0";
  const { span } = call.notes;
  for (let i = 0; i < received.length; i += 2) {
    const name = received[i]!;
    if (!isReplaced(name) && !(ownKey && isKey(name)) && !(span !== null && isTrace(name))) headers.push(name, received[i + 1]!);
  }
  pushForwarded(headers, exchange);
  headers.push("X-Request-Id", call.id, "Via", `${exchange.httpVersion} ${options.viaName}`);
  // In lower case, as there are readers that know no other (W3C Trace Context §3.2.1).
  if (span !== null) headers.push("traceparent", span.traceparent);
  if (span !== null && span.tracestate !== null) headers.push("tracestate", span.tracestate);
  let accept: string | null = null;
  if (exchange.upgrade !== null) {
    headers.push("Connection", "Upgrade", "Upgrade", exchange.upgrade);
    if (ownKey) {
      const key = websocketKey();
      headers.push("Sec-WebSocket-Key", key);
      accept = websocketAccept(key);
    }
  } else if (headerValues(exchange.headers, "te").some((value) => hasToken(value, "trailers"))) {
    headers.push("TE", "trailers", "Connection", "TE");
  }
  const framing = frame(exchange, headers);
  // Only a chunked body can be followed by trailers (RFC 9112 §7.1.2): the promise of some goes where they cannot come.
  return { headers: framing === "chunked" ? headers : withoutHeader(headers, "trailer"), framing, accept };
}

function isKey(name: string): boolean {
  return name.length === 17 && name.toLowerCase() === "sec-websocket-key";
}

/** What says where a request stands in a trace: only the gateway knows, where it is a part of it. */
function isTrace(name: string): boolean {
  return (name.length === 11 && name.toLowerCase() === "traceparent") || (name.length === 10 && name.toLowerCase() === "tracestate");
}

/** What the gateway says itself, whatever the client said. Via is kept and continued. */
function isReplaced(name: string): boolean {
  switch (name.length) {
    case 4:
      return name.toLowerCase() === "host";
    case 9:
      return name.toLowerCase() === "forwarded" || name.toLowerCase() === "x-real-ip";
    case 12:
      return name.toLowerCase() === "x-request-id";
    case 15:
    case 16:
    case 17:
    case 18:
    case 22:
      return FORWARDED.has(name.toLowerCase());
    default:
      return false;
  }
}

const FORWARDED = new Set([
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-port",
  "x-forwarded-proto",
  "x-forwarded-prefix",
  "x-forwarded-scheme",
  "x-forwarded-server",
  "x-forwarded-ssl",
]);

/**
 * Says where the request came from. A trusted proxy's own words are continued: its chain of addresses gets one more, what it says
 * of host, scheme and port stays, its prefix comes before ours. Anybody else's are dropped.
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
    prefix = joinPrefixes(headerValue(exchange.headers, "x-forwarded-prefix"), prefix);
    for (const value of headerValues(exchange.headers, "forwarded")) headers.push("Forwarded", value);
    for (const value of headerValues(exchange.headers, "x-real-ip")) headers.push("X-Real-IP", value);
  }
  headers.push("X-Forwarded-For", chain, "X-Forwarded-Proto", exchange.scheme, "X-Forwarded-Port", port ?? portOf(host, exchange.scheme));
  if (host !== "") headers.push("X-Forwarded-Host", host);
  if (prefix !== "") headers.push("X-Forwarded-Prefix", prefix);
}

/** The part of the path that stands for base_path: `/t/42` of `/t/42/orders` under base_path `/t/{tenant}`; "" for "/". */
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

function joinPrefixes(outer: string | undefined, own: string): string {
  if (outer === undefined || outer === "/") return own;
  return (outer.endsWith("/") ? outer.slice(0, -1) : outer) + own;
}

function portOf(host: string, scheme: "http" | "https"): string {
  const colon = host.lastIndexOf(":");
  if (colon > host.lastIndexOf("]") && colon < host.length - 1) return host.slice(colon + 1);
  return scheme === "https" ? "443" : "80";
}

/**
 * Every message to the upstream says itself how long it is; what was chunked is chunked anew (RFC 9112 §6). What a plugin has left in the
 * headers about a body it took away, or said of one in two ways, would have the upstream take the next request for the rest of this one.
 */
function frame(exchange: Exchange, headers: string[]): RequestHead["framing"] {
  let length = headerValue(headers, "content-length");
  if (exchange.body === null) {
    if (length !== undefined && (length !== "0" || headerValues(headers, "content-length").length > 1)) {
      headers.splice(0, headers.length, ...withoutHeader(headers, "content-length"));
      length = undefined;
    }
    if (length === undefined && expectsBody(exchange.method)) headers.push("Content-Length", "0");
    return "none";
  }
  if (!(exchange.body instanceof Readable)) throw new TypeError("the body of the request is no stream of node:stream");
  if (length !== undefined) {
    if (!LENGTH.test(length) || headerValues(headers, "content-length").length > 1) throw new TypeError("the Content-Length of the request is no plain number");
    return "length";
  }
  headers.push("Transfer-Encoding", "chunked");
  return "chunked";
}

const LENGTH = /^\d+$/;

/**
 * Methods whose empty body is said with `Content-Length: 0` (RFC 9110 §8.6): all that may have one. Without it node would send an
 * empty chunked body for those it does not know.
 */
function expectsBody(method: string): boolean {
  return !BODILESS.has(method);
}

const BODILESS = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"]);
