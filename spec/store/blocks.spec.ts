import { describe, expect, it } from "vitest";
import { Blocks, within } from "../../lib/store/blocks.ts";
import { random } from "../support/random.ts";

describe("blocks", () => {
  it("of any size and kind hold what was written, whoever else takes and gives", () => {
    for (let seed = 0; seed < 5; seed++) {
      const from = random(seed);
      const blocks = new Blocks<string>();
      const taken: { block: number; readonly kind: string; readonly size: number; readonly mark: number }[] = [];
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
          const each = taken.splice(from.int(0, taken.length - 1), 1)[0]!;
          check(each);
          blocks.give(each.block, (before, after) => {
            expect(after).toBe(each.block);
            taken.find(({ block }) => block === before)!.block = after;
          });
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

  it("leave no gaps: a few that stay of many stand together, and the other pages are gone", () => {
    const blocks = new Blocks<string>();
    const taken = Array.from({ length: 50_000 }, () => blocks.take("a", 16));
    const few = new Set(taken.filter((_, i) => i % 1_000 === 0));
    const others = new Set(taken.filter((block) => !few.has(block)));
    for (const block of others) {
      others.delete(block);
      blocks.give(block, (from, to) => {
        const those = few.has(from) ? few : others;
        those.delete(from);
        those.add(to);
      });
    }
    expect([few.size, others.size]).toEqual([50, 0]);
    expect([...few].every((block) => blocks.page(block) !== undefined)).toBe(true);
    expect(taken.filter((block) => blocks.page(block) !== undefined).length).toBeLessThan(100);
  });

  it("of a page that is empty leave no page behind", () => {
    const blocks = new Blocks<string>();
    const taken = Array.from({ length: 5_000 }, () => blocks.take("a", 16));
    for (const block of taken.reverse()) blocks.give(block, () => expect.fail("there was no gap"));
    for (const block of taken) expect(blocks.page(block)).toBeUndefined();
  });

  it("larger than a page are refused", () => {
    expect(() => new Blocks<string>().take("a", 1_000_000)).toThrow(RangeError);
  });
});
