/**
 * Counts requests or tries of one route, upstream, or the whole, in steps: of the last minute and since the start.
 */
import type { ReportReader, ReportWriter } from "./report.ts";
import { BUCKETS, COARSE, FIRST, MIDDLES, PLACES, SHIFT, SPLITS, TIME_BUCKETS, UNSPLIT } from "./time_buckets.ts";

/** Steps in the window, the current one included. */
export const WINDOW_STEPS = 12;

/** The same four bytes as a number and as its bits. */
const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

/** The number of the current step; shared by all counters. */
export interface StepCounter {
  current: number;
}

/** What is counted of statuses: their classes, and the refusals that operators look for. */
export const STATUSES = ["2xx", "3xx", "4xx", "5xx", "401", "403", "404"] as const;
const REFUSALS = [401, 403, 404];
export const HIGHEST_STATUS = 599;

/** Counts of one step, or of a report. */
interface Counts {
  readonly requests: number;
  readonly errors: number;
  readonly limited: number;
  /** A count for each of `STATUSES`; empty while there is none. */
  readonly statuses: ArrayLike<number>;
  /** Bucket and count in turn, without the empty buckets: a route's times seldom lie far apart. */
  readonly times: ArrayLike<number>;
}

interface Step extends Counts {
  readonly step: number;
  readonly statuses: readonly number[];
  readonly times: readonly number[];
}

interface TimedCounts extends Counts {
  readonly sumMs: number;
}

/** Counts and times of requests or tries. */
export class Tally {
  requests = 0;
  errors = 0;
  limited = 0;
  /** A count for each of `STATUSES`. Null, like the times, while there is none: most routes of a large configuration are quiet. */
  statuses: Uint32Array | null = null;
  /** A count for each of `TIME_BUCKETS`. */
  protected times: Uint32Array | null = null;

  add({ requests, errors, limited, statuses, times }: Counts): void {
    this.requests += requests;
    this.errors += errors;
    this.limited += limited;
    for (let i = 0; i < statuses.length; i++) (this.statuses ??= new Uint32Array(STATUSES.length))[i]! += statuses[i]!;
    if (times.length === 0) return;
    const sums = (this.times ??= new Uint32Array(TIME_BUCKETS));
    for (let i = 0; i < times.length; i += 2) sums[times[i]!]! += times[i + 1]!;
  }

  /** The time that a share of all (0.99: 99 in 100) did not exceed, in milliseconds, within 6.25 %; null when nothing was timed. */
  quantile(share: number): number | null {
    const timed = this.times?.reduce((sum, count) => sum + count) ?? 0;
    if (timed === 0) return null;
    let left = Math.max(1, Math.ceil(share * timed));
    let bucket = 0;
    while ((left -= this.times![bucket]!) > 0) bucket++;
    return MIDDLES[bucket]!;
  }

  clear(): void {
    this.times?.fill(0);
    this.statuses?.fill(0);
    this.requests = this.errors = this.limited = 0;
  }
}

/** The counts of one route or upstream: in the current step (as a Tally), in the earlier steps of the window, and since the start. */
export class Recent extends Tally {
  /** Sum of all times since the start, in milliseconds. */
  sumMs = 0;
  readonly #steps: StepCounter;
  /** The end of a step costs nothing: this is compared at the next count or reading. */
  #step: number;
  /** Earlier steps of the window with requests, oldest first. */
  #past: Step[] = [];
  /** Times before the current step, as in `counts`. */
  #countsBefore: number[] | null = null;

  constructor(steps: StepCounter = { current: 0 }) {
    super();
    this.#steps = steps;
    this.#step = steps.current;
  }

