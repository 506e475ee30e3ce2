/**
 * Makes the gateway's own view of a request from its head: who sent it, by which scheme, and why it is refused before it is matched.
 */
import { randomUUID } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { isIP, type Socket } from "node:net";
import type { Readable } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../base/clock.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import { limitedBody } from "../http/body.ts";
import { NO_TRAILERS } from "../http/body_reader.ts";
import { Call } from "../http/exchange.ts";
import { headerValue, sameName, withoutForwarding, withoutNamed, type HeaderList } from "../http/headers.ts";
import { noCertificate, tlsFactsOf, type CertificateReader } from "./client_certificate.ts";
import { readFraming, tooManyLines, withoutDropped, type Framing, type Refusal, type Underscores } from "./framing.ts";
import type { Limits } from "./limits.ts";

/** A request before it is matched. */
export interface Inbound extends RequestFacts {
  readonly body: Readable | null;
  readonly trailers: () => HeaderList;
  readonly upgrade: "websocket" | null;
  /** Why the request is refused without being looked at further, or null. */
  readonly refusal: Refusal | null;
}

/** The rules of the configuration in force. */
export interface ReceiveOptions {
  readonly clock: Clock;
  /** Whether an address belongs to a trusted proxy; null: there are none. */
  readonly isTrusted: ((address: string) => boolean) | null;
  readonly limits: Limits;
  readonly underscores?: Underscores;
}

/** The facts about a client connection, shared by all of its requests. */
export interface ConnectionFacts {
  readonly remoteAddress: string | undefined;
  readonly encrypted: boolean;
  readonly tlsVersion: string | null;
  readonly certificate: CertificateReader;
}

/** The head of an HTTP/1 request, whichever codec has read it. */
export interface RequestHead {
  readonly method: string;
  /** The request target as it was sent. */
  readonly target: string;
  readonly httpVersion: string;
  readonly headers: HeaderList;
  readonly framing: Framing;
}

/** Sends an informational response (RFC 9110 §15.2) on the request's connection. */
export type Inform = (status: number, headers: HeaderList) => void;

/** An HTTP/1 request that node's parser has read. */
export function receive(request: IncomingMessage, options: ReceiveOptions, inform: Inform): Inbound {
  const { httpVersion, rawHeaders } = request;
  const method = request.method!;
  const read = readFraming(method, rawHeaders, httpVersion, options.underscores);
  const hasBody = read.bodyLength !== 0 && read.upgrade === null;
  const framing = hasBody && request.readableDidRead ? { ...read, refusal: BODY_READ } : read;
  const body = hasBody ? boundBody(request, rawHeaders, options.limits) : null;
  const head: RequestHead = { method, target: targetOf(request), httpVersion, headers: rawHeaders, framing };
  return receiveHead(head, connectionOf(request.socket), body, body === null ? null : () => request.rawTrailers, options, inform);
}

/**
 * The target as the client sent it: a framework cuts the prefix off `url` where it mounts a handler, and keeps the whole in `originalUrl`
 * (Express, Connect, Polka). A host that rewrites `url` gets what it wrote: `url` is no longer the end of `originalUrl` then.
 */
export function targetOf({ url = "", originalUrl }: IncomingMessage & { readonly originalUrl?: unknown }): string {
  // `/gw?x` under `/gw` is `/?x`: the slash is the framework's.
  return typeof originalUrl === "string" && originalUrl.endsWith(url.slice(1)) ? originalUrl : url;
}

/** The host's mistake, said to its author, who sees it first. */
const BODY_READ: Refusal = {
  code: "bad_request",
  detail: "The program around the gateway has read the request body before the gateway: a body parser must come after it, or leave its paths alone.",
};

