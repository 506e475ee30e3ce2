/**
 * Time as an argument, so that specs can set it: a monotonic clock, the wall clock, timers, and one timer for many
 * deadlines.
 */
import { entry, reportEntryFault } from "./event_loop.ts";

export interface Timer {
  cancel(): void;
  /** Starts the full duration again, from now. */
  restart(): void;
}

export interface Clock {
  /** Milliseconds since an arbitrary moment; never goes backwards. */
  now(): number;
  /** Milliseconds since 1970-01-01T00:00:00Z. */
  wall(): number;
  /** Calls `run` once after `ms` milliseconds, unless cancelled. A pending timer does not keep the process alive. */
  after(ms: number, run: () => void): Timer;
}

/** In milliseconds: Node runs longer timers at once, with a warning each. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => performance.now(),
  wall: () => Date.now(),
  after(ms, run) {
    const handle = setTimeout(entry("a timer", run), ms).unref();
    return { cancel: () => clearTimeout(handle), restart: () => void handle.refresh() };
  },
};

/** Resolves with `done`, or after `maxMs` milliseconds; nothing is cancelled. The wait keeps the process alive. */
export async function waitAtMost(done: Promise<unknown>, maxMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([done, new Promise((resolve) => (timer = setTimeout(resolve, maxMs)))]);
  clearTimeout(timer);
}

export interface HasDeadline {
  /** Moment of the monotonic clock; Infinity: none. */
  readonly dueAt: number;
  /** Index in the timer's list, set by the timer; -1 while the object is not watched. */
  index: number;
  /** The deadline has passed. The callback must remove the entry or set a later deadline. */
  overdue(now: number): void;
}

/**
 * One timer for many deadlines, set to the first of them: a timer for each would be created and discarded with every
 * request.
 */
export class DeadlineTimer {
  readonly #clock: Clock;
  /**
   * In no order. Not a Set: the tables it leaves behind as it comes and goes each hold the next one, and with them,
   * until the next full collection, every former exchange (half of all garbage, 25 µs a request). Not a heap: most
   * deadlines are met, and to keep them in order would cost every request more than a check of all of them costs now
   * and then.
   */
  readonly #watched: HasDeadline[] = [];
  #timer: Timer | null = null;
  /** The deadline that the timer is set for; Infinity without a timer. */
  #looksAt = Infinity;
  /** The next check does not begin earlier. */
  #restsUntil = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * To be called again when a deadline has become an earlier one. A later deadline is noticed when the timer checks.
   */
  add(watched: HasDeadline, now: number): void {
    if (watched.index < 0) watched.index = this.#watched.push(watched) - 1;
    if (watched.dueAt < this.#looksAt) this.#lookAt(watched.dueAt, now);
  }

  /** Sets a deadline in `ms` milliseconds (0: there is none), and at `latest` in any case (Infinity: never). */
  watch(watched: HasDeadline & { dueAt: number }, ms: number, latest: number): void {
    watched.dueAt = latest;
    if (ms === 0 && latest === Infinity) return this.remove(watched);
    const now = this.#clock.now();
    if (ms > 0) watched.dueAt = Math.min(latest, now + ms);
    this.add(watched, now);
  }

  remove(watched: HasDeadline): void {
    const { index } = watched;
    if (index < 0) return;
    const last = this.#watched.pop()!;
    if (last !== watched) this.#watched[(last.index = index)] = last;
    watched.index = -1;
    if (this.#watched.length === 0) this.#lookAt(Infinity, 0);
  }

  /**
   * Calls `look` about once a second, together with all other looks, until the function returned is called. `now`: the
   * monotonic clock.
   * `elapsedMs`: since the last look, or since the first one was asked for; two seconds at most.
   */
  everySecond(look: (now: number, elapsedMs: number) => void): () => void {
    let lookedAt = this.#clock.now();
    const watched = {
      dueAt: nextSecond(lookedAt),
      index: -1,
      overdue(now: number) {
        // A pause of our own, with bytes waiting in the sockets, is not counted against the clients.
        const elapsedMs = Math.min(now - lookedAt, 2_000);
        lookedAt = now;
        watched.dueAt = nextSecond(now);
        look(now, elapsedMs);
      },
    };
    this.add(watched, lookedAt);
    return () => this.remove(watched);
  }

  /** Timers may fire a fraction of a millisecond early: entries that are not due yet are checked again. */
  #lookAt(moment: number, now: number): void {
    this.#timer?.cancel();
    this.#looksAt = moment;
    const ms = Math.ceil(Math.max(moment, this.#restsUntil) - now);
    this.#timer = moment === Infinity ? null : this.#clock.after(Math.max(0, ms), this.#look);
  }

  readonly #look = (): void => {
    this.#timer = null;
    this.#looksAt = Infinity;
    const now = this.#clock.now();
    this.#restsUntil = now + this.#watched.length / MAX_VISITS_A_MS;
    const due: HasDeadline[] = [];
    let first = Infinity;
    for (const watched of this.#watched) {
      const { dueAt } = watched;
      if (dueAt <= now) due.push(watched);
      else if (dueAt < first) first = dueAt;
    }
    for (const watched of due) {
      // A callback may remove other entries, and one that fails must not keep others from being noticed.
      try {
        if (watched.index >= 0 && watched.dueAt <= now) watched.overdue(now);
      } catch (error) {
        this.remove(watched);
        reportEntryFault(error, "a deadline");
      }
      if (watched.index >= 0 && watched.dueAt < first) first = watched.dueAt;
    }
    if (first < this.#looksAt) this.#lookAt(first, now);
  };
}

/** Whole seconds, so that all looks are due at once. */
function nextSecond(now: number): number {
  return (Math.floor(now / 1_000) + 1) * 1_000;
}

/**
 * A check visits every entry. Where deadlines pass one by one, the next check waits until the visits are no more than
 * this many a millisecond:
 * with 10,000 entries, deadlines are noticed up to 0.1 s late, and in 1 % of one processor's time.
 */
const MAX_VISITS_A_MS = 100;
