import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { bytesOfCaller } from "../../lib/store/callers.ts";
import { memoryCounters, type MemoryLimiter } from "../../lib/store/memory.ts";
import type { Window } from "../../lib/store/counters.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { sizeOf } from "../support/limiters.ts";
import { random, type Random } from "../support/random.ts";

const LIMITS = [1, 2, 10, 64, 65, 100, 1000, 5000];
const second = (limit: number): Window => ({ name: "second", limit, ms: 1_000 });
const minute = (limit: number): Window => ({ name: "minute", limit, ms: 60_000 });
const hour = (limit: number): Window => ({ name: "hour", limit, ms: 3_600_000 });

function limiterOf(windows: readonly Window[], maxCallers = 100) {
  const clock = manualClock();
  const counters = memoryCounters(clock, [5, 6]);
  return { clock, counters, limiter: counters.limiter("k", { windows, maxCallers }) };
}

/** Gaps of an unsteady caller: bursts, paces near the limit, fractions, silences. */
function gap(from: Random, { limit, ms }: Window): number {
  const pace = ms / limit;
  const silence = from.chance(1 / (50 + limit)) ? ms * from.next() * 2 : 0;
  return from.pick([0, 0, 0, 0.001, from.next() * pace, pace * (0.5 + from.next()), Math.floor(pace), silence]);
}

/** The most admissions in any interval [t, t + ms). */
function densest(times: readonly number[], ms: number): number {
  let most = 0;
  for (let i = 0, first = 0; i < times.length; i++) {
    while (times[i]! - times[first]! >= ms) first++;
    most = Math.max(most, i - first + 1);
  }
  return most;
}

function admitted(limiter: MemoryLimiter, caller: string, times: number): number {
  let count = 0;
  for (let i = 0; i < times; i++) if (limiter.decide(caller).admitted) count++;
  return count;
}

describe.each(LIMITS)("a limit of %i", (limit) => {
  const window = second(limit);
  const rounds = limit > 500 ? 6 : 25;

  it(
    "a limit admits the first N requests, whatever their spacing, " + "and refuses the next request in the same window",
    () => {
      const { clock, limiter } = limiterOf([window]);
      const from = random(limit);
      for (let i = 0; i < limit; i++) {
        expect(limiter.decide("a").admitted).toBe(true);
        if (from.chance(0.3)) clock.advance((from.next() * window.ms) / limit);
      }
      expect(limiter.decide("a").admitted).toBe(false);
    },
  );

  it("a limit never admits more than N requests in any interval as long as the window", () => {
    for (let seed = 0; seed < rounds; seed++) {
      const from = random(seed);
      const { clock, limiter } = limiterOf([window]);
      const times: number[] = [];
      for (let i = 0; i < limit * 4 + 200; i++) {
        clock.advance(gap(from, window));
        if (limiter.decide("a").admitted) times.push(clock.now());
      }
      expect(times.length).toBeGreaterThanOrEqual(limit);
      expect(densest(times, window.ms)).toBeLessThanOrEqual(limit);
    }
  });

  it("a limit refuses only when exactly N (N ≤ 64), or more than N - N/64, were admitted in the window", () => {
    for (let seed = 0; seed < rounds; seed++) {
      const from = random(seed + 1000);
      const { clock, limiter } = limiterOf([window]);
      const log: number[] = [];
      let first = 0;
      let refusals = 0;
      for (let i = 0; i < limit * 4 + 200; i++) {
        clock.advance(gap(from, window));
        const now = clock.now();
        while (first < log.length && now - log[first]! >= window.ms) first++;
        if (limiter.decide("a").admitted) log.push(now);
        else {
          refusals++;
          const standing = log.length - first;
          if (limit <= 64 ? standing !== limit : standing <= limit - limit / 64)
            expect.fail(`refused with ${standing} in the window`);
        }
      }
      expect(refusals).toBeGreaterThan(0);
    }
  });

  it("a limit never refuses a caller whose rate stays below the limit", () => {
    const { clock, limiter } = limiterOf([window]);
    const most = limit <= 64 ? limit : Math.floor(limit - limit / 64);
    // Spaced 1 / most of the window, in whole ticks so that `most` of them never fall short of it by rounding.
    const times = Array.from({ length: most * 3 }, (_, i) => Math.ceil((i * window.ms) / most));
    for (const time of times) {
      clock.advance(time - clock.now());
      expect(limiter.decide("a").admitted).toBe(true);
    }
  });

  it("a limit refuses until retryMs has passed, and admits at that exact moment", () => {
    const from = random(limit);
    const { clock, limiter } = limiterOf([window]);
    for (let round = 0; round < 30; round++) {
      while (limiter.decide("a").admitted) clock.advance(from.chance(0.2) ? Math.floor(gap(from, window)) : 0);
      const { retryMs } = limiter.decide("a");
      clock.advance(retryMs - 0.5);
      expect(limiter.decide("a").admitted).toBe(false);
      clock.advance(0.5);
      expect(limiter.decide("a").admitted).toBe(true);
    }
  });
});

