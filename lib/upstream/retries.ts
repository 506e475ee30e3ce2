/**
 * Tries a request again at other upstreams, as `retries` of its service says, with its body where that was kept.
 */
import { Fault, ignore } from "../base/errors.ts";
import type { Service } from "../config/model.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { headerValue } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import {
  rethrow,
  tryPeer,
  upstreamFaultReply,
  LEAST_TRY_MS,
  NO_PEERS,
  noUpstream,
  startTotal,
  type AttemptsOptions,
  type Tries,
} from "./attempts.ts";
import { tryFailure, Unsent, type TryFailure } from "./faults.ts";
import type { RetryLimit } from "./contracts.ts";
import { Replay, ReplayMemory, RetryBudget } from "./replay.ts";
import type { Peer } from "./upstream_set.ts";
import { isUntouched } from "./try.ts";

export { fields } from "../config/retries.ts";
export { ReplayMemory, RetryBudget };

export interface RetryPolicy {
  /** Tries beyond the first. */
  readonly attempts: number;
  readonly on: ReadonlySet<TryFailure>;
  readonly statuses: ReadonlySet<number>;
  /** Methods that may be sent twice; what was not sent at all does not depend on them. */
  readonly methods: ReadonlySet<string>;
  /** Milliseconds for one try up to the head of its response; 0: only the service's limits. */
  readonly perTryMs: number;
  /** The maximum share of retries among the requests. */
  readonly budgetRatio: number;
  /** Longest body that is kept to be sent again. */
  readonly maxReplayBytes: number;
}

export interface Retries {
  readonly policy: RetryPolicy;
  readonly budget: RetryLimit;
  readonly memory: ReplayMemory;
}

export function retryPolicy({ on, methods, ...rest }: NonNullable<Service["retries"]>): RetryPolicy {
  return {
    ...rest,
    methods: new Set(methods),
    on: new Set(on.filter((item) => typeof item === "string")),
    statuses: new Set(on.filter((item) => typeof item === "number")),
  };
}

/** Each time another upstream, and never after a reply has been returned. */
export function repeatedly(options: AttemptsOptions, { policy, budget, memory }: Retries): Handler {
  const { picker, forwarding, meter, log } = options;
  const tries: Tries = { ...options, afterFailure: rethrow };
  return async (exchange) => {
    budget.request();
    const first = picker.pick(exchange, NO_PEERS);
    if (first === null) return noUpstream(exchange);
    const { call, method, body } = exchange;
    const { clock } = forwarding;
    let startedAt = clock.now();
    const endsAt = startTotal(options, exchange, startedAt);
    const replay = replayOf(exchange, policy, memory);
    const tried: Peer[] = [first];
    const another = (isBusy = false): Peer | null => {
      if (call.aborted || tried.length > policy.attempts || clock.now() > endsAt - LEAST_TRY_MS) return null;
      if (body !== null && !(replay === null ? isUntouched(body) : replay.isWhole)) return null;
      const next = picker.pick(exchange, tried);
      // A busy upstream can be used: that is no reason to ask a backup of it.
      if (next === null || (isBusy && next.rank > tried.at(-1)!.rank)) return null;
      return budget.take(policy.budgetRatio) ? next : null;
    };
    try {
      for (let peer = first; ;) {
        let next: Peer | null = null;
        try {
          const replayed = replay === null ? exchange : exchange.with({ body: replay.open() });
          const reply = await tryPeer(tries, replayed, peer, startedAt, endsAt);
          if (!retriesStatus(policy, method, reply.status) || (next = another()) === null) return reply;
          discardReply(reply, exchange);
        } catch (error) {
          const isRetried = error instanceof Fault && retriesFault(policy, method, error);
          next = isRetried ? another(error.code === "upstream_saturated") : null;
          if (next === null) return upstreamFaultReply(exchange, error, log);
        }
        tried.push(next);
        meter?.retried();
        peer = next;
        startedAt = clock.now();
      }
    } finally {
      replay?.release();
    }
  };
}

/** Null if there is no body, or if it is known to be too long. */
function replayOf({ body, headers }: Exchange, { maxReplayBytes }: RetryPolicy, memory: ReplayMemory): Replay | null {
  if (body === null || Number(headerValue(headers, "content-length") ?? 0) > maxReplayBytes) return null;
  return new Replay(body, maxReplayBytes, memory);
}

/** A discarded response is read up to this length, so that its connection can be used again. */
const MAX_DISCARDED_BYTES = 16 * 1024;

function discardReply({ headers, body }: Reply, exchange: Exchange): void {
  if (body === null || Buffer.isBuffer(body)) return;
  const length = headerValue(headers, "content-length");
  // With a request that may still be being sent, the connection is not free either.
  if (exchange.body !== null || length === undefined || Number(length) > MAX_DISCARDED_BYTES)
    return void body.destroy();
  body.on("error", ignore);
  body.resume();
}

/**
 * Whether the failure allows another try; the caller knows whether there is another upstream, and a body to send. If
 * the upstream cannot have seen any of the request, the method does not matter.
 */
function retriesFault(policy: RetryPolicy, method: string, fault: Fault): boolean {
  const failure = tryFailure(fault);
  return (
    failure !== null &&
    policy.on.has(failure) &&
    (failure === "connect" || fault instanceof Unsent || policy.methods.has(method))
  );
}

function retriesStatus(policy: RetryPolicy, method: string, status: number): boolean {
  return policy.statuses.has(status) && policy.methods.has(method);
}
