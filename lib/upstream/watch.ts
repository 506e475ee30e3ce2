/**
 * One timer for the deadlines of all exchanges of a pool, set to the first of them: a timer of its own for each would be made and thrown
 * away with every request. What a deadline means is `forward_wire.ts`.
 */
import type { Clock, Timer } from "../base/clock.ts";

export interface Watched {
  /** Moment of the monotonic clock; Infinity: none. */
  readonly dueAt: number;
  /** It has come. What is watched leaves, or has another one. */
  overdue(now: number): void;
}

export class Watch {
  readonly #clock: Clock;
  readonly #watched = new Set<Watched>();
  #timer: Timer | null = null;
  /** When the timer looks; Infinity without one. */
  #looksAt = Infinity;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** To be called again when a deadline has become an earlier one. One that has become later is found out when the timer looks. */
  add(watched: Watched, now: number): void {
    this.#watched.add(watched);
    if (watched.dueAt < this.#looksAt) this.#lookAt(watched.dueAt, now);
  }

  remove(watched: Watched): void {
    this.#watched.delete(watched);
    if (this.#watched.size > 0 || this.#timer === null) return;
    this.#timer.cancel();
    this.#timer = null;
    this.#looksAt = Infinity;
  }

  #lookAt(moment: number, now: number): void {
    this.#timer?.cancel();
    this.#looksAt = moment;
    // Timers may run early, by a part of a millisecond; what is not due then is looked at again.
    this.#timer = this.#clock.after(Math.max(0, Math.ceil(moment - now)), () => this.#look());
  }

  #look(): void {
    this.#timer = null;
    this.#looksAt = Infinity;
    const now = this.#clock.now();
    for (const watched of this.#watched) if (watched.dueAt <= now) watched.overdue(now);
    let first = Infinity;
    for (const { dueAt } of this.#watched) first = Math.min(first, dueAt);
    if (first !== Infinity && first < this.#looksAt) this.#lookAt(first, now);
  }
}