describe("a decision", () => {
  it("a decision has the remaining quota of each window, the time of the next free place, and the time to wait", () => {
    const { clock, limiter } = limiterOf([second(2), minute(3)]);
    expect(limiter.decide("a")).toEqual({ admitted: true, remaining: [1, 2], resetMs: [1_000, 60_000], retryMs: 0 });
    clock.advance(400);
    expect(limiter.decide("a")).toEqual({ admitted: true, remaining: [0, 1], resetMs: [600, 59_600], retryMs: 0 });
    clock.advance(100);
    expect(limiter.decide("a")).toEqual({ admitted: false, remaining: [0, 1], resetMs: [500, 59_500], retryMs: 500 });
  });

  it("a decision has resetMs 0 for a window without admissions", () => {
    const { clock, limiter } = limiterOf([second(5), hour(1)]);
    limiter.decide("a");
    clock.advance(2_000);
    expect(limiter.decide("a")).toEqual({
      admitted: false,
      remaining: [5, 0],
      resetMs: [0, 3_598_000],
      retryMs: 3_598_000,
    });
  });

  it("a decision has the longest wait of all windows that refuse", () => {
    for (const windows of [
      [second(1), minute(1)],
      [minute(1), second(1)],
    ]) {
      const { limiter } = limiterOf(windows);
      limiter.decide("a");
      expect(limiter.decide("a").retryMs).toBe(60_000);
    }
  });

  it("a decision consumes nothing of the other windows when one window refuses", () => {
    const { clock, limiter } = limiterOf([second(1), minute(5)]);
    for (let i = 0; i < 5; i++) {
      expect(admitted(limiter, "a", 20)).toBe(1);
      clock.advance(1_000);
    }
    expect(limiter.decide("a").remaining).toEqual([1, 0]);
  });

  it("a decision keeps every window's limit over random arrivals", () => {
    for (let seed = 0; seed < 10; seed++) {
      const from = random(seed);
      const windows = [second(from.pick([3, 70])), minute(from.pick([20, 100, 700])), hour(from.pick([300, 3000]))];
      const { clock, limiter } = limiterOf(windows);
      const times: number[] = [];
      for (let i = 0; i < 6_000; i++) {
        clock.advance(gap(from, windows[from.int(0, 2)]!));
        if (limiter.decide("a").admitted) times.push(clock.now());
      }
      for (const window of windows) expect(densest(times, window.ms)).toBeLessThanOrEqual(window.limit);
    }
  });

  it("a decision equals a plain count of past admissions, for many callers who come and go while limits rise", () => {
    for (let seed = 0; seed < 4; seed++) {
      const from = random(seed);
      const { clock, counters } = limiterOf([second(1)]);
      const logs = new Map<string, number[]>();
      let forgotten = 0;
      for (let reload = 0; reload < 5; reload++) {
        const windows = [second(2 + reload), minute(6 + 4 * reload), hour(20 + 8 * reload)];
        const limiter = counters.limiter("many", { windows, maxCallers: 10_000 });
        for (let i = 0; i < 800; i++) {
          clock.advance(from.chance(0.002) ? 7_200_000 * from.next() : from.pick([0, 1, 40 * from.next()]));
          const caller = `c${Math.floor(200 * from.next() ** 3)}`;
          const log = (logs.get(caller) ?? []).filter((time) => clock.now() - time < 3_600_000);
          const left = windows.map(({ limit, ms }) => limit - log.filter((time) => clock.now() - time < ms).length);
          const admitted = Math.min(...left) > 0;
          const { callers } = sizeOf(counters);
          const decision = limiter.decide(caller);
          if (decision.admitted !== admitted) expect.fail(`admitted: ${decision.admitted}, left: ${left}`);
          const told = admitted ? left.map((each) => each - 1) : left;
          if (decision.remaining.join() !== told.join()) expect.fail(`remaining: ${decision.remaining}, left: ${told}`);
          if (admitted) logs.set(caller, [...log, clock.now()]);
          if (sizeOf(counters).callers < callers) forgotten++;
        }
      }
      expect(forgotten).toBeGreaterThan(0);
    }
  });

  it("a decision depends on one caller and one limiter only", () => {
    const { counters, limiter } = limiterOf([minute(3)]);
    const other = counters.limiter("other", { windows: [minute(2)], maxCallers: 10 });
    expect(admitted(limiter, "a", 9)).toBe(3);
    expect(admitted(limiter, "b", 9)).toBe(3);
    expect(admitted(other, "a", 9)).toBe(2);
  });

  it("a decision distinguishes callers with long names", () => {
    const { limiter } = limiterOf([minute(1)]);
    const long = "h:" + "x".repeat(100_000);
    expect(limiter.decide(long + "1").admitted).toBe(true);
    expect(limiter.decide(long + "2").admitted).toBe(true);
    expect(limiter.decide(long + "1").admitted).toBe(false);
  });
});

