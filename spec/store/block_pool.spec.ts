import { describe, expect, it } from "vitest";
import { BlockPool, mostBytesOf, Plan, SLOT } from "../../lib/store/block_pool.ts";
import { random } from "../support/random.ts";

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
  it.each([1, 4, 64])("with room for %i marks hold what was written, whatever else is taken and given back", (room) => {
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

  it("leave no gaps: the few that stay of many stand at the beginning", () => {
    const { blocks, take, give } = blocksOf(new BlockPool(plan, 1), 6);
    for (let i = 1; i <= 20_000; i++) take(i);
    for (let i = 1; i <= 20_000; i++) if (i % 1_000 !== 0) give(i);
    expect([...blocks.values()].sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => i));
  });

  it("give back the pages that are empty", () => {
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
  it("finds the pool whose blocks have room for one more admission in each window", () => {
    expect(plan.poolFor([0, 0]).room).toBe(1);
    expect(plan.poolFor([1, 0]).room).toBe(2);
    // 79 admissions of 5000 are one mark.
    expect(plan.poolFor([0, 78]).room).toBe(1);
    expect(plan.poolFor([0, 79]).room).toBe(2);
    expect(plan.poolFor([10, 5_000]).room).toBe(64);
    expect(plan.poolFor([0, 0])).toBe(plan.poolFor([0, 78]));
  });

  it("reckons the largest block of all: no window has more marks than its limit or 64", () => {
    expect(mostBytesOf(WINDOWS)).toBe(8 * (2 + 2 + 10 + 64));
  });
});
