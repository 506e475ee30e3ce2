/**
 * The circuit breaker of one service: while too many requests fail, the next ones are refused at once, so that the upstreams can recover.
 *
 *   closed ──error_ratio of at least min_requests within window_ms──► open ──open_ms──► half-open
 *     ▲                                                                ▲                   │
 *     └──────────────────────all probes pass───────────────────────────┼───────────────────┤
 *                                                                      └──a probe fails────┘
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { RollingCount } from "../base/rolling_count.ts";

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

export class Breaker {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #service: string;
  #settings: BreakerSettings;
  #requests: RollingCount;
  #failures: RollingCount;
  #state: BreakerState = "closed";
  #since: number | null = null;
  #openedAt = 0;
  /** Changes with the state: requests that were admitted in another term do not count. */
  #term = 0;
  #probesOut = 0;
  #probesPassed = 0;
  /** When the latest probe was admitted. */
  #probedAt = 0;

  constructor(options: { readonly clock: Clock; readonly log: Log; readonly service: string }, settings: BreakerSettings) {
    this.#clock = options.clock;
    this.#log = options.log;
    this.#service = options.service;
    this.#settings = settings;
    this.#requests = new RollingCount(settings.windowMs);
    this.#failures = new RollingCount(settings.windowMs);
  }

  /** Sets new settings after a reload: its state stays, unless fewer probes are required now than have passed. */
  configure(settings: BreakerSettings): void {
    if (settings.windowMs !== this.#settings.windowMs) {
      this.#requests = new RollingCount(settings.windowMs);
      this.#failures = new RollingCount(settings.windowMs);
    }
    this.#settings = settings;
    // Otherwise no other probe would be admitted to find that out.
    if (this.#state === "half_open" && this.#probesPassed >= settings.probes) this.#close();
  }

  /** Admits a request and returns the number to pass to `settle`, once; -1 refuses it. */
  admit(): number {
    if (this.#state === "open" && this.retryAfterMs === 0) this.#enter("half_open");
    if (this.#state === "closed") return this.#term;
    if (this.#state === "open") return -1;
    const { probes, openMs } = this.#settings;
    const now = this.#clock.now();
    // If a probe takes this long (an upload, an upstream that hangs), another one is admitted.
    if (this.#probesOut + this.#probesPassed >= probes && now < this.#probedAt + openMs) return -1;
    this.#probesOut++;
    this.#probedAt = now;
    return this.#term;
  }

  settle(admission: number, verdict: Verdict): void {
    if (admission !== this.#term) return;
    if (this.#state === "closed") {
      if (verdict !== "unknown") this.#count(verdict);
      return;
    }
    this.#probesOut--;
    if (verdict === "failed") this.#open("a probe failed");
    else if (verdict === "passed" && ++this.#probesPassed >= this.#settings.probes) this.#close();
  }

  /** Milliseconds until requests are admitted again; 0 while they are. */
  get retryAfterMs(): number {
    return this.#state === "open" ? Math.max(0, this.#openedAt + this.#settings.openMs - this.#clock.now()) : 0;
  }

  get report(): BreakerReport {
    return { state: this.#state, since: this.#since };
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
    this.#enter("open");
    this.#openedAt = this.#clock.now();
    this.#log.warn("circuit opened: requests are refused", { service: this.#service, reason, for_ms: this.#settings.openMs });
  }

  #close(): void {
    this.#enter("closed");
    this.#requests.clear();
    this.#failures.clear();
    this.#log.info("circuit closed: requests pass again", { service: this.#service });
  }

  #enter(state: BreakerState): void {
    this.#state = state;
    this.#since = this.#clock.wall();
    this.#term++;
    this.#probesOut = 0;
    this.#probesPassed = 0;
  }
}
