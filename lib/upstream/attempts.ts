/**
 * The innermost handler of a service's routes: choice of an upstream, tries, and faults turned into replies.
 */
import { Fault, messageOf, type ErrorCode } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Call, Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { problem, type Reply } from "../http/reply.ts";
import { isUpstreams } from "./faults.ts";
import { forwardHttp1 } from "./http1_exchange.ts";
import { Http1Pool } from "./pool.ts";
import type { Peer } from "./upstream_set.ts";
import type { ForwardOptions, Try } from "./try.ts";

/** Chooses among the upstreams of one configuration. */
export interface Picker {
  /** The upstream for this exchange, none of those in `tried`; null if there is none. */
  pick(exchange: Exchange, tried: readonly Peer[]): Peer | null;
}

/** For a service with no other upstream, which is always usable. */
export function onlyPicker(peer: Peer): Picker {
  return { pick: (_exchange, tried) => (tried.length === 0 && peer.weight > 0 ? peer : null) };
}

export interface AttemptsOptions {
  readonly picker: Picker;
  readonly forwarding: ForwardOptions;
  /** Milliseconds for the whole exchange, with all tries and the response's body; 0: no limit. */
  readonly totalMs: number;
  /** For faults of the gateway itself. */
  readonly log: Log;
  /** Null: nothing is counted. */
  readonly meter: AttemptsMeter | null;
}

/** Counts the tries whose client waited for them. */
export interface AttemptsMeter {
  /**
   * `ms` to the head of the response or to the failure; `status` of the response, null if there was none. `askedAt` in
   * the notes is its start.
   */
  tried(upstream: string, ms: number, status: number | null, call: Call): void;
  retried(): void;
}

/** `failed`: see `Tries`. Default: each request is tried once. */
export function attempts(options: AttemptsOptions & Partial<Tries>): Handler {
  const { picker, forwarding, log } = options;
  const tries: Tries = { afterFailure: (exchange, error) => upstreamFaultReply(exchange, error, log), ...options };
  return (exchange) => {
    const peer = picker.pick(exchange, NO_PEERS);
    if (peer === null) return noUpstream(exchange);
    const now = forwarding.clock.now();
    return tryPeer(tries, exchange, peer, now, startTotal(options, exchange, now));
  };
}

/** The deadline of the whole exchange, on the monotonic clock; Infinity: no deadline. */
export function startTotal({ totalMs }: AttemptsOptions, { call }: Exchange, now: number): number {
  return totalMs === 0 ? Infinity : (call.endsAt = now + totalMs);
}

export interface Tries extends AttemptsOptions {
  /** Returns the reply after a failed attempt; throws if a retry may follow. */
  readonly afterFailure: (exchange: Exchange, error: unknown, peer: Peer, endsAt: number) => Reply | Promise<Reply>;
}

/** As `failed`, for a loop of tries. */
export function rethrow(_exchange: Exchange, error: unknown): never {
  throw error;
}

/**
 * One attempt; its result is reported to the upstream's health. Not async: that would cost two more promises per
 * request.
 */
export function tryPeer(
  { forwarding, meter, afterFailure }: Tries,
  exchange: Exchange,
  peer: Peer,
  startedAt: number,
  endsAt: number,
): Promise<Reply> {
  const { call } = exchange;
  const { notes } = call;
  const { clock } = forwarding;
  notes.upstream = peer.id;
  notes.upstreamPath = exchange.upstreamPath;
  notes.attempts++;
  notes.askedAt = startedAt;
  const { span, code } = notes;
  const trySpan = span === null ? null : span.try(exchange, peer, notes.attempts - 1, startedAt);
  if (trySpan !== null) notes.span = trySpan;
  const over = (status: number | null, error: string | null) => {
    const now = clock.now();
    notes.upstreamMs = (notes.upstreamMs ?? 0) + now - startedAt;
    notes.span = span;
    trySpan?.ended(error === null ? status : null, error, now);
    meter?.tried(peer.id, now - startedAt, status, call);
    notes.askedAt = null;
  };
  return forward(exchange, peer, forwarding, endsAt).then(
    (reply) => {
      if (peer.health.failureStatuses !== null) peer.health.countAnswer(reply.status);
      // A request that cannot be sent at all is answered by the gateway, with a code.
      over(reply.status, notes.code === code ? null : notes.code);
      return reply;
    },
    (error: unknown) => {
      // A try that ends because the client disconnected says nothing about the upstream.
      notes.isExcused = call.aborted || !(error instanceof Fault) || !isUpstreams(error);
      if (!notes.isExcused) peer.health.countFailure(messageOf(error));
      over(null, call.aborted ? "client_closed" : error instanceof Fault ? error.code : "internal");
      return afterFailure(exchange, error, peer, endsAt);
    },
  );
}

/**
 * Resolves with the final response, whose body has to be read or destroyed; rejects with a `Fault`. Informational
 * responses go to the client as they arrive. When the client disconnects, or `endsAt` (monotonic; Infinity: never) has
 * come, the request is cancelled.
 */
export function forward(given: Exchange, to: Peer, options: ForwardOptions, endsAt: number): Promise<Reply> {
  const { pool, ownHeaders } = to;
  const exchange = ownHeaders === null ? given : ownHeaders.sentWith(given);
  const { tryMs, clock } = options;
  const tryEndsAt = tryMs === 0 ? endsAt : Math.min(endsAt, clock.now() + tryMs);
  const attempt = { exchange, to, options, tryEndsAt, endsAt, isSecond: false, bytes: null };
  return pool instanceof Http1Pool ? forwardHttp1(attempt as Try<Http1Pool>) : pool.forward(attempt);
}

/**
 * Timers may run two milliseconds early: a try that begins at `total_ms` would fail, and count against its upstream.
 */
export const LEAST_TRY_MS = 5;

export const NO_PEERS: readonly Peer[] = [];

export function noUpstream(exchange: Exchange): Reply {
  return problem(exchange.call, "upstream_unavailable", {
    detail: "None of the servers behind this route can be used at the moment.",
  });
}

/** Returned, not thrown: the plugins around it would be blamed for it. */
export function upstreamFaultReply(exchange: Exchange, error: unknown, log: Log): Reply {
  if (!(error instanceof Fault)) {
    const { id, notes } = exchange.call;
    const { service, route } = notes;
    log.error("a plugin or the gateway failed", { request_id: id, service, route, error: messageOf(error, "stack") });
    return problem(exchange.call, "internal", { why: messageOf(error) });
  }
  const detail = DETAILS[error.code];
  return problem(exchange.call, error.code, { why: error.message, ...(detail === undefined ? {} : { detail }) });
}

const DETAILS: { readonly [code in ErrorCode]?: string } = {
  upstream_connect_failed: "No connection to the service behind this route could be made. Trying again later may help.",
  upstream_reset: "The service behind this route closed the connection before it had answered.",
  upstream_invalid: "The response of the service behind this route is not valid HTTP.",
  upstream_timeout: "The service behind this route did not answer in time.",
  upstream_saturated: "No connection to the service behind this route became free in time. Try again shortly.",
  request_timeout: "The request body did not arrive in time.",
  body_too_large: "The request body is larger than this gateway accepts.",
  bad_request: "The request body ended before its announced end.",
};
