/**
 * Counts and times of one route or upstream: in the current step, in each earlier step of the window, and since the start for Prometheus.
 */

/** Steps in the window, the current one included. */
export const WINDOW_STEPS = 12;

/** Upper bounds of Prometheus' buckets in seconds; a bound is within its bucket, and longer times are in +Inf. */
export const BUCKETS: readonly number[] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/**
 * One histogram serves quantiles and Prometheus. The upper bits of a time's binary form choose the bucket: eight for each doubling, so that
 * the middle of a bucket is at most 6.25 % away from any time in it. A logarithm would take five times as long. All times below 1/16 ms are
 * in the first bucket, all above 17 min in the last. A bucket that contains a bound of Prometheus is split there (25 ms: 24–25 and 25–26),
 * so that Prometheus' buckets are exact sums of these.
 */
const MANTISSA_BITS = 3;
const BUCKETS_PER_DOUBLING = 2 ** MANTISSA_BITS;
const SHIFT = 23 - MANTISSA_BITS;
const FIRST_EXPONENT = -4;
const DOUBLINGS = 24;
const FIRST = (127 + FIRST_EXPONENT) << MANTISSA_BITS;
const UNSPLIT = DOUBLINGS * BUCKETS_PER_DOUBLING;
export const TIME_BUCKETS = UNSPLIT + BUCKETS.length;

/** The same four bytes as a number and as its bits. */
const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

/** Which step is under way; shared by everything that counts. */
export interface StepCounter {
  current: number;
}

/** Counts and times of requests or tries. */
export class Tally {
  requests = 0;
  errors = 0;
  limited = 0;
  #timed = 0;
  /** A count for each of `TIME_BUCKETS`. Null while nothing was timed: most routes of a large configuration are quiet. */
  #times: Uint32Array | null = null;

