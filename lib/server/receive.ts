/**
 * Takes a request as node parsed it and makes what the gateway works with; refuses what could be read in two ways.
 * Which route it belongs to is decided after, in `gateway/serve.ts`.
 */
import { randomUUID } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { isIP, isIPv6, type Socket } from "node:net";
import type { Readable } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../base/clock.ts";
import type { ErrorCode } from "../base/errors.ts";
import type { Arrival } from "../http/arrival.ts";
import { Call } from "../http/exchange.ts";
import { connectionOptions, headerValue, MOST_CONNECTION_OPTIONS, tokens, withoutNamed, type HeaderList } from "../http/headers.ts";
import { LimitedBody } from "../http/limited_body.ts";
import { noCertificate, tlsFactsOf, type CertificateReader } from "./client_certificate.ts";
import { isDropped, withoutDropped, type Underscores } from "./dropped_headers.ts";
import type { Limits } from "./limits.ts";

/** A request before it is matched. */
export interface Inbound extends Arrival {
  readonly body: Readable | null;
  readonly trailers: () => HeaderList;
  readonly upgrade: "websocket" | null;
  /** Why the request is refused without being looked at further, or null. */
  readonly refusal: Refusal | null;
}

export interface Refusal {
  readonly code: ErrorCode;
  readonly detail: string;
}

/** What the gateway believes and measures by; taken from the snapshot in force. */
export interface ReceiveOptions {
  readonly clock: Clock;
  readonly isTrusted: (address: string) => boolean;
  readonly limits: Limits;
  readonly underscores?: Underscores;
}

export interface Connection {
  readonly remoteAddress: string | undefined;
  readonly encrypted: boolean;
  readonly tlsVersion: string | null;
  readonly certificate: CertificateReader;
}

/** An HTTP/1 request. `inform` sends an informational response on its connection. */
export function receive(
  request: IncomingMessage,
  upgrade: "websocket" | null,
  options: ReceiveOptions,
  inform: (status: number, headers: HeaderList) => void,
): Inbound {
  const { httpVersion, rawHeaders } = request;
  const { limits, underscores } = options;
  const framing = readFraming(rawHeaders, httpVersion, underscores);
  const kept = framing.dropsHeaders ? withoutDropped(rawHeaders, underscores) : rawHeaders;
  const headers = framing.namesOptions ? withoutNamed(kept) : kept;
  const { call, scheme, authority, clientAddress } = receiveParts(headers, connectionOf(request.socket), framing.host ?? "", options, inform);
  // Written out: an object that is spread into another was 8 % of what a small request costs.
  return {
    call,
    scheme,
    authority,
    clientAddress,
    method: request.method!,
    target: request.url!,
    httpVersion,
    headers,
    body: framing.hasBody && upgrade === null ? boundBody(request, headers, limits) : null,
    trailers: () => withoutDropped(request.rawTrailers, underscores),
    upgrade,
    refusal:
      refuseVersion(httpVersion) ?? framing.refusal ?? refuseUpgrade(upgrade, framing.hasBody) ?? refuseSize(request.url!, rawHeaders, limits),
  };
}

/** What every protocol's request has: identity, and who it comes from. */
export function receiveParts(
  headers: HeaderList,
  connection: Connection,
  authority: string,
  options: ReceiveOptions,
  inform: (status: number, headers: HeaderList) => void,
): Pick<Inbound, "call" | "scheme" | "authority" | "clientAddress"> {
  const remoteAddress = plainAddress(connection.remoteAddress);
  const trustedRemote = options.isTrusted(remoteAddress);
  const { certificate, tlsVersion } = connection;
  const scheme = connection.encrypted ? "https" : "http";
  const id = (trustedRemote && givenId(headers)) || randomUUID();
  return {
    call: new Call({ id, remoteAddress, trustedRemote, startedAt: options.clock.now(), inform, certificate, tlsVersion }),
    scheme: trustedRemote ? givenScheme(headers, scheme) : scheme,
    authority,
    clientAddress: trustedRemote ? clientAddress(headers, remoteAddress, options.isTrusted) : remoteAddress,
  };
}

