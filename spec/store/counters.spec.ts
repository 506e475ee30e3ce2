import { describe } from "vitest";
import type { LimiterOptions } from "../../lib/store/counters.ts";
import { memoryCounters } from "../../lib/store/memory.ts";
import { workerCounters } from "../../lib/store/shared_callers.ts";
import { counting } from "../contracts/counters.ts";
import { manualClock } from "../support/clock.ts";

describe("counters in memory", () => {
  counting(() => {
    const clock = manualClock();
    return { counters: memoryCounters(clock), at: (ms) => clock.advance(ms - clock.now()) };
  });
});

describe("counters in memory that three threads share, each of which decides in turn", () => {
  counting(() => {
    const clock = manualClock();
    const names = new Map<string, SharedArrayBuffer>();
    const memory = (name: string, bytes: number) => {
      if (!names.has(name)) names.set(name, new SharedArrayBuffer(bytes));
      return names.get(name)!;
    };
    const threads = [1, 2, 3].map((id) => workerCounters(clock, { id, count: 3 }));
    let turn = 0;
    const counters = {
      limiter(key: string, options: LimiterOptions) {
        const limiters = threads.map((each) => each.limiter(key, options, memory));
        return { decide: (caller: string) => limiters[turn++ % limiters.length]!.decide(caller) };
      },
    };
    return { counters, at: (ms) => clock.advance(ms - clock.now()) };
  });
});