  time(bucket: number, count = 1): void {
    (this.#times ??= new Uint32Array(TIME_BUCKETS))[bucket]! += count;
    this.#timed += count;
  }

  add(other: Tally): void {
    this.requests += other.requests;
    this.errors += other.errors;
    this.limited += other.limited;
    const times = other.#times;
    if (times !== null) for (let bucket = 0; bucket < TIME_BUCKETS; bucket++) if (times[bucket] !== 0) this.time(bucket, times[bucket]!);
  }

  /** `factor` −1 takes away what was added before. */
  addPacked({ requests, errors, limited, times }: Packed, factor: 1 | -1): void {
    this.requests += factor * requests;
    this.errors += factor * errors;
    this.limited += factor * limited;
    for (let i = 0; i < times.length; i += 2) this.time(times[i]!, factor * times[i + 1]!);
  }

  /** Without the empty buckets: a route's times seldom lie far apart. */
  pack(): Packed {
    const times: number[] = [];
    for (let bucket = 0; this.#times !== null && bucket < TIME_BUCKETS; bucket++) {
      if (this.#times[bucket] !== 0) times.push(bucket, this.#times[bucket]!);
    }
    return { requests: this.requests, errors: this.errors, limited: this.limited, times: Uint32Array.from(times) };
  }

  /** The time that a share of all (0.99: 99 in 100) did not exceed, in milliseconds, within 6.25 %; null when nothing was timed. */
  quantile(share: number): number | null {
    if (this.#timed === 0) return null;
    let left = Math.max(1, Math.ceil(share * this.#timed));
    let bucket = 0;
    while ((left -= this.#times![bucket]!) > 0) bucket++;
    return MIDDLES[bucket]!;
  }

  clear(): void {
    if (this.#timed > 0) this.#times!.fill(0);
    this.requests = this.errors = this.limited = this.#timed = 0;
  }
}

interface Packed {
  readonly requests: number;
  readonly errors: number;
  readonly limited: number;
  /** Bucket and count in turn. */
  readonly times: Uint32Array;
}

/** The end of a step costs nothing: each `Recent` notices it at the next count or reading. */
export class Recent {
  /** Counts of all times since the start by Prometheus' buckets, the last one +Inf; null while nothing was timed. */
  counts: number[] | null = null;
  /** Sum of all times in milliseconds. */
  sumMs = 0;
  readonly #steps: StepCounter;
  /** The step of `#current`. */
  #step: number;
  #current = new Tally();
  /** Earlier steps of the window with requests, oldest first, and their sum; null if there is none. */
  #past: { readonly together: Tally; readonly steps: { readonly step: number; readonly counts: Packed }[] } | null = null;

  constructor(steps: StepCounter = { current: 0 }) {
    this.#steps = steps;
    this.#step = steps.current;
  }

  /** `ms`: how long it took; null: not timed. */
  count(isError: boolean, isLimited: boolean, ms: number | null): void {
    if (this.#step !== this.#steps.current) this.#endStep();
    const current = this.#current;
    current.requests++;
    if (isError) current.errors++;
    if (isLimited) current.limited++;
    if (ms === null) return;
    const bucket = bucketOf(ms);
    current.time(bucket);
    (this.counts ??= new Array<number>(BUCKETS.length + 1).fill(0))[COARSE[bucket]!]!++;
    this.sumMs += ms;
  }

  /** Whether anything was counted in the window. */
  get isActive(): boolean {
    if (this.#step !== this.#steps.current) this.#endStep();
    return this.#current.requests > 0 || this.#past !== null;
  }

  /** Adds the counts of the window, or of the current step alone, to `sum`. */
  addTo(sum: Tally, which: "window" | "step"): void {
    if (!this.isActive) return;
    sum.add(this.#current);
    if (which === "window" && this.#past !== null) sum.add(this.#past.together);
  }

  #endStep(): void {
    const first = this.#steps.current - WINDOW_STEPS + 1;
    if (this.#current.requests > 0 && this.#step >= first) {
      const counts = this.#current.pack();
      this.#past ??= { together: new Tally(), steps: [] };
      this.#past.together.addPacked(counts, 1);
      this.#past.steps.push({ step: this.#step, counts });
    }
    while (this.#past !== null && this.#past.steps[0]!.step < first) {
      this.#past.together.addPacked(this.#past.steps.shift()!.counts, -1);
      if (this.#past.steps.length === 0) this.#past = null;
    }
    if (this.#past === null) this.#current = new Tally();
    else this.#current.clear();
    this.#step = this.#steps.current;
  }
}

function bucketOf(ms: number): number {
  float[0] = ms;
  const place = (bits[0]! >>> SHIFT) - FIRST;
  const unsplit = place < 0 ? 0 : place < UNSPLIT ? place : UNSPLIT - 1;
  return ms > SPLITS[unsplit]! ? PLACES[unsplit]! + 1 : PLACES[unsplit]!;
}

/** Lower edges of the buckets before they are split, in milliseconds, and the upper edge of the last one. */
const EDGES = Array.from({ length: UNSPLIT + 1 }, (_, place) => {
  const lower = 2 ** (FIRST_EXPONENT + Math.floor(place / BUCKETS_PER_DOUBLING));
  return lower * (1 + (place % BUCKETS_PER_DOUBLING) / BUCKETS_PER_DOUBLING);
});
/** Where each of them is split: longer times belong to the next bucket. */
const SPLITS = Float64Array.from({ length: UNSPLIT }, (_, place) => {
  const bound = BUCKETS.find((seconds) => seconds * 1000 >= EDGES[place]! && seconds * 1000 < EDGES[place + 1]!);
  return bound === undefined ? Infinity : bound * 1000;
});
/** The number of each after splitting. */
const PLACES = Uint8Array.from({ length: UNSPLIT }, (_, place) => place + SPLITS.subarray(0, place).filter((at) => at < Infinity).length);
/** Lower and upper edge of each bucket. */
const SPANS = EDGES.slice(0, -1).flatMap((lower, place) => {
  const [split, upper] = [SPLITS[place]!, EDGES[place + 1]!];
  return split < Infinity ? [[lower, split] as const, [split, upper] as const] : [[lower, upper] as const];
});
/** Prometheus' bucket that contains each bucket. */
const COARSE = Uint8Array.from(SPANS, ([, upper]) => BUCKETS.filter((seconds) => seconds * 1000 < upper).length);
/** The middle of each bucket to three digits: more would suggest a precision that is not there. */
const MIDDLES = SPANS.map(([lower, upper]) => Number(((lower + upper) / 2).toPrecision(3)));
