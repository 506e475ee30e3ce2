import { describe, expect, it } from "vitest";
import { calendar } from "../../lib/base/calendar.ts";
import type { LocalCosted } from "../../lib/store/counters.ts";
import { memoryCounters } from "../../lib/store/memory.ts";
import { quotaLimiter, type QuotaOptions } from "../../lib/store/quotas.ts";
import { countingPeriods, type Per } from "../contracts/quotas.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { sizeOf } from "../support/limiters.ts";
import { random } from "../support/random.ts";
import { ask } from "../support/raw_client.ts";

const DAY = 86_400_000;
const DEFAULTS: QuotaOptions = { limit: 3, per: "day", timeZone: "UTC", maxCallers: 100, isCosted: false };

/** A manual clock whose date can be set without time going by. */
function settable(start: string): ManualClock & { setWall(text: string): void } {
  const clock = manualClock(Date.parse(start));
  let shift = 0;
  return { ...clock, wall: () => clock.wall() + shift, setWall: (text) => (shift = Date.parse(text) - clock.wall()) };
}

/** On a clock that stands at this moment. */
function quota(
  options: Partial<QuotaOptions> = {},
  start = "2026-01-31T12:00:00Z",
  counters?: ReturnType<typeof memoryCounters>,
  clock = settable(start),
) {
  const local = counters ?? memoryCounters(clock, [5, 6]);
  const limiter = quotaLimiter({ clock, local, shared: null, quotas: null, memory: undefined }, "k", {
    ...DEFAULTS,
    ...options,
  }) as LocalCosted;
  const admitted = (times: number, name = "a") =>
    Array.from({ length: times }, () => limiter.decide(name).admitted).filter(Boolean).length;
  return { clock, counters: local, limiter, admitted };
}

describe("quotas in memory", () => {
  countingPeriods(async () => {
    const { port } = await backend();
    const config = (per: Per) =>
      oneService(port, { plugins: [{ name: "quota", config: { limit: 1, per, limit_by: "all" } }] });
    const { gateway, port: own } = await running(config("day"));
    return async (per) => {
      await gateway.reload(config(per));
      return async () => (await ask(own, { path: "/a/x" })).status;
    };
  });
});

