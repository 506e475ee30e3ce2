import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { DeadlineTimer, systemClock, type HasDeadline } from "../../lib/base/clock.ts";
import { manualClock } from "../support/clock.ts";

describe("the system's clock", () => {
  it("the system's clock gives the wall clock time in milliseconds since 1970", () => {
    const before = Date.now();
    const wall = systemClock.wall();
    expect(wall).toBeGreaterThanOrEqual(before);
    expect(wall).toBeLessThanOrEqual(Date.now());
  });

  it("the system's clock never goes backwards", () => {
    const read = Array.from({ length: 10_000 }, () => systemClock.now());
    expect(read.every((now, i) => i === 0 || now >= read[i - 1]!)).toBe(true);
  });

  it("the system's clock does not keep the process alive for a pending timer", () => {
    const set = vi.spyOn(globalThis, "setTimeout");
    const timer = systemClock.after(60_000, () => {});
    const handle = set.mock.results[0]!.value as NodeJS.Timeout;
    expect(handle.hasRef()).toBe(false);
    timer.restart();
    expect(handle.hasRef()).toBe(false);
    timer.cancel();
    set.mockRestore();
  });
});

/** What both clocks promise; `pass` lets time go by. */
describe.each([
  ["the system's clock", systemClock, (ms: number) => void vi.advanceTimersByTime(ms)],
  ((clock) => ["the manual clock", clock, (ms: number) => clock.advance(ms)] as const)(manualClock()),
])("a timer of %s", (_, clock, pass) => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("a timer runs once, after its time", () => {
    const run = vi.fn();
    clock.after(100, run);
    pass(99);
    expect(run).toHaveBeenCalledTimes(0);
    pass(1);
    expect(run).toHaveBeenCalledTimes(1);
    pass(1000);
    expect(run).toHaveBeenCalledTimes(1);
  });

  it("a timer does not run once cancelled", () => {
    const run = vi.fn();
    const timer = clock.after(100, run);
    pass(50);
    timer.cancel();
    pass(1000);
    expect(run).not.toHaveBeenCalled();
  });

  it("a timer starts its full time again when restarted, even after it has run", () => {
    const run = vi.fn();
    const timer = clock.after(100, run);
    pass(60);
    timer.restart();
    pass(60);
    expect(run).not.toHaveBeenCalled();
    pass(40);
    expect(run).toHaveBeenCalledTimes(1);
    timer.restart();
    pass(100);
    expect(run).toHaveBeenCalledTimes(2);
  });
});

function made() {
  const clock = manualClock();
  const watch = new DeadlineTimer(clock);
  const overdue: string[] = [];
  const watched = (name: string, dueAt: number) => {
    const self = {
      dueAt,
      index: -1,
      overdue() {
        overdue.push(`${name} at ${clock.now()}`);
        watch.remove(self);
      },
    };
    watch.add(self, clock.now());
    return self as { dueAt: number } & HasDeadline;
  };
  return { clock, watch, overdue, watched };
}

