/**
 * Those who wait for a place on a connection, first come first served, each for so long. Who has places to give is `pool.ts` and
 * `sessions.ts`.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";

interface Waiter<T> {
  readonly grant: (place: T) => void;
  readonly refuse: (fault: Fault) => void;
  readonly timer: Timer;
}

export class WaitQueue<T> {
  readonly #clock: Clock;
  readonly #take: () => T | null;
  readonly #waiting = new Set<Waiter<T>>();

  /** `take` gives a place, or null when there is none. */
  constructor(clock: Clock, take: () => T | null) {
    this.#clock = clock;
    this.#take = take;
  }

  get length(): number {
    return this.#waiting.size;
  }

  /** Resolves with a place. Rejects with `upstream_saturated` after `ms` milliseconds, for which `why` is then asked. */
  wait(ms: number, onAbort: (run: () => void) => void, why: () => string): Promise<T> {
    return new Promise((resolve, reject) => {
      const giveUp = (fault: Fault) => {
        if (!this.#waiting.delete(waiter)) return;
        waiter.timer.cancel();
        reject(fault);
      };
      const waiter: Waiter<T> = {
        grant: resolve,
        refuse: giveUp,
        timer: this.#clock.after(ms, () => giveUp(new Fault("upstream_saturated", `no connection became free within ${ms} ms (${why()})`))),
      };
      this.#waiting.add(waiter);
      onAbort(() => {
        // Long granted, in most cases: no fault is made for nothing.
        if (this.#waiting.has(waiter)) giveUp(new Fault("upstream_saturated", "the client went away while waiting for a connection"));
      });
    });
  }

  /** Gives what places there are to those who have waited longest. */
  grant(): void {
    for (const waiter of this.#waiting) {
      const place = this.#take();
      if (place === null) return;
      this.#waiting.delete(waiter);
      waiter.timer.cancel();
      waiter.grant(place);
    }
  }

  /** Sends everybody away. */
  refuse(fault: () => Fault): void {
    for (const waiter of [...this.#waiting]) waiter.refuse(fault());
  }
}
