/**
 * The types of a request as it was received, and of what it is received under, whatever the protocol.
 */
import type { Readable } from "node:stream";
import type { Clock } from "../base/clock.ts";
import type { CertificateReader } from "../http/client_certificate.ts";
import type { HeaderList } from "../http/headers.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import type { RequestRefusal, RequestLine, Underscores } from "./request_head.ts";
import type { Limits } from "./limits.ts";

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
}

/** The proxies in `global.trusted_proxies`, and what their headers say about a request. */
export interface TrustedProxies {
  readonly has: (address: string) => boolean;
  /** The request id, if it is fit for headers and logs. */
  readonly givenId: (headers: HeaderList) => string | undefined;
  readonly givenScheme: (headers: HeaderList, own: "http" | "https") => "http" | "https";
  readonly clientAddress: (headers: HeaderList, remoteAddress: string) => string;
}

/** The facts about a client connection, shared by all of its requests. */
export interface ConnectionFacts {
  readonly remoteAddress: string | undefined;
  readonly encrypted: boolean;
  readonly tlsVersion: string | null;
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
  /** Bytes of the body of the reply; null: there was no reply. */
  readonly sent: number | null;
  /** Whether the client has disconnected before all of the request was sent. */
  readonly isGone: boolean;
}

/** Sends an informational response (RFC 9110 §15.2) on the request's connection. */
export type Inform = (status: number, headers: HeaderList) => void;
