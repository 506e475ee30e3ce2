/**
 * Reads from the headers of an HTTP/1 request where it ends, its host, and whether its connection persists (RFC 9112
 * §3.2, §6, §9), refuses requests that two parsers could read in two ways, and drops headers that could pose as the
 * gateway's own.
 */
import { isIPv6 } from "node:net";
import type { ErrorCode } from "../base/errors.ts";
import {
  connectionOptions,
  hasToken,
  isHopByHop,
  MAX_CONNECTION_OPTIONS,
  nameSet,
  plainConnection,
  sameName,
  trimmed,
  type HeaderList,
} from "../http/headers.ts";

export interface Refusal {
  readonly code: ErrorCode;
  readonly detail: string;
}

export interface Framing {
  readonly host: string | undefined;
  /** Bytes of the body; 0: there is none. */
  readonly bodyLength: number | "chunked";
  /** Whether the connection can have another request after this one, as far as the client says (RFC 9112 §9.3). */
  readonly isPersistent: boolean;
  /** What `Expect` asks for (RFC 9110 §10.1.1). */
  readonly expects: "nothing" | "continue" | "unknown";
  /** Whether the client asks for a WebSocket (RFC 6455 §4.1); other upgrades are ignored, as RFC 9110 §7.8 allows. */
  readonly upgrade: "websocket" | null;
  /** Whether there are headers to drop, see `isDropped`. */
  readonly dropsHeaders: boolean;
  /** Whether Connection may name headers to drop. */
  readonly namesHeaders: boolean;
  readonly refusal: Refusal | null;
}

/** As `global.underscore_headers` says; undefined is "drop". */
export type Underscores = "drop" | "allow" | undefined;

type Value = string | undefined;

/** One pass over the headers. */
export function readFraming(
  method: string,
  headers: HeaderList,
  httpVersion: string,
  underscores?: Underscores,
): Framing {
  let host: Value;
  let hosts = 0;
  let length: Value;
  let coding: Value;
  let connection: Value;
  let upgrade: Value;
  let expect: Value;
  let proxyCloses = false;
  let dropsHeaders = false;
  let namesHeaders = false;
  let options = 0;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    const value = headers[i + 1]!;
    if (!dropsHeaders && isDropped(name, underscores)) dropsHeaders = true;
    switch (KNOWN.get(name)) {
      case "host":
        host = value;
        hosts++;
        break;
      case "expect":
        expect = joined(expect, value);
        break;
      case "upgrade":
        upgrade = joined(upgrade, value);
        break;
      case "connection":
        connection = joined(connection, value);
        options += connectionOptions(value);
        if (!plainConnection(value)) namesHeaders = true;
        break;
      case "content-length":
        length = length === undefined ? value : TWO;
        break;
      case "proxy-connection":
        // Not a standard header (RFC 9112 §C.2.2); parsers that know it ignore all bytes after this request.
        if (hasToken(value, "close")) proxyCloses = true;
        break;
      case "transfer-encoding":
        coding = coding === undefined ? value : TWO;
    }
  }
  const isOld = httpVersion === "1.0";
  const isCrowded = options > MAX_CONNECTION_OPTIONS;
  const bodyLength = coding !== undefined ? "chunked" : length === undefined ? 0 : Number(length);
  const asks =
    upgrade !== undefined && !isOld && method === "GET" && lists(upgrade, "websocket") && lists(connection, "upgrade");
  const refusedMethod = method === "CONNECT" ? NO_TUNNEL : asks && bodyLength !== 0 ? UPGRADE_WITH_BODY : null;
  return {
    host,
    bodyLength,
    isPersistent: proxyCloses
      ? false
      : connection === undefined
        ? !isOld
        : !hasToken(connection, "close") && (!isOld || lists(connection, "keep-alive")),
    expects:
      expect === undefined || isOld ? "nothing" : expect.toLowerCase() === "100-continue" ? "continue" : "unknown",
    upgrade: asks ? "websocket" : null,
    dropsHeaders,
    namesHeaders: namesHeaders && !isCrowded,
    refusal: isCrowded ? CROWDED : (refuseFraming(host, hosts, length, coding, httpVersion) ?? refusedMethod),
  };
}

const KNOWN = nameSet([
  "host",
  "expect",
  "upgrade",
  "connection",
  "content-length",
  "proxy-connection",
  "transfer-encoding",
]);

/** Stands for more than one value; refused as a value, too. */
const TWO = "two values";

/**
 * Whether a list holds exactly this token between spaces. Some readers see an upgrade in `upgrade;a` or before a tab:
 * to go on then is not safe.
 */
function lists(value: Value, lowerToken: string): boolean {
  if (value === undefined || !hasToken(value, lowerToken)) return false;
  return value
    .toLowerCase()
    .split(",")
    .some((part) => trimmed(part, 0, part.length) === lowerToken && !part.includes("\t"));
}

