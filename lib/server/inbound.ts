/**
 * A request as it was received, whatever the protocol: who sent it, by which scheme, and why it is refused before it is
 * matched; and what it is received under.
 */
import { randomUUID } from "node:crypto";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../base/clock.ts";
import { NO_TRAILERS } from "../http/body_reader.ts";
import type { CertificateReader } from "../http/client_certificate.ts";
import { Call, noCertificate } from "../http/exchange.ts";
import { headerValue, withoutForwarding, withoutNamed, type HeaderList } from "../http/headers.ts";
import type { OwnBodyOf } from "../http/own_body.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import type { Limits } from "./limits.ts";
import {
  tooManyLines,
  withoutDropped,
  type RequestRefusal,
  type RequestHead,
  type RequestLine,
  type Underscores,
} from "./request_head.ts";

export interface Inbound extends RequestFacts {
  readonly body: Readable | null;
  readonly trailers: () => HeaderList;
  readonly upgrade: "websocket" | null;
  /** Why the request is refused without being looked at further, or null. */
  readonly refusal: RequestRefusal | null;
}

export interface ReceiveOptions {
  readonly clock: Clock;
  /** Null: there are none. */
  readonly proxies: TrustedProxies | null;
  readonly limits: Limits;
  readonly underscores?: Underscores;
  /** For errors of requests that cannot be read. Default, and null: there are none. */
  readonly ownBody?: OwnBodyOf | null;
}

/** The proxies in `global.trusted_proxies`, and what their headers say about a request. */
export interface TrustedProxies {
  readonly has: (address: string) => boolean;
  /** The request id, if it is fit for headers and logs. */
  readonly givenId: (headers: HeaderList) => string | undefined;
  readonly givenScheme: (headers: HeaderList, own: "http" | "https") => "http" | "https";
  readonly clientAddress: (headers: HeaderList, remoteAddress: string) => string;
}

/** `trusted_proxies.ts` */
export interface ProxyTrust {
  trustedProxies(blocks: readonly string[], headers: readonly string[]): TrustedProxies;
}

/** The facts about a client connection, shared by all of its requests. */
export interface ConnectionFacts {
  readonly remoteAddress: string | undefined;
  readonly encrypted: boolean;
  readonly tlsVersion: string | null;
  /** Default null. */
  readonly tlsCipher?: string | null;
  readonly tlsGroup?: string | null;
  readonly certificate: CertificateReader;
}

/** A request that is refused and never became one: it could not be read, or has not arrived. */
export interface Unread extends RequestRefusal {
  readonly id: string;
  readonly connection: ConnectionFacts;
  /** Null: it could not be read. */
  readonly line: RequestLine | null;
  /** Of its connection. */
  readonly httpVersion: string;
  /** Bytes of the body of the reply, and its status; null: there was no reply. */
  readonly sent: number | null;
  readonly status: number | null;
  /** Whether the client has disconnected before all of the request was sent. */
  readonly isGone: boolean;
}

/** Sends an informational response (RFC 9110 §15.2) on the request's connection. */
export type Inform = (status: number, headers: HeaderList) => void;

/** `trailers` is called when the body has ended; null: there are none. */
export function receiveHead(
  head: RequestHead,
  connection: ConnectionFacts,
  body: Readable | null,
  trailers: (() => HeaderList) | null,
  options: ReceiveOptions,
  inform: Inform,
): Inbound {
  const { method, target, httpVersion, framing } = head;
  const { underscores, proxies, clock, limits } = options;
  const kept = framing.dropsHeaders ? withoutDropped(head.headers, underscores) : head.headers;
  const headers = framing.namesHeaders ? withoutNamed(kept) : kept;
  const { certificate, tlsVersion, tlsCipher = null, tlsGroup = null } = connection;
  const remoteAddress = plainAddress(connection.remoteAddress);
  const by = proxies?.has(remoteAddress) === true ? proxies : null;
  const id = by?.givenId(headers) ?? randomUUID();
  const scheme = connection.encrypted ? "https" : "http";
  const call = new Call({
    id,
    remoteAddress,
    trustedRemote: by !== null,
    startedAt: clock.now(),
    inform,
    certificate,
    tlsVersion,
    tlsCipher,
    tlsGroup,
  });
  // Bytes after an upgrade are counted by the tunnel.
  if (framing.upgrade === null) call.notes.received = 0;
  // Written out: spreading one object into another was 8 % of the cost of a small request.
  return {
    call,
    scheme: by === null ? scheme : by.givenScheme(headers, scheme),
    authority: framing.host ?? "",
    clientAddress: by === null ? remoteAddress : by.clientAddress(headers, remoteAddress),
    method,
    target,
    httpVersion,
    headers: by === null ? withoutForwarding(headers) : headers,
    body,
    trailers: trailers === null ? noTrailers : () => withoutDropped(trailers(), underscores),
    upgrade: framing.upgrade,
    refusal:
      refuseSize(target, head.headers, limits) ??
      framing.refusal ??
      refuseBody(head.headers, limits) ??
      (framing.expects === "unknown" ? UNKNOWN_EXPECTATION : null),
  };
}

const noTrailers = () => NO_TRAILERS;

/** 414 or 431 for a head that is larger than the limits allow. */
export function refuseSize(
  target: string,
  headers: HeaderList,
  { maxUriBytes, maxHeaders }: Limits,
): RequestRefusal | null {
  if (target.length > maxUriBytes)
    return { code: "uri_too_long", detail: `The request target may have at most ${maxUriBytes} bytes.` };
  return headers.length > maxHeaders * 2 ? tooManyLines(maxHeaders) : null;
}

/** 413 for a body that states a length beyond the limit. */
export function refuseBody(headers: HeaderList, { maxBodyBytes }: Limits): RequestRefusal | null {
  if (maxBodyBytes > 0 && Number(headerValue(headers, "content-length") ?? 0) > maxBodyBytes)
    return { code: "body_too_large", detail: `The request body may have at most ${maxBodyBytes} bytes.` };
  return null;
}

const UNKNOWN_EXPECTATION: RequestRefusal = {
  code: "expectation_failed",
  detail: "The only expectation that can be met is 100-continue.",
};

/** Also of a view of a TLS connection, as a session of HTTP/2 has one. */
export function isEncrypted(socket: Socket): socket is TLSSocket {
  return (socket as { encrypted?: boolean }).encrypted === true;
}

/** Of a connection without TLS; see `client_certificate.ts` for one with it. */
export function connectionWithoutTls({ remoteAddress }: Socket): ConnectionFacts {
  return { remoteAddress, encrypted: false, certificate: noCertificate, tlsVersion: null };
}

/** `::ffff:192.0.2.1`, as a dual-stack socket reports it, is 192.0.2.1. "" when the socket is already closed. */
export function plainAddress(address: string | undefined): string {
  if (address === undefined) return "";
  return address.startsWith("::ffff:") && address.includes(".") ? address.slice(7) : address;
}
