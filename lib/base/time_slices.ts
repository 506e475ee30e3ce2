/**
 * Divides long work into slices: each turn of the event loop runs one slice of every waiting task, in order of arrival.
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
