import { expect, it } from "vitest";
import { Allowance } from "../../lib/server/h2_limits.ts";

const spent = (allowance: Allowance, now: number, times: number) =>
  Array.from({ length: times }, () => allowance.spend(now)).filter(Boolean).length;

it("an allowance grants its burst at once, then refills every second up to the burst", () => {
  const allowance = new Allowance({ burst: 10, perSecond: 4 }, 1_000);
  expect(spent(allowance, 1_000, 20)).toBe(10);
  expect(spent(allowance, 1_249, 5)).toBe(0);
  expect(spent(allowance, 1_250, 5)).toBe(1);
  expect(spent(allowance, 2_250, 9)).toBe(4);
  expect(spent(allowance, 99_000, 20)).toBe(10);
});