/** 414, 431 and 413 for what node lets through. */
export function refuseSize(target: string, headers: HeaderList, { maxUriBytes, maxHeaders, maxBodyBytes }: Limits): Refusal | null {
  if (target.length > maxUriBytes) return { code: "uri_too_long", detail: `The request target may have ${maxUriBytes} bytes.` };
  if (headers.length > maxHeaders * 2) return { code: "headers_too_large", detail: `A request may have ${maxHeaders} header lines.` };
  if (maxBodyBytes > 0 && Number(headerValue(headers, "content-length") ?? 0) > maxBodyBytes) {
    return { code: "body_too_large", detail: `The request body may have ${maxBodyBytes} bytes.` };
  }
  return null;
}

/** What `receive` refuses of headers for where they say that a message ends, and whom it is for; for a head of HTTP/1.1 without a connection. */
export function refuseFramingOf(headers: HeaderList): Refusal | null {
  return readFraming(headers, "1.1", "drop").refusal;
}

/** For an `Expect` other than 100-continue. */
export const UNKNOWN_EXPECTATION: Refusal = { code: "expectation_failed", detail: "The only expectation that can be met is 100-continue." };

/** A body that does not say how long it is, is measured as it comes; one that does cannot be longer than it says. */
export function boundBody(body: Readable, headers: HeaderList, { maxBodyBytes }: Limits): Readable {
  return maxBodyBytes === 0 || headerValue(headers, "content-length") !== undefined ? body : new LimitedBody(body, maxBodyBytes);
}

/** node's parser lets `HTTP/0.9` and `HTTP/2.0` pass in an HTTP/1 request line. */
function refuseVersion(httpVersion: string): Refusal | null {
  return httpVersion === "1.1" || httpVersion === "1.0" ? null : malformed("The protocol version is neither HTTP/1.1 nor HTTP/1.0.");
}

/** Behind an upgrade come the other protocol's bytes: whether a body comes first, two readers may see in two ways. */
function refuseUpgrade(upgrade: string | null, hasBody: boolean): Refusal | null {
  return upgrade !== null && hasBody ? malformed("A request for a WebSocket cannot have a body.") : null;
}

interface Framing {
  readonly host: string | undefined;
  readonly hasBody: boolean;
  /** Whether lines have to be dropped, see `dropped_headers.ts`. */
  readonly dropsHeaders: boolean;
  /** Whether Connection has options to look at. */
  readonly namesOptions: boolean;
  readonly refusal: Refusal | null;
}

/** One pass over the headers for those that say where the message ends, and whom it is for (RFC 9112 §3.2, §6), or that are dropped. */
function readFraming(headers: HeaderList, httpVersion: string, underscores: Underscores): Framing {
  let host: string | undefined;
  let hosts = 0;
  let length: string | undefined;
  let coding: string | undefined;
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
      case 10:
        if (name.toLowerCase() === "connection") options += connectionOptions(headers[i + 1]!);
        break;
      case 14:
        if (name.toLowerCase() === "content-length") length = length === undefined ? headers[i + 1]! : "two";
        break;
      case 17:
        if (name.toLowerCase() === "transfer-encoding") coding = coding === undefined ? headers[i + 1]! : "two";
    }
  }
  const isCrowded = options > MOST_CONNECTION_OPTIONS;
  return {
    host,
    dropsHeaders,
    namesOptions: options > 0 && !isCrowded,
    hasBody: coding !== undefined || (length !== undefined && length !== "0"),
    refusal: isCrowded ? CROWDED : refuseFraming(host, hosts, length, coding, httpVersion),
  };
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
  if (length === "two") return malformed("The request has more than one Content-Length header.");
  if (length !== undefined && !isPlainLength(length)) return malformed("The Content-Length is not a plain number below 10^15.");
  if (coding === undefined) return null;
  if (length !== undefined) return malformed("The request has both Content-Length and Transfer-Encoding.");
  if (httpVersion === "1.0") return malformed("An HTTP/1.0 request cannot have a Transfer-Encoding.");
  if (coding.toLowerCase() !== "chunked") return malformed("The only Transfer-Encoding accepted is chunked.");
  return null;
}

/** `0010` may be read as eight, and 2^64 as nothing at all. Node's parser has seen to it that there are only digits. */
function isPlainLength(length: string): boolean {
  return length.length <= 15 && (length.length === 1 || length.charCodeAt(0) !== 0x30);
}

function malformed(detail: string): Refusal {
  return { code: "bad_request", detail };
}

const CROWDED = malformed(`A request may name ${MOST_CONNECTION_OPTIONS} options in Connection.`);

/**
 * Whether this is a host with an optional port (RFC 3986 §3.2.2, §3.2.3): a name, or an IPv6 address in brackets, then perhaps ":" and
 * up to 65535. An empty one is allowed (RFC 9110 §7.2).
 */