function joined(value: Value, more: string): string {
  return value === undefined ? more : `${value},${more}`;
}

function refuseFraming(host: Value, hosts: number, length: Value, coding: Value, httpVersion: string): Refusal | null {
  // node's parser lets HTTP/0.9 and HTTP/2.0 pass.
  if (httpVersion !== "1.1" && httpVersion !== "1.0")
    return malformed("The protocol version is neither HTTP/1.1 nor HTTP/1.0.");
  if (hosts > 1) return malformed("The request has more than one Host header.");
  if (host === undefined && httpVersion !== "1.0") return malformed("The request has no Host header.");
  if (host !== undefined && !isHost(host))
    return malformed("The Host header is not a host name with an optional port.");
  if (length === TWO) return malformed("The request has more than one Content-Length header.");
  if (length !== undefined && !PLAIN_LENGTH.test(length)) return BAD_LENGTH;
  if (coding === undefined) return null;
  if (length !== undefined) return malformed("The request has both Content-Length and Transfer-Encoding.");
  if (httpVersion === "1.0") return malformed("An HTTP/1.0 request cannot have a Transfer-Encoding.");
  if (coding.toLowerCase() !== "chunked") return malformed("The only Transfer-Encoding accepted is chunked.");
  return null;
}

/** Digits that every parser reads as the same number: some read `0010` as eight, and 2^64 as no number. */
export const PLAIN_LENGTH = /^(?:0|[1-9]\d{0,14})$/;

export function malformed(detail: string): Refusal {
  return { code: "bad_request", detail };
}

export const BAD_LENGTH = malformed("The Content-Length is not a plain number below 10^15.");
/** CONNECT asks for a tunnel, which only a forward proxy gives (RFC 9110 §9.3.6). */
export const NO_TUNNEL = malformed("The gateway is no forward proxy: CONNECT is not served.");
/** The bytes after an upgrade are of the other protocol; two parsers may disagree whether a body comes first. */
export const UPGRADE_WITH_BODY = malformed("A request for a WebSocket cannot have a body.");
const CROWDED = malformed(`A request may name ${MAX_CONNECTION_OPTIONS} options in Connection.`);

export function tooManyLines(maxHeaders: number): Refusal {
  return { code: "headers_too_large", detail: `A request may have at most ${maxHeaders} header lines.` };
}

/**
 * Whether this is a host with an optional port up to 65535 (RFC 3986 §3.2.2, §3.2.3), or empty (RFC 9110 §7.2). RFC
 * 3986 also allows `!$&'()*+,;=`, which no name in DNS has: a list such as `evil.com,a.example.com` would match
 * `*.example.com`.
 */
export function isHost(host: string): boolean {
  if (!HOST.test(host)) return false;
  const nameEnd = host.charCodeAt(0) === BRACKET ? host.indexOf("]") + 1 : 0;
  const colon = host.indexOf(":", nameEnd);
  return (
    (colon < 0 || Number(host.slice(colon + 1)) <= 65_535) && (nameEnd === 0 || isIPv6(host.slice(1, nameEnd - 1)))
  );
}

const BRACKET = 0x5b;
/** Without "%": no host that is matched or forwarded to contains it. */
const HOST = /^(?:[A-Za-z0-9\-._~]*|\[[^\]]*\])(?::[0-9]*)?$/;

/**
 * Whether a header or trailer of a client is dropped on arrival, in every protocol: `Proxy`, which CGI programs take
 * for the setting HTTP_PROXY (CVE-2016-5385); `X-Client-Cert-…`, in which the gateway sends certificate data to
 * upstreams (`plugins/mtls.ts`); and names with "_", which CGI and many servers read as "-", so that `X_Forwarded_For`
 * poses as the gateway's. Where underscores are allowed, only names that do so.
 */
export function isDropped(name: string, underscores: Underscores): boolean {
  if (name.indexOf("_") < 0) return isForged(name);
  const read = name.replaceAll("_", "-");
  return underscores !== "allow" || isForged(read) || isHopByHop(read) || RESERVED.test(read);
}

/** The same list when nothing is dropped. */
export function withoutDropped(list: HeaderList, underscores: Underscores): HeaderList {
  const names = list.filter((_text, i) => i % 2 === 0);
  return names.some((name) => isDropped(name, underscores))
    ? list.filter((_text, i) => !isDropped(names[i >> 1]!, underscores))
    : list;
}

function isForged(name: string): boolean {
  if (name.length === 5) return sameName(name, "proxy");
  return (
    name.length > 13 && name.charCodeAt(13) === DASH && name.charCodeAt(8) === DASH && CERTIFICATE_HEADER.test(name)
  );
}

const DASH = 0x2d;
const CERTIFICATE_HEADER = /^x-client-cert-/i;
const RESERVED = /^(?:content-length|x-forwarded-.*|x-real-ip|x-request-id)$/i;
