import { describe, expect, it, onTestFinished, vi } from "vitest";
import { REFUSED, SharedCount, SharedCounts } from "../../lib/base/shared_counts.ts";
import { random } from "../support/random.ts";
import { inThreads, threadsOf, type Inside } from "../support/threads.ts";

type Module = typeof import("../../lib/base/shared_counts.ts");

const THREADS = 3;

describe("a count over all workers", () => {
  it("a count over all workers admits exactly `most`, whichever worker asks", () => {
    const threads = threadsOf(3);
    const counts = [0, 1, 2].map((place) => new SharedCount(threads(place), "c"));
    expect([0, 1, 2, 0, 1].map((place) => counts[place]!.take(4))).toEqual([true, true, true, true, false]);
    counts[2]!.give();
    expect(counts.map(({ total }) => total)).toEqual([3, 3, 3]);
    expect([counts[1]!.take(4), counts[0]!.take(4)]).toEqual([true, false]);
  });

  it("a count over all workers has no limit with 0, and counts all the same", () => {
    const threads = threadsOf(2);
    const [first, second] = [0, 1].map((place) => new SharedCount(threads(place), "c"));
    for (let i = 0; i < 5; i++) expect(first!.take(0)).toBe(true);
    expect([second!.take(5), second!.take(6)]).toEqual([false, true]);
  });

  it("a count over all workers is read by the main thread, which gives back what a dead worker held", () => {
    const threads = threadsOf(2);
    const [main, first, second] = [-1, 0, 1].map((place) => new SharedCount(threads(place), "c"));
    for (let i = 0; i < 3; i++) first!.take(4);
    second!.take(4);
    expect([main!.total, second!.take(4)]).toEqual([4, false]);
    main!.clear(0);
    expect([main!.total, second!.take(4), main!.total]).toEqual([1, true, 2]);
  });
});

describe("two workers that compete for the last one", () => {
  it.each(["a count", "a count by key"])(
    "two workers that take %s above its limit at the same moment take it back, and one of them gets it",
    (which) => {
      const threads = threadsOf(2);
      const [one, two] = [0, 1].map((place) => ({
        all: new SharedCount(threads(place), "c"),
        byKey: new SharedCounts(threads(place), "k"),
      }));
      const take = () => (which === "a count" ? one!.all.take(1) : one!.byKey.take(1, 1, 1) !== REFUSED);
      const other = { all: two!.all.take(1), at: two!.byKey.take(1, 1, 1) };
      expect(other).toEqual({ all: true, at: expect.any(Number) });
      expect(take()).toBe(false);
      const { sub } = Atomics;
      const spy = vi.spyOn(Atomics, "sub").mockImplementation(((array: Int32Array, at: number, value: number) => {
        // The first one has taken its own back, and the other one does so now.
        spy.mockRestore();
        const before = sub(array, at, value);
        two!.all.give();
        two!.byKey.give(other.at);
        return before;
      }) as typeof Atomics.sub);
      onTestFinished(() => spy.mockRestore());
      expect(take()).toBe(true);
    },
  );
});

/**
 * Takes and gives as fast as it can. Returns how often more than one was held at the same time, by a count of its own.
 */
function hammer({ module, threads, words }: Inside<Module>): number {
  const count = new module.SharedCount(threads, "c");
  let tooMany = 0;
  for (let i = 0; i < 200_000; i++) {
    if (!count.take(1)) continue;
    if (Atomics.add(words, 0, 1) > 0) tooMany++;
    Atomics.sub(words, 0, 1);
    count.give();
  }
  return tooMany;
}

/** The same with a limit that is looked at first, until one of the threads finds a fault, for ten seconds at most. */
function hammerNaively({ module, threads, words }: Inside<Module>): number {
  const count = new module.SharedCount(threads, "c");
  const [HELD, FAULTS] = [0, 1];
  const deadline = performance.now() + 10_000;
  while (Atomics.load(words, FAULTS) === 0 && performance.now() < deadline) {
    for (let i = 0; i < 1_000; i++) {
      if (count.total > 0) continue;
      count.take(0);
      if (Atomics.add(words, HELD, 1) > 0) Atomics.add(words, FAULTS, 1);
      Atomics.sub(words, HELD, 1);
      count.give();
    }
  }
  return Atomics.load(words, FAULTS);
}