/** An HTTP/1 request, whichever codec has read it. `trailers` is called when the body has ended; null: there are none. */
export function receiveHead(
  head: RequestHead,
  connection: ConnectionFacts,
  body: Readable | null,
  trailers: (() => HeaderList) | null,
  options: ReceiveOptions,
  inform: Inform,
): Inbound {
  const { method, target, httpVersion, framing } = head;
  const { underscores } = options;
  const kept = framing.dropsHeaders ? withoutDropped(head.headers, underscores) : head.headers;
  const all = framing.namesHeaders ? withoutNamed(kept) : kept;
  const { call, scheme, clientAddress, headers } = receiveParts(all, connection, options, inform);
  // Written out: spreading one object into another was 8 % of the cost of a small request.
  return {
    call,
    scheme,
    authority: framing.host ?? "",
    clientAddress,
    method,
    target,
    httpVersion,
    headers,
    body,
    trailers: trailers === null ? noTrailers : () => withoutDropped(trailers(), underscores),
    upgrade: framing.upgrade,
    refusal: framing.refusal ?? refuseSize(target, head.headers, options.limits) ?? (framing.expects === "unknown" ? UNKNOWN_EXPECTATION : null),
  };
}

function noTrailers(): HeaderList {
  return NO_TRAILERS;
}

type Parts = Pick<Inbound, "call" | "scheme" | "clientAddress" | "headers">;

/** The properties of requests in all protocols: an id, the client, and the headers without those that only a trusted proxy may send. */
export function receiveParts(headers: HeaderList, connection: ConnectionFacts, options: ReceiveOptions, inform: Inform): Parts {
  const remoteAddress = plainAddress(connection.remoteAddress);
  const { isTrusted } = options;
  const trustedRemote = isTrusted !== null && isTrusted(remoteAddress);
  const { certificate, tlsVersion } = connection;
  const scheme = connection.encrypted ? "https" : "http";
  const id = (trustedRemote && givenId(headers)) || randomUUID();
  return {
    call: new Call({ id, remoteAddress, trustedRemote, startedAt: options.clock.now(), inform, certificate, tlsVersion }),
    scheme: trustedRemote ? givenScheme(headers, scheme) : scheme,
    clientAddress: trustedRemote ? clientAddress(headers, remoteAddress, isTrusted) : remoteAddress,
    headers: trustedRemote ? headers : withoutForwarding(headers),
  };
}

/** 414, 431 or 413 for a head that is larger than the limits allow. */
export function refuseSize(target: string, headers: HeaderList, { maxUriBytes, maxHeaders, maxBodyBytes }: Limits): Refusal | null {
  if (target.length > maxUriBytes) return { code: "uri_too_long", detail: `The request target may have at most ${maxUriBytes} bytes.` };
  if (headers.length > maxHeaders * 2) return tooManyLines(maxHeaders);
  if (maxBodyBytes > 0 && Number(headerValue(headers, "content-length") ?? 0) > maxBodyBytes) {
    return { code: "body_too_large", detail: `The request body may have at most ${maxBodyBytes} bytes.` };
  }
  return null;
}

/** For an `Expect` other than 100-continue. */
export const UNKNOWN_EXPECTATION: Refusal = { code: "expectation_failed", detail: "The only expectation that can be met is 100-continue." };

/** A body without a Content-Length is measured as it arrives; any other cannot be longer than its Content-Length. */
export function boundBody(body: Readable, headers: HeaderList, { maxBodyBytes }: Limits): Readable {
  return maxBodyBytes === 0 || headerValue(headers, "content-length") !== undefined ? body : limitedBody(body, maxBodyBytes);
}

export function connectionOf(socket: Socket): ConnectionFacts {
  const { remoteAddress } = socket;
  if ((socket as { encrypted?: boolean }).encrypted !== true) return { remoteAddress, encrypted: false, certificate: noCertificate, tlsVersion: null };
  const { certificate, version } = tlsFactsOf(socket as TLSSocket);
  return { remoteAddress, encrypted: true, certificate, tlsVersion: version };
}

/** `::ffff:192.0.2.1`, as a dual-stack socket reports it, is 192.0.2.1. "" when the socket is already closed. */
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
 * Walks X-Forwarded-For from the right, over trusted proxies, to the first address that is not trusted. An entry that is no address ends the
 * walk: nothing to the left of it can be trusted.
 */
function clientAddress(headers: HeaderList, remoteAddress: string, isTrusted: (address: string) => boolean): string {
  let client = remoteAddress;
  for (let i = headers.length - 2; i >= 0; i -= 2) {
    if (!sameName(headers[i]!, "x-forwarded-for")) continue;
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
