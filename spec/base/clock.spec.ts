import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { manualClock } from "../support/clock.ts";

describe("the system's clock", () => {
  it("gives the wall clock time in milliseconds since 1970", () => {
    const before = Date.now();
    const wall = systemClock.wall();
    expect(wall).toBeGreaterThanOrEqual(before);
    expect(wall).toBeLessThanOrEqual(Date.now());
  });

  it("never goes backwards", () => {
    const read = Array.from({ length: 10_000 }, () => systemClock.now());
    expect(read.every((now, i) => i === 0 || now >= read[i - 1]!)).toBe(true);
  });

  it("does not keep the process alive for a pending timer", () => {
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

  it("runs once, after its time", () => {
    const run = vi.fn();
    clock.after(100, run);
    pass(99);
    expect(run).toHaveBeenCalledTimes(0);
    pass(1);
    expect(run).toHaveBeenCalledTimes(1);
    pass(1000);
    expect(run).toHaveBeenCalledTimes(1);
  });

  it("does not run once cancelled", () => {
    const run = vi.fn();
    const timer = clock.after(100, run);
    pass(50);
    timer.cancel();
    pass(1000);
    expect(run).not.toHaveBeenCalled();
  });

  it("starts its full time again when restarted, also after it has run", () => {
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
