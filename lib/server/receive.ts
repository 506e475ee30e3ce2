/**
 * Takes a request as node parsed it and makes what the gateway works with; refuses what could be read in two ways.
 * Which route it belongs to is decided after, in `gateway/serve.ts`.
 */
import { randomUUID } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { isIP, isIPv6 } from "node:net";
import type { Readable } from "node:stream";
import type { Clock } from "../base/clock.ts";
import type { ErrorCode } from "../base/errors.ts";
import { Call } from "../http/exchange.ts";
import { headerValue, tokens, type HeaderList } from "../http/headers.ts";

/** A request before it is matched. */
export interface Inbound {
  readonly call: Call;
  readonly method: string;
  /** The request target as sent. */
  readonly target: string;
  readonly httpVersion: string;
  readonly scheme: "http" | "https";
  /** Value of Host or `:authority`; "" when there is none. */
  readonly authority: string;
  readonly headers: HeaderList;
  readonly body: Readable | null;
  readonly trailers: () => HeaderList;
  readonly clientAddress: string;
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
}

export interface Connection {
  readonly remoteAddress: string | undefined;
  readonly encrypted: boolean;
}

/** Longest request target in bytes; beyond it 414. The whole head may have MAX_HEAD_BYTES, beyond it 431. */
export const MAX_TARGET_BYTES = 8 * 1024;
export const MAX_HEAD_BYTES = 32 * 1024;
/** Most header lines in one request; beyond it 431. */
export const MAX_HEADERS = 200;

/** An HTTP/1 request. `inform` sends an informational response on its connection. */
export function receive(
  request: IncomingMessage,
  upgrade: "websocket" | null,
  options: ReceiveOptions,
  inform: (status: number, headers: HeaderList) => void,
): Inbound {
  const headers = request.rawHeaders;
  const { httpVersion } = request;
  const framing = readFraming(headers, httpVersion);
  return {
    ...receiveParts(headers, connectionOf(request), framing.host ?? "", options, inform),
    method: request.method!,
    target: request.url!,
    httpVersion,
    headers,
    body: framing.hasBody && upgrade === null ? request : null,
    trailers: () => request.rawTrailers,
    upgrade,
    refusal: refuseVersion(httpVersion) ?? framing.refusal ?? refuseUpgrade(upgrade, framing.hasBody) ?? refuseSize(request.url!, headers),
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
  const scheme = connection.encrypted ? "https" : "http";
  const id = (trustedRemote && givenId(headers)) || randomUUID();
  return {
    call: new Call({ id, remoteAddress, trustedRemote, startedAt: options.clock.now(), inform }),
    scheme: trustedRemote ? givenScheme(headers, scheme) : scheme,
    authority,
    clientAddress: trustedRemote ? clientAddress(headers, remoteAddress, options.isTrusted) : remoteAddress,
  };
}

/** 414 and 431 for what node lets through. */
export function refuseSize(target: string, headers: HeaderList): Refusal | null {
  if (target.length > MAX_TARGET_BYTES) return { code: "uri_too_long", detail: `The request target may have ${MAX_TARGET_BYTES} bytes.` };
  if (headers.length > MAX_HEADERS * 2) return { code: "headers_too_large", detail: `A request may have ${MAX_HEADERS} header lines.` };
  return null;
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
  readonly refusal: Refusal | null;
}

/** One pass over the headers that say where the message ends and whom it is for (RFC 9112 §3.2, §6). */
function readFraming(headers: HeaderList, httpVersion: string): Framing {
  let host: string | undefined;
  let hosts = 0;
  let length: string | undefined;
  let coding: string | undefined;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    switch (name.length) {
      case 4:
        if (name.toLowerCase() === "host") {
          host = headers[i + 1]!;
          hosts++;
        }
        break;
      case 14:
        if (name.toLowerCase() === "content-length") length = length === undefined ? headers[i + 1]! : "two";
        break;
      case 17:
        if (name.toLowerCase() === "transfer-encoding") coding = coding === undefined ? headers[i + 1]! : "two";
        break;
    }
  }
  return {
    host,
    hasBody: coding !== undefined || (length !== undefined && length !== "0"),
    refusal: refuseFraming(host, hosts, length, coding, httpVersion),
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
  if (coding === undefined) return null;
  if (length !== undefined) return malformed("The request has both Content-Length and Transfer-Encoding.");
  if (httpVersion === "1.0") return malformed("An HTTP/1.0 request cannot have a Transfer-Encoding.");
  if (coding.toLowerCase() !== "chunked") return malformed("The only Transfer-Encoding accepted is chunked.");
  return null;
}

function malformed(detail: string): Refusal {
  return { code: "bad_request", detail };
}

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

function connectionOf(request: IncomingMessage): Connection {
  const { socket } = request;
  return { remoteAddress: socket.remoteAddress, encrypted: (socket as { encrypted?: boolean }).encrypted === true };
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

/** Whether a request asks for a WebSocket (RFC 6455 §4.1); other upgrades are ignored, as RFC 9110 §7.8 allows. */
export function isWebSocket(request: IncomingMessage): boolean {
  return (
    request.method === "GET" &&
    request.httpVersion === "1.1" &&
    tokens(request.rawHeaders, "upgrade").includes("websocket") &&
    tokens(request.rawHeaders, "connection").includes("upgrade")
  );
}
