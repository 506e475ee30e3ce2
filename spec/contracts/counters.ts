/** The promises of every store of rate counters, and an exact model of them. */
import { expect, it } from "vitest";
import type { Counters, Decision, Window } from "../../lib/store/counters.ts";
import { random, type Random } from "../support/random.ts";

export interface Store {
  readonly counters: Counters;
  /** Sets the clock by which decisions are made, in whole milliseconds; it only goes forward. */
  at(ms: number): void | Promise<void>;
}

const SECOND = { name: "second", ms: 1_000 };
const MINUTE = { name: "minute", ms: 60_000 };
const HOUR = { name: "hour", ms: 3_600_000 };

/** Every admission is remembered. */
export class Model {
  readonly #windows: readonly Window[];
  readonly #admitted = new Map<string, number[]>();

  constructor(windows: readonly Window[]) {
    this.#windows = windows;
  }

  decide(caller: string, now: number): Decision {
    const admitted = this.#admitted.get(caller) ?? [];
    this.#admitted.set(caller, admitted);
    const inside = ({ ms }: Window) => admitted.filter((time) => now - time < ms);
    const waits = this.#windows.map((window) =>
      inside(window).length < window.limit ? 0 : inside(window)[0]! + window.ms - now,
    );
    const retryMs = Math.max(...waits);
    if (retryMs === 0) admitted.push(now);
    return {
      admitted: retryMs === 0,
      retryMs,
      remaining: this.#windows.map((window) => window.limit - inside(window).length),
      resetMs: this.#windows.map((window) => (inside(window).length === 0 ? 0 : inside(window)[0]! + window.ms - now)),
    };
  }
}

/** Gaps between requests in whole milliseconds: bursts, paces near the limits, silences. */
function gap(from: Random): number {
  return from.pick([
    0,
    0,
    0,
    1,
    from.int(1, 40),
    from.int(1, 400),
    999,
    1_000,
    1_001,
    from.int(1_000, 70_000),
    from.chance(0.05) ? 3_600_000 : 3,
  ]);
}

/**
 * The store decides at once or later; a promised decision is kept as it was, one made at once is valid until the next.
 */
async function decided(asked: ReturnType<ReturnType<Counters["limiter"]>["decide"]>): Promise<Decision> {
  const decision = await asked;
  if (typeof decision === "string") throw new Error(`the store did not decide: ${decision}`);
  return asked instanceof Promise
    ? decision
    : { ...decision, remaining: [...decision.remaining], resetMs: [...decision.resetMs] };
}

