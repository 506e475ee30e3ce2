/**
 * Counts and times of one route or upstream: those of the step under way, slices of the steps before it that are still in the window, and
 * the times of all steps in the buckets of Prometheus. When a step ends, and what is made of the slices, is `stats.ts`.
 */

/** How many steps make the window, the one under way included. */
export const WINDOW_STEPS = 12;

/** Upper bounds of Prometheus' buckets in seconds, each within its bucket; what takes longer falls under +Inf. */
export const BUCKETS: readonly number[] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/**
 * One histogram serves quantiles and Prometheus. Times go by the upper bits of their binary form: eight buckets for each doubling, so that
 * the middle of a bucket is at most 6.25 % away from what fell into it. A logarithm would take five times as long. Below 1/16 ms and above
 * 17 min all is one bucket each. A bucket in which a bound of Prometheus lies is split there (25 ms: 24–25 and 25–26), so that Prometheus'
 * buckets are sums of these, and exact.
 */
const MANTISSA_BITS = 3;
const BUCKETS_PER_DOUBLING = 2 ** MANTISSA_BITS;
const SHIFT = 23 - MANTISSA_BITS;
const FIRST_EXPONENT = -4;
const DOUBLINGS = 24;
const FIRST = (127 + FIRST_EXPONENT) << MANTISSA_BITS;
const UNSPLIT = DOUBLINGS * BUCKETS_PER_DOUBLING;
export const TIME_BUCKETS = UNSPLIT + BUCKETS.length;

/** One number seen in two ways: as it is, and as its bits. */
const seen = new Float32Array(1);
const bits = new Uint32Array(seen.buffer);

/** What one step left behind; `times` holds a bucket and its count in turn. */
export interface Slice {
  readonly requests: number;
  readonly errors: number;
  readonly limited: number;
  readonly times: Uint32Array;
}

export class Recent {
  requests = 0;
  errors = 0;
  limited = 0;
  /** Of all that was timed, in milliseconds. */
  sumMs = 0;
  /** Null as long as nothing has been timed: most routes of a large configuration are quiet. */
  #times: Uint32Array | null = null;
  /** Of the steps that are over, by the buckets of Prometheus. */
  #over: number[] | null = null;
  /** Of the steps before the one under way, the latest first; null where all of them were quiet. */
  #slices: (Slice | null)[] | null = null;

