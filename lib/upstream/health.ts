/**
 * The health of one upstream: the results of active checks, its responses to clients, and its share of requests after a
 * return.
 *
 *   active    unknown ──checks pass──► healthy ◄──checks pass── unhealthy      unknown counts as usable
 *                └─────────checks fail───┴──────checks fail──────►┘
 *   passive   in ──max_failures within window_ms──► ejected ──eject_ms, longer while it repeats──► in (slow_start_ms)
 */
import type { Timer } from "../base/clock.ts";
import type {
  FailureCounts,
  HealthMemory,
  HealthOptions,
  HealthPlace,
  HealthReport,
  HealthSettings,
} from "./contracts.ts";

export { fields } from "../config/health.ts";

/** An ejection is a repetition when it follows the return from the last within this many times `ejectMs`. */
const REPEATS_WITHIN = 10;
const MAX_TIMES_LONGER = 10;
/** The fraction at which a slow start begins. */
const FIRST_SHARE = 0.1;

const NO_CHECKS: HealthSettings = {
  active: null,
  passive: { maxFailures: 0, windowMs: 10_000, ejectMs: 10_000, statuses: [], slowStartMs: 0 },
};

const UNKNOWN: HealthReport = { state: "unknown", since: null, reason: null, until: null };

/** A 32-bit word, the state, and a 64-bit cell: when a slow start is over, on the monotonic clock; 0: there is none. */
export const HEALTH_BYTES = 16;
const STATE = 0;
const SLOW_UNTIL = 1;

const USABLE = 0;
const EJECTED = 1;
const UNHEALTHY = 2;

/**
 * What is decided in one thread, the main thread of workers, as all others see it: they read it in the memory that they
 * share, and report failures.
 */
export class PublishedHealth {
  /** Statuses of responses that count as failures; null: `answered` need not be called. */
  failureStatuses: ReadonlySet<number> | null = null;
  protected readonly options: HealthOptions;
  protected place: HealthPlace;
  protected settings = NO_CHECKS;
  readonly #reports: Pick<FailureCounts, "add"> | null;

  /** `memory`: what the thread that decides writes. `reports` are for that thread; null: it is this one. */
  constructor(options: HealthOptions, memory: HealthMemory, reports: Pick<FailureCounts, "add"> | null) {
    this.options = options;
    this.place = placeOf(memory);
    this.#reports = reports;
  }

  get memory(): ArrayBufferLike {
    return this.place.memory;
  }

  moveTo(place: HealthMemory): void {
    this.place = placeOf(place);
  }

  /**
   * Sets new settings after a reload: results of checks and ejections stay, unless the checks that caused them are off
   * now.
   */
  configure(settings: HealthSettings): void {
    this.settings = settings;
    const { statuses } = settings.passive;
    this.failureStatuses = statuses.length === 0 ? null : new Set(statuses);
  }

  /** Read by balancers when it may have changed. */
  get usable(): boolean {
    return this.#state === USABLE;
  }

  /** Whether it is ejected and not unhealthy: it is used if no other upstream is left. */
  get ejected(): boolean {
    return this.#state === EJECTED;
  }

  /**
   * The share of its weight that counts, above 0 to 1: less than 1 during a slow start. Read by balancers for every
   * request.
   */
  get share(): number {
    const until = this.place.cells[SLOW_UNTIL]!;
    const { slowStartMs } = this.settings.passive;
    // A reload may have taken its time away.
    const leftMs = until === 0 || slowStartMs === 0 ? 0 : until - this.options.clock.now();
    return leftMs > 0 ? Math.max(FIRST_SHARE, 1 - leftMs / slowStartMs) : 1;
  }

  /** Counts a response to a client. */
  countAnswer(status: number): void {
    if (this.failureStatuses?.has(status)) this.countFailure(`status ${status}`);
  }

  /** Counts a failure: no connection, a broken one, no response in time, or a status that counts. */
  countFailure(reason: string): void {
    const { service, upstream } = this.options;
    if (this.settings.passive.maxFailures > 0 && !this.ejected) this.#reports?.add(service, upstream, reason);
  }

  /** Only the state: the main thread knows the rest, and is asked. */
  get report(): HealthReport {
    return { ...UNKNOWN, state: this.usable ? "unknown" : this.ejected ? "ejected" : "unhealthy" };
  }

  /** The upstream is no longer configured: nothing is counted or logged any more. */
  close(): void {
    this.settings = NO_CHECKS;
  }

  get #state(): number {
    return Atomics.load(this.place.words, STATE);
  }
}

/** The health of one upstream, in the thread that decides about it. */
export class Health extends PublishedHealth {
  /** By active checks. */
  #active = UNKNOWN;
  /** Checks in a row that contradict `#active`: positive ones passed, negative ones failed. */
  #contrary = 0;

  /** Times of the latest failures, oldest first; at most `maxFailures`. */
  #failures: number[] = [];
  #ejection: { readonly timer: Timer; readonly report: HealthReport } | null = null;
  /** In a row. */
  #ejections = 0;
  /** When the last ejection ended. */
  #returnedAt = -Infinity;

