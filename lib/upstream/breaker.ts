/**
 * The circuit breaker of one service: while too many requests fail, the next ones are refused at once, so that the upstreams can recover.
 *
 *   closed ──error_ratio of at least min_requests within window_ms──► open ──open_ms──► half-open
 *     ▲                                                                ▲                   │
 *     └──────────────────────all probes pass───────────────────────────┼───────────────────┤
 *                                                                      └──a probe fails────┘
 */
import type { Clock } from "../base/clock.ts";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { acquire, freeLockOf, release } from "../base/lock.ts";
import type { Log } from "../base/log.ts";
import { RollingCount } from "../base/rolling_count.ts";
import { ALONE, type Threads } from "../base/threads.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { problem, type Reply } from "../http/reply.ts";

export { fields } from "../config/circuit_breaker.ts";

export interface BreakerSettings {
  /** Share of failed requests that opens it, above 0 to 1. */
  readonly errorRatio: number;
  /** With fewer requests than this within the window it stays closed. */
  readonly minRequests: number;
  readonly windowMs: number;
  readonly openMs: number;
  /** Requests that are admitted after `openMs`, all of which have to pass. */
  readonly probes: number;
}

export type BreakerState = "closed" | "open" | "half_open";

export interface BreakerReport {
  readonly state: BreakerState;
  /** When it entered that state, in milliseconds since 1970; null if it never left "closed". */
  readonly since: number | null;
}

/** How an admitted request has ended; "unknown" says nothing about the service. */
export type Verdict = "passed" | "failed" | "unknown";

export interface BreakerOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly service: string;
  /** Holds its state: `BREAKER_BYTES`, at first all zero. Default: memory of its own. */
  readonly memory?: ArrayBufferLike;
  /** Whose memory it is; default: no other thread has it. */
  readonly threads?: Threads;
}

/** 32-bit words of the memory. The state is the place of its name in `STATES`. */
const LOCK = 0;
const STATE = 1;
/** Changes with the state: requests that were admitted in another term do not count. */
const TERM = 2;
const PROBES_OUT = 3;
const PROBES_PASSED = 4;
const WORDS_BYTES = 6 * Int32Array.BYTES_PER_ELEMENT;

/** 64-bit cells behind the words: when it entered its state, in milliseconds since 1970 (0: never); when it was opened; when the latest probe was admitted. */
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

/** One breaker for all threads that share its memory. The main thread of workers may only configure it and read its report. */
export class Breaker {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #service: string;
  readonly #words: Int32Array;
  readonly #cells: Float64Array;
  /** See `Threads.id`. */
  readonly #thread: number;
  readonly #isMain: boolean;
  #settings: BreakerSettings;
  #requests: RollingCount;
  #failures: RollingCount;

  constructor({ clock, log, service, memory = new ArrayBuffer(BREAKER_BYTES), threads = ALONE }: BreakerOptions, settings: BreakerSettings) {
    this.#clock = clock;
    this.#log = log;
    this.#service = service;
    this.#words = new Int32Array(memory, 0, WORDS_BYTES / Int32Array.BYTES_PER_ELEMENT);
    this.#cells = new Float64Array(memory, WORDS_BYTES, CELLS);
    this.#thread = threads.id;
    this.#isMain = threads.place < 0;
    this.#settings = settings;
    this.#requests = this.#counted(REQUESTS);
    this.#failures = this.#counted(FAILURES);
  }

