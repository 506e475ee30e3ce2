/**
 * The innermost handler of a service's routes: circuit breaker, choice of an upstream, tries, and faults turned into replies. How
 * the bytes go is `forward.ts`; when a try is repeated is `retries.ts`.
 */
import type { Readable } from "node:stream";
import { ERRORS, Fault, messageOf, type ErrorCode } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { headerValue } from "../http/headers.ts";
import { LentBody } from "../http/lent_body.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Breaker, Verdict } from "./breaker.ts";
import { isUpstreams } from "./faults.ts";
import type { Picker } from "./upstream_set.ts";
import type { Peer } from "./peer.ts";
import { Replay, type ReplayMemory } from "./replay.ts";
import { retriesFault, retriesStatus, type RetryBudget, type RetryPolicy } from "./retries.ts";
import type { ForwardOptions } from "./try.ts";

export interface AttemptsOptions {
  readonly picker: Picker;
  readonly forwarding: ForwardOptions;
  /** Milliseconds for the whole exchange, all tries and the response's body included; 0: no limit. */
  readonly totalMs: number;
  readonly breaker: Breaker | null;
  /** Where faults of the gateway itself are reported. Default: nowhere. */
  readonly log?: Log;
  /** Default: nothing is counted. */
  readonly meter?: AttemptsMeter;
  /** Null: every request is tried once. */
  readonly retries: { readonly policy: RetryPolicy; readonly budget: RetryBudget; readonly memory: ReplayMemory } | null;
}

/** Hears of every try that its client waited for. */
export interface AttemptsMeter {
  /** `ms` to the head of the response, or to the failure; `status` is that of the response, null when there was none. */
  tried(upstream: string, ms: number, status: number | null): void;
  retried(): void;
}

export function attempts(options: AttemptsOptions): Handler {
  const { breaker, retries } = options;
  const innermost = retries === null ? once(options) : repeatedly(options, retries);
  return breaker === null ? innermost : guarded(innermost, breaker);
}

function once({ picker, forwarding, totalMs, meter, log }: AttemptsOptions): Handler {
  const { clock } = forwarding;
  const only: Attempt = { forwarding, endsAt: 0, meter, failed: (exchange, error) => faultReply(exchange, error, log) };
  return (exchange) => {
    const peer = picker.pick(exchange, NOBODY);
    if (peer === null) return nobodyThere(exchange);
    if (totalMs === 0) return attempt(exchange, peer, only);
    const endsAt = clock.now() + totalMs;
    exchange.call.endsAt = endsAt;
    return attempt(exchange, peer, { ...only, endsAt });
  };
}

interface Attempt {
  readonly forwarding: ForwardOptions;
  /** When all has to be over; monotonic, 0: no such moment. */
  readonly endsAt: number;
  readonly meter: AttemptsMeter | undefined;
  /** What becomes of a failure. */
  readonly failed: (exchange: Exchange, error: unknown) => Reply;
}

/** One try, and what it says of the upstream. Not async, which would take two promises more for each request. */
function attempt(exchange: Exchange, peer: Peer, { forwarding, endsAt, meter, failed }: Attempt): Promise<Reply> {
  const { notes } = exchange.call;
  const { clock } = forwarding;
  const startedAt = clock.now();
  notes.upstream = peer.id;
  notes.attempts++;
  notes.askedAt = startedAt;
  const { span, code } = notes;
  const tried = span === null ? null : span.try(exchange, peer, notes.attempts - 1, startedAt);
  if (tried !== null) notes.span = tried;
  const over = (status: number | null) => {
    const took = clock.now() - startedAt;
    notes.upstreamMs = (notes.upstreamMs ?? 0) + took;
    notes.askedAt = null;
    notes.span = span;
    if (!exchange.call.aborted) meter?.tried(peer.id, took, status);
  };
  return peer.forward(exchange, forwarding, endsAt).then(
    (reply) => {
      peer.health.answered(reply.status);
      if (tried !== null) {
        // What cannot be sent at all is answered here, and not by the upstream.
        if (notes.code === code) tried.ended(reply.status, null, clock.now());
        else tried.ended(null, notes.code, clock.now());
      }
      over(reply.status);
      return reply;
    },
    (error: unknown) => {
      tried?.ended(null, exchange.call.aborted ? "client_closed" : error instanceof Fault ? error.code : "internal", clock.now());
      // What ends because the client has gone says nothing.
      if (error instanceof Fault && isUpstreams(error) && !exchange.call.aborted) peer.health.failed(error.message);
      over(null);
      return failed(exchange, error);
    },
  );
}

function rethrow(_exchange: Exchange, error: unknown): never {
  throw error;
}

