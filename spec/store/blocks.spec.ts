import { describe, expect, it } from "vitest";
import { Blocks, within } from "../../lib/store/blocks.ts";
import { random } from "../support/random.ts";

describe("blocks", () => {
  it("of any size and kind hold what was written, whoever else takes and gives", () => {
    for (let seed = 0; seed < 5; seed++) {
      const from = random(seed);
      const blocks = new Blocks<string>();
      const taken: { block: number; kind: string; size: number; mark: number }[] = [];
      const check = ({ block, kind, size, mark }: (typeof taken)[number]) => {
        const page = blocks.page(block);
        expect(page.kind).toBe(kind);
        expect(page.size).toBeGreaterThanOrEqual(size);
        const at = within(block);
        expect(page.numbers.subarray(at, at + size).every((number) => number === mark)).toBe(true);
      };
      for (let i = 0; i < 6_000; i++) {
        if (from.chance(i % 2_000 < 1_200 ? 0.7 : 0.2)) {
          const each = { kind: from.pick(["a", "b"]), size: from.pick([1, 14, 15, 90, 1_000]), mark: i };
          const block = blocks.take(each.kind, each.size);
          const page = blocks.page(block);
          page.numbers.fill(i, within(block), within(block) + page.size);
          taken.push({ block, ...each });
        } else if (taken.length > 0) {
          const [each] = taken.splice(from.int(0, taken.length - 1), 1);
          check(each!);
          blocks.give(each!.block);
        }
      }
      expect(new Set(taken.map(({ block }) => block)).size).toBe(taken.length);
      for (const each of taken) check(each);
    }
  });

  it("are never numbered 0", () => {
    const blocks = new Blocks<string>();
    for (let i = 0; i < 100; i++) expect(blocks.take("a", 8)).toBeGreaterThan(0);
  });

  it("that are given back are taken again before there is a new page", () => {
    const blocks = new Blocks<string>();
    const taken = Array.from({ length: 5_000 }, () => blocks.take("a", 16));
    const known = new Set(taken.map((block) => blocks.page(block)));
    for (const block of taken.filter((_, i) => i % 2 === 0)) blocks.give(block);
    for (let i = 0; i < 2_500; i++) expect(known.has(blocks.page(blocks.take("a", 16)))).toBe(true);
  });

  it("of a page that is empty leave no page behind", () => {
    const blocks = new Blocks<string>();
    const taken = Array.from({ length: 5_000 }, () => blocks.take("a", 16));
    for (const block of taken) blocks.give(block);
    for (const block of taken) expect(blocks.page(block)).toBeUndefined();
  });

  it("larger than a page are refused", () => {
    expect(() => new Blocks<string>().take("a", 1_000_000)).toThrow(RangeError);
  });
});