  /** Sets new settings after a reload: its state stays, unless fewer probes are required now than have passed. */
  configure(settings: BreakerSettings): void {
    this.#settings = settings;
    this.#requests = this.#counted(REQUESTS);
    this.#failures = this.#counted(FAILURES);
    // Otherwise no other probe would be admitted to find that out. The main thread must not wait for the lock, and the workers do this, too.
    if (this.#isMain || this.#state !== HALF_OPEN) return;
    acquire(this.#words, LOCK, this.#thread);
    try {
      if (this.#state === HALF_OPEN && this.#words[PROBES_PASSED]! >= settings.probes) this.#close();
    } finally {
      release(this.#words, LOCK);
    }
  }

  /** Admits a request and returns the number to pass to `settle`, once; -1 refuses it. */
  admit(): number {
    // The term before the state: if another thread changes both meanwhile, the request does not count.
    const term = Atomics.load(this.#words, TERM);
    if (this.#state === CLOSED) return term;
    acquire(this.#words, LOCK, this.#thread);
    try {
      return this.#admit();
    } finally {
      release(this.#words, LOCK);
    }
  }

  settle(admission: number, verdict: Verdict): void {
    acquire(this.#words, LOCK, this.#thread);
    try {
      this.#settle(admission, verdict);
    } finally {
      release(this.#words, LOCK);
    }
  }

  /** Milliseconds until requests are admitted again; 0 while they are. */
  get retryAfterMs(): number {
    return this.#state === OPEN ? Math.max(0, this.#cells[OPENED_AT]! + this.#settings.openMs - this.#clock.now()) : 0;
  }

  get report(): BreakerReport {
    return { state: STATES[this.#state]!, since: this.#cells[SINCE]! || null };
  }

  /** Frees the lock if a dead thread holds it: whatever it was about to write, the state is one that the others can go on with. */
  freeLockOf(dead: number): void {
    freeLockOf(dead, this.#words, LOCK);
  }

  get #state(): number {
    return Atomics.load(this.#words, STATE);
  }

  #counted(first: number): RollingCount {
    return new RollingCount(this.#settings.windowMs, this.#cells.subarray(first, first + RollingCount.CELLS));
  }

  #admit(): number {
    const words = this.#words;
    if (this.#state === OPEN && this.retryAfterMs === 0) this.#enter(HALF_OPEN);
    if (this.#state === CLOSED) return words[TERM]!;
    if (this.#state === OPEN) return -1;
    const { probes, openMs } = this.#settings;
    const now = this.#clock.now();
    // If a probe takes this long (an upload, an upstream that hangs, a worker that died), another one is admitted.
    if (words[PROBES_OUT]! + words[PROBES_PASSED]! >= probes && now < this.#cells[PROBED_AT]! + openMs) return -1;
    words[PROBES_OUT]!++;
    this.#cells[PROBED_AT] = now;
    return words[TERM]!;
  }

  #settle(admission: number, verdict: Verdict): void {
    const words = this.#words;
    if (admission !== words[TERM]) return;
    if (this.#state === CLOSED) {
      if (verdict !== "unknown") this.#count(verdict);
      return;
    }
    words[PROBES_OUT]!--;
    if (verdict === "failed") this.#open("a probe failed");
    else if (verdict === "passed" && ++words[PROBES_PASSED]! >= this.#settings.probes) this.#close();
  }

  #count(verdict: "passed" | "failed"): void {
    const now = this.#clock.now();
    const { minRequests, errorRatio, windowMs } = this.#settings;
    this.#requests.add(now);
    if (verdict === "passed") return;
    this.#failures.add(now);
    const requests = this.#requests.total(now);
    const failures = this.#failures.total(now);
    if (requests < minRequests || failures < errorRatio * requests) return;
    this.#open(`${failures} of ${requests} requests failed within ${windowMs} ms`);
  }

  #open(reason: string): void {
    this.#cells[OPENED_AT] = this.#clock.now();
    this.#enter(OPEN);
    this.#log.warn("circuit opened: requests are refused", { service: this.#service, reason, for_ms: this.#settings.openMs });
  }

  #close(): void {
    this.#requests.clear();
    this.#failures.clear();
    this.#enter(CLOSED);
    this.#log.info("circuit closed: requests pass again", { service: this.#service });
  }

  /** The state last: a thread that dies before leaves the state before, in a new term. */
  #enter(state: number): void {
    const words = this.#words;
    this.#cells[SINCE] = this.#clock.wall();
    words[PROBES_OUT] = 0;
    words[PROBES_PASSED] = 0;
    Atomics.add(words, TERM, 1);
    Atomics.store(words, STATE, state);
  }
}

const CIRCUIT_OPEN = "Too many requests to the service behind this route have failed. Try again after the time in Retry-After.";

/** Asks `next` while the breaker admits requests. */
export function guarded(next: Handler, breaker: Breaker): Handler {
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

/** A request has failed if the upstream did not answer it, or with 5xx. Failures of the client or the gateway say nothing. */
function verdictOf({ call }: Exchange, { status }: Reply): Verdict {
  const { code, isExcused } = call.notes;
  if (call.aborted || (code !== null && (isExcused || (ERRORS[code as ErrorCode]?.side ?? "upstream") !== "upstream"))) return "unknown";
  // No upstream was asked: the breaker gets no result, and would only delay its return.
  if (code === "upstream_unavailable") return "unknown";
  return status >= 500 ? "failed" : "passed";
}
