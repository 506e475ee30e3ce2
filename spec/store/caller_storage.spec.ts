import { describe, expect, it } from "vitest";
import { batchOf, BlockPool, CallerTable, hashName, marksOf, merged, mostBytesOf, Plan, SLOT, type History } from "../../lib/store/caller_storage.ts";
import { random, type Random } from "../support/random.ts";

/** The time of each admission, newest first. */
function admissions({ times, used, batch }: History): number[] {
  return Array.from({ length: used }, (_, i) => times[Math.floor((used - 1 - i) / batch)]!);
}

function historyOf(from: Random, limit: number): History {
  const batch = batchOf(limit);
  const used = from.int(0, limit);
  const times = Array.from({ length: Math.ceil(used / batch) }, () => from.int(0, 1_000)).sort((a, b) => a - b);
  return { times, used, batch };
}

const exact = (...times: number[]): History => ({ times, used: times.length, batch: 1 });

describe("marks", () => {
  it.each([[1, 1, 1], [64, 1, 64], [65, 2, 33], [100, 2, 50], [5_000, 79, 64]])("marks with a limit of %i represent %i admissions each, and number %i at most", (limit, batch, marks) => {
    expect([batchOf(limit), marksOf(limit)]).toEqual([batch, marks]);
  });
});

describe("merged histories", () => {
  it.each<[number, readonly History[], History]>([
    [5, [], exact()],
    [5, [exact(), exact(1, 2)], exact(1, 2)],
    [5, [exact(1, 5), exact(2, 3, 4)], exact(2, 3, 5)],
    [2, [exact(1, 2, 3, 4)], exact(3, 4)],
    // Six admissions of a limit of 100, two to a mark, in marks of three.
    [192, [{ times: [1, 2, 3], used: 6, batch: 2 }], { times: [2, 3], used: 6, batch: 3 }],
  ])("merged histories with a limit of %i turn %j into %j", (limit, histories, expected) => {
    expect(merged({ limit }, histories)).toEqual(expected);
  });

  it("merged histories contain at least each of the given histories up to the limit, at any moment, and no more admissions than the longest", () => {
    const from = random(4);
    for (let n = 0; n < 1_000; n++) {
      const limits = [1, 5, 64, 65, 200, 1_000];
      const limit = from.pick(limits);
      const given = from.list(1, 2, () => historyOf(from, from.pick(limits)));
      const result = merged({ limit }, given);
      const all = admissions(result);
      expect(all.length).toBe(Math.min(limit, Math.max(...given.map(({ used }) => used))));
      expect(result.times.length).toBe(Math.ceil(all.length / result.batch));
      expect(result.times).toEqual([...(result.times as number[])].sort((a, b) => a - b));
      const own = given.map(admissions);
      all.forEach((time, k) => {
        const least = Math.max(...own.map((times) => times[k] ?? -1));
        if (time < least) expect.fail(`admission ${k} at ${time}, not ${least}`);
        if (result.batch === 1 && time !== least) expect.fail(`admission ${k} at ${time}, not ${least}`);
      });
    }
  });
});

const WINDOWS = [
  { name: "second", limit: 10, ms: 1_000 },
  { name: "hour", limit: 5_000, ms: 3_600_000 },
];
const plan = new Plan(WINDOWS);

/** Takes and gives blocks, each filled with a number of its own, by which `give` says whose block it has moved. */
function blocksOf(pool: BlockPool, size: number) {
  const blocks = new Map<number, number>();
  const numbers = (block: number) => pool.page(block).subarray(pool.start(block), pool.start(block) + size);
  return {
    blocks,
    take(owner: number) {
      const block = pool.take();
      numbers(block).fill(owner);
      blocks.set(owner, block);
    },
    give(owner: number) {
      const block = blocks.get(owner)!;
      const moved = pool.give(block);
      if (moved !== owner) expect(numbers(block)[SLOT]).toBe(moved);
      blocks.set(moved, block);
      blocks.delete(owner);
    },
    check() {
      for (const [owner, block] of blocks) expect(numbers(block).every((number) => number === owner)).toBe(true);
      expect(new Set(blocks.values()).size).toBe(blocks.size);
    },
  };
}

describe("blocks of a pool", () => {
  it.each([1, 4, 64])("blocks of a pool keep their content with room for %i marks, whatever else is allocated and freed", (room) => {
    const size = 2 + 2 + Math.min(room, 10) + room;
    for (let seed = 0; seed < 3; seed++) {
      const from = random(seed);
      const { blocks, take, give, check } = blocksOf(new BlockPool(plan, room), size);
      for (let i = 1; i < 6_000; i++) {
        if (blocks.size === 0 || from.chance(i % 2_000 < 1_200 ? 0.7 : 0.2)) take(i);
        else give(from.pick([...blocks.keys()]));
        if (i % 500 === 0) check();
      }
      check();
    }
  });

  it("blocks of a pool leave no gaps: the remaining blocks stand at the beginning", () => {
    const { blocks, take, give } = blocksOf(new BlockPool(plan, 1), 6);
    for (let i = 1; i <= 20_000; i++) take(i);
    for (let i = 1; i <= 20_000; i++) if (i % 1_000 !== 0) give(i);
    expect([...blocks.values()].sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => i));
  });

  it("blocks of a pool return empty pages", () => {
    const pool = new BlockPool(plan, 1);
    const { take, give } = blocksOf(pool, 6);
    for (let i = 1; i <= 20_000; i++) take(i);
    for (let i = 20_000; i > 1; i--) give(i);
    expect(pool.page(0)).toBeDefined();
    expect(pool.page(5_000)).toBeUndefined();
    give(1);
    expect(pool.page(0)).toBeUndefined();
  });
});

