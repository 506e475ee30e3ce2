/**
 * Counts events within a sliding time window, in ten steps: bounded memory, no timer, accurate to one step.
 */

const STEPS = 10;
/**
 * Cells behind those of the steps: the number of the newest step since the clock's beginning, and the window that the
 * steps are of.
 */
const NEWEST = STEPS;
const WINDOW = STEPS + 1;

export class RollingCount {
  /** How many cells it needs. */
  static readonly CELLS = STEPS + 2;
  readonly #windowMs: number;
  readonly #cells: Float64Array;

  /**
   * `windowMs` is at least 1. Events older than the window are forgotten, some up to a tenth of the window early.
   * `cells` may be memory that threads share, which may miss an event that another one counts at the same instant; what
   * they hold goes on, unless it was counted for another window.
   */
  constructor(windowMs: number, cells: Float64Array = new Float64Array(RollingCount.CELLS)) {
    this.#windowMs = windowMs;
    this.#cells = cells;
  }

  /** `now` in milliseconds, monotonic. */
  add(now: number): void {
    this.#moveTo(now);
    this.#cells[this.#cells[NEWEST]! % STEPS]!++;
  }

  total(now: number): number {
    this.#moveTo(now);
    let sum = 0;
    for (let i = 0; i < STEPS; i++) sum += this.#cells[i]!;
    return sum;
  }

  clear(): void {
    this.#cells.fill(0, 0, STEPS);
  }

  /** A thread may die between any two of these lines: the next one does again what it has not done. */
  #moveTo(now: number): void {
    const cells = this.#cells;
    const step = Math.floor((now * STEPS) / this.#windowMs);
    if (cells[WINDOW] !== this.#windowMs) {
      this.clear();
      cells[NEWEST] = step;
      cells[WINDOW] = this.#windowMs;
    }
    const newest = cells[NEWEST]!;
    if (step <= newest) return;
    // After more than the whole window, one pass clears all steps.
    for (let i = Math.max(newest + 1, step - STEPS + 1); i <= step; i++) cells[i % STEPS] = 0;
    cells[NEWEST] = step;
  }
}
