/**
 * Time as an argument: a monotonic clock, the wall clock, and timers, so that specs can turn the hands themselves.
 * What is timed, and for how long, is decided by the callers.
 */

export interface Timer {
  cancel(): void;
  /** Starts the full duration again, from now. */
  restart(): void;
}

export interface Clock {
  /** Milliseconds since an arbitrary moment; never goes backwards. */
  now(): number;
  /** Milliseconds since 1970-01-01T00:00:00Z. */
  wall(): number;
  /** Calls `run` once after `ms` milliseconds, unless cancelled. A pending timer does not keep the process alive. */
  after(ms: number, run: () => void): Timer;
}

/** In milliseconds: node runs longer ones at once, with a warning each. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => performance.now(),
  wall: () => Date.now(),
  after(ms, run) {
    const handle = setTimeout(run, ms);
    handle.unref();
    return {
      cancel: () => clearTimeout(handle),
      restart: () => void handle.refresh(),
    };
  },
};
