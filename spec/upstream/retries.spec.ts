import { expect, it } from "vitest";
import { RetryBudget } from "../../lib/upstream/retries.ts";
import { manualClock } from "../support/clock.ts";

const taken = (budget: RetryBudget, ratio: number, times: number) => Array.from({ length: times }, () => budget.take(ratio)).filter(Boolean).length;

it("gives a service with few requests ten retries in ten seconds", () => {
  const clock = manualClock();
  const budget = new RetryBudget(clock);
  budget.request();
  expect(taken(budget, 0.2, 20)).toBe(10);
  clock.advance(9_000);
  expect(budget.take(0.2)).toBe(false);
  clock.advance(1_000);
  expect(taken(budget, 0.2, 20)).toBe(10);
});

it("gives a service with many requests its share of those of the last ten seconds", () => {
  const clock = manualClock();
  const budget = new RetryBudget(clock);
  for (let i = 0; i < 1000; i++) budget.request();
  expect(taken(budget, 0.2, 500)).toBe(200);
  for (let i = 0; i < 50; i++) budget.request();
  expect(taken(budget, 0.2, 500)).toBe(10);
});

it("gives upstreams that all fail no more than the requests and their share", () => {
  const clock = manualClock();
  const budget = new RetryBudget(clock);
  let sent = 0;
  for (let i = 0; i < 10_000; i++) {
    clock.advance(5);
    budget.request();
    sent += 1 + taken(budget, 0.2, 2);
  }
  expect(sent).toBeLessThanOrEqual(10_000 * 1.2);
});
