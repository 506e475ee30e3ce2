/**
 * Counts events within a sliding time window, in ten steps: bounded memory, no timer, accurate to one step.
 */

const STEPS = 10;

export class RollingCount {
  readonly #stepMs: number;
  readonly #steps = new Array<number>(STEPS).fill(0);
  /** Number of the newest step since the clock's beginning. */
  #newest = 0;
  #sum = 0;

  /** `windowMs` is at least 1. Events older than the window are forgotten, some up to a tenth of the window early. */
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
    // After more than the whole window, one pass clears all steps.
    const first = Math.max(this.#newest + 1, step - STEPS + 1);
    for (let i = first; i <= step; i++) {
      this.#sum -= this.#steps[i % STEPS]!;
      this.#steps[i % STEPS] = 0;
    }
    this.#newest = step;
  }
}
