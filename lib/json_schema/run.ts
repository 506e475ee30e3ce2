/**
 * One run of a compiled JSON Schema over a value: the violations found, the steps left, and the pauses for the event
 * loop.
 */
import type { StepMeter } from "../base/linear_pattern.ts";
import type { NextTimeSlice } from "../base/time_slices.ts";

interface Violation {
  /** The part of the request, as in `Run.part`. */
  readonly in: string;
  /** JSON Pointer (RFC 6901); "" is the whole value. */
  readonly at: string;
  readonly message: string;
}

export type Check = (value: unknown, at: string, run: Run) => Done;

/** Undefined when finished; a promise if the work had to pause. */
export type Done = void | Promise<void>;

/** The budget of one request: steps in all, and steps before the next pause. A step takes 20 to 100 nanoseconds. */
export class Work implements StepMeter {
  readonly #nextSlice: NextTimeSlice;
  readonly #sliceSteps: number;
  #left: number;
  #slice: number;
  /** Of objects with many names: listing them cannot pause, so it is done once. */
  #names: Map<object, string[]> | null = null;

  constructor(mostSteps: number, nextSlice: NextTimeSlice, sliceSteps = SLICE_STEPS) {
    this.#nextSlice = nextSlice;
    this.#sliceSteps = sliceSteps;
    this.#left = mostSteps;
    this.#slice = sliceSteps;
  }

  spend(steps: number): void {
    this.#left -= steps;
    this.#slice -= steps;
    if (this.#left < 0) throw new TooMuchWork();
  }

  get isDue(): boolean {
    return this.#slice <= 0;
  }

  async pause(): Promise<void> {
    await this.#nextSlice();
    this.#slice = this.#sliceSteps;
  }

  /** Spends steps for looking at a value: more for long texts and arrays. */
  spendOn(value: unknown): void {
    this.spend(typeof value === "string" || Array.isArray(value) ? 1 + (value.length >> 4) : 1);
  }

  namesOf(value: object): string[] {
    const known = this.#names?.get(value);
    if (known !== undefined) return known;
    const names = Object.keys(value);
    if (names.length > MANY_NAMES) (this.#names ??= new Map()).set(value, names);
    for (const name of names) this.spendOn(name);
    return names;
  }
}

/** One or two milliseconds. */
const SLICE_STEPS = 25_000;
const MANY_NAMES = 100;

/** Collects the violations of one value. */
export class Run {
  /** The part being checked; named in each violation that is added. */
  part = "";
  readonly work: Work;
  readonly violations: Violation[] = [];
  readonly #most: number;

  /** `most`: violations after which the run ends. */
  constructor(most: number, work: Work) {
    this.#most = most;
    this.work = work;
  }

  get isFull(): boolean {
    return this.violations.length >= this.#most;
  }

  /** Spends steps in a loop that does not look at values by a schema, which does so itself. */
  step(steps = 1): Done {
    this.work.spend(steps);
    if (this.work.isDue) return this.work.pause();
  }

  add(at: string, message: string): void {
    if (this.isFull) return;
    this.violations.push({ in: this.part, at: at.length > MAX_POINTER ? `${at.slice(0, MAX_POINTER)}…` : at, message });
  }

  /** Whether the value matches; its violations are not reported. */
  fits(check: Check, value: unknown): boolean | Promise<boolean> {
    const attempt = new Run(1, this.work);
    const done = check(value, "", attempt);
    return done === undefined ? !attempt.isFull : done.then(() => !attempt.isFull);
  }
}

/** Thrown when the steps are used up. */
export class TooMuchWork extends Error {}

const MAX_POINTER = 500;

/** The result of steps that yield where they can pause, and wait until the work may go on. */
export function resumed<T>(steps: Iterator<void, T>, work: Work): T | Promise<T> {
  const { done, value } = steps.next();
  return done === true ? value : work.pause().then(() => resumed(steps, work));
}

/** Calls `step` for 0, 1, … `count` − 1 in turn, until the run is full. */
export function eachOf(count: number, run: Run, step: (i: number) => Done, from = 0): Done {
  for (let i = from; i < count && !run.isFull; i++) {
    const done = step(i);
    if (done !== undefined) return done.then(() => eachOf(count, run, step, i + 1));
  }
}

/** How many of 0, 1, … `count` − 1 pass; stops at `enough`. */
export function countOf(
  count: number,
  enough: number,
  passes: (i: number) => boolean | Promise<boolean>,
  from = 0,
  found = 0,
): number | Promise<number> {
  for (let i = from; i < count && found < enough; i++) {
    const passed = passes(i);
    if (typeof passed !== "boolean")
      return passed.then((later) => countOf(count, enough, passes, i + 1, later ? found + 1 : found));
    if (passed) found++;
  }
  return found;
}

/** Continues with a result that may be a promise. */
export function andThen<T>(result: T | Promise<T>, next: (result: T) => Done): Done {
  return result instanceof Promise ? result.then(next) : next(result);
}