describe("memory of the limiter", () => {
  const collect = () => {
    setFlagsFromString("--expose-gc");
    // Buffers that one collection finds are given back by the next.
    for (let i = 0; i < 2; i++) (runInNewContext("gc") as () => void)();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };

  it("holds a quiet caller with three windows in at most 300 bytes", () => {
    const callers = 149_000; // the memory, which doubles, is nearly full
    const { counters, limiter } = limiterOf([second(10), minute(100), hour(5_000)], callers);
    const before = collect();
    for (let i = 0; i < callers; i++) limiter.decide(`ip:${i >> 16}.${(i >> 8) & 255}.${i & 255}.1`);
    expect((collect() - before) / callers).toBeLessThan(300);
    expect(sizeOf(counters).callers).toBe(callers);
  });

  it("takes no more memory for a flood of callers after others have been forgotten", () => {
    const callers = 20_000;
    const { clock, counters, limiter } = limiterOf([second(10), minute(100)], callers);
    const flood = (name: string) => {
      for (let i = 0; i < callers; i++) limiter.decide(`${name} ${i}`);
      expect(sizeOf(counters).callers).toBe(callers);
      return collect();
    };
    const again = (name: string) => {
      clock.advance(60_000);
      for (let i = 0; i < callers; i++) limiter.decide("a");
      expect(sizeOf(counters).callers).toBe(1);
      clock.advance(60_000);
      return flood(name);
    };
    const first = flood("first");
    const afterwards = again("second");
    // The first time also grows what V8 itself holds (half a megabyte was seen); callers that stayed would be six.
    expect(afterwards - first).toBeLessThan(100 * callers);
    for (const name of ["third", "fourth"]) expect(again(name) - afterwards).toBeLessThan(20 * callers);
  });

  it("takes less than 4000 bytes for an unused limiter", () => {
    const { counters } = limiterOf([second(10), minute(100), hour(5_000)]);
    const before = collect();
    for (let i = 0; i < 500; i++)
      counters.limiter(`k${i}`, { windows: [second(10), minute(100), hour(5_000)], maxCallers: 10 });
    expect((collect() - before) / 500).toBeLessThan(4_000);
    expect(sizeOf(counters).limiters).toBe(501);
  });

  it("does not grow with the length of a caller's name", () => {
    const { counters, limiter } = limiterOf([minute(1)], 1_000);
    const before = collect();
    for (let i = 0; i < 1_000; i++) limiter.decide("h:" + i + Buffer.alloc(10_000, "x").toString());
    expect((collect() - before) / 1_000).toBeLessThan(1_000);
    expect(sizeOf(counters).callers).toBe(1_000); // still there when the heap was weighed
  });

  it("does not keep the header that contained a caller's name", () => {
    const { counters, limiter } = limiterOf([minute(1)], 1_000);
    const before = collect();
    for (let i = 0; i < 1_000; i++) {
      const header = Buffer.from("203.0.113.17, ".repeat(1_000) + `2001:db8::${i}`).toString();
      limiter.decide("ip:" + header.slice(14_000));
    }
    expect((collect() - before) / 1_000).toBeLessThan(1_000);
    expect(sizeOf(counters).callers).toBe(1_000);
  });

  it("distinguishes names of any script and finds them again", () => {
    const { limiter } = limiterOf([minute(1)]);
    for (const name of ["c:José", "c:ключ", "c:\ud83d", "c:\ud83e", "c:👍"]) {
      expect([limiter.decide(name).admitted, limiter.decide(name).admitted]).toEqual([true, false]);
    }
  });

  it("holds a caller with every window full in at most bytesOfCaller bytes", () => {
    const windows = [second(64), minute(64), hour(64)];
    const callers = 2_500; // the memory, which doubles, is nearly full
    const { limiter } = limiterOf(windows, callers);
    const before = collect();
    for (let i = 0; i < callers; i++) admitted(limiter, `\u{100}${i}`.padEnd(64, "x"), 64);
    const taken = collect() - before;
    expect(taken).toBeGreaterThan(callers * 1_500);
    expect(taken).toBeLessThanOrEqual(callers * bytesOfCaller(windows));
  });

  it("holds the busiest caller in at most 64 marks a window", () => {
    const { clock, counters, limiter } = limiterOf([hour(1_000_000)]);
    const before = collect();
    for (let i = 0; i < 300_000; i++) {
      clock.advance(1);
      limiter.decide("a");
    }
    expect(collect() - before).toBeLessThan(100_000);
    expect(sizeOf(counters).callers).toBe(1);
  });

  it("loses the callers whose windows have expired, a few with each decision", () => {
    const { clock, counters, limiter } = limiterOf([second(5)], 1_000);
    for (let i = 0; i < 100; i++) limiter.decide(`a${i}`);
    clock.advance(1_000);
    limiter.decide("b");
    expect(sizeOf(counters).callers).toBe(99);
    for (let i = 0; i < 60; i++) limiter.decide("b");
    expect(sizeOf(counters).callers).toBe(1);
  });

  it("keeps a caller who was admitted again after other callers of the same time have expired", () => {
    const { clock, limiter } = limiterOf([second(2)]);
    limiter.decide("a");
    limiter.decide("b");
    clock.advance(900);
    limiter.decide("a");
    clock.advance(500);
    expect(limiter.decide("c").admitted).toBe(true); // forgets b, not a
    expect(limiter.decide("a").remaining).toEqual([0]);
  });

  it("takes memory for callers from the first one on", () => {
    const counters = memoryCounters(manualClock());
    const before = collect();
    const limiters = Array.from({ length: 2_000 }, (_none, i) =>
      counters.limiter(`k${i}`, { windows: [second(10)], maxCallers: 100 }),
    );
    expect((collect() - before) / limiters.length).toBeLessThan(1_800);
  });
});

