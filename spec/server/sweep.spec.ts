import { describe, expect, it } from "vitest";
import { Sweep } from "../../lib/server/sweep.ts";
import { manualClock } from "../support/clock.ts";

describe("a sweep", () => {
  it("looks once a second, and tells each look the time since its own last one, or since it began", () => {
    const clock = manualClock();
    const sweep = new Sweep(clock);
    const seen: string[] = [];
    sweep.watch((now, elapsedMs) => seen.push(`a ${now} ${elapsedMs}`));
    clock.advance(700);
    sweep.watch((now, elapsedMs) => seen.push(`b ${now} ${elapsedMs}`));
    expect(seen).toEqual([]);
    clock.advance(300);
    clock.advance(1_000);
    const from = clock.now() - 2_000;
    expect(seen).toEqual([`a ${from + 1_000} 1000`, `b ${from + 1_000} 300`, `a ${from + 2_000} 1000`, `b ${from + 2_000} 1000`]);
  });

  it("counts a pause of the process as two seconds at most", () => {
    const clock = manualClock();
    const late: (() => void)[] = [];
    const sweep = new Sweep({ ...clock, now: clock.now, after: (_ms, run) => (late.push(run), { cancel() {}, restart() {} }) });
    const seen: number[] = [];
    sweep.watch((_now, elapsedMs) => seen.push(elapsedMs));
    clock.advance(30_000);
    late[0]!();
    expect(seen).toEqual([2_000]);
  });

  it("has one timer while there are looks, and none without, also where looks end or begin during a look", () => {
    const clock = manualClock();
    const sweep = new Sweep(clock);
    expect(clock.pending).toBe(0);
    let looks = 0;
    const end: () => void = sweep.watch(() => {
      end();
      endOther();
      last = sweep.watch(() => looks++);
    });
    const endOther = sweep.watch(() => looks++);
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
