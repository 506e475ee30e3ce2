/**
 * Whether one upstream is to be used: what active checks found, what its answers to clients say, and how much it gets after a
 * return. Probing is `health_checks.ts`; who gets the requests instead is `upstream_set.ts` and `balance.ts`.
 *
 *   active    unknown ──checks pass──► healthy ◄──checks pass── unhealthy      unknown counts as usable
 *                └─────────checks fail───┴──────checks fail──────►┘
 *   passive   in ──max_failures within window_ms──► ejected ──eject_ms, longer while it repeats──► in (slow_start_ms)
 */
import type { Clock, Timer } from "../base/clock.ts";
import type { Log } from "../base/log.ts";

export interface HealthSettings {
  /** Null: no active checks. */
  readonly active: { readonly healthyThreshold: number; readonly unhealthyThreshold: number } | null;
  readonly passive: {
    /** Failures within `windowMs` that eject; 0: none do. */
    readonly maxFailures: number;
    readonly windowMs: number;
    /** The first ejection; it doubles while it repeats, to ten times. */
    readonly ejectMs: number;
    /** Statuses of answers that count as failures. */
    readonly statuses: readonly number[];
    /** After a return: time from a tenth of its share to the whole; 0: at once. */
    readonly slowStartMs: number;
  };
}

export interface HealthOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** For the log. */
  readonly service: string;
  readonly upstream: string;
  /** Whether another one is there to take its requests; asked before it is ejected. */
  readonly mayEject: () => boolean;
  /** Called when `usable` or `ejected` has changed. */
  readonly changed: () => void;
}

export type HealthState = "unknown" | "healthy" | "unhealthy" | "ejected";

export interface HealthReport {
  readonly state: HealthState;
  /** Since when, in milliseconds since 1970; null while nothing has been found out. */
  readonly since: number | null;
  /** Why it is unhealthy or ejected. */
  readonly reason: string | null;
  /** When an ejection ends, in milliseconds since 1970. */
  readonly until: number | null;
}

/** An ejection is a repetition when it follows the return from the last within this many times `ejectMs`. */
const REPEATS_WITHIN = 10;
const MOST_TIMES_LONGER = 10;
/** Where a slow start begins. */
const FIRST_SHARE = 0.1;

const UNTROUBLED: HealthSettings = {
  active: null,
  passive: { maxFailures: 0, windowMs: 10_000, ejectMs: 10_000, statuses: [], slowStartMs: 0 },
};

export class Health {
  /** Read by balancers for every request. */
  usable = true;
  readonly #options: HealthOptions;
  #settings = UNTROUBLED;
  #statuses: ReadonlySet<number> | null = null;

  #active: "unknown" | "healthy" | "unhealthy" = "unknown";
  #activeSince: number | null = null;
  #activeReason: string | null = null;
  /** Checks in a row that say other than what is believed. */
  #against = 0;

  /** When the latest failures were, oldest first; no more of them than `maxFailures`. */
  #failures: number[] = [];
  #ejection: { readonly timer: Timer; readonly since: number; readonly until: number; readonly reason: string } | null = null;
  /** How often in a row it was ejected. */
  #ejections = 0;
  /** When it came back from the last ejection. */
  #returnedAt = -Infinity;
  #slowSince: number | null = null;

  constructor(options: HealthOptions) {
    this.#options = options;
  }

  /** New settings, after a reload: what has been found out stays, as far as it is still asked for. */
  configure(settings: HealthSettings): void {
    this.#settings = settings;
    const { statuses, maxFailures } = settings.passive;
    this.#statuses = statuses.length === 0 ? null : new Set(statuses);
    if (settings.active === null && this.#active !== "unknown") {
      this.#active = "unknown";
      this.#activeSince = this.#activeReason = null;
      this.#against = 0;
    }
    if (maxFailures === 0) {
      this.#failures = [];
      this.#endEjection();
    }
    this.#decide();
  }

  /** Out because of its answers alone: better than nobody. */
  get ejected(): boolean {
    return this.#ejection !== null && this.#active !== "unhealthy";
  }

