/**
 * Looks at connections and uploads about once a second, for deadlines and for what no event reports.
 */
import type { Clock, Timer } from "../base/clock.ts";

const LOOK_MS = 1_000;

/** `now`: the monotonic clock. `elapsedMs`: since the last look, or since the first one was asked for. */
export type Look = (now: number, elapsedMs: number) => void;

/** One timer for all looks of a listener, running only while there are some. */
export class Sweep {
  readonly #clock: Clock;
  /** With the time of the last look. */
  readonly #looks = new Map<Look, number>();
  #timer: Timer | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Calls `look` about once a second; the function returned ends that. */
  watch(look: Look): () => void {
    this.#looks.set(look, this.#clock.now());
    this.#timer ??= this.#clock.after(LOOK_MS, this.#run);
    return () => {
      this.#looks.delete(look);
      if (this.#looks.size > 0) return;
      this.#timer?.cancel();
      this.#timer = null;
    };
  }

  readonly #run = (): void => {
    this.#timer = null;
    const now = this.#clock.now();
    for (const [look, lookedAt] of this.#looks) {
      this.#looks.set(look, now);
      // A pause of our own, with bytes waiting in the sockets, is not counted against the clients.
      look(now, Math.min(now - lookedAt, 2 * LOOK_MS));
    }
    if (this.#looks.size > 0) this.#timer ??= this.#clock.after(LOOK_MS, this.#run);
  };
}