/** Each time another upstream, never after a reply has been given back. */
function repeatedly({ picker, forwarding, totalMs, meter, log }: AttemptsOptions, { policy, budget, memory }: NonNullable<AttemptsOptions["retries"]>): Handler {
  const { clock } = forwarding;
  return async (exchange) => {
    budget.request();
    const first = picker.pick(exchange, NOBODY);
    if (first === null) return nobodyThere(exchange);
    const endsAt = totalMs === 0 ? 0 : clock.now() + totalMs;
    exchange.call.endsAt = endsAt;
    const replay = replayOf(exchange, policy, memory);
    const each: Attempt = { forwarding, endsAt, meter, failed: rethrow };
    const tried: Peer[] = [first];
    const another = (): Peer | null => {
      if (exchange.call.aborted || tried.length > policy.attempts || (endsAt !== 0 && clock.now() > endsAt - LEAST_TRY_MS)) return null;
      if (exchange.body !== null && !(replay === null ? isUntouched(exchange.body) : replay.isWhole)) return null;
      const next = picker.pick(exchange, tried);
      return next !== null && budget.take(policy.budgetRatio) ? next : null;
    };
    try {
      for (let peer = first; ; ) {
        let next: Peer | null = null;
        try {
          const reply = await attempt(replay === null ? exchange : exchange.with({ body: replay.open() }), peer, each);
          if (!retriesStatus(policy, exchange.method, reply.status) || (next = another()) === null) return reply;
          giveUp(reply, exchange);
        } catch (error) {
          if (!(error instanceof Fault) || !retriesFault(policy, exchange.method, error) || (next = another()) === null) return faultReply(exchange, error, log);
        }
        tried.push(next);
        meter?.retried();
        peer = next;
      }
    } finally {
      replay?.release();
    }
  };
}

/** Timers may run two milliseconds early: what is left at `total_ms` is no time for a try, and another upstream would be blamed for it. */
const LEAST_TRY_MS = 5;

/** Null where there is nothing to keep, or where it is known to be too much. */
function replayOf({ body, headers }: Exchange, { maxReplayBytes }: RetryPolicy, memory: ReplayMemory): Replay | null {
  if (body === null || Number(headerValue(headers, "content-length") ?? 0) > maxReplayBytes) return null;
  return new Replay(body, maxReplayBytes, memory);
}

/** Nobody has begun to read it. */
function isUntouched(body: Readable): boolean {
  if (body instanceof LentBody) return body.isUntouched;
  return body.readableFlowing === null && !body.readableDidRead;
}

/** Bytes of an answer nobody gets that are read so that its connection can be used again. */
const MAX_DISCARDED_BYTES = 16 * 1024;

function giveUp({ headers, body }: Reply, exchange: Exchange): void {
  if (body === null || Buffer.isBuffer(body)) return;
  const length = headerValue(headers, "content-length");
  // Where the request may still be on its way, the connection is not free either.
  if (exchange.body !== null || length === undefined || Number(length) > MAX_DISCARDED_BYTES) return void body.destroy();
  body.on("error", ignore);
  body.resume();
}

/** Lets requests through as far as the breaker does. */
function guarded(next: Handler, breaker: Breaker): Handler {
  return async (exchange) => {
    const admission = breaker.admit();
    if (admission < 0) {
      const wait = Math.max(1, Math.ceil(breaker.retryAfterMs / 1000));
      return problem(exchange.call, "circuit_open", { detail: CIRCUIT_OPEN, headers: ["Retry-After", String(wait)] });
    }
    let verdict: Verdict = "unknown";
    try {
      const reply = await next(exchange);
      verdict = exchange.call.aborted ? "unknown" : verdictOf(exchange, reply);
      return reply;
    } finally {
      breaker.settle(admission, verdict);
    }
  };
}

/** A request has failed that its upstream did not answer, or answered with 5xx. One that the client or the gateway spoilt says nothing. */
function verdictOf({ call }: Exchange, { status }: Reply): Verdict {
  const { code } = call.notes;
  if (code !== null && (ERRORS[code as ErrorCode]?.side ?? "upstream") !== "upstream") return "unknown";
  // Nobody was asked: the breaker has nothing to learn, and would only delay the return.
  if (code === "upstream_unavailable") return "unknown";
  return status >= 500 ? "failed" : "passed";
}

const NOBODY: readonly Peer[] = [];

const CIRCUIT_OPEN = "Too many requests to the service behind this route have failed. Try again after the time in Retry-After.";

function nobodyThere(exchange: Exchange): Reply {
  return problem(exchange.call, "upstream_unavailable", { detail: "None of the servers behind this route can be used at the moment." });
}

/** Answered here, and not thrown: the plugins around it would be blamed for it. */
function faultReply(exchange: Exchange, error: unknown, log: Log | undefined): Reply {
  if (!(error instanceof Fault)) {
    const { id, notes } = exchange.call;
    log?.error("a plugin or the gateway failed", { request_id: id, service: notes.service, route: notes.route, error: messageOf(error, "stack") });
    return problem(exchange.call, "internal", { why: messageOf(error) });
  }
  const detail = DETAILS[error.code];
  return problem(exchange.call, error.code, { why: error.message, ...(detail === undefined ? {} : { detail }) });
}

const DETAILS: { readonly [code in ErrorCode]?: string } = {
  upstream_connect_failed: "No connection to the service behind this route could be made. Trying again later may help.",
  upstream_reset: "The service behind this route closed the connection before it had answered.",
  upstream_invalid: "What the service behind this route answered is not valid HTTP.",
  upstream_timeout: "The service behind this route did not answer in time.",
  upstream_saturated: "Every connection to the service behind this route was in use. Try again shortly.",
  request_timeout: "The request body did not arrive in time.",
  body_too_large: "The request body is larger than this gateway takes.",
  bad_request: "The request body ended before its announced end.",
};

function ignore(): void {}