describe("a watch", () => {
  it("a watch notifies each watcher when it is due, to the millisecond, with one timer", () => {
    const { clock, overdue, watched } = made();
    watched("b", 200);
    watched("a", 100);
    watched("c", 200);
    expect(clock.pending).toBe(1);
    clock.advance(99);
    expect(overdue).toEqual([]);
    clock.advance(1);
    expect(overdue).toEqual(["a at 100"]);
    clock.advance(100);
    expect(overdue).toEqual(["a at 100", "b at 200", "c at 200"]);
    expect(clock.pending).toBe(0);
  });

  it("a watch discovers without a call that a deadline has become later", () => {
    const { clock, overdue, watched } = made();
    const one = watched("a", 100);
    one.dueAt = 150;
    clock.advance(149);
    expect(overdue).toEqual([]);
    clock.advance(1);
    expect(overdue).toEqual(["a at 150"]);
  });

  it("a watch moves its timer for an earlier deadline", () => {
    const { clock, watch, overdue, watched } = made();
    const one = watched("a", 100);
    clock.advance(10);
    one.dueAt = 20;
    watch.add(one, clock.now());
    clock.advance(10);
    expect(overdue).toEqual(["a at 20"]);
  });

  it("a watch has no timer without watchers, or when no watcher will be due", () => {
    const { clock, watch, watched } = made();
    const one = watched("a", 100);
    watch.remove(one);
    expect(clock.pending).toBe(0);
    watched("b", Infinity);
    expect(clock.pending).toBe(0);
  });

  it("a watch notifies the remaining watchers when some have left, in any order", () => {
    const { clock, watch, overdue, watched } = made();
    const all = ["a", "b", "c", "d", "e"].map((name) => watched(name, 10));
    for (const gone of [all[1]!, all[4]!, all[1]!]) watch.remove(gone);
    clock.advance(10);
    expect(overdue.sort()).toEqual(["a at 10", "c at 10", "d at 10"]);
    expect(clock.pending).toBe(0);
  });

  it(
    "a watch is due after a number of milliseconds or at a moment, whichever comes first, " +
      "and not at all for 0 and Infinity",
    () => {
      const { clock, watch, overdue, watched } = made();
      const one = watched("one", 1_000);
      clock.advance(5);
      for (const [ms, latest, dueAt] of [
        [10, Infinity, 15],
        [10, 12, 12],
        [0, 40, 40],
      ] as const) {
        watch.watch(one, ms, latest);
        expect(one.dueAt).toBe(dueAt);
      }
      watch.watch(one, 0, Infinity);
      clock.advance(100);
      expect([overdue, one.index, clock.pending]).toEqual([[], -1, 0]);
      watch.watch(one, 10, 112);
      clock.advance(7);
      expect(overdue).toEqual(["one at 112"]);
    },
  );

  it("a watch does not notify a watcher that leaves while another watcher is notified", () => {
    const { clock, watch, overdue } = made();
    const second = { dueAt: 5, index: -1, overdue: () => void overdue.push("second") };
    const first = {
      dueAt: 5,
      index: -1,
      overdue() {
        watch.remove(first);
        watch.remove(second);
      },
    };
    watch.add(first, 0);
    watch.add(second, 0);
    clock.advance(5);
    expect(overdue).toEqual([]);
  });

  it(
    "a watch of 10,000 deadlines that pass one by one reads 100 of them a millisecond, " +
      "and notices each at most 0.1 s late",
    () => {
      const { clock, watch } = made();
      let reads = 0;
      let latest = 0;
      for (let i = 1; i <= 10_000; i++) {
        watch.add(
          {
            index: -1,
            get dueAt() {
              reads++;
              return i;
            },
            overdue(now) {
              latest = Math.max(latest, now - i);
              watch.remove(this);
            },
          },
          0,
        );
      }
      reads = 0;
      clock.advance(10_200);
      expect(clock.pending).toBe(0);
      // Once more for each that is due.
      expect(reads).toBeLessThan(100 * 10_200 + 10_000);
      expect(latest).toBeLessThanOrEqual(101);
    },
  );
});

describe("looks", () => {
  it("looks come once a second, and each is told the time since its own last one, or since it began", () => {
    const clock = manualClock();
    const timer = new DeadlineTimer(clock);
    const seen: string[] = [];
    timer.everySecond((now, elapsedMs) => seen.push(`a ${now} ${elapsedMs}`));
    clock.advance(700);
    timer.everySecond((now, elapsedMs) => seen.push(`b ${now} ${elapsedMs}`));
    expect(seen).toEqual([]);
    clock.advance(300);
    clock.advance(1_000);
    const from = clock.now() - 2_000;
    expect(seen).toEqual([
      `a ${from + 1_000} 1000`,
      `b ${from + 1_000} 300`,
      `a ${from + 2_000} 1000`,
      `b ${from + 2_000} 1000`,
    ]);
  });

  it("looks count a pause of the process as two seconds at most", () => {
    const clock = manualClock();
    const late: (() => void)[] = [];
    const timer = new DeadlineTimer({
      ...clock,
      now: clock.now,
      after: (_ms, run) => (late.push(run), { cancel() {}, restart() {} }),
    });
    const seen: number[] = [];
    timer.everySecond((_now, elapsedMs) => seen.push(elapsedMs));
    clock.advance(30_000);
    late[0]!();
    expect(seen).toEqual([2_000]);
  });

  it("looks have one timer while there are some, and none without, also where looks end or begin during a look", () => {
    const clock = manualClock();
    const timer = new DeadlineTimer(clock);
    expect(clock.pending).toBe(0);
    let looks = 0;
    const end: () => void = timer.everySecond(() => {
      end();
      endOther();
      last = timer.everySecond(() => looks++);
    });
    const endOther = timer.everySecond(() => looks++);
    let last = () => {};
    expect(clock.pending).toBe(1);
    clock.advance(1_000);
    expect(clock.pending).toBe(1);
    const atFirst = looks;
    clock.advance(1_000);
    expect([looks - atFirst, clock.pending]).toEqual([1, 1]);
    last();
    expect(clock.pending).toBe(0);
  });
});
