/**
 * Divides long work into slices: each turn of the event loop runs one slice of every waiting task, in order of arrival.
 */
import { entry } from "./event_loop.ts";

/** Resolves when the next slice may run. Undefined: it may run now. */
export type NextTimeSlice = () => Promise<void> | undefined;

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
    const next = slice();
    if (next !== undefined) await next;
  }
}

/** For work in small steps: waits for the next slice only once the current one has lasted for 5 ms. */
export function paced(next: NextTimeSlice = createTimeSlices()): NextTimeSlice {
  let end = performance.now() + SLICE_MS;
  const begin = () => void (end = performance.now() + SLICE_MS);
  return () => (performance.now() < end ? undefined : Promise.resolve(next()).then(begin));
}