  /** `memory`: where other threads see it. Default: there is none. */
  constructor(options: HealthOptions, memory: HealthMemory | null = null) {
    super(options, memory ?? new ArrayBuffer(HEALTH_BYTES), null);
    this.place.cells[SLOW_UNTIL] = 0;
  }

  override moveTo(place: HealthMemory): void {
    const before = this.place;
    super.moveTo(place);
    this.place.words.set(before.words);
    before.free?.();
  }

  override configure(settings: HealthSettings): void {
    if (settings === this.settings) return;
    // A slow start ends as if it had begun under the new settings.
    if (this.place.cells[SLOW_UNTIL] !== 0)
      this.place.cells[SLOW_UNTIL]! += settings.passive.slowStartMs - this.settings.passive.slowStartMs;
    super.configure(settings);
    if (settings.active === null) {
      this.#active = UNKNOWN;
      this.#contrary = 0;
    }
    if (settings.passive.maxFailures === 0) {
      this.#failures = [];
      this.#endEjection();
    }
    this.#decide();
  }

  override get share(): number {
    const share = super.share;
    // The clock need not be asked again.
    if (share === 1) this.place.cells[SLOW_UNTIL] = 0;
    return share;
  }

  override countFailure(reason: string): void {
    const { maxFailures, windowMs } = this.settings.passive;
    if (maxFailures === 0 || this.#ejection !== null) return;
    const now = this.options.clock.now();
    const failures = this.#failures;
    failures.push(now);
    // More than one if a reload has lowered the limit.
    while (failures.length > maxFailures) failures.shift();
    if (failures.length < maxFailures || now - failures[0]! > windowMs || !this.options.mayEject()) return;
    this.#eject(now, reason);
  }

  /** Counts an active check: `failure` says why it did not pass; null: it passed. */
  checked(failure: string | null): void {
    const { active } = this.settings;
    if (active === null) return;
    const state = failure === null ? "healthy" : "unhealthy";
    if (state === this.#active.state) {
      this.#contrary = 0;
      return;
    }
    // Checks that contradict each other start the count again.
    const direction = failure === null ? 1 : -1;
    this.#contrary = Math.sign(this.#contrary) === direction ? this.#contrary + direction : direction;
    const needed = failure === null ? active.healthyThreshold : active.unhealthyThreshold;
    if (Math.abs(this.#contrary) < needed) return;
    const before = this.#active.state;
    this.#contrary = 0;
    this.#active = { state, since: this.options.clock.wall(), reason: failure, until: null };
    if (before === "unhealthy") this.#startSlowly();
    this.#decide();
    // Only now: what the log says holds already.
    const { log, service, upstream } = this.options;
    if (failure !== null) log.warn("upstream unhealthy: its checks fail", { service, upstream, reason: failure });
    else log.info("upstream healthy: its checks pass", { service, upstream });
  }

  override get report(): HealthReport {
    return this.#ejection === null || this.#active.state === "unhealthy" ? this.#active : this.#ejection.report;
  }

  override close(): void {
    super.close();
    this.#ejection?.timer.cancel();
    this.#ejection = null;
    this.place.free?.();
  }

  #eject(now: number, reason: string): void {
    const { clock, log, service, upstream } = this.options;
    const { ejectMs, maxFailures, windowMs } = this.settings.passive;
    this.#ejections = now - this.#returnedAt <= REPEATS_WITHIN * ejectMs ? this.#ejections + 1 : 1;
    const ms = ejectMs * Math.min(MAX_TIMES_LONGER, 2 ** (this.#ejections - 1));
    this.#failures = [];
    const since = clock.wall();
    const report = { state: "ejected", since, reason, until: since + ms } as const;
    this.#ejection = { timer: clock.after(ms, () => this.#return()), report };
    this.#decide();
    log.warn("upstream ejected: it fails requests", {
      service,
      upstream,
      reason,
      failures: maxFailures,
      within_ms: windowMs,
      for_ms: ms,
    });
  }

  #return(): void {
    this.#endEjection();
    this.#startSlowly();
    this.#decide();
    const { log, service, upstream } = this.options;
    log.info("upstream back: its ejection is over", { service, upstream });
  }

  #endEjection(): void {
    if (this.#ejection === null) return;
    this.#ejection.timer.cancel();
    this.#ejection = null;
    this.#returnedAt = this.options.clock.now();
  }

  #startSlowly(): void {
    const { slowStartMs } = this.settings.passive;
    if (slowStartMs > 0) this.place.cells[SLOW_UNTIL] = this.options.clock.now() + slowStartMs;
  }

  #decide(): void {
    // The state last: a slow start has begun by then.
    Atomics.store(
      this.place.words,
      STATE,
      this.#active.state === "unhealthy" ? UNHEALTHY : this.#ejection === null ? USABLE : EJECTED,
    );
    this.options.changed();
  }
}

function placeOf(memory: HealthMemory): HealthPlace {
  return "words" in memory ? memory : { memory, words: new Int32Array(memory), cells: new Float64Array(memory) };
}
