/**
 * Divides long work into slices: each turn of the event loop runs one slice of every waiting task, in order of arrival.
 */
import { entry } from "./event_loop.ts";

/** Resolves when the next slice may run. */
export type NextTimeSlice = () => Promise<void>;

export function createTimeSlices(): NextTimeSlice {
  const waiting: (() => void)[] = [];
  const release = entry("a slice of work", () => {
    waiting.shift()!();
    if (waiting.length > 0) setImmediate(release);
  });
  return () =>
    new Promise((resolve) => {
      if (waiting.push(resolve) === 1) setImmediate(release);
    });
}

const SLICE_MS = 5;

/** Runs steps to their end, without a pause. */
export function atOnce<T>(steps: Iterator<unknown, T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/** Runs steps to their end. Waits after each of them, as `paced` does. */
export async function inSlices<T>(steps: Iterator<unknown, T>, slice: NextTimeSlice): Promise<T> {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    await slice();
  }
}

/** For work in small steps: waits for the next slice only once the current one has lasted for 5 ms. */
export function paced(next: NextTimeSlice = createTimeSlices()): NextTimeSlice {
  let end = performance.now() + SLICE_MS;
  return async () => {
    if (performance.now() < end) return;
    await next();
    end = performance.now() + SLICE_MS;
  };
}