describe("more callers than places", () => {
  it(
    "more callers than places share one allowance when all known callers have used more than half of a limit, " +
      "and the known callers keep their quotas",
    () => {
      const { counters, limiter } = limiterOf([minute(5)], 3);
      for (const known of ["a", "b", "c"]) admitted(limiter, known, 3);
      let strangers = 0;
      for (let i = 0; i < 1_000; i++) strangers += admitted(limiter, `stranger ${i}`, 1);
      expect(strangers).toBe(5);
      expect(sizeOf(counters).callers).toBe(3);
      for (const known of ["a", "b", "c"]) expect(admitted(limiter, known, 9)).toBe(2);
    },
  );

  it("more callers than places displace a known caller with low use, and start with the use of that caller", () => {
    const { clock, counters, limiter } = limiterOf([minute(10), hour(100)], 3);
    for (const [name, times] of [
      ["a", 9],
      ["b", 4],
      ["c", 6],
    ] as const)
      admitted(limiter, name, times);
    clock.advance(1_000);
    expect(limiter.decide("d").remaining).toEqual([5, 95]); // b is forgotten
    expect(sizeOf(counters).callers).toBe(3);
    expect(limiter.decide("a").remaining).toEqual([0, 90]);
    expect(limiter.decide("c").remaining).toEqual([3, 93]);
    clock.advance(59_000); // what b had used leaves the minute
    expect(limiter.decide("d").remaining).toEqual([8, 94]);
  });

  it(
    "more callers than places lock out neither new callers nor known callers, " +
      "in a flood of a hundred times as many names as max_callers",
    () => {
      const { counters, limiter } = limiterOf([hour(1_000)], 100);
      for (let i = 0; i < 50; i++) admitted(limiter, `known ${i}`, 5);
      for (let i = 0; i < 10_000; i++) expect(limiter.decide(`flood ${i}`).admitted).toBe(true);
      expect(sizeOf(counters).callers).toBe(100);
      expect(limiter.decide("new").remaining[0]).toBeGreaterThan(500);
      for (let i = 0; i < 50; i++) expect(limiter.decide(`known ${i}`).remaining[0]).toBeGreaterThan(500);
    },
  );

  it(
    "more callers than places leave half of each limit to further new callers until nearly " +
      "all places are half used",
    () => {
      const { limiter } = limiterOf([hour(10)], 20);
      let flood = 0;
      while (limiter.decide(`flood ${flood}`).admitted) flood++;
      // Nearly every place is filled by half before the allowance that all share is used.
      expect(flood).toBeGreaterThan(20 * 5);
    },
  );

  it("more callers than places do not refill the quota of a known caller", () => {
    const { clock, limiter } = limiterOf([minute(5)], 10);
    expect(admitted(limiter, "attacker", 9)).toBe(5);
    for (let i = 0; i < 10_000; i++) limiter.decide(`flood ${i}`);
    clock.advance(30_000);
    expect(admitted(limiter, "attacker", 9)).toBe(0);
  });

  it("more callers than places get no fresh quota when they move from the shared allowance to a separate place", () => {
    const { clock, limiter } = limiterOf([minute(5)], 1);
    admitted(limiter, "a", 3);
    clock.advance(59_000);
    expect(admitted(limiter, "b", 9)).toBe(5);
    clock.advance(1_000); // a is forgotten, b has a place to go to
    expect(admitted(limiter, "b", 9)).toBe(0);
    clock.advance(59_000);
    expect(admitted(limiter, "b", 9)).toBe(5);
  });

  it(
    "more callers than places share an allowance that stays apart from the quota of any " +
      "caller when blocks are moved",
    () => {
      const { clock, limiter } = limiterOf([minute(5)], 1);
      admitted(limiter, "a", 3);
      clock.advance(59_000);
      expect(admitted(limiter, "b", 3)).toBe(3); // as large now as what is kept of a
      clock.advance(1_000);
      expect(limiter.decide("b").remaining).toEqual([1]); // a is forgotten
      clock.advance(60_000);
      expect(admitted(limiter, "b", 3)).toBe(3); // where the shared ones stood before
      expect(limiter.decide("c").remaining).toEqual([4]);
      expect(limiter.decide("b").remaining).toEqual([1]);
    },
  );

  it("more callers than places have separate quotas again once a flood has ended", () => {
    const { clock, limiter } = limiterOf([minute(5)], 2);
    for (let i = 0; i < 100; i++) limiter.decide(`flood ${i}`);
    clock.advance(60_000);
    expect(admitted(limiter, "b", 9)).toBe(5);
    expect(admitted(limiter, "c", 9)).toBe(5);
  });

  it("more callers than places get at most N in any window each, however often callers are removed", () => {
    let forgotten = 0;
    for (let seed = 0; seed < 40; seed++) {
      const from = random(seed);
      const windows = from.pick([
        [minute(from.pick([1, 3, 70])), second(50)],
        [second(from.int(2, 12)), minute(from.int(10, 40)), hour(from.int(30, 300))],
        [hour(from.pick([2, 64, 65, 200]))],
      ]);
      const maxCallers = from.int(1, 6);
      const { clock, counters, limiter } = limiterOf(windows, maxCallers);
      const [crowd, pace] = [from.int(2, 30), from.pick([20, 400, 20_000])];
      const logs = new Map<string, number[]>();
      for (let i = 0; i < 2_000; i++) {
        clock.advance(from.chance(0.05) ? from.next() * 40_000 : from.next() * pace);
        // Some come often, some once in a while, some once.
        const caller = from.chance(0.1) ? `once ${i}` : `c${Math.trunc(crowd ** from.next())}`;
        const isFull = sizeOf(counters).callers >= maxCallers;
        if (!limiter.decide(caller).admitted) continue;
        if (isFull && !logs.has(caller)) forgotten++;
        if (!logs.has(caller)) logs.set(caller, []);
        logs.get(caller)!.push(clock.now());
      }
      expect(sizeOf(counters).callers).toBeLessThanOrEqual(maxCallers);
      for (const log of logs.values())
        for (const { limit, ms } of windows) expect(densest(log, ms), `seed ${seed}`).toBeLessThanOrEqual(limit);
    }
    expect(forgotten).toBeGreaterThan(1_000);
  });

  it("more callers than places get at most the higher limit in any window each, whatever reloads come between", () => {
    for (let seed = 0; seed < 30; seed++) {
      const from = random(seed + 500);
      const limits = [from.int(1, 200), from.int(1, 200)] as const;
      const { clock, counters } = limiterOf([], 4);
      let limiter = counters.limiter("k2", { windows: [minute(limits[0])], maxCallers: 4 });
      const logs = new Map<string, number[]>();
      for (let i = 0; i < 1_000; i++) {
        clock.advance(from.next() * 60);
        // Up only: of what stood beyond a lowered limit nothing is remembered.
        if (i === 500)
          limiter = counters.limiter("k2", {
            windows: [second(1_000), minute(Math.max(...limits))],
            maxCallers: from.int(2, 6),
          });
        const caller = `c${Math.trunc(12 ** from.next())}`;
        if (limiter.decide(caller).admitted) logs.set(caller, (logs.get(caller) ?? []).concat(clock.now()));
      }
      for (const log of logs.values())
        expect(densest(log, 60_000), `seed ${seed}`).toBeLessThanOrEqual(Math.max(...limits));
    }
  });
});

