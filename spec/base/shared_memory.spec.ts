import { describe, expect, it } from "vitest";
import { SharedMemory } from "../../lib/base/shared_memory.ts";

describe("a memory with several owners", () => {
  it("a memory with several owners gives each owner only its own items", () => {
    const memory = new SharedMemory(10_000);
    const [a, b] = [memory.part<number>(), memory.part<number>()];
    a.set("k", 1, 8);
    b.set("k", 2, 8);
    expect([a.get("k"), b.get("k"), a.get("other")]).toEqual([1, 2, undefined]);
    a.set("k", 3, 8);
    a.delete("none");
    expect([a.get("k"), b.get("k")]).toEqual([3, 2]);
  });

  it("a memory with several owners never exceeds its limit of bytes, however many owners there are", () => {
    const memory = new SharedMemory(100_000);
    for (let owner = 0; owner < 50; owner++) {
      const part = memory.part<number>();
      for (let i = 0; i < 50; i++) {
        part.set(`${owner} ${i}`, i, 1_000);
        expect(memory.used).toBeLessThanOrEqual(100_000);
      }
    }
    expect(memory.used).toBeGreaterThan(90_000);
  });

  it("a memory with several owners drops first the items that were never read, whatever their owner", () => {
    const memory = new SharedMemory(5_000);
    const [a, b] = [memory.part<number>(), memory.part<number>()];
    a.set("asked for", 1, 1_000);
    a.set("not asked for", 2, 1_000);
    a.get("asked for");
    for (let i = 0; i < 3; i++) b.set(String(i), i, 1_000);
    expect([a.get("asked for"), a.get("not asked for")]).toEqual([1, undefined]);
  });

  it("a memory with several owners accepts new items even when all other items have been read", () => {
    const memory = new SharedMemory(40_000);
    const part = memory.part<number>();
    for (let i = 0; i < 100; i++) part.set(String(i), i, 100);
    for (let i = 0; i < 100; i++) part.get(String(i));
    part.set("new", 1, 100);
    expect(part.get("new")).toBe(1);
    expect(memory.used).toBeLessThanOrEqual(40_000);
  });

  it("a memory with several owners refuses an item that exceeds the limit, and keeps the other items", () => {
    const memory = new SharedMemory(5_000);
    const part = memory.part<number>();
    part.set("small", 1, 8);
    part.set("large", 2, 5_000);
    expect([part.get("small"), part.get("large")]).toEqual([1, undefined]);
  });

  it("a memory with several owners drops the items of a closed owner, and accepts no more items for it", () => {
    const memory = new SharedMemory(5_000);
    const part = memory.part<number>();
    part.set("a", 1, 8);
    part.set("b", 1, 8);
    part.delete("a");
    part.close();
    part.set("c", 1, 8);
    expect([part.get("a"), part.get("b"), part.get("c")]).toEqual([undefined, undefined, undefined]);
    expect(memory.used).toBe(0);
  });
});
