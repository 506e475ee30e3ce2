import { describe, expect, it } from "vitest";
import { firstsOf } from "../../lib/base/firsts.ts";

describe("the first of many", () => {
  const byDigit = (a: string, b: string) => Number(a[0]) - Number(b[0]);

  it("are those of a sorted list, equal ones in their order, whatever the order of all", () => {
    for (const all of [["3a", "1a", "2a", "1b", "3b", "2b"], ["1a", "1b", "2a"], ["3a", "2a", "1a", "1b"], []]) {
      for (const most of [0, 1, 2, 4, 10])
        expect(firstsOf(all, most, byDigit)).toEqual([...all].sort(byDigit).slice(0, most));
    }
  });

  it("cost one comparison for each that is not among them", () => {
    let comparisons = 0;
    const all = Array.from({ length: 10_000 }, (_, i) => `${i % 10}x`);
    const firsts = firstsOf(all, 5, (a, b) => {
      comparisons++;
      return byDigit(a, b);
    });
    expect(firsts).toEqual(Array(5).fill("0x"));
    expect(comparisons).toBeLessThan(all.length + 50);
  });
});