  /** Its part of its weight, above 0 to 1: less than 1 during a slow start. */
  get share(): number {
    if (this.#slowSince === null) return 1;
    const share = (this.#options.clock.now() - this.#slowSince) / this.#settings.passive.slowStartMs;
    if (share < 1) return Math.max(FIRST_SHARE, share);
    this.#slowSince = null;
    return 1;
  }

  /** It has answered a client. */
  answered(status: number): void {
    if (this.#statuses !== null && this.#statuses.has(status)) this.failed(`status ${status}`);
  }

  /** It has failed a client: no connection, a broken one, no answer in time, or a status that counts. */
  failed(reason: string): void {
    const { maxFailures, windowMs } = this.#settings.passive;
    if (maxFailures === 0 || this.#ejection !== null) return;
    const now = this.#options.clock.now();
    const failures = this.#failures;
    failures.push(now);
    // More than one where a reload has lowered the bound.
    while (failures.length > maxFailures) failures.shift();
    if (failures.length < maxFailures || now - failures[0]! > windowMs || !this.#options.mayEject()) return;
    this.#eject(now, reason);
  }

  /** An active check has ended: `failure` says why it did not pass, null that it did. */
  checked(failure: string | null): void {
    const { active } = this.#settings;
    if (active === null) return;
    const found = failure === null ? "healthy" : "unhealthy";
    if (found === this.#active) {
      this.#against = 0;
      return;
    }
    // Checks that differ among themselves start the count again; before the first verdict both ways are open.
    const direction = failure === null ? 1 : -1;
    this.#against = Math.sign(this.#against) === direction ? this.#against + direction : direction;
    const needed = failure === null ? active.healthyThreshold : active.unhealthyThreshold;
    if (Math.abs(this.#against) < needed) return;
    const before = this.#active;
    this.#against = 0;
    this.#active = found;
    this.#activeSince = this.#options.clock.wall();
    this.#activeReason = failure;
    const { log, service, upstream } = this.#options;
    if (failure !== null) log.warn("upstream unhealthy: its checks fail", { service, upstream, reason: failure });
    else log.info("upstream healthy: its checks pass", { service, upstream });
    if (before === "unhealthy") this.#startSlowly();
    this.#decide();
  }

  get report(): HealthReport {
    const ejection = this.#ejection;
    if (this.#active === "unhealthy" || ejection === null) {
      return { state: this.#active, since: this.#activeSince, reason: this.#activeReason, until: null };
    }
    const { since, until, reason } = ejection;
    return { state: "ejected", since, reason, until };
  }

  /** The upstream is no longer configured: what requests under way still find out about it concerns nobody. */
  close(): void {
    this.#settings = UNTROUBLED;
    this.#ejection?.timer.cancel();
  }

  #eject(now: number, reason: string): void {
    const { clock, log, service, upstream } = this.#options;
    const { ejectMs, maxFailures, windowMs } = this.#settings.passive;
    this.#ejections = now - this.#returnedAt <= REPEATS_WITHIN * ejectMs ? this.#ejections + 1 : 1;
    const ms = ejectMs * Math.min(MOST_TIMES_LONGER, 2 ** (this.#ejections - 1));
    this.#failures = [];
    const since = clock.wall();
    this.#ejection = { timer: clock.after(ms, () => this.#return()), since, until: since + ms, reason };
    log.warn("upstream ejected: it fails requests", { service, upstream, reason, failures: maxFailures, within_ms: windowMs, for_ms: ms });
    this.#decide();
  }

  #return(): void {
    this.#endEjection();
    const { log, service, upstream } = this.#options;
    log.info("upstream back: its ejection is over", { service, upstream });
    this.#startSlowly();
    this.#decide();
  }

  #endEjection(): void {
    if (this.#ejection === null) return;
    this.#ejection.timer.cancel();
    this.#ejection = null;
    this.#returnedAt = this.#options.clock.now();
  }

  #startSlowly(): void {
    if (this.#settings.passive.slowStartMs > 0) this.#slowSince = this.#options.clock.now();
  }

  #decide(): void {
    this.usable = this.#active !== "unhealthy" && this.#ejection === null;
    this.#options.changed();
  }
}
