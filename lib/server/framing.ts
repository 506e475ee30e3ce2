/**
 * Reads from the headers of an HTTP/1 request where it ends, its host, and whether its connection persists (RFC 9112 §3.2, §6, §9), and
 * refuses what two readers could understand in two ways.
 */
import { isIPv6 } from "node:net";
import type { ErrorCode } from "../base/errors.ts";
import { trimmed } from "../http/body_reader.ts";
import { connectionOptions, hasToken, MOST_CONNECTION_OPTIONS, type HeaderList } from "../http/headers.ts";
import { isDropped, type Underscores } from "./dropped_headers.ts";

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
  /** Whether lines have to be dropped, see `dropped_headers.ts`. */
  readonly dropsHeaders: boolean;
  /** Whether Connection has options to look at. */
  readonly namesOptions: boolean;
  readonly refusal: Refusal | null;
}

/** One pass over the headers; most names are known by their length. */
export function readFraming(method: string, headers: HeaderList, httpVersion: string, underscores?: Underscores): Framing {
  let host: string | undefined;
  let hosts = 0;
  let length: string | undefined;
  let coding: string | undefined;
  let connection: string | undefined;
  let upgrade: string | undefined;
  let expect: string | undefined;
  let proxyCloses = false;
  let dropsHeaders = false;
  let options = 0;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    if (!dropsHeaders && isDropped(name, underscores)) dropsHeaders = true;
    switch (name.length) {
      case 4:
        if (name.toLowerCase() === "host") {
          host = headers[i + 1]!;
          hosts++;
        }
        break;
      case 6:
        if (name.toLowerCase() === "expect") expect = joined(expect, headers[i + 1]!);
        break;
      case 7:
        if (name.toLowerCase() === "upgrade") upgrade = joined(upgrade, headers[i + 1]!);
        break;
      case 10:
        if (name.toLowerCase() === "connection") {
          connection = joined(connection, headers[i + 1]!);
          options += connectionOptions(headers[i + 1]!);
        }
        break;
      case 14:
        if (name.toLowerCase() === "content-length") length = length === undefined ? headers[i + 1]! : TWO;
        break;
      case 16:
        // Not of the standard (RFC 9112 §C.2.2); readers that know it take what comes behind for nothing.
        if (name.toLowerCase() === "proxy-connection" && hasToken(headers[i + 1]!, "close")) proxyCloses = true;
        break;
      case 17:
        if (name.toLowerCase() === "transfer-encoding") coding = coding === undefined ? headers[i + 1]! : TWO;
    }
  }
  const isOld = httpVersion === "1.0";
  const isCrowded = options > MOST_CONNECTION_OPTIONS;
  const bodyLength = coding !== undefined ? "chunked" : length === undefined ? 0 : Number(length);
  const asks = upgrade !== undefined && !isOld && method === "GET" && lists(upgrade, "websocket") && lists(connection, "upgrade");
  return {
    host,
    bodyLength,
    isPersistent: proxyCloses ? false : connection === undefined ? !isOld : !hasToken(connection, "close") && (!isOld || lists(connection, "keep-alive")),
    expects: expect === undefined || isOld ? "nothing" : expect.toLowerCase() === "100-continue" ? "continue" : "unknown",
    upgrade: asks ? "websocket" : null,
    dropsHeaders,
    namesOptions: options > 0 && !isCrowded,
    refusal: isCrowded ? CROWDED : (refuseFraming(host, hosts, length, coding, httpVersion) ?? refuseMethod(method, asks && bodyLength !== 0)),
  };
}

/** Stands for more than one value; refused as a value, too. */
const TWO = "two values";

/**
 * Whether a list holds exactly this token with nothing but spaces around it. Some readers see an upgrade in `upgrade;a` or before a tab, others
 * do not. To close a connection in such a case is safe, to go on is not.
 */
function lists(value: string | undefined, lowerToken: string): boolean {
  if (value === undefined || !hasToken(value, lowerToken)) return false;
  return value.toLowerCase().split(",").some((part) => trimmed(part, 0, part.length) === lowerToken && !part.includes("\t"));
}

function joined(value: string | undefined, more: string): string {
  return value === undefined ? more : `${value},${more}`;
}

function refuseMethod(method: string, isUpgradeWithBody: boolean): Refusal | null {
  // CONNECT asks for a tunnel, which only a forward proxy gives (RFC 9110 §9.3.6).
  if (method === "CONNECT") return malformed("The gateway is no forward proxy: CONNECT is not served.");
  // Behind an upgrade come the other protocol's bytes: whether a body comes first, two readers may see in two ways.
  return isUpgradeWithBody ? malformed("A request for a WebSocket cannot have a body.") : null;
}

function refuseFraming(
  host: string | undefined,
  hosts: number,
  length: string | undefined,
  coding: string | undefined,
  httpVersion: string,
): Refusal | null {
  if (hosts > 1) return malformed("The request has more than one Host header.");
  if (host === undefined && httpVersion !== "1.0") return malformed("The request has no Host header.");
  if (host !== undefined && !isHost(host)) return malformed("The Host header is not a host name with an optional port.");
  if (length === TWO) return malformed("The request has more than one Content-Length header.");
  if (length !== undefined && !PLAIN_LENGTH.test(length)) return malformed("The Content-Length is not a plain number below 10^15.");
  if (coding === undefined) return null;
  if (length !== undefined) return malformed("The request has both Content-Length and Transfer-Encoding.");
  if (httpVersion === "1.0") return malformed("An HTTP/1.0 request cannot have a Transfer-Encoding.");
  if (coding.toLowerCase() !== "chunked") return malformed("The only Transfer-Encoding accepted is chunked.");
  return null;
}

/** Digits that every reader takes for the same number: `0010` may be read as eight, and 2^64 as nothing at all. */
const PLAIN_LENGTH = /^(?:0|[1-9]\d{0,14})$/;

export function malformed(detail: string): Refusal {
  return { code: "bad_request", detail };
}

const CROWDED = malformed(`A request may name ${MOST_CONNECTION_OPTIONS} options in Connection.`);

export function tooManyLines(maxHeaders: number): Refusal {
  return { code: "headers_too_large", detail: `A request may have ${maxHeaders} header lines.` };
}

/**
 * Whether this is a host with an optional port (RFC 3986 §3.2.2, §3.2.3): a name, or an IPv6 address in brackets, then perhaps ":" and
 * up to 65535. An empty one is allowed (RFC 9110 §7.2).
 */
export function isHost(host: string): boolean {
  if (!HOST.test(host)) return false;
  const nameEnd = host.lastIndexOf("]") + 1;
  const colon = host.indexOf(":", nameEnd);
  return (colon < 0 || Number(host.slice(colon + 1)) <= 65_535) && (nameEnd === 0 || isIPv6(host.slice(1, nameEnd - 1)));
}

/** Without "%": nothing that we match or forward to is named with it. */
const HOST = /^(?:[A-Za-z0-9\-._~!$&'()*+,;=]*|\[[^\]]*\])(?::[0-9]*)?$/;