  /** `ms`: how long it took; null: not timed. `status`: null where statuses are not counted, or there was none. */
  count(isError: boolean, isLimited: boolean, ms: number | null, status: number | null = null): void {
    if (this.#step !== this.#steps.current) this.#endStep();
    this.requests++;
    if (isError) this.errors++;
    if (isLimited) this.limited++;
    if (status !== null && status >= 200 && status <= HIGHEST_STATUS) this.#countStatus(status);
    if (ms === null) return;
    this.sumMs += ms;
    (this.times ??= new Uint32Array(TIME_BUCKETS))[bucketOf(ms)]!++;
  }

  #countStatus(status: number): void {
    const counts = (this.statuses ??= new Uint32Array(STATUSES.length));
    counts[Math.floor(status / 100) - 2]!++;
    const refusal = REFUSALS.indexOf(status);
    if (refusal >= 0) counts[STATUSES.length - REFUSALS.length + refusal]!++;
  }

  /** Moves the counts into a report: those of the current step, since a thread that reports does not end steps. */
  take(report: ReportWriter): void {
    const { requests, errors, limited, statuses, times } = this.#current();
    report.add([requests, errors, limited, this.sumMs, statuses.length]);
    report.add(statuses);
    report.add([times.length]);
    report.add(times);
    // Without a request since the last report it may be quiet for long.
    if (requests === 0) this.times = this.statuses = null;
    this.clear();
    this.sumMs = 0;
  }

  /** Adds the counts of a report to the current step. */
  addCounts(counts: TimedCounts): void {
    if (this.#step !== this.#steps.current) this.#endStep();
    this.add(counts);
    this.sumMs += counts.sumMs;
  }

  /** Counts of all times since the start by Prometheus' buckets, the last one +Inf; null while nothing was timed. */
  get counts(): readonly number[] | null {
    return this.requests === 0 ? this.#countsBefore : withTimes(this.#countsBefore, this.#current().times);
  }

  /** Whether anything was counted in the window. */
  get isActive(): boolean {
    if (this.#step !== this.#steps.current) this.#endStep();
    return this.requests > 0 || this.#past.length > 0;
  }

  /** Adds the counts of the window, or of the current step alone, to `sum`. */
  addTo(sum: Tally, which: "window" | "step"): void {
    if (!this.isActive) return;
    if (this.requests > 0) sum.add(this.#current());
    if (which === "window") for (const step of this.#past) sum.add(step);
  }

  #current(): Step {
    const { requests, errors, limited, times: counts } = this;
    const times: number[] = [];
    if (counts !== null) for (let bucket = 0; bucket < TIME_BUCKETS; bucket++) if (counts[bucket] !== 0) times.push(bucket, counts[bucket]!);
    return { step: this.#step, requests, errors, limited, statuses: this.statuses === null ? [] : Array.from(this.statuses), times };
  }

  #endStep(): void {
    const first = this.#steps.current - WINDOW_STEPS + 1;
    if (this.requests > 0) {
      const ended = this.#current();
      this.#countsBefore = withTimes(this.#countsBefore, ended.times);
      this.#past.push(ended);
      this.clear();
    }
    while (this.#past.length > 0 && this.#past[0]!.step < first) this.#past.shift();
    if (this.#past.length === 0) this.times = this.statuses = null;
    this.#step = this.#steps.current;
  }
}

export function readCounts(report: ReportReader): TimedCounts {
  const [requests, errors, limited, sumMs] = [report.number(), report.number(), report.number(), report.number()];
  return { requests, errors, limited, sumMs, statuses: report.numbers(report.number()), times: report.numbers(report.number()) };
}

/** A copy of `counts`, Prometheus' buckets, with these times in them. Null where there is nothing. */
function withTimes(counts: readonly number[] | null, times: Counts["times"]): number[] | null {
  if (counts === null && times.length === 0) return null;
  const sums = counts?.slice() ?? new Array<number>(BUCKETS.length + 1).fill(0);
  for (let i = 0; i < times.length; i += 2) sums[COARSE[times[i]!]!]! += times[i + 1]!;
  return sums;
}

function bucketOf(ms: number): number {
  float[0] = ms;
  const place = (bits[0]! >>> SHIFT) - FIRST;
  const unsplit = place < 0 ? 0 : place < UNSPLIT ? place : UNSPLIT - 1;
  return ms > SPLITS[unsplit]! ? PLACES[unsplit]! + 1 : PLACES[unsplit]!;
}
