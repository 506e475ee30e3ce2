import { describe } from "vitest";
import { memoryCounters } from "../../lib/store/memory.ts";
import { counting } from "../contracts/counters.ts";
import { manualClock } from "../support/clock.ts";

describe("counters in memory", () => {
  counting(() => {
    const clock = manualClock();
    return { counters: memoryCounters(clock), at: (ms) => clock.advance(ms - clock.now()) };
  });
});
