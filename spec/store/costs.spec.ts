import { describe, expect, it } from "vitest";
import { costedLimiter } from "../../lib/store/costs.ts";
import type { Decision, LocalCosted, Window } from "../../lib/store/counters.ts";
import { memoryCounters } from "../../lib/store/memory.ts";
import { manualClock } from "../support/clock.ts";
import { sizeOf } from "../support/limiters.ts";
import { random } from "../support/random.ts";

const minute = (limit: number): Window => ({ name: "minute", limit, ms: 60_000 });

function costed(windows: readonly Window[], maxCallers = 100) {
  const clock = manualClock();
  const counters = memoryCounters(clock, [5, 6]);
  const limiter = costedLimiter({ clock, local: counters, shared: null, quotas: null, memory: undefined }, "k", {
    windows,
    maxCallers,
  }) as LocalCosted;
  const left = (name = "a") => limiter.decide(name).remaining[0];
  return { clock, counters, limiter, left };
}

describe("costs in sliding windows", () => {
  it("a request is admitted while anything is left, and is not counted itself", () => {
    const { limiter, left } = costed([minute(100)]);
    for (let i = 0; i < 5; i++) expect(limiter.decide("a")).toMatchObject({ admitted: true, remaining: [100] });
    limiter.book("a", 99);
    expect(left()).toBe(1);
    expect(limiter.decide("a").admitted).toBe(true);
    limiter.book("a", 1_000_000);
    expect(limiter.decide("a")).toMatchObject({ admitted: false, remaining: [0], retryMs: 60_000 });
    expect(left("b")).toBe(100);
  });

  it("a cost of 0 counts nothing", () => {
    const { limiter, left } = costed([minute(100)]);
    limiter.book("a", 0);
    expect(left()).toBe(100);
  });

  it("an overdraft is carried: what was booked beyond the limit leaves the window a minute after it was booked", () => {
    const { clock, limiter, left } = costed([minute(100)]);
    limiter.book("a", 60);
    clock.advance(30_000);
    limiter.book("a", 90);
    expect(left()).toBe(0);
    clock.advance(30_000);
    // 60 have left, 90 are still there.
    expect(left()).toBe(10);
    clock.advance(30_000);
    expect(left()).toBe(100);
  });

  it.each([1, 10, 64, 65, 1000, 10_000, 999_999_999_999_999])(
    "never admits with a limit of %i what an exact count would refuse, and refuses a 64th too much at most",
    (limit) => {
      for (let seed = 0; seed < 8; seed++) {
        const from = random(seed);
        const { clock, limiter } = costed([minute(limit)]);
        let booked: { readonly at: number; readonly cost: number }[] = [];
        for (let i = 0; i < 300; i++) {
          clock.advance(from.pick([0, 1, 100, 5_000, from.int(0, 70_000)]));
          booked = booked.filter(({ at }) => clock.now() - at < 60_000);
          const used = booked.reduce((sum, { cost }) => sum + cost, 0);
          const { admitted, remaining } = limiter.decide("a");
          expect(remaining[0]).toBeLessThanOrEqual(Math.max(0, limit - used));
          if (used >= limit) expect(admitted).toBe(false);
          if (!from.chance(0.7)) continue;
          const cost = from.pick([1, 2, from.int(0, 10), Math.ceil(limit * from.next()), limit, 3 * limit]);
          limiter.book("a", cost);
          booked.push({ at: clock.now(), cost });
        }
        clock.advance(60_000);
        expect(limiter.decide("a")).toMatchObject({ admitted: true, remaining: [limit] });
      }
    },
  );

  it("is exact up to a limit of 64", () => {
    const from = random(3);
    const { clock, limiter } = costed([minute(64)]);
    let booked: { readonly at: number; readonly cost: number }[] = [];
    for (let i = 0; i < 2_000; i++) {
      clock.advance(from.pick([0, 10, 3_000]));
      booked = booked.filter(({ at }) => clock.now() - at < 60_000);
      expect(limiter.decide("a").remaining[0]).toBe(Math.max(0, 64 - booked.reduce((sum, { cost }) => sum + cost, 0)));
      if (!from.chance(0.4)) continue;
      const cost = from.int(0, 40);
      limiter.book("a", cost);
      booked.push({ at: clock.now(), cost });
    }
  });

  it("memory of a caller does not grow with what is booked", () => {
    const { clock, counters, limiter } = costed([minute(1_000), { name: "hour", limit: 100_000, ms: 3_600_000 }], 10);
    const words = () => counters.all.get("k")!.shards[0]!.words.length;
    for (let i = 0; i < 500; i++) (clock.advance(7), limiter.book("a", 1 + (i % 900)));
    const before = words();
    for (let i = 0; i < 5_000; i++) (clock.advance(7), limiter.book("a", 1 + (i % 900)));
    expect(words()).toBe(before);
  });

  it("remembers so many callers at most: costs of further ones are booked for those without a place together", () => {
    const { counters, limiter } = costed([minute(10)], 5);
    for (let i = 0; i < 50; i++) limiter.book(`caller ${i}`, 9);
    expect(sizeOf(counters).callers).toBe(5);
    const decisions: Decision[] = Array.from({ length: 50 }, (_, i) => ({ ...limiter.decide(`caller ${i}`) }));
    expect(decisions.every(({ remaining }) => remaining[0]! <= 1)).toBe(true);
  });

  it("after a reload with another limit, what was booked is kept", () => {
    const { clock, counters, limiter } = costed([minute(100)]);
    limiter.book("a", 70);
    const tools = { clock, local: counters, shared: null, quotas: null, memory: undefined };
    const next = costedLimiter(tools, "k", { windows: [minute(1_000)], maxCallers: 100 }) as LocalCosted;
    expect(next.decide("a").remaining[0]).toBe(930);
  });
});
