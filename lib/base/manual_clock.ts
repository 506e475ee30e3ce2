/**
 * A clock for tests: time advances only on request.
 */
import type { Clock } from "./clock.ts";

export interface ManualClock extends Clock {
  /** Advances time by `ms` and runs the timers that become due, in order. */
  advance(ms: number): void;
  /** Advances time by `ms` at once, as for a busy process: the timers that have become due run late, and once each. */
  stall(ms: number): void;
  /** How many timers are pending. */
  readonly pending: number;
}

/** A clock that only the test advances. Starts at 0 monotonic, and on the wall at `epoch`, milliseconds since 1970. */
export function manualClock(epoch = Date.UTC(2026, 0, 1)): ManualClock {
  interface Entry {
    due: number;
    readonly ms: number;
    readonly run: () => void;
  }
  const pending = new Set<Entry>();
  let now = 0;
  const clock: ManualClock = {
    now: () => now,
    wall: () => epoch + now,
    after(ms, run) {
      const entry: Entry = { due: now + ms, ms, run };
      pending.add(entry);
      return {
        cancel: () => void pending.delete(entry),
        restart: () => {
          entry.due = now + entry.ms;
          pending.add(entry);
        },
      };
    },
    advance(ms) {
      const end = now + ms;
      for (;;) {
        let first: Entry | null = null;
        for (const entry of pending) if (entry.due <= end && (first === null || entry.due < first.due)) first = entry;
        if (first === null) break;
        now = Math.max(now, first.due);
        pending.delete(first);
        first.run();
      }
      now = end;
    },
    stall(ms) {
      now += ms;
      clock.advance(0);
    },
    get pending() {
      return pending.size;
    },
  };
  return clock;
}
