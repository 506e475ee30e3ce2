/**
 * The buckets in which times are counted: one histogram for quantiles and for Prometheus.
 */

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
export const SHIFT = 23 - MANTISSA_BITS;
const FIRST_EXPONENT = -4;
const DOUBLINGS = 24;
export const FIRST_PLACE = (127 + FIRST_EXPONENT) << MANTISSA_BITS;
export const UNSPLIT = DOUBLINGS * BUCKETS_PER_DOUBLING;
export const TIME_BUCKETS = UNSPLIT + BUCKETS.length;

/** Lower edges of the buckets before they are split, in milliseconds, and the upper edge of the last one. */
const EDGES = Array.from({ length: UNSPLIT + 1 }, (_, place) => {
  const lower = 2 ** (FIRST_EXPONENT + Math.floor(place / BUCKETS_PER_DOUBLING));
  return lower * (1 + (place % BUCKETS_PER_DOUBLING) / BUCKETS_PER_DOUBLING);
});
/** The bucket bound inside each of these ranges, in milliseconds: longer times belong to the next bucket. */
export const SPLITS = Float64Array.from({ length: UNSPLIT }, (_, place) => {
  const bound = BUCKETS.find((seconds) => seconds * 1000 >= EDGES[place]! && seconds * 1000 < EDGES[place + 1]!);
  return bound === undefined ? Infinity : bound * 1000;
});
/** The number of each after splitting. */
export const PLACES = Uint8Array.from({ length: UNSPLIT }, (_, place) => place + SPLITS.subarray(0, place).filter((at) => at < Infinity).length);
/** Lower and upper edge of each bucket. */
const SPANS = EDGES.slice(0, -1).flatMap((lower, place) => {
  const [split, upper] = [SPLITS[place]!, EDGES[place + 1]!];
  return split < Infinity ? [[lower, split] as const, [split, upper] as const] : [[lower, upper] as const];
});
/** Prometheus' bucket that contains each bucket. */
export const COARSE = Uint8Array.from(SPANS, ([, upper]) => BUCKETS.filter((seconds) => seconds * 1000 < upper).length);
/** The middle of each bucket to three digits: more would suggest a precision that is not there. */
export const MIDDLES = SPANS.map(([lower, upper]) => Number(((lower + upper) / 2).toPrecision(3)));