/** `make` gives an empty store whose clock stands at 0. */
export function counting(make: () => Store | Promise<Store>): void {
  it.each([
    ["one window", [{ ...SECOND, limit: 3 }]],
    ["a window of one request", [{ ...MINUTE, limit: 1 }]],
    [
      "two windows",
      [
        { ...SECOND, limit: 5 },
        { ...MINUTE, limit: 20 },
      ],
    ],
    [
      "three windows up to 64 requests",
      [
        { ...SECOND, limit: 4 },
        { ...MINUTE, limit: 30 },
        { ...HOUR, limit: 64 },
      ],
    ],
  ])("limits up to 64 are decided as by a model that remembers every admission: %s", async (_what, windows) => {
    const { counters, at } = await make();
    const limiter = counters.limiter("k", { windows, maxCallers: 100 });
    const model = new Model(windows);
    const from = random(windows.length);
    let now = 5_000_000;
    for (let i = 0; i < 1_500; i++) {
      now += gap(from);
      await at(now);
      const caller = from.pick(["a", "b"]);
      expect([i, await decided(limiter.decide(caller))]).toEqual([i, model.decide(caller, now)]);
    }
  });

  it.each([65, 100, 1_000])(
    "a limit of %i never admits a request too many, and refuses less than a 64th of the limit too early",
    async (limit) => {
      const { counters, at } = await make();
      const limiter = counters.limiter("k", { windows: [{ ...SECOND, limit }], maxCallers: 100 });
      const from = random(limit);
      const admitted: number[] = [];
      let refusals = 0;
      let now = 5_000_000;
      for (let i = 0; i < 4 * limit + 200; i++) {
        now += from.chance(40 / limit) ? from.int(1, 20) : 0;
        await at(now);
        const used = admitted.filter((time) => now - time < 1_000).length;
        if ((await decided(limiter.decide("a"))).admitted) {
          expect(used).toBeLessThan(limit);
          admitted.push(now);
        } else {
          refusals++;
          expect(used).toBeGreaterThan(limit - limit / 64);
        }
      }
      expect(refusals).toBeGreaterThan(0);
    },
  );

  it("a refused request consumes nothing", async () => {
    const { counters, at } = await make();
    const limiter = counters.limiter("k", {
      windows: [
        { ...SECOND, limit: 1 },
        { ...MINUTE, limit: 2 },
      ],
      maxCallers: 100,
    });
    await at(1_000);
    expect(await decided(limiter.decide("a"))).toMatchObject({ admitted: true, remaining: [0, 1] });
    for (let i = 0; i < 5; i++)
      expect(await decided(limiter.decide("a"))).toEqual({
        admitted: false,
        remaining: [0, 1],
        resetMs: [1_000, 60_000],
        retryMs: 1_000,
      });
    await at(2_000);
    expect(await decided(limiter.decide("a"))).toEqual({
      admitted: true,
      remaining: [0, 0],
      resetMs: [1_000, 59_000],
      retryMs: 0,
    });
  });

  it("callers and limiters are counted apart, whatever their names", async () => {
    const { counters, at } = await make();
    await at(1_000);
    const windows = [{ ...MINUTE, limit: 1 }];
    const names = ["a", "A", "", "a ", "ä", "}{", "a".repeat(10_000), "\ud800", "\udc00", 'a","b', "\0"];
    for (const key of ["k", "l", '["global",null]']) {
      const limiter = counters.limiter(key, { windows, maxCallers: 100 });
      for (const name of names) expect([name, (await decided(limiter.decide(name))).admitted]).toEqual([name, true]);
      for (const name of names) expect([name, (await decided(limiter.decide(name))).admitted]).toEqual([name, false]);
    }
  });

  it(
    "a limiter of the same key keeps the admissions: with a higher limit, a further window, " +
      "without a window and with a lower limit",
    async () => {
      const { counters, at } = await make();
      const limiter = (...windows: Window[]) => counters.limiter("k", { windows, maxCallers: 100 });
      await at(1_000);
      for (let i = 0; i < 3; i++) await decided(limiter({ ...MINUTE, limit: 3 }).decide("a"));
      expect(await decided(limiter({ ...MINUTE, limit: 3 }).decide("a"))).toMatchObject({ admitted: false });
      expect(await decided(limiter({ ...MINUTE, limit: 5 }).decide("a"))).toMatchObject({
        admitted: true,
        remaining: [1],
      });
      expect(await decided(limiter({ ...SECOND, limit: 9 }, { ...MINUTE, limit: 6 }).decide("a"))).toMatchObject({
        admitted: true,
        remaining: [8, 1],
      });
      expect(await decided(limiter({ ...SECOND, limit: 3 }).decide("a"))).toMatchObject({
        admitted: true,
        remaining: [1],
      });
      expect(await decided(limiter({ ...SECOND, limit: 1 }).decide("a"))).toMatchObject({
        admitted: false,
        remaining: [0],
        retryMs: 1_000,
      });
    },
  );

  it.each([[[50, 64, 65, 200, 300]], [[300, 200, 65, 64, 50]]])(
    "a limit that changes to marks of other sizes never admits a request too many: %j",
    async (limits) => {
      const { counters, at } = await make();
      const from = random(3);
      const admitted: number[] = [];
      let now = 1_000;
      for (const limit of limits) {
        const limiter = counters.limiter("k", { windows: [{ ...MINUTE, limit }], maxCallers: 100 });
        for (let i = 0; i < 400; i++) {
          now += from.int(0, 100);
          await at(now);
          const used = admitted.filter((time) => now - time < 60_000).length;
          if (!(await decided(limiter.decide("a"))).admitted) continue;
          expect(used).toBeLessThan(limit);
          admitted.push(now);
        }
      }
      expect(admitted.length).toBeGreaterThan(200);
    },
  );
}