describe("a plan", () => {
  it("a plan finds the pool whose blocks have room for one more admission in each window", () => {
    expect(plan.poolFor([0, 0]).room).toBe(1);
    expect(plan.poolFor([1, 0]).room).toBe(2);
    // 79 admissions of 5000 are one mark.
    expect(plan.poolFor([0, 78]).room).toBe(1);
    expect(plan.poolFor([0, 79]).room).toBe(2);
    expect(plan.poolFor([10, 5_000]).room).toBe(64);
    expect(plan.poolFor([0, 0])).toBe(plan.poolFor([0, 78]));
  });

  it("a plan calculates the largest possible block: no window has more marks than its limit or 64", () => {
    expect(mostBytesOf(WINDOWS)).toBe(8 * (2 + 2 + 10 + 64));
  });
});

describe("a table of callers", () => {
  it("a table of callers finds callers by name, removes them, and keeps the order of their last admission, like a Map", () => {
    for (let seed = 0; seed < 4; seed++) {
      const from = random(seed);
      const table = new CallerTable([seed, 2]);
      /** Slots by name, the oldest first. */
      const model = new Map<string, number>();
      const remove = (name: string) => {
        const slot = model.get(name)!;
        model.delete(name);
        const moved = table.remove(slot);
        for (const [other, at] of model) if (at === moved) model.set(other, slot);
      };
      const names = Array.from({ length: 300 }, (_, i) => from.pick(["ip:", "c:ж", "h:" + "x".repeat(i % 40)]) + i);
      for (let i = 0; i < 4_000; i++) {
        // A tide of callers, so that the table grows and shrinks.
        const name = names[from.int(0, i % 2_000 < 1_000 ? 299 : 20)]!;
        const found = table.find(name);
        if (found !== (model.get(name) ?? 0)) expect.fail(`${name} is found at ${found}`);
        if (found === 0) {
          model.set(name, table.add());
          table.setBlock(model.get(name)!, i);
          expect(table.block(model.get(name)!)).toBe(i);
        } else if (from.chance(0.5)) {
          table.touch(found);
          model.delete(name);
          model.set(name, found);
        }
        if (from.chance(i % 2_000 < 1_000 ? 0.05 : 0.6) && model.size > 0) remove(from.chance(0.8) ? [...model.keys()][0]! : from.pick([...model.keys()]));
        if (table.size !== model.size || table.oldest !== (model.values().next().value ?? 0)) expect.fail(`at step ${i}`);
        if (i % 50 === 0) expect(table.newest).toBe([...model.values()].at(-1) ?? 0);
      }
      expect([...model.values()].sort((a, b) => a - b)).toEqual(Array.from(model, (_, i) => i + 1));
      for (const name of [...model.keys()]) {
        expect(table.find(name)).toBe(model.get(name));
        expect(table.oldest).toBe(model.get(name));
        remove(name);
      }
      expect([table.oldest, table.newest, table.size]).toEqual([0, 0, 0]);
    }
  });

  it("a table of callers keeps the block of a caller who moves to another slot", () => {
    const table = new CallerTable([1, 2]);
    for (const name of ["a", "b", "c"]) {
      table.find(name);
      const slot = table.add();
      table.setBlock(slot, 10 * slot);
    }
    expect(table.remove(1)).toBe(3);
    expect(table.find("c")).toBe(1);
    expect([table.block(1), table.block(2)]).toEqual([30, 20]);
  });
});

const SECRET = [0x03020100, 0x07060504] as const;

function hashOf(name: string, secret: readonly [number, number] = SECRET): readonly [number, number] {
  const result = new Int32Array(2);
  hashName(name, secret, result);
  return [result[0]! >>> 0, result[1]! >>> 0];
}

describe("the hash of a name", () => {
  it("the hash of a name equals HalfSipHash-1-3 of 32 bits (vectors of Linux, lib/test_siphash.c)", () => {
    // By number of bytes; a character has two.
    const vectors = new Map([[0, 0x5814c896], [2, 0xbc4b0e30], [4, 0x7e059ea6], [6, 0xa0080b65]]);
    for (const [bytes, vector] of vectors) {
      const message = Buffer.from(Array.from({ length: bytes }, (_, i) => i)).toString("utf16le");
      expect(hashOf(message)[0]).toBe(vector);
    }
  });

  it("the hash of a name differs with another secret", () => {
    const hashes = ([[1, 2], [1, 3], [2, 2]] as const).map((secret) => hashOf("ip:192.0.2.1", secret).join());
    expect(new Set(hashes).size).toBe(3);
  });

  it("the hash of a name differs in both halves for names of any length and script", () => {
    const names = new Set<string>();
    for (let length = 0; length <= 80; length++) {
      for (const piece of ["a", "\0", "é", "ж", "a\0", "ж\0"]) names.add(piece.repeat(80).slice(0, length));
    }
    for (const half of [0, 1] as const) expect(new Set([...names].map((name) => hashOf(name)[half])).size).toBe(names.size);
  });

  it.each([0, 100])("the hash of a name distinguishes halves of surrogate pairs behind %i characters", (length) => {
    const before = "c:" + "x".repeat(length);
    expect(hashOf(before + "\ud83d")).not.toEqual(hashOf(before + "\ud83e"));
  });

  it("the hash of a name covers every character of a long name", () => {
    const long = "x".repeat(100_000);
    expect(hashOf(long + "1")).not.toEqual(hashOf(long + "2"));
    expect(hashOf("1" + long)).not.toEqual(hashOf("2" + long));
  });
});
