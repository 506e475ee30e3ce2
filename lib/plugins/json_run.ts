/**
 * How a JSON Schema is run over a value: what is found, how much work it may take, and the pauses in which the event loop serves others. What
 * a schema asks for is `json_schema.ts`.
 */
import type { NextTimeSlice } from "../base/time_slices.ts";
import type { Meter } from "./linear_pattern.ts";

export interface Violation {
  /** A JSON Pointer (RFC 6901); "" is the whole. */
  readonly at: string;
  readonly message: string;
}

export type Check = (value: unknown, at: string, run: Run) => Done;

/** Nothing, or a promise of the end where the work has had to pause. */
export type Done = void | Promise<void>;

/** The work that one request may cause: in all, and before the next pause. A step takes some 20 to 100 nanoseconds. */
export class Work implements Meter {
  readonly #nextSlice: NextTimeSlice;
  readonly #sliceSteps: number;
  #left: number;
  #slice: number;

  constructor(mostSteps: number, nextSlice: NextTimeSlice, sliceSteps = SLICE_STEPS) {
    this.#nextSlice = nextSlice;
    this.#sliceSteps = sliceSteps;
    this.#left = mostSteps;
    this.#slice = sliceSteps;
  }

  spend(steps: number): void {
    this.#left -= steps;
    this.#slice -= steps;
    if (this.#left < 0 || this.#slice < -MOST_OVERRUN) throw new TooMuchWork();
  }

  get isDue(): boolean {
    return this.#slice <= 0;
  }

  /** Resolves when the work may go on. */
  async pause(): Promise<void> {
    await this.#nextSlice();
    this.#slice = this.#sliceSteps;
  }
}

/** One or two milliseconds. */
const SLICE_STEPS = 25_000;
/** What cannot pause: one value that is written out to be compared, the names of one object. */
const MOST_OVERRUN = 500_000;

/** One look at one request, or at one form of a value: what is wrong with it so far. */
export class Run {
  readonly work: Work;
  readonly #most: number;
  readonly #violations: Violation[] | null;
  #found = 0;

  /** "count": nobody asks what is wrong, only whether anything is. */
  constructor(most: number, work: Work, what: "list" | "count" = "list") {
    this.#most = most;
    this.work = work;
    this.#violations = what === "list" ? [] : null;
  }

  get violations(): readonly Violation[] {
    return this.#violations ?? [];
  }

  get isFull(): boolean {
    return this.#found >= this.#most;
  }

  spend(steps: number): void {
    this.work.spend(steps);
  }

  add(at: string, message: string): void {
    if (this.isFull) return;
    this.#found++;
    this.#violations?.push({ at: at.length > MAX_POINTER ? `${at.slice(0, MAX_POINTER)}…` : at, message });
  }

  /** Whether the value fits, without a word about why not. */
  fits(check: Check, value: unknown): boolean | Promise<boolean> {
    const attempt = new Run(1, this.work, "count");
    const done = check(value, "", attempt);
    return done === undefined ? !attempt.isFull : done.then(() => !attempt.isFull);
  }
}

/** Thrown where a value would take longer to check than anything of its length should. */
export class TooMuchWork extends Error {}

const MAX_POINTER = 500;

/** Does `step` for 0, 1, 2, … up to `count`, one after the other, until the run is full. */
export function eachOf(count: number, run: Run, step: (i: number) => Done, from = 0): Done {
  for (let i = from; i < count && !run.isFull; i++) {
    const done = step(i);
    if (done !== undefined) return done.then(() => eachOf(count, run, step, i + 1));
  }
}

/** How many of 0, 1, 2, … below `count` pass; stops at `enough`. */
export function countOf(count: number, enough: number, passes: (i: number) => boolean | Promise<boolean>, from = 0, found = 0): number | Promise<number> {
  for (let i = from; i < count && found < enough; i++) {
    const passed = passes(i);
    if (typeof passed !== "boolean") return passed.then((later) => countOf(count, enough, passes, i + 1, later ? found + 1 : found));
    if (passed) found++;
  }
  return found;
}

/** Goes on with a result that may have to be waited for. */
export function andThen<T>(result: T | Promise<T>, next: (result: T) => Done): Done {
  return result instanceof Promise ? result.then(next) : next(result);
}
