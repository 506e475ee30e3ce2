/**
 * The circuit breaker of one service: while too many requests fail, the next ones are refused at once, so that the
 * upstreams can recover.
 *
 *   closed ──error_ratio of at least min_requests within window_ms──► open ──open_ms──► half-open
 *     ▲                                                                ▲                   │
 *     └──────────────────────all probes pass───────────────────────────┼───────────────────┤
 *                                                                      └──a probe fails────┘
 */
import type { Clock } from "../base/clock.ts";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { RollingCount } from "../base/rolling_count.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { BreakerReport, BreakerSettings, BreakerState, CircuitBreaker, Verdict } from "./contracts.ts";

export { fields } from "../config/circuit_breaker.ts";

export interface BreakerOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly service: string;
  /** Holds its state: `BREAKER_BYTES`, at first all zero. Default: memory of its own. */
  readonly memory?: ArrayBufferLike;
}

/**
 * 32-bit words of the memory. The term is a number that goes up with each change of the state, and its last two bits
 * are the state: requests that were admitted in another term do not count.
 */
const TERM = 0;
/** Probes of this term, without those whose end said nothing; and those that have passed. */
const ADMITTED = 1;
const PASSED = 2;
const WORDS_BYTES = 4 * Int32Array.BYTES_PER_ELEMENT;

/**
 * 64-bit cells behind the words: when it entered its state, in milliseconds since 1970 (0: never); when it was opened;
 * when the latest probe was admitted.
 */
const SINCE = 0;
const OPENED_AT = 1;
const PROBED_AT = 2;
const REQUESTS = 3;
const FAILURES = REQUESTS + RollingCount.CELLS;
const CELLS = FAILURES + RollingCount.CELLS;

export const BREAKER_BYTES = WORDS_BYTES + CELLS * Float64Array.BYTES_PER_ELEMENT;

const STATES: readonly BreakerState[] = ["closed", "open", "half_open"];
const CLOSED = 0;
const OPEN = 1;
const HALF_OPEN = 2;
const OF_STATE = 3;
const MAX_TERM = 2 ** 30 - 1;

/**
 * One breaker for all threads that share its memory. No lock: the term is exchanged, so that one thread alone makes
 * each change, and one that dies at any moment holds no other up. Of requests that two threads count at the same
 * instant, one may be missed.
 */
export class Breaker {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #service: string;
  readonly #words: Int32Array;
  readonly #cells: Float64Array;
  #settings: BreakerSettings;
  #requests: RollingCount;
  #failures: RollingCount;

  constructor(
    { clock, log, service, memory = new ArrayBuffer(BREAKER_BYTES) }: BreakerOptions,
    settings: BreakerSettings,
  ) {
    this.#clock = clock;
    this.#log = log;
    this.#service = service;
    this.#words = new Int32Array(memory, 0, WORDS_BYTES / Int32Array.BYTES_PER_ELEMENT);
    this.#cells = new Float64Array(memory, WORDS_BYTES, CELLS);
    this.#settings = settings;
    this.#requests = this.#counted(REQUESTS);
    this.#failures = this.#counted(FAILURES);
  }

