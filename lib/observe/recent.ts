/**
 * What happened lately to one route or upstream: counts and times of the step under way, and slices of the steps before it that are
 * still in the window. When a step ends, and what is made of the slices, is `stats.ts`; counts for ever are `metrics.ts`.
 */

/** How many steps make the window, the one under way included. */
export const WINDOW_STEPS = 12;

/**
 * Times go by the upper bits of their binary form: eight buckets for each doubling, so that the middle of a bucket is at most 6.25 %
 * away from what fell into it. A logarithm would take five times as long. Below 1/16 ms and above 17 min all is one bucket each.
 */
const MANTISSA_BITS = 3;
const BUCKETS_PER_DOUBLING = 2 ** MANTISSA_BITS;
const SHIFT = 23 - MANTISSA_BITS;
const FIRST_EXPONENT = -4;
const DOUBLINGS = 24;
const FIRST = (127 + FIRST_EXPONENT) << MANTISSA_BITS;
export const TIME_BUCKETS = DOUBLINGS * BUCKETS_PER_DOUBLING;

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
  /** Null as long as nothing has been timed: most routes of a large configuration are quiet. */
  #times: Uint32Array | null = null;
  /** Of the steps before the one under way, the latest first; null where all of them were quiet. */
  #slices: (Slice | null)[] | null = null;

  time(ms: number): void {
    const times = (this.#times ??= new Uint32Array(TIME_BUCKETS));
    seen[0] = ms;
    const bucket = (bits[0]! >>> SHIFT) - FIRST;
    times[bucket < 0 ? 0 : bucket < TIME_BUCKETS ? bucket : TIME_BUCKETS - 1]!++;
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
    if (slice !== null) total?.add(slice);
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

/** The middle of each bucket, to three digits: more would only look exact. */
const MIDDLES = Array.from({ length: TIME_BUCKETS }, (_, bucket) => {
  const lower = 2 ** (FIRST_EXPONENT + Math.floor(bucket / BUCKETS_PER_DOUBLING));
  return Number((lower * (1 + ((bucket % BUCKETS_PER_DOUBLING) + 0.5) / BUCKETS_PER_DOUBLING)).toPrecision(3));
});
