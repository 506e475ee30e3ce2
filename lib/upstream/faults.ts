/**
 * Classifies the fault of an attempt: whether it counts against the upstream and whether a retry may follow; limits the retries of a service.
 */
import type { Clock } from "../base/clock.ts";
import { Fault, type ErrorCode } from "../base/errors.ts";
import { RollingCount } from "../base/rolling_count.ts";

/** The upstream cannot have seen the request: whatever the method, it may be sent again. */
export class Unsent extends Fault {}

/** As `Unsent`: the upstream closed a kept connection, as it may at any time. That says nothing about its health. */
export class Stale extends Unsent {}

/** The upstream closed the connection during an upload, unread: clients choose what they send, and their uploads must not eject it. */
export class UploadRefused extends Fault {}

/** "connect": there was no connection, and nothing was sent. "reset": it broke before a response. "timeout": no response in time. */
export type TryFailure = "connect" | "reset" | "timeout";

/** Null if another try would not help: faults of the client, and invalid responses. */
function tryFailure(fault: Fault): TryFailure | null {
  switch (fault.code) {
    case "upstream_connect_failed":
    case "upstream_saturated":
      return "connect";
    case "upstream_reset":
      return "reset";
    case "upstream_timeout":
      return fault instanceof Unsent ? "connect" : "timeout";
    default:
      return null;
  }
}

/** Whether the upstream caused it, so that its health and the circuit breaker count it: neither the client nor a lack of connections did. */
export function isUpstreams(fault: Fault): boolean {
  if (fault instanceof Stale || fault instanceof UploadRefused) return false;
  const failure = tryFailure(fault);
  return fault.code === "upstream_invalid" || (failure !== null && fault.code !== "upstream_saturated");
}

/** Nothing was sent because the connection was refused, timed out, could not be opened or had been closed. A lack of free ones is another thing. */
export function isUnopened(fault: Fault): boolean {
  return fault.code === "upstream_connect_failed" || fault instanceof Unsent;
}

/** For an error of the connection. */
export function faultCode(error: NodeJS.ErrnoException, isConnecting: boolean): ErrorCode {
  return isConnecting || REFUSED_BY_TLS.test(error.code ?? "") ? "upstream_connect_failed" : "upstream_reset";
}

/**
 * In TLS 1.3 a server refuses a client certificate after the handshake; it has not read the request then. After any other TLS error
 * it may have. The name is ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE with OpenSSL 3.0, ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE later (Node 22).
 */
const REFUSED_BY_TLS = /^ERR_SSL_[\w/]*ALERT_\w*(?:CERT|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE)/;

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

/** RFC 9110 §9.2.2. */
export function isIdempotent(method: string): boolean {
  return method === "GET" || method === "HEAD" || method === "OPTIONS" || method === "PUT" || method === "DELETE" || method === "TRACE";
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
