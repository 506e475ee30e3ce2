/**
 * Which failures are retried, and how many retries a service may have.
 */
import type { Clock } from "../base/clock.ts";
import type { Fault } from "../base/errors.ts";
import { RollingCount } from "../base/rolling_count.ts";
import { isIdempotent, tryFailure, Unsent, type TryFailure } from "./faults.ts";

export interface RetryPolicy {
  /** Tries beyond the first. */
  readonly attempts: number;
  readonly on: ReadonlySet<TryFailure>;
  readonly statuses: ReadonlySet<number>;
  /** Milliseconds for one try up to the head of its response; 0: only the service's limits. */
  readonly perTryMs: number;
  /** The maximum share of retries among the requests. */
  readonly budgetRatio: number;
  /** Longest body that is kept to be sent again. */
  readonly maxReplayBytes: number;
}

/**
 * Whether the failure allows another try; the caller knows whether there is another upstream, and a body to send. If the upstream cannot
 * have seen any of the request, the method does not matter.
 */
export function retriesFault(policy: RetryPolicy, method: string, fault: Fault): boolean {
  const failure = tryFailure(fault);
  return failure !== null && policy.on.has(failure) && (failure === "connect" || fault instanceof Unsent || isIdempotent(method));
}

export function retriesStatus(policy: RetryPolicy, method: string, status: number): boolean {
  return policy.statuses.has(status) && isIdempotent(method);
}

const BUDGET_WINDOW_MS = 10_000;
/** In that time, for a service with few requests. */
const FREE_RETRIES = 10;

/** Limits the retries of one service to a share of its requests: they must not overload upstreams that are failing. */
export class RetryBudget {
  readonly #clock: Clock;
  readonly #requests = new RollingCount(BUDGET_WINDOW_MS);
  readonly #retries = new RollingCount(BUDGET_WINDOW_MS);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts a request, not a retry. */
  request(): void {
    this.#requests.add(this.#clock.now());
  }

  /** Takes the right to one retry; false if there is none left. */
  take(ratio: number): boolean {
    const now = this.#clock.now();
    const most = Math.max(FREE_RETRIES, ratio * this.#requests.total(now));
    if (this.#retries.total(now) + 1 > most) return false;
    this.#retries.add(now);
    return true;
  }
}
