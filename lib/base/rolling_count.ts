/**
 * Counts what happened within the last so many milliseconds, in ten steps: bounded memory, no timer, a step of inexactness.
 * What is counted, and what the count means, is the callers' affair.
 */

const STEPS = 10;

export class RollingCount {
  readonly #stepMs: number;
  readonly #steps = new Array<number>(STEPS).fill(0);
  /** Number of the newest step since the clock's beginning. */
  #newest = 0;
  #sum = 0;

  /** `windowMs` in milliseconds, at least 1. What is older than the window, or up to a tenth of it younger, is forgotten. */
  constructor(windowMs: number) {
    this.#stepMs = windowMs / STEPS;
  }

  /** `now` in milliseconds, monotonic; never earlier than in a call before. */
  add(now: number): void {
    this.#moveTo(now);
    this.#steps[this.#newest % STEPS]!++;
    this.#sum++;
  }

  total(now: number): number {
    this.#moveTo(now);
    return this.#sum;
  }

  clear(): void {
    this.#steps.fill(0);
    this.#sum = 0;
  }

  #moveTo(now: number): void {
    const step = Math.floor(now / this.#stepMs);
    if (step === this.#newest) return;
    // Further than the whole window: one round empties it.
    const first = Math.max(this.#newest + 1, step - STEPS + 1);
    for (let i = first; i <= step; i++) {
      this.#sum -= this.#steps[i % STEPS]!;
      this.#steps[i % STEPS] = 0;
    }
    this.#newest = step;
  }
}
