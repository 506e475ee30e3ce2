/**
 * Selects a percentage of a series of calls, evenly spread and exact.
 */

/** 100 % in the smallest part that a percentage can have. */
const WHOLE = 10_000;

/**
 * Returns a function that is true for `percent` % of its calls. `percent` is 0–100 with at most two decimals; further
 * decimals are rounded.
 * Any 10,000 calls in a row contain exactly the share, and any 1000 calls do if `percent` has at most one decimal. It
 * counts in integers, so it never drifts. At 25 % every fourth call is true, at 75 % every fourth is false.
 */
export function evenShare(percent: number): () => boolean {
  const step = Math.round(percent * (WHOLE / 100));
  let sum = 0;
  return () => {
    sum += step;
    if (sum < WHOLE) return false;
    sum -= WHOLE;
    return true;
  };
}