describe("counts in real threads", () => {
  const memories = () => {
    const made = new Map<string, SharedArrayBuffer>();
    const main = threadsOf(THREADS, made)(-1);
    return { made, one: new SharedCount(main, "c"), many: new SharedCounts(main, "k") };
  };

  it(
    "never holds more than the limit in three threads that hammer one count, " + "and holds nothing at the end",
    async () => {
      const { made, one } = memories();
      expect(await inThreads(THREADS, "base/shared_counts", made, hammer)).toEqual([0, 0, 0]);
      expect(one.total).toBe(0);
    },
  );

  it("control: a count that is read before it is taken holds more than the limit in three threads", async () => {
    const { made } = memories();
    const tooMany = await inThreads(THREADS, "base/shared_counts", made, hammerNaively);
    expect(Math.max(...tooMany)).toBeGreaterThan(0);
  }, 20_000);

  it("gives the last free one to exactly one of the threads that compete for it, every time", async () => {
    const { made } = memories();
    const won = await inThreads(THREADS, "base/shared_counts", made, ({ module, threads, meet }: Inside<Module>) => {
      const count = new module.SharedCount(threads, "c");
      return Array.from({ length: 300 }, () => {
        meet();
        const mine = count.take(1);
        meet();
        if (mine) count.give();
        return Number(mine);
      });
    });
    expect(won[0]!.filter((_, i) => won[0]![i]! + won[1]![i]! + won[2]![i]! !== 1)).toEqual([]);
  });

  it("never holds more than the limit of a key in three threads that hammer twenty keys", async () => {
    const { made, many } = memories();
    const tooMany = await inThreads(
      THREADS,
      "base/shared_counts",
      made,
      ({ module, threads, words }: Inside<Module>) => {
        const counts = new module.SharedCounts(threads, "k");
        let found = 0;
        let seed = threads.id;
        for (let i = 0; i < 200_000; i++) {
          seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
          const key = (seed >>> 16) % 20;
          const at = counts.take(key, key, 1);
          if (at === module.REFUSED) continue;
          if (Atomics.add(words, key, 1) + 1 > 1) found++;
          Atomics.sub(words, key, 1);
          counts.give(at);
        }
        return found;
      },
    );
    expect(tooMany).toEqual([0, 0, 0]);
    expect(Array.from({ length: 20 }, (_, key) => many.total(key, key))).toEqual(new Array(20).fill(0));
  });
});

describe("counts by key over all workers", () => {
  it("counts by key agree with a map for random keys, limits and workers", () => {
    const rng = random(7);
    const threads = threadsOf(3);
    const counts = [0, 1, 2].map((place) => new SharedCounts(threads(place), "k"));
    const model = new Map<number, number>();
    const held: { readonly place: number; readonly key: number; readonly at: number }[] = [];
    for (let i = 0; i < 60_000; i++) {
      const place = rng.int(0, 2);
      const key = rng.int(0, 2_999);
      if (rng.chance(0.55)) {
        const most = rng.int(0, 3);
        const before = model.get(key) ?? 0;
        const at = counts[place]!.take(key, -key, most);
        expect(at !== REFUSED).toBe(most === 0 || before < most);
        if (at === REFUSED) continue;
        model.set(key, before + 1);
        held.push({ place, key, at });
      } else if (held.length > 0) {
        const [given] = held.splice(rng.int(0, held.length - 1), 1);
        counts[given!.place]!.give(given!.at);
        model.set(given!.key, model.get(given!.key)! - 1);
      }
    }
    for (const [key, count] of model) expect(counts[0]!.total(key, -key)).toBe(count);
    for (const { place, at } of held) counts[place]!.give(at);
    for (const key of model.keys()) expect(counts[1]!.total(key, -key)).toBe(0);
  });

  it("counts by key forget what a dead worker held, and nothing else", () => {
    const threads = threadsOf(2);
    const [main, first, second] = [-1, 0, 1].map((place) => new SharedCounts(threads(place), "k"));
    for (let i = 0; i < 3; i++) first!.take(1, 2, 0);
    second!.take(1, 2, 0);
    expect(main!.total(1, 2)).toBe(4);
    main!.clear(0);
    expect(second!.total(1, 2)).toBe(1);
    // The worker that takes the place of the dead one.
    expect(new SharedCounts(threads(0), "k").take(1, 2, 1)).toBe(REFUSED);
  });

  it("counts by key neither count nor limit a key that finds no room, and count again when there is room", () => {
    const threads = threadsOf(1);
    const counts = new SharedCounts(threads(0), "k");
    const held = Array.from({ length: 98_304 }, (_, key) => counts.take(0, key, 1));
    expect(held).not.toContain(REFUSED);
    for (let i = 0; i < 3; i++) counts.give(counts.take(1, 1, 1));
    const surplus = [counts.take(1, 1, 1), counts.take(1, 1, 1)];
    expect([surplus.includes(REFUSED), counts.total(1, 1), counts.take(0, 5, 1)]).toEqual([false, 0, REFUSED]);
    for (const at of [...held, ...surplus]) counts.give(at);
    expect([counts.take(1, 1, 1) === REFUSED, counts.take(1, 1, 1) === REFUSED]).toEqual([false, true]);
  });

  it("counts by key stay fast when many more keys have come and gone than there are slots", () => {
    const counts = new SharedCounts(threadsOf(1)(0), "k");
    const rng = random(3);
    const held: number[] = [];
    for (let i = 0; i < 400_000; i++) {
      held.push(counts.take(rng.int(0, 2 ** 32) | 0, i, 1));
      if (held.length > 20_000) counts.give(held.splice(rng.int(0, held.length - 1), 1)[0]!);
    }
    // A search through slots that are only left would pass over all of them, 131,072, each time.
    for (const at of held) counts.give(at);
    expect(held).not.toContain(REFUSED);
    // No slot is left behind that only a search for its own key could use again.
    expect(Array.from({ length: 98_304 }, (_, key) => counts.take(1, key, 1)).filter((at) => at < 0)).toEqual([]);
  });
});
