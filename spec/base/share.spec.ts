import { expect, it } from "vitest";
import { evenShare } from "../../lib/base/share.ts";

const draws = (percent: number, calls: number): readonly boolean[] => {
  const selects = evenShare(percent);
  return Array.from({ length: calls }, () => selects());
};
const selectedOf = (results: readonly boolean[]) => results.filter(Boolean).length;

it("an even share selects exactly its part of any 1000 calls in a row, for every percentage with one decimal", () => {
  for (let tenths = 0; tenths <= 1000; tenths++) {
    const results = draws(tenths / 10, 2000);
    let selected = selectedOf(results.slice(0, 1000));
    const counts = new Set([selected]);
    for (let first = 1; first <= 1000; first++)
      counts.add((selected += Number(results[first + 999]) - Number(results[first - 1])));
    expect([tenths, ...counts]).toEqual([tenths, tenths]);
  }
});

it("an even share selects exactly its part of 10,000 calls, for every percentage with two decimals", () => {
  for (let hundredths = 0; hundredths <= 10_000; hundredths += 37)
    expect(selectedOf(draws(hundredths / 100, 10_000))).toBe(hundredths);
});

it(
  "an even share spreads the selected calls: their number is never a whole call away from the " +
    "percentage of the calls so far",
  () => {
    for (const percent of [0.01, 0.3, 5, 12.5, 33.33, 50, 66.7, 99.99]) {
      let selected = 0;
      draws(percent, 3000).forEach((result, i) => {
        selected += Number(result);
        expect(Math.abs(selected - ((i + 1) * percent) / 100)).toBeLessThan(1);
      });
    }
  },
);

it("an even share of 0 % selects no call, and one of 100 % selects every call", () => {
  expect(selectedOf(draws(0, 1000))).toBe(0);
  expect(selectedOf(draws(100, 1000))).toBe(1000);
});