export function isHost(host: string): boolean {
  let end = host.length;
  const colon = host.lastIndexOf(":");
  if (colon >= 0 && !host.endsWith("]")) {
    if (!isPort(host, colon + 1)) return false;
    end = colon;
  }
  if (host.charCodeAt(0) === 0x5b) return host.charCodeAt(end - 1) === 0x5d && isIPv6(host.slice(1, end - 1));
  for (let i = 0; i < end; i++) {
    const c = host.charCodeAt(i);
    const alphanumeric = (c >= 0x30 && c <= 0x39) || (c >= 0x41 && c <= 0x5a) || (c >= 0x61 && c <= 0x7a);
    if (!alphanumeric && !HOST_MARKS.includes(host[i]!)) return false;
  }
  return true;
}

/** "%" is not among them: nothing that we match or forward to is named with it. */
const HOST_MARKS = "-._~!$&'()*+,;=";

function isPort(text: string, start: number): boolean {
  let port = 0;
  for (let i = start; i < text.length; i++) {
    const digit = text.charCodeAt(i) - 0x30;
    if (digit < 0 || digit > 9) return false;
    port = port * 10 + digit;
    if (port > 65_535) return false;
  }
  return true;
}

export function connectionOf(socket: Socket): Connection {
  const { remoteAddress } = socket;
  if ((socket as { encrypted?: boolean }).encrypted !== true) return { remoteAddress, encrypted: false, certificate: noCertificate, tlsVersion: null };
  const { certificate, version } = tlsFactsOf(socket as TLSSocket);
  return { remoteAddress, encrypted: true, certificate, tlsVersion: version };
}

/** `::ffff:192.0.2.1`, as a dual-stack socket says it, is 192.0.2.1. "" when the socket is already gone. */
function plainAddress(address: string | undefined): string {
  if (address === undefined) return "";
  return address.startsWith("::ffff:") && address.includes(".") ? address.slice(7) : address;
}

/** The request id a trusted proxy gave, if it is fit for headers and logs. */
function givenId(headers: HeaderList): string | undefined {
  const id = headerValue(headers, "x-request-id");
  return id !== undefined && ID.test(id) ? id : undefined;
}

const ID = /^[\w.:/+=@-]{1,128}$/;

function givenScheme(headers: HeaderList, own: "http" | "https"): "http" | "https" {
  const given = headerValue(headers, "x-forwarded-proto")?.trim().toLowerCase();
  return given === "https" || given === "http" ? given : own;
}

/**
 * Walks X-Forwarded-For from the right, over trusted proxies, to the first address nobody vouches for. An entry that is no address
 * ends the walk: what stands left of it is hearsay.
 */
function clientAddress(headers: HeaderList, remoteAddress: string, isTrusted: (address: string) => boolean): string {
  let client = remoteAddress;
  for (let i = headers.length - 2; i >= 0; i -= 2) {
    if (headers[i]!.length !== 15 || headers[i]!.toLowerCase() !== "x-forwarded-for") continue;
    const hops = headers[i + 1]!.split(",");
    for (let hop = hops.length - 1; hop >= 0; hop--) {
      const address = plainAddress(hopAddress(hops[hop]!.trim()));
      if (isIP(address) === 0) return client;
      client = address;
      if (!isTrusted(address)) return client;
    }
  }
  return client;
}

/** `[2001:db8::1]:443` and `192.0.2.1:443` come from some proxies: the address without the port. */
function hopAddress(hop: string): string {
  if (hop.startsWith("[")) return hop.slice(1, Math.max(hop.indexOf("]"), 1));
  const colon = hop.indexOf(":");
  return colon > 0 && colon === hop.lastIndexOf(":") ? hop.slice(0, colon) : hop;
}

/** Whether there is a body, by what the headers say (RFC 9112 §6.3). */
export function hasBody({ rawHeaders, httpVersion }: IncomingMessage): boolean {
  return readFraming(rawHeaders, httpVersion, "allow").hasBody;
}

/** Whether a request asks for a WebSocket (RFC 6455 §4.1); other upgrades are ignored, as RFC 9110 §7.8 allows. */
export function isWebSocket(request: IncomingMessage): boolean {
  return (
    request.method === "GET" &&
    request.httpVersion === "1.1" &&
    tokens(request.rawHeaders, "upgrade").includes("websocket") &&
    tokens(request.rawHeaders, "connection").includes("upgrade")
  );
}
