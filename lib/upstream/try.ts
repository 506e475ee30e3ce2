/**
 * What one try of a request is: what is sent, to which upstream, by which deadlines.
 */
import type { Clock } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";
import type { Exchange } from "../http/exchange.ts";
import type { HeadOptions } from "./request_head.ts";
import { isIdempotent } from "./retries.ts";

export interface ForwardOptions extends HeadOptions {
  readonly clock: Clock;
  /** What parses HTTP/1.1 responses: the gateway's own strict parser ("wire"), or Node's. Default "wire". */
  readonly client?: "wire" | "node";
  /** Milliseconds to get a connection: from the pool, or a new one with TCP and TLS handshakes. */
  readonly connectMs: number;
  /** Milliseconds from the end of the request to the head of the final response. */
  readonly responseMs: number;
  /** Milliseconds without a byte either way while a body is being sent or received. */
  readonly idleMs: number;
  /** Milliseconds for one try, from its beginning to the head of the response; 0: no such limit. */
  readonly tryMs: number;
}

/** The upstream of a try, and its connections. */
export interface Destination<Connections> {
  /** `upstream.id`: unique within its service. */
  readonly id: string;
  readonly host: string;
  readonly port: number;
  /** For the Host header: without the port if that is the scheme's default (RFC 9110 §4.2.1). */
  readonly authority: string;
  readonly pool: Connections;
  /** Called when a response has broken off in the middle, and not because of the client; the try has been answered by then. */
  broken(fault: Fault): void;
}

export interface Try<Connections> {
  readonly exchange: Exchange;
  readonly to: Destination<Connections>;
  readonly options: ForwardOptions;
  /** When the head of the response is due; monotonic, 0: no such deadline. */
  readonly tryEndsAt: number;
  /** When the whole exchange has to be over; monotonic, 0: no such deadline. */
  readonly endsAt: number;
  /** Whether the request is sent again because an idle connection proved dead. */
  readonly isSecond: boolean;
}

export function newTry<Pool>(exchange: Exchange, to: Destination<Pool>, options: ForwardOptions, endsAt: number): Try<Pool> {
  const { clock, tryMs } = options;
  return { exchange, to, options, tryEndsAt: tryMs === 0 ? 0 : clock.now() + tryMs, endsAt, isSecond: false };
}

/** Milliseconds that getting a connection may take from now on. */
export function connectTimeLeft({ options, tryEndsAt, endsAt }: Try<unknown>): number {
  const { clock, connectMs } = options;
  if (tryEndsAt === 0 && endsAt === 0) return connectMs;
  const end = Math.min(tryEndsAt === 0 ? Infinity : tryEndsAt, endsAt === 0 ? Infinity : endsAt);
  return Math.min(connectMs, Math.max(0, Math.ceil(end - clock.now())));
}

export function clientDisconnected(): Fault {
  return new Fault("upstream_reset", "the client disconnected");
}

/** Can be sent twice: no body, and an idempotent method (RFC 9110 §9.2.2). */
export function isReplayable(exchange: Exchange): boolean {
  return exchange.body === null && !exchange.call.aborted && isIdempotent(exchange.method);
}