describe("a reload", () => {
  function reloaded(
    clock: ManualClock,
    before: readonly Window[],
    after: readonly Window[],
    use: (limiter: MemoryLimiter) => void,
  ) {
    const counters = memoryCounters(clock);
    use(counters.limiter("k", { windows: before, maxCallers: 10 }));
    return counters.limiter("k", { windows: after, maxCallers: 10 });
  }

  it("a reload refills no quota with the same windows", () => {
    const limiter = reloaded(manualClock(), [minute(5)], [minute(5)], (old) => admitted(old, "a", 3));
    expect(admitted(limiter, "a", 9)).toBe(2);
  });

  it("a reload admits the difference with a higher limit, and nothing with a lower limit", () => {
    const use = (old: MemoryLimiter) => void admitted(old, "a", 9);
    expect(admitted(reloaded(manualClock(), [minute(5)], [minute(7)], use), "a", 9)).toBe(2);
    expect(admitted(reloaded(manualClock(), [minute(5)], [minute(3)], use), "a", 9)).toBe(0);
  });

  it("a reload counts the newest admissions with a lower limit", () => {
    const clock = manualClock();
    const limiter = reloaded(clock, [minute(5)], [minute(2)], (old) => {
      for (let i = 0; i < 5; i++) {
        old.decide("a");
        clock.advance(1_000);
      }
    });
    expect(limiter.decide("a").retryMs).toBe(58_000); // admitted at 3 s and 4 s, asked at 5 s
  });

  it("a reload carries each window over by its name, and starts new windows empty", () => {
    const limiter = reloaded(manualClock(), [second(9), hour(5)], [hour(6), minute(9)], (old) => admitted(old, "a", 4));
    expect(limiter.decide("a").remaining).toEqual([1, 8]);
  });

  it("a reload leaves the limiter of the former configuration unchanged until the new limiter is used", () => {
    const { counters, limiter } = limiterOf([minute(5)]);
    admitted(limiter, "a", 2);
    counters.limiter("k", { windows: [minute(1), second(1)], maxCallers: 1 });
    expect(admitted(limiter, "a", 9)).toBe(3);
  });

  it("a reload keeps the admissions of a window that becomes longer", () => {
    const { clock, counters, limiter } = limiterOf([{ name: "w", limit: 2, ms: 1_000 }]);
    for (const name of ["a", "b"]) admitted(limiter, name, 2);
    const after = counters.limiter("k", { windows: [{ name: "w", limit: 2, ms: 60_000 }], maxCallers: 100 });
    expect(after.decide("a").admitted).toBe(false);
    clock.advance(2_000);
    expect(after.decide("c").admitted).toBe(true);
    expect(after.decide("b").admitted).toBe(false);
    expect(after.decide("a").admitted).toBe(false);
  });

  it("a reload converts the shared allowance", () => {
    const { counters, limiter } = limiterOf([minute(5)], 1);
    admitted(limiter, "a", 4);
    expect(admitted(limiter, "b", 9)).toBe(5);
    const after = counters.limiter("k", { windows: [minute(6)], maxCallers: 1 });
    expect(admitted(after, "b", 9)).toBe(1);
  });

  it("a reload keeps every caller who has used more than half of a limit with a lower max_callers", () => {
    const { clock, counters, limiter } = limiterOf([minute(3)], 10);
    for (let i = 0; i < 10; i++) admitted(limiter, `a${i}`, 2);
    const after = counters.limiter("k", { windows: [minute(3)], maxCallers: 3 });
    expect(admitted(after, "x", 9) + admitted(after, "y", 9)).toBe(3);
    for (let i = 0; i < 10; i++) expect(admitted(after, `a${i}`, 9)).toBe(1);
    clock.advance(60_000);
    for (let i = 0; i < 5; i++) after.decide("x");
    expect(sizeOf(counters).callers).toBeLessThanOrEqual(3);
  });

  it("a reload never admits more than the larger of any two limits in a window that spans it", () => {
    for (let seed = 0; seed < 60; seed++) {
      const from = random(seed);
      const before = from.pick(LIMITS.slice(0, 7));
      const after = from.pick(LIMITS.slice(0, 7));
      const clock = manualClock();
      const counters = memoryCounters(clock);
      const play = (limit: number, requests: number) => {
        const limiter = counters.limiter("k", { windows: [second(limit)], maxCallers: 10 });
        const times: number[] = [];
        for (let i = 0; i < requests; i++) {
          clock.advance(gap(from, second(limit)));
          if (limiter.decide("a").admitted) times.push(clock.now());
        }
        return times;
      };
      const old = play(before, from.int(0, before * 2));
      const fresh = play(after, after * 2 + 50);
      // Windows that begin after the reload hold at most N of the new limit; those that span it, at most the larger of
      // the two, and no new admission comes while N of the new limit stand in its window.
      expect(densest([...old, ...fresh], 1_000)).toBeLessThanOrEqual(Math.max(before, after));
      fresh.forEach((time, i) => {
        const standing = [...old, ...fresh.slice(0, i)].filter((earlier) => time - earlier < 1_000).length;
        expect(standing).toBeLessThan(after);
      });
    }
  });

  it("a reload keeps each limit when repeated many times with growing limits", () => {
    for (let seed = 0; seed < 20; seed++) {
      const from = random(seed);
      const clock = manualClock();
      const counters = memoryCounters(clock);
      const times: number[] = [];
      for (let limit = 50; limit < 1_000; limit += from.int(1, 60)) {
        const limiter = counters.limiter("k", { windows: [minute(20_000), second(limit)], maxCallers: 10 });
        for (let i = 0; i < 60; i++) {
          clock.advance(gap(from, second(limit)));
          if (limiter.decide("a").admitted) times.push(clock.now());
        }
        expect(densest(times, 1_000)).toBeLessThanOrEqual(limit);
      }
    }
  });
});

