/**
 * Divides long work into slices: between two of them, what waits for the event loop has its turn. Of several tasks,
 * each has a slice in order of arrival.
 */
import { entry } from "./event_loop.ts";

/** Resolves when the next slice may run. Undefined: it may run now. */
export type NextTimeSlice = () => Promise<void> | undefined;

const SLICE_MS = 5;

/** Of a turn of the event loop that found nothing to do: some 3 µs, and 25 or more with one connection. */
const IDLE_TURN_MS = 0.01;

/**
 * A new connection takes several turns of the event loop: Node accepts one in each, and reads from it in the next. So a
 * slice waits for a turn that had nothing to do, for 5 ms at most: with one slice in each turn, twenty connections that
 * came at once would wait for twenty slices.
 */
export function createTimeSlices(): NextTimeSlice {
  const waiting: (() => void)[] = [];
  let latestMs = 0;
  let turnBeganMs = 0;
  const begin = () => {
    turnBeganMs = performance.now();
    latestMs = turnBeganMs + SLICE_MS;
    setImmediate(turn);
  };
  const turn = entry("a slice of work", () => {
    const nowMs = performance.now();
    const wasIdle = nowMs - turnBeganMs < IDLE_TURN_MS;
    turnBeganMs = nowMs;
    if (!wasIdle && nowMs < latestMs) return void setImmediate(turn);
    waiting.shift()!();
    if (waiting.length > 0) begin();
  });
  return () =>
    new Promise((resolve) => {
      if (waiting.push(resolve) === 1) begin();
    });
}

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
