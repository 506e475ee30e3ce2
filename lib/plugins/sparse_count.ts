/**
 * Counts events and reports the count at most once a second.
 */
import type { Clock } from "../base/clock.ts";

/** Returns a function that counts one event, and passes the count since the last report to `report`. */
export function sparseCount<T extends readonly unknown[]>(
  clock: Clock,
  report: (count: number, ...last: T) => void,
): (...last: T) => void {
  let count = 0;
  let quietUntil = -Infinity;
  return (...last) => {
    count++;
    const now = clock.now();
    if (now < quietUntil) return;
    report(count, ...last);
    quietUntil = now + 1_000;
    count = 0;
  };
}
