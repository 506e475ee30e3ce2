/**
 * Lets long work go on in slices: of all work that waits, one slice runs in each turn of the event loop, in the order in which it came.
 * How long a slice is, is decided by the work itself.
 */

/** Resolves when the next slice may run. */
export type NextTimeSlice = () => Promise<void>;

export function createTimeSlices(): NextTimeSlice {
  const waiting: (() => void)[] = [];
  const release = () => {
    waiting.shift()!();
    if (waiting.length > 0) setImmediate(release);
  };
  return () =>
    new Promise((resolve) => {
      if (waiting.push(resolve) === 1) setImmediate(release);
    });
}