describe("quotas", () => {
  it("a caller has its limit in a period, and all of it again when the next one begins", () => {
    const { clock, limiter, admitted } = quota();
    expect(limiter.decide("a")).toMatchObject({ admitted: true, remaining: [2], resetMs: [DAY / 2], retryMs: 0 });
    expect(admitted(5)).toBe(2);
    expect(limiter.decide("a")).toMatchObject({ admitted: false, remaining: [0], retryMs: DAY / 2 });
    expect(admitted(1, "b")).toBe(1);
    clock.advance(DAY / 2 - 1);
    expect(admitted(1)).toBe(0);
    clock.advance(1);
    expect(admitted(5)).toBe(3);
  });

  it("what is refused counts nothing", () => {
    const { clock, admitted } = quota();
    admitted(100);
    clock.advance(DAY);
    expect(admitted(100)).toBe(3);
  });

  it("the count of a month begins anew on its first day in the time zone", () => {
    const { clock, admitted } = quota({ per: "month", timeZone: "Asia/Tokyo" }, "2026-01-31T14:59:59Z");
    expect(admitted(5)).toBe(3);
    clock.advance(999);
    expect(admitted(5)).toBe(0);
    clock.advance(1);
    expect(admitted(5)).toBe(3);
    clock.advance(27 * DAY);
    expect(admitted(5)).toBe(0);
    clock.advance(DAY);
    expect(admitted(5)).toBe(3);
  });

  it("with costs a request is admitted while anything is left, and an overdraft counts in the next period", () => {
    const { clock, limiter } = quota({ limit: 100, isCosted: true });
    expect(limiter.decide("a")).toMatchObject({ admitted: true, remaining: [100] });
    limiter.book("a", 99);
    expect(limiter.decide("a")).toMatchObject({ admitted: true, remaining: [1] });
    limiter.book("a", 231);
    expect(limiter.decide("a")).toMatchObject({ admitted: false, remaining: [0] });
    clock.advance(DAY);
    expect(limiter.decide("a").admitted).toBe(false); // 230 of 100
    clock.advance(DAY);
    expect(limiter.decide("a").admitted).toBe(false); // 130
    clock.advance(DAY);
    expect(limiter.decide("a")).toMatchObject({ admitted: true, remaining: [70] });
  });

  it("counts up to the largest costs", () => {
    const { clock, limiter } = quota({ limit: 999_999_999_999_999, isCosted: true });
    for (let i = 0; i < 10; i++) limiter.book("a", 999_999_999_999_999);
    expect(limiter.decide("a").admitted).toBe(false);
    clock.advance(60 * DAY);
    expect(limiter.decide("a").admitted).toBe(true);
  });

  it("a clock that goes back across midnight gives nobody a new quota, and takes nobody's next one", () => {
    const { clock, admitted } = quota({}, "2026-02-01T00:00:01Z");
    expect(admitted(2)).toBe(2);
    clock.setWall("2026-01-31T23:59:59Z");
    expect(admitted(5)).toBe(1);
    clock.setWall("2026-02-01T00:00:02Z");
    expect(admitted(5)).toBe(0);
    clock.setWall("2031-01-01T00:00:00Z");
    expect(admitted(2)).toBe(2);
    clock.setWall("2026-02-02T00:00:00Z");
    expect(admitted(5)).toBe(1);
    clock.setWall("2026-02-03T00:00:00Z");
    expect(admitted(5)).toBe(3);
  });

  it.each(["day", "week", "month"] as const)(
    "in every %s, in a time zone with daylight saving, exactly the limit is admitted",
    (per) => {
      const from = random(9);
      const { clock, limiter } = quota({ per, timeZone: "America/Santiago", limit: 40 }, "2026-01-01T00:00:00Z");
      const periodAt = calendar(per, "America/Santiago");
      const asked = new Map<number, { asked: number; admitted: number }>();
      for (let i = 0; i < 4_000; i++) {
        clock.advance(from.int(0, per === "day" ? 2 * 3_600_000 : per === "week" ? 8 * 3_600_000 : 36 * 3_600_000));
        const { number } = periodAt(clock.wall());
        const count = asked.get(number) ?? { asked: 0, admitted: 0 };
        for (let burst = from.int(1, 8); burst > 0; burst--) {
          count.asked++;
          if (limiter.decide("a").admitted) count.admitted++;
        }
        asked.set(number, count);
      }
      expect(asked.size).toBeGreaterThan(50);
      for (const { asked: all, admitted } of asked.values()) expect(admitted).toBe(Math.min(all, 40));
    },
  );

  it("after a reload with another limit or time zone the count is kept; with another period it begins anew", () => {
    const { clock, counters, admitted } = quota();
    expect(admitted(2)).toBe(2);
    expect(quota({ limit: 10 }, "", counters, clock).admitted(20)).toBe(8);
    expect(quota({ limit: 5 }, "", counters, clock).admitted(20)).toBe(0);
    expect(quota({ limit: 12, timeZone: "Europe/Berlin" }, "", counters, clock).admitted(20)).toBe(2);
    expect(quota({ limit: 12, per: "week" }, "", counters, clock).admitted(20)).toBe(12);
  });

  it("remembers so many callers at most: a new one starts with what one who was forgotten had used", () => {
    const { counters, limiter } = quota({ limit: 10, maxCallers: 5 });
    for (let i = 0; i < 50; i++) for (let times = 0; times < 4; times++) limiter.decide(`caller ${i}`);
    expect(sizeOf(counters).callers).toBe(5);
    expect(limiter.decide("new").remaining[0]).toBeLessThanOrEqual(6);
  });

  it("a caller takes 120 bytes, whatever its limit", () => {
    const { counters, limiter } = quota({ limit: 999_999_999, maxCallers: 10_000 });
    for (let i = 0; i < 4_000; i++) for (let times = 0; times < 3; times++) limiter.decide(`caller ${i}`);
    expect(counters.all.get("k")!.shards[0]!.words.byteLength).toBeLessThanOrEqual(2 * 4_000 * 124);
  });

  it("forgets callers two periods after their last request", () => {
    const { clock, counters, limiter } = quota();
    for (let i = 0; i < 50; i++) limiter.decide(`caller ${i}`);
    clock.advance(2 * DAY);
    for (let i = 0; i < 30; i++) limiter.decide("a");
    expect(sizeOf(counters).callers).toBe(1);
  });
});
