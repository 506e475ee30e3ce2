import { describe, expect, test } from "vitest";
import { DeadlineTimer, type HasDeadline } from "../../lib/base/deadline_timer.ts";
import { manualClock } from "../support/clock.ts";

function made() {
  const clock = manualClock();
  const watch = new DeadlineTimer(clock);
  const overdue: string[] = [];
  const watched = (name: string, dueAt: number) => {
    const self = {
      dueAt,
      place: -1,
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
  test("tells each when it is due, to the millisecond, with one timer", () => {
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

  test("finds out by itself that a deadline has become later", () => {
    const { clock, overdue, watched } = made();
    const one = watched("a", 100);
    one.dueAt = 150;
    clock.advance(149);
    expect(overdue).toEqual([]);
    clock.advance(1);
    expect(overdue).toEqual(["a at 150"]);
  });

  test("is told of an earlier one", () => {
    const { clock, watch, overdue, watched } = made();
    const one = watched("a", 100);
    clock.advance(10);
    one.dueAt = 20;
    watch.add(one, clock.now());
    clock.advance(10);
    expect(overdue).toEqual(["a at 20"]);
  });

  test("has no timer while there is nothing to watch, or nothing that will be due", () => {
    const { clock, watch, watched } = made();
    const one = watched("a", 100);
    watch.remove(one);
    expect(clock.pending).toBe(0);
    watched("b", Infinity);
    expect(clock.pending).toBe(0);
  });

  test("those that are left are still told when some have left, in any order", () => {
    const { clock, watch, overdue, watched } = made();
    const all = ["a", "b", "c", "d", "e"].map((name) => watched(name, 10));
    for (const gone of [all[1]!, all[4]!, all[1]!]) watch.remove(gone);
    clock.advance(10);
    expect(overdue.sort()).toEqual(["a at 10", "c at 10", "d at 10"]);
    expect(clock.pending).toBe(0);
  });

  test("one that leaves as another is told is not told", () => {
    const { clock, watch, overdue } = made();
    const second = { dueAt: 5, place: -1, overdue: () => void overdue.push("second") };
    const first = {
      dueAt: 5,
      place: -1,
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
});
