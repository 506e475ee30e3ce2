/**
 * Time as an argument: a monotonic clock, the wall clock, and timers, so that specs can set the time themselves.
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

/** In milliseconds: Node runs longer timers at once, with a warning each. */
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

/** Resolves with `done`, or after `maxMs` milliseconds; nothing is cancelled. The wait keeps the process alive. */
export async function waitAtMost(done: Promise<void>, maxMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([done, new Promise((resolve) => (timer = setTimeout(resolve, maxMs)))]);
  clearTimeout(timer);
}
