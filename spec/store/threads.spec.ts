/** The limits over real threads, also while they are killed at random. */
import { describe, expect, it } from "vitest";
import type { Window } from "../../lib/store/counters.ts";
import { workerCounters } from "../../lib/store/shared_callers.ts";
import { manualClock } from "../support/clock.ts";
import { LimiterThreads, MS_OF_TICK, type Journal, type Work } from "../support/limiter_threads.ts";
import { random } from "../support/random.ts";

const second = (limit: number): Window => ({ name: "second", limit, ms: 1_000 });
const minute = (limit: number): Window => ({ name: "minute", limit, ms: 60_000 });

/** All decisions in the order of their ticks: too many admissions, and refusals for which there is no reason. */
function judged(journal: Journal, { options: { windows }, callers }: Work) {
  const admitted = Array.from({ length: callers }, () => [] as number[]);
  /** By caller and window: the first admission, and the first unknown tick, that stand in the window. */
  const first = admitted.map(() => windows.map(() => 0));
  const unknown: number[] = [];
  let [admissions, refusals, tooMany, withoutReason] = [0, 0, 0, 0];
  journal.forEach((decided, tick) => {
    const now = tick * MS_OF_TICK;
    if (decided === 0) return void unknown.push(now);
    const caller = (decided - 1) >> 1;
    const times = admitted[caller]!;
    const standing = windows.map(({ ms }, w) => {
      while (first[caller]![w]! < times.length && now - times[first[caller]![w]!]! >= ms) first[caller]![w]!++;
      return times.length - first[caller]![w]!;
    });
    if (((decided - 1) & 1) === 1) {
      admissions++;
      if (standing.some((count, w) => count >= windows[w]!.limit)) tooMany++;
      times.push(now);
    } else {
      refusals++;
      // What the dead have decided may have counted.
      const perhaps = windows.map(({ ms }) => unknown.filter((time) => now - time < ms).length);
      if (standing.every((count, w) => count + perhaps[w]! < windows[w]!.limit)) withoutReason++;
    }
  });
  return { admissions, refusals, tooMany, withoutReason, unknown: unknown.length };
}

async function run(work: Work, threads: number): Promise<ReturnType<typeof judged>> {
  const group = new LimiterThreads(work);
  workerCounters(manualClock(), { id: 1, count: 2 }).limiter("k", work.options, group.memory);
  for (let i = 0; i < threads; i++) group.start();
  await group.ended();
  return judged(group.journal, work);
}

/**
 * How many are too many in the first run that has any, for half a minute. In one run there may be none: where other
 * programs take the processors, threads run one after the other.
 */
async function excess(work: Work): Promise<number> {
  for (const deadline = performance.now() + 30_000; ;) {
    const { tooMany } = await run(work, 3);
    if (tooMany > 0 || performance.now() > deadline) return tooMany;
  }
}

const WORK: Work = { options: { windows: [second(5), minute(64)], maxCallers: 10_000 }, callers: 60, ticks: 600_000 };

describe("three threads that decide in one memory", () => {
  it.each([1, 60])(
    "three threads that decide in one memory decide as one that remembers every admission: %i callers",
    { timeout: 60_000 },
    async (callers) => {
      const { admissions, refusals, ...faults } = await run({ ...WORK, callers }, 3);
      expect(faults).toEqual({ tooMany: 0, withoutReason: 0, unknown: 0 });
      expect(admissions).toBeGreaterThan(100 * callers);
      expect(refusals).toBeGreaterThan(100_000);
    },
  );

  it(
    "three threads that decide in one memory keep the limit of every caller when there are more than places",
    { timeout: 60_000 },
    async () => {
      const work = { ...WORK, options: { windows: [second(5), minute(64)], maxCallers: 600 }, callers: 5_000 };
      const { admissions, tooMany } = await run(work, 3);
      expect(tooMany).toBe(0);
      expect(admissions).toBeGreaterThan(50_000);
    },
  );

  it("a control: threads with memory of their own admit too many", { timeout: 60_000 }, async () => {
    expect(await excess({ ...WORK, fault: "private memory" })).toBeGreaterThan(0);
  });

  it("a control: threads without locks admit too many", { timeout: 60_000 }, async () => {
    // Time, too short for any window to end, and one caller: few lists are changed, which may lead a thread in circles.
    const work: Work = {
      options: { windows: [minute(100_000)], maxCallers: 1 },
      callers: 1,
      ticks: 239_000,
      fault: "no locks",
    };
    expect(await excess(work)).toBeGreaterThan(0);
  });
});

describe("threads that are killed at random", () => {
  it(
    "threads that are killed at random leave no limit exceeded, no admission forgotten and no lock taken",
    { timeout: 120_000 },
    async () => {
      const kills = 12;
      const work: Work = { ...WORK, ticks: 1_000_000 };
      const group = new LimiterThreads(work);
      const counters = workerCounters(manualClock(), { id: 1, count: 2 });
      counters.limiter("k", work.options, group.memory);
      const from = random(17);
      const living = [group.start(), group.start(), group.start()];
      for (let i = 0; i < kills; i++) {
        await group.reached(((i + from.next()) * work.ticks) / kills);
        const victim = living.splice(from.int(0, 2), 1)[0]!;
        await victim.end();
        counters.repair(victim.id);
        living.push(group.start());
      }
      await group.ended();
      const { admissions, unknown, ...faults } = judged(group.journal, work);
      expect(faults).toMatchObject({ tooMany: 0, withoutReason: 0 });
      expect(unknown).toBeLessThanOrEqual(kills);
      expect(admissions).toBeGreaterThan(10_000);
    },
  );
});
