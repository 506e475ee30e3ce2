import { expect, it } from "vitest";
import { RollingCount } from "../../lib/base/rolling_count.ts";

it("a rolling count counts the events within the window", () => {
  const count = new RollingCount(1000);
  for (const now of [0, 50, 450, 990]) count.add(now);
  expect(count.total(999)).toBe(4);
  expect(count.total(1000)).toBe(2);
  expect(count.total(1399)).toBe(2);
  expect(count.total(1400)).toBe(1);
  expect(count.total(5000)).toBe(0);
});

it("a rolling count starts again after a long silence, and when it is cleared", () => {
  const count = new RollingCount(100);
  count.add(7);
  count.add(1_000_000);
  expect(count.total(1_000_000)).toBe(1);
  count.clear();
  expect(count.total(1_000_000)).toBe(0);
  count.add(1_000_001);
  expect(count.total(1_000_009)).toBe(1);
});

it("a rolling count equals the sum of the added values, in any order of add and total", () => {
  const count = new RollingCount(500);
  const added: number[] = [];
  for (let now = 0; now < 5000; now += 37) {
    count.add(now);
    added.push(now);
    const step = Math.floor(now / 50);
    expect(count.total(now)).toBe(added.filter((at) => Math.floor(at / 50) > step - 10).length);
  }
});