  time(ms: number): void {
    const times = (this.#times ??= new Uint32Array(TIME_BUCKETS));
    this.sumMs += ms;
    seen[0] = ms;
    const place = (bits[0]! >>> SHIFT) - FIRST;
    const unsplit = place < 0 ? 0 : place < UNSPLIT ? place : UNSPLIT - 1;
    times[ms > SPLITS[unsplit]! ? PLACES[unsplit]! + 1 : PLACES[unsplit]!]!++;
  }

  /** Whether anything has ever been timed. */
  get isTimed(): boolean {
    return this.#over !== null || this.#times !== null;
  }

  /** Times of all steps in each bucket of Prometheus alone, the last of what is above all bounds. */
  get counts(): readonly number[] {
    const counts = this.#over?.slice() ?? NO_COUNTS.slice();
    const times = this.#times;
    if (times !== null && this.requests > 0) for (let i = 0; i < TIME_BUCKETS; i++) counts[COARSE[i]!]! += times[i]!;
    return counts;
  }

  /** Whether anything stands in the window. */
  get isActive(): boolean {
    return this.requests > 0 || this.#slices !== null;
  }

  /** The step under way is over. Adds it to `total` first, where it is given. */
  roll(total?: Sum): void {
    const slices = this.#slices;
    if (this.requests === 0 && slices === null) return;
    const slice = this.requests === 0 ? null : { requests: this.requests, errors: this.errors, limited: this.limited, times: this.#packed() };
    if (slice === null && slices!.every((each, i) => each === null || i >= WINDOW_STEPS - 2)) {
      // Nothing of it is in the window any more, so nothing of it takes room.
      this.#slices = this.#times = null;
      return;
    }
    if (slice !== null) {
      total?.add(slice);
      this.#keep(slice.times);
    }
    const kept = (this.#slices ??= []);
    kept.unshift(slice);
    if (kept.length > WINDOW_STEPS - 1) kept.pop();
    if (slice === null) return;
    this.requests = this.errors = this.limited = 0;
    this.#times?.fill(0);
  }

  /** Adds all of the window to `sum`, or only the step under way. */
  addTo(sum: Sum, which: "window" | "step"): void {
    if (this.requests > 0) sum.addOpen(this.requests, this.errors, this.limited, this.#times);
    if (which === "window" && this.#slices !== null) for (const slice of this.#slices) if (slice !== null) sum.add(slice);
  }

  #keep(times: Uint32Array): void {
    if (times.length === 0) return;
    const over = (this.#over ??= NO_COUNTS.slice());
    for (let i = 0; i < times.length; i += 2) over[COARSE[times[i]!]!]! += times[i + 1]!;
  }

  #packed(): Uint32Array {
    const times = this.#times;
    if (times === null) return NO_TIMES;
    let at = 0;
    for (let i = 0; i < TIME_BUCKETS; i++) {
      if (times[i] === 0) continue;
      packing[at++] = i;
      packing[at++] = times[i]!;
    }
    return packing.slice(0, at);
  }
}

const packing = new Uint32Array(TIME_BUCKETS * 2);
const NO_TIMES = new Uint32Array(0);

/** Counts and times of several steps, or of several routes, together. */
export class Sum {
  requests = 0;
  errors = 0;
  limited = 0;
  readonly #times = new Float64Array(TIME_BUCKETS);
  #timed = 0;
  /** Buckets outside of these are empty: a route's times seldom lie far apart, and there are many routes. */
  #lowest = TIME_BUCKETS;
  #highest = -1;

  add({ requests, errors, limited, times }: Slice): void {
    this.requests += requests;
    this.errors += errors;
    this.limited += limited;
    for (let i = 0; i < times.length; i += 2) this.#addTimes(times[i]!, times[i + 1]!);
  }

  addOpen(requests: number, errors: number, limited: number, times: Uint32Array | null): void {
    this.requests += requests;
    this.errors += errors;
    this.limited += limited;
    if (times !== null) for (let i = 0; i < TIME_BUCKETS; i++) if (times[i] !== 0) this.#addTimes(i, times[i]!);
  }

  /** The time that a share of all (0.99: of 99 in 100) did not exceed, in milliseconds, within 6.25 %; null when nothing was timed. */
  quantile(share: number): number | null {
    if (this.#timed === 0) return null;
    let left = Math.max(1, Math.ceil(share * this.#timed));
    let bucket = this.#lowest;
    while ((left -= this.#times[bucket]!) > 0) bucket++;
    return MIDDLES[bucket]!;
  }

  clear(): void {
    if (this.#timed > 0) this.#times.fill(0, this.#lowest, this.#highest + 1);
    this.requests = this.errors = this.limited = this.#timed = 0;
    this.#lowest = TIME_BUCKETS;
    this.#highest = -1;
  }

  /** All of it, to be added elsewhere later. */
  pack(): Slice {
    const { requests, errors, limited } = this;
    const times: number[] = [];
    for (let i = this.#lowest; i <= this.#highest; i++) if (this.#times[i]! > 0) times.push(i, this.#times[i]!);
    return { requests, errors, limited, times: Uint32Array.from(times) };
  }

  #addTimes(bucket: number, count: number): void {
    this.#times[bucket]! += count;
    this.#timed += count;
    if (bucket < this.#lowest) this.#lowest = bucket;
    if (bucket > this.#highest) this.#highest = bucket;
  }
}

const NO_COUNTS: readonly number[] = Object.freeze(new Array<number>(BUCKETS.length + 1).fill(0));

/** Lower edges of the buckets before they are split, in milliseconds, and where the last one ends. */
const EDGES = Array.from({ length: UNSPLIT + 1 }, (_, place) => {
  const lower = 2 ** (FIRST_EXPONENT + Math.floor(place / BUCKETS_PER_DOUBLING));
  return lower * (1 + (place % BUCKETS_PER_DOUBLING) / BUCKETS_PER_DOUBLING);
});
/** Where each of them is split: what is above belongs to the next one. */
const SPLITS = Float64Array.from({ length: UNSPLIT }, (_, place) => {
  const bound = BUCKETS.find((seconds) => seconds * 1000 >= EDGES[place]! && seconds * 1000 < EDGES[place + 1]!);
  return bound === undefined ? Infinity : bound * 1000;
});
/** Which bucket each of them is, or begins with. */
const PLACES = Uint8Array.from({ length: UNSPLIT }, (_, place) => place + SPLITS.subarray(0, place).filter((at) => at < Infinity).length);
/** Lower and upper edge of each bucket. */
const SPANS = EDGES.slice(0, -1).flatMap((lower, place) => {
  const [split, upper] = [SPLITS[place]!, EDGES[place + 1]!];
  return split < Infinity ? [[lower, split] as const, [split, upper] as const] : [[lower, upper] as const];
});
/** Which bucket of Prometheus each of them is a part of. */
const COARSE = Uint8Array.from(SPANS, ([, upper]) => BUCKETS.filter((seconds) => seconds * 1000 < upper).length);
/** The middle of each bucket, to three digits: more would only look exact. */
const MIDDLES = SPANS.map(([lower, upper]) => Number(((lower + upper) / 2).toPrecision(3)));
