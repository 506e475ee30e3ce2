/**
 * Divides long work into slices: between two of them, what waits for the event loop has its turn. Of several tasks,
 * each has a slice in order of arrival.
 */
import { entry } from "./event_loop.ts";

/** Resolves when the next slice may run. Undefined: it may run now. */
export type NextTimeSlice = () => Promise<void> | undefined;

const SLICE_MS = 5;

/** Each turn of the event loop runs one slice: for short work that many may wait for. */
export function createTimeSlices(): NextTimeSlice {
  return inOrder((release) => void setImmediate(release));
}

function inOrder(wait: (release: () => void) => void): NextTimeSlice {
  const waiting: (() => void)[] = [];
  const release = entry("a slice of work", () => {
    waiting.shift()!();
    if (waiting.length > 0) wait(release);
  });
  return () =>
    new Promise((resolve) => {
      if (waiting.push(resolve) === 1) wait(release);
    });
}

/** Of all long work in this thread. */
const nextLongSlice = inOrder(afterIdleTurn);

/**
 * A turn of the event loop that finds nothing to do takes some 3 µs, and 25 or more with one connection. On a machine
 * that is so slow that none is idle by this, a reload takes twice the time.
 */
const IDLE_TURN_MS = 0.01;

/**
 * Calls `release` behind a turn of the event loop that had nothing to do, or after 5 ms. A new connection takes several
 * turns: Node accepts one in each, and reads from it in the next. With a slice in each turn, twenty connections that
 * came at once would wait for twenty slices.
 */
function afterIdleTurn(release: () => void): void {
  let latestMs = 0;
  let beganMs = 0;
  const turn = entry("a turn between two slices", () => {
    const nowMs = performance.now();
    const wasIdle = nowMs - beganMs < IDLE_TURN_MS;
    beganMs = nowMs;
    if (wasIdle || nowMs >= latestMs) release();
    else setImmediate(turn);
  });
  // In a turn of its own: the slice that has just been let go runs before it.
  const begin = entry("the end of a slice", () => {
    beganMs = performance.now();
    latestMs = beganMs + SLICE_MS;
    setImmediate(turn);
  });
  setImmediate(begin);
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
export function paced(next: NextTimeSlice = nextLongSlice): NextTimeSlice {
  let end = performance.now() + SLICE_MS;
  const begin = () => void (end = performance.now() + SLICE_MS);
  return () => (performance.now() < end ? undefined : Promise.resolve(next()).then(begin));
}
