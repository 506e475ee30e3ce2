/**
 * One try to have one exchange answered by one peer, as all forwarders begin it: with its deadlines, under a lease, and once more where
 * a kept connection proves dead. What is sent is the forwarders' affair; which peer is asked next, `attempts.ts`'s.
 */
import type { Clock } from "../base/clock.ts";
import { Fault, type ErrorCode } from "../base/errors.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";
import { timeLeft } from "./deadlines.ts";
import type { Destination } from "./destination.ts";
import type { Pool } from "./pool.ts";
import type { HeadOptions } from "./request_head.ts";
import { isIdempotent } from "./retries.ts";

export interface ForwardOptions extends HeadOptions {
  readonly clock: Clock;
  /** Over HTTP/1.1: the gateway's own exchange of `forward_wire.ts`, or node's of `forward.ts`. Default "wire". */
  readonly client?: "wire" | "node";
  /** Milliseconds to get a connection: from the pool, or a new one with TCP and TLS handshakes. */
  readonly connectMs: number;
  /** Milliseconds from the end of the request to the head of the final response. */
  readonly responseMs: number;
  /** Milliseconds without a byte either way while a body is on its way. */
  readonly idleMs: number;
  /** Milliseconds for one try, from its beginning to the head of the response; 0: no such limit. */
  readonly tryMs: number;
}

export interface Try<Connections> {
  readonly exchange: Exchange;
  readonly to: Destination<Connections>;
  readonly options: ForwardOptions;
  /** When the head of the response has to be there; monotonic, 0: no such moment. */
  readonly tryEndsAt: number;
  /** When all has to be over; monotonic, 0: no such moment. */
  readonly endsAt: number;
  /** Whether it is the second attempt, after a kept connection had proved dead. */
  readonly isSecond: boolean;
}

export function newTry<Connections>(exchange: Exchange, to: Destination<Connections>, options: ForwardOptions, endsAt: number): Try<Connections> {
  const { clock, tryMs } = options;
  return { exchange, to, options, tryEndsAt: tryMs === 0 ? 0 : clock.now() + tryMs, endsAt, isSecond: false };
}

export function clientGone(): Fault {
  return new Fault("upstream_reset", "the client went away");
}

/** Milliseconds that getting a connection may take from now on. */
export function connectTimeLeft({ options, tryEndsAt, endsAt }: Try<unknown>): number {
  return timeLeft(options.clock, options.connectMs, tryEndsAt, endsAt);
}

type Send = (one: Try<Pool>) => Promise<Reply>;

/** `send` gets a lease of the pool, which ends when its connection is free again. Not async: a promise more costs what a header does. */
export function underLease(one: Try<Pool>, send: Send): Promise<Reply> {
  // A plugin may have taken longer than the client cared to wait.
  if (one.exchange.call.aborted) return Promise.reject(clientGone());
  return one.to.pool.tryLease() ? send(one) : waitForLease(one).then(() => send(one));
}

/**
 * Whether to send once more, on a fresh connection: the peer closed an idle one just as it was reused, before any byte of a response, and
 * the request can be sent again (RFC 9112 §9.3.1). "unsent": on a kept connection that broke before a byte of the request had left, so that
 * any method can be sent again. Once more means once.
 */
export function isStale({ exchange, isSecond }: Try<Pool>, connection: "fresh" | "reused" | "unsent", error: NodeJS.ErrnoException): boolean {
  if (isSecond || connection === "fresh" || !isReset(error)) return false;
  return connection === "unsent" ? exchange.body === null && !exchange.call.aborted : isReplayable(exchange);
}

export function sendAgain(one: Try<Pool>, send: Send): Promise<Reply> {
  // Idle siblings of the connection are of the same age; they go.
  one.to.pool.dropIdle();
  return underLease({ ...one, isSecond: true }, send);
}

/** Milliseconds that the rest of an upload may take behind a whole response before its connection is given up, and with it the lease. */
export const DRAIN_MS = 100;

function waitForLease(one: Try<Pool>): Promise<void> {
  return one.to.pool.waitForLease(connectTimeLeft(one), (run) => one.exchange.call.onAbort(run));
}

/** Safe to send twice: no body, and a method whose repetition changes nothing (RFC 9110 §9.2.2). */
export function isReplayable(exchange: Exchange): boolean {
  if (exchange.body !== null || exchange.call.aborted) return false;
  return isIdempotent(exchange.method);
}

function isReset(error: NodeJS.ErrnoException): boolean {
  return error.code === "ECONNRESET" || error.code === "EPIPE";
}

export function faultCode(error: NodeJS.ErrnoException, isConnecting: boolean): ErrorCode {
  if (isConnecting || (error.code !== undefined && REFUSED_BY_TLS.test(error.code))) return "upstream_connect_failed";
  return error.code?.startsWith("HPE_") ? "upstream_invalid" : "upstream_reset";
}

/**
 * TLS 1.3 tells of a client certificate that it does not like only after the handshake; nobody has looked at the request then. Any
 * other trouble with TLS comes from a peer that may have. OpenSSL 3.0 writes ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE, later releases (Node 22)
 * ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE.
 */
const REFUSED_BY_TLS = /^ERR_SSL_[\w/]*ALERT_\w*(?:CERT|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE)/;