describe("retire", () => {
  it("drops a limiter that no configuration uses once all its windows have run out", () => {
    const { clock, counters, limiter } = limiterOf([second(1), minute(5)]);
    counters.limiter("kept", { windows: [second(1)], maxCallers: 5 });
    limiter.decide("a");
    clock.advance(59_999);
    counters.retire(new Set(["kept"]));
    expect(sizeOf(counters).limiters).toBe(2);
    expect(counters.limiter("k", { windows: [second(1), minute(5)], maxCallers: 100 }).decide("a").remaining).toEqual([
      0, 3,
    ]);
    counters.abandon(new Set(["k"]));
    clock.advance(60_000);
    counters.retire(new Set(["kept"]));
    expect(sizeOf(counters).limiters).toBe(1);
  });

  it("keeps a limiter in use, and a limiter whose shared allowance has not expired", () => {
    const { clock, counters, limiter } = limiterOf([minute(5)], 1);
    limiter.decide("a");
    clock.advance(30_000);
    limiter.decide("b");
    clock.advance(30_000);
    counters.retire(new Set());
    expect(sizeOf(counters).limiters).toBe(1);
    counters.retire(new Set(["k"]));
    clock.advance(60_000);
    expect(sizeOf(counters).limiters).toBe(1);
    counters.retire(new Set());
    expect(sizeOf(counters)).toEqual({ limiters: 0, callers: 0 });
  });

  it("keeps what a configuration that is not in force yet counts with", () => {
    const { clock, counters, limiter } = limiterOf([second(1)]);
    limiter.decide("a");
    counters.retire(new Set(["k"]));
    counters.retire(new Set());
    const next = counters.limiter("next", { windows: [minute(5)], maxCallers: 5 });
    clock.advance(1_000);
    expect([...counters.all.keys()]).toEqual(["next"]);
    // What is in force is read again meanwhile.
    counters.retire(new Set(["k"]));
    next.decide("a");
    counters.retire(new Set(["next"]));
    expect(counters.limiter("next", { windows: [minute(5)], maxCallers: 5 }).decide("a").remaining).toEqual([3]);
  });

  it("forgets what a configuration was to count with that does not come into force", () => {
    const { counters } = limiterOf([second(1)]);
    counters.limiter("next", { windows: [minute(5)], maxCallers: 5 });
    counters.abandon(new Set(["next"]));
    counters.retire(new Set(["k"]));
    expect([...counters.all.keys()]).toEqual(["k"]);
  });

  it("looks at many limiters in slices, and not on for a configuration that is gone", async () => {
    const { counters } = limiterOf([second(1)]);
    const keys = Array.from({ length: 100_000 }, (_none, i) => `k${i}`);
    for (const key of keys) counters.limiter(key, { windows: [second(1)], maxCallers: 1 });
    counters.abandon(new Set(keys));
    counters.retire(new Set());
    const left = counters.all.size;
    expect(left).toBeGreaterThan(0);
    counters.retire(new Set(counters.all.keys()));
    for (let turn = 0; turn < 100; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(counters.all.size).toBe(left);
    counters.retire(new Set());
    await expect.poll(() => counters.all.size).toBe(0);
  });
});
