/** One shard and several of them; a thread that dies is a write that throws. */
import { describe, expect, it } from "vitest";
import type { Window } from "../../lib/store/counters.ts";
import { MemoryLimiter } from "../../lib/store/memory.ts";
import { SharedTable, workerCounters } from "../../lib/store/shared_callers.ts";
import { manualClock } from "../support/clock.ts";
import { random } from "../support/random.ts";

const DEAD = 7;
const ALIVE = 8;
const SECRET = [5, 6] as const;
/** Words of a shard: its lock, the end of the cells that were ever taken, words of free cells, callers. */
const [LOCK, TAKEN, FREED, SIZE, RESERVED, CELL] = [11, 12, 14, 15, 30, 10];

class Death extends Error {}

/**
 * Throws instead of making a write, once so many were made. The lock is left alone: a dead thread does not release it.
 */
function mortal<T extends Int32Array | Float64Array>(memory: T, left: { writes: number }): T {
  const write = (make: () => void) => {
    if (left.writes-- === 0) throw new Death();
    make();
  };
  return new Proxy(memory, {
    get(target, field) {
      if (field === "set") return (values: ArrayLike<number>, at: number) => write(() => target.set(values, at));
      const value: unknown = Reflect.get(target, field, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
    set(target, field, value: number) {
      write(() => (target[Number(field)] = value));
      return true;
    },
  });
}

/** A limiter of a thread in this memory. */
function threadIn(
  memory: SharedArrayBuffer,
  windows: readonly Window[],
  { owner = ALIVE, maxCallers = 20, at = 0 } = {},
) {
  const clock = manualClock();
  clock.advance(at);
  const table = SharedTable.in(memory, { secret: SECRET, shards: 1, owner, isMain: false });
  const limiter = new MemoryLimiter(clock, table, { windows, maxCallers });
  return { clock, callers: table.shards[0]!, limiter };
}

/** The cells that are not free once all callers but one are forgotten. */
function cellsInUse({ clock, callers, limiter }: ReturnType<typeof threadIn>): number {
  clock.advance(10_000_000);
  for (let i = 0; i < 60; i++) limiter.decide("last");
  const { words } = callers;
  expect(words[SIZE]).toBe(1);
  return (words[TAKEN]! - RESERVED - words[FREED]!) / CELL;
}

const second = (limit: number): Window => ({ name: "second", limit, ms: 1_000 });
const minute = (limit: number): Window => ({ name: "minute", limit, ms: 60_000 });

/**
 * What the thread does when it dies, at this time; before, each caller was admitted once every 100 ms: c0 once, c1
 * twice, …
 */
const DEEDS: readonly [what: string, windows: readonly Window[], maxCallers: number, at: number, caller: string][] = [
  ["counts", [second(30), minute(60)], 20, 900, "c2"],
  ["begins a new cell of marks", [minute(60)], 20, 900, "c3"],
  ["begins a new cell of marks in a window, and drops some in another", [second(30), minute(60)], 20, 1_500, "c7"],
  ["counts a mark of many admissions", [minute(1_000)], 20, 900, "c5"],
  ["drops all marks of a second", [second(30), minute(60)], 20, 2_000, "c9"],
  ["drops the first of several cells of marks", [minute(60), second(30)], 20, 1_500, "c9"],
  ["adds a caller", [second(30), minute(60)], 20, 900, "new"],
  ["adds a caller, and doubles the buckets", [minute(30)], 20, 1_500, "new"],
  ["forgets callers", [second(30)], 20, 2_000, "c1"],
  ["evicts a caller for a new one", [second(30), minute(60)], 10, 900, "new"],
  ["converts a caller to other windows", [minute(70), { name: "hour", limit: 500, ms: 3_600_000 }], 20, 900, "c7"],
];

describe("a thread that dies while it", () => {
  it.each(DEEDS)(
    "%s loses no admission of others, whatever the last word was that it wrote",
    (what, windows, maxCallers, at, caller) => {
      const before = what.startsWith("converts") ? [second(30), minute(60)] : windows;
      const known = what.includes("buckets") ? 16 : 10;
      const memory = new SharedArrayBuffer(200_000);
      // Cells that are not in use hold anything, except in the word of their bucket.
      for (let cell = RESERVED; cell + CELL <= memory.byteLength / 4; cell += CELL)
        new Float64Array(memory).fill(1e300, cell / 2 + 1, cell / 2 + 5);
      const first = threadIn(memory, before);
      const used = new Map(Array.from({ length: known }, (_, i) => [`c${i}`, [] as number[]]));
      for (let turn = 0; turn < known; turn++, first.clock.advance(100)) {
        for (const [name, times] of [...used].slice(turn))
          if (first.limiter.decide(name).admitted) times.push(first.clock.now());
      }
      const copyOf = (original: SharedArrayBuffer) => {
        const copy = new SharedArrayBuffer(original.byteLength);
        new Uint8Array(copy).set(new Uint8Array(original));
        return copy;
      };
      const inUse = cellsInUse(threadIn(copyOf(memory), windows, { maxCallers: 100, at }));
      let deaths = 0;
      for (let writes = 0; ; writes++, deaths++) {
        const copy = copyOf(memory);
        const dying = threadIn(copy, windows, { owner: DEAD, maxCallers, at });
        const left = { writes };
        dying.callers.words = mortal(dying.callers.words, left);
        dying.callers.numbers = mortal(dying.callers.numbers, left);
        // The lock is taken and released by the thread itself: here it has it all the time.
        dying.callers.leave = () => {};
        dying.callers.enter = lockedEnter(dying.callers, copy);
        try {
          dying.limiter.decide(caller);
          break;
        } catch (error) {
          if (!(error instanceof Death)) throw error;
        }
        const survivor = threadIn(copy, windows, { maxCallers: 100, at });
        expect(survivor.callers.words[LOCK]).toBe(DEAD);
        survivor.callers.repair(DEAD);
        expect(survivor.callers.words[LOCK]).toBe(0);
        for (const [name, times] of used) {
          const counts = windows.map(({ name: window, ms }) =>
            before.some((each) => each.name === window) ? times.filter((time) => at - time < ms).length : 0,
          );
          const room = Math.min(...windows.map(({ limit }, w) => limit - counts[w]!));
          let more = 0;
          while (survivor.limiter.decide(name).admitted) more++;
          // New callers start with what evicted ones have used, and what was half written counts too much for its
          // caller.
          expect([writes, name, more <= room]).toEqual([writes, name, true]);
          if (maxCallers > known && name !== caller) expect([writes, name, more]).toEqual([writes, name, room]);
        }
        survivor.clock.advance(1_000);
        for (const name of [...used.keys(), "new"]) {
          const { resetMs } = survivor.limiter.decide(name);
          for (const [w, { ms }] of windows.entries())
            expect([writes, name, resetMs[w]! <= ms]).toEqual([writes, name, true]);
        }
        expect(cellsInUse(survivor)).toBe(inUse);
      }
      expect(deaths).toBeGreaterThan(4);
    },
  );
});

/** As `enter`, with the lock of the dead thread set already. */
function lockedEnter(callers: ReturnType<typeof threadIn>["callers"], memory: SharedArrayBuffer) {
  const { enter } = Object.getPrototypeOf(callers) as typeof callers;
  const words = new Int32Array(memory);
  return (hashed: Int32Array) => {
    words[LOCK] = 0;
    const proxied = callers.words;
    callers.words = words;
    enter.call(callers, hashed);
    callers.words = proxied;
  };
}

describe("the lock of a shard", () => {
  it("the lock of a shard is not freed by the death of a thread that does not hold it", () => {
    const { callers } = threadIn(new SharedArrayBuffer(100_000), [second(1)]);
    callers.enter(new Int32Array(2));
    callers.repair(DEAD);
    expect(callers.words[LOCK]).toBe(ALIVE);
    callers.leave();
    expect(callers.words[LOCK]).toBe(0);
  });
});

describe("memory that cannot grow", () => {
  it(
    "memory that cannot grow keeps every limit when a reload allows more callers and " + "marks than it was made for",
    () => {
      const memory = new SharedArrayBuffer(10_000);
      threadIn(memory, [second(1)]).limiter.decide("first");
      const windows = [second(64), minute(64)];
      const { clock, limiter, callers } = threadIn(memory, windows, { maxCallers: 1_000 });
      const from = random(1);
      const logs = new Map<string, number[]>();
      for (let i = 0; i < 30_000; i++) {
        clock.advance(from.int(0, 20));
        const caller = `c${Math.trunc(500 ** from.next())}`;
        if (!limiter.decide(caller).admitted) continue;
        const log = logs.get(caller) ?? [];
        logs.set(caller, [...log.filter((time) => clock.now() - time < 60_000), clock.now()]);
        expect(logs.get(caller)!.length).toBeLessThanOrEqual(64);
      }
      expect(callers.words.buffer).toBe(memory);
      expect(logs.size).toBeGreaterThan(100);
    },
  );

  it(
    "memory that cannot grow gives an error, and no lock stays taken, " +
      "when a reload brings more windows than it has room for",
    () => {
      const memory = new SharedArrayBuffer(10_000);
      const { callers } = threadIn(memory, [second(1)]);
      const windows = Array.from({ length: 130 }, (_, i): Window => ({ name: `window ${i}`, limit: 64, ms: 60_000 }));
      const { limiter } = threadIn(memory, windows);
      expect(() => limiter.decide("one")).toThrow("the memory of the limiter is too small for its windows");
      expect(callers.words[LOCK]).toBe(0);
    },
  );
});

describe("shards", () => {
  it("shards divide the callers among them, and count together", () => {
    const memory = new SharedArrayBuffer(4_000_000);
    const clock = manualClock();
    const [one, other] = [1, 2].map((owner) =>
      SharedTable.in(memory, { secret: SECRET, shards: 8, owner, isMain: false }),
    ) as [SharedTable, SharedTable];
    const options = { windows: [minute(3)], maxCallers: 1_000 };
    const limiters = [one, other].map((table) => new MemoryLimiter(clock, table, options));
    for (let i = 0; i < 4_000; i++)
      expect(limiters[i % 2]!.decide(`c${i % 1_000}`).remaining).toEqual(
        [2 - Math.floor(i / 1_000)].map((left) => Math.max(0, left)),
      );
    expect(one.size).toBe(1_000);
    for (const { words } of other.shards) expect(Math.abs(words[SIZE]! - 125)).toBeLessThan(50);
    for (let i = 0; i < 100; i++) limiters[0]!.decide(`more ${i}`);
    expect(other.size).toBe(1_000);
  });
});

/**
 * The main thread of a program, and a worker: what the counters of a key have of a configuration, and how it comes into
 * force in each.
 */
function program() {
  const clock = manualClock();
  const main = workerCounters(clock, { id: 1, count: 2, worker: -1 }, SECRET);
  const worker = workerCounters(clock, { id: 2, count: 2, worker: 0 }, SECRET);
  const compile = (maxCallers: number) => {
    const options = { windows: [minute(5)], maxCallers };
    const memory = new Map<string, ArrayBufferLike>();
    main.limiter("k", options, (name, bytes, known) => {
      memory.set(name, memory.get(name) ?? known ?? new SharedArrayBuffer(bytes));
      return memory.get(name)!;
    });
    return { memory, inWorker: () => worker.limiter("k", options, (name) => memory.get(name)!) };
  };
  const used = () => main.all.get("k")!.size;
  return { main, worker, compile, used };
}

describe("a reload with more callers, right behind another one that no worker has carried out yet", () => {
  it.each(["accepted", "refused"])("%s: no count is lost, and the main thread sees those in force", (outcome) => {
    const { main, worker, compile, used } = program();
    const first = compile(1_000);
    let limiter = first.inWorker();
    for (const counters of [main, worker]) counters.apply(first.memory);
    for (let i = 0; i < 3; i++) limiter.decide("a");
    const second = compile(10_000);
    limiter = second.inWorker();
    main.apply(second.memory);
    const third = compile(100_000);
    worker.apply(second.memory);
    const later = third.inWorker();
    if (outcome === "accepted") {
      for (const counters of [main, worker]) counters.apply(third.memory);
      limiter = later;
    }
    expect(limiter.decide("a").remaining).toEqual([1]);
    limiter.decide("b");
    expect(used()).toBe(2);
    const fourth = compile(100_000);
    limiter = fourth.inWorker();
    for (const counters of [main, worker]) counters.apply(fourth.memory);
    expect(limiter.decide("a").remaining).toEqual([0]);
    expect(limiter.decide("b").remaining).toEqual([3]);
    expect(used()).toBe(2);
  });
});