  /** Sets new settings after a reload: its state stays, unless fewer probes are required now than have passed. */
  configure(settings: BreakerSettings): void {
    this.#settings = settings;
    this.#requests = this.#counted(REQUESTS);
    this.#failures = this.#counted(FAILURES);
    const term = this.#term;
    // Otherwise no other probe would be admitted to find that out.
    if ((term & OF_STATE) === HALF_OPEN && Atomics.load(this.#words, PASSED) >= settings.probes) this.#close(term);
  }

  /** Admits a request and returns the number to pass to `settle`, once; -1 refuses it. */
  admit(): number {
    for (;;) {
      const term = this.#term;
      const state = term & OF_STATE;
      if (state === CLOSED) return term;
      const now = this.#clock.now();
      if (state === OPEN) {
        if (this.retryAfterMs > 0) return -1;
        this.#cells[PROBED_AT] = now;
        this.#enter(term, HALF_OPEN);
        continue;
      }
      const { probes, openMs } = this.#settings;
      const admitted = Atomics.load(this.#words, ADMITTED);
      // If a probe takes this long (an upload, an upstream that hangs, a worker that died), another one is admitted.
      if (admitted >= probes && now < this.#cells[PROBED_AT]! + openMs) return -1;
      if (Atomics.compareExchange(this.#words, ADMITTED, admitted, admitted + 1) !== admitted) continue;
      this.#cells[PROBED_AT] = now;
      return term;
    }
  }

  settle(admission: number, verdict: Verdict): void {
    const term = this.#term;
    if (admission !== term) return;
    if ((term & OF_STATE) === CLOSED) {
      if (verdict !== "unknown") this.#count(term, verdict);
    } else if (verdict === "unknown") Atomics.sub(this.#words, ADMITTED, 1);
    else if (verdict === "failed") this.#open(term, "a probe failed");
    else if (Atomics.add(this.#words, PASSED, 1) + 1 >= this.#settings.probes) this.#close(term);
  }

  /** Milliseconds until requests are admitted again; 0 while they are. */
  get retryAfterMs(): number {
    if ((this.#term & OF_STATE) !== OPEN) return 0;
    return Math.max(0, this.#cells[OPENED_AT]! + this.#settings.openMs - this.#clock.now());
  }

  get report(): BreakerReport {
    return { state: STATES[this.#term & OF_STATE]!, since: this.#cells[SINCE]! || null };
  }

  /** Within the window, while it is closed. */
  get counts(): { readonly requests: number; readonly failures: number } {
    const now = this.#clock.now();
    return { requests: this.#requests.total(now), failures: this.#failures.total(now) };
  }

  get #term(): number {
    return Atomics.load(this.#words, TERM);
  }

  #counted(first: number): RollingCount {
    return new RollingCount(this.#settings.windowMs, this.#cells.subarray(first, first + RollingCount.CELLS));
  }

  #count(term: number, verdict: "passed" | "failed"): void {
    const now = this.#clock.now();
    const { minRequests, errorRatio, windowMs } = this.#settings;
    this.#requests.add(now);
    if (verdict === "passed") return;
    this.#failures.add(now);
    const requests = this.#requests.total(now);
    const failures = this.#failures.total(now);
    if (requests < minRequests || failures < errorRatio * requests) return;
    this.#open(term, `${failures} of ${requests} requests failed within ${windowMs} ms`);
  }

  #open(term: number, reason: string): void {
    this.#cells[OPENED_AT] = this.#clock.now();
    if (!this.#enter(term, OPEN)) return;
    // By the one thread that opened it, long before the first probe.
    Atomics.store(this.#words, ADMITTED, 0);
    Atomics.store(this.#words, PASSED, 0);
    this.#log.warn("circuit opened: requests are refused", {
      service: this.#service,
      reason,
      for_ms: this.#settings.openMs,
    });
  }

  #close(term: number): void {
    this.#requests.clear();
    this.#failures.clear();
    if (this.#enter(term, CLOSED)) this.#log.info("circuit closed: requests pass again", { service: this.#service });
  }

  /** False: another thread has ended this term. */
  #enter(term: number, state: number): boolean {
    const next = (term + ((state - term) & OF_STATE)) & MAX_TERM;
    if (Atomics.compareExchange(this.#words, TERM, term, next) !== term) return false;
    this.#cells[SINCE] = this.#clock.wall();
    return true;
  }
}

const CIRCUIT_OPEN =
  "Too many requests to the service behind this route have failed. Try again after the time in Retry-After.";

/** Asks `next` while the breaker admits requests. */
export function guarded(next: Handler, breaker: CircuitBreaker): Handler {
  return async (exchange) => {
    const admission = breaker.admit();
    if (admission < 0) {
      const wait = Math.max(1, Math.ceil(breaker.retryAfterMs / 1000));
      return problem(exchange.call, "circuit_open", { detail: CIRCUIT_OPEN, headers: ["Retry-After", String(wait)] });
    }
    let verdict: Verdict = "unknown";
    try {
      const reply = await next(exchange);
      verdict = verdictOf(exchange, reply);
      return reply;
    } finally {
      breaker.settle(admission, verdict);
    }
  };
}

/**
 * A request has failed if the upstream did not answer it, or with 5xx. Failures of the client or the gateway say
 * nothing.
 */
function verdictOf({ call }: Exchange, { status }: Reply): Verdict {
  const { code, isExcused } = call.notes;
  if (call.aborted || (code !== null && (isExcused || (ERRORS[code as ErrorCode]?.side ?? "upstream") !== "upstream")))
    return "unknown";
  // No upstream was asked: the breaker gets no result, and would only delay its return.
  if (code === "upstream_unavailable") return "unknown";
  return status >= 500 ? "failed" : "passed";
}
