import { expect, it } from "vitest";
import { RetryBudget } from "../../lib/upstream/retries.ts";
import { manualClock } from "../support/clock.ts";

const taken = (budget: RetryBudget, ratio: number, times: number) => Array.from({ length: times }, () => budget.take(ratio)).filter(Boolean).length;

it("a service with few requests has ten retries in ten seconds", () => {
  const clock = manualClock();
  const budget = new RetryBudget(clock);
  budget.request();
  expect(taken(budget, 0.2, 20)).toBe(10);
  clock.advance(9_000);
  expect(budget.take(0.2)).toBe(false);
  clock.advance(1_000);
  expect(taken(budget, 0.2, 20)).toBe(10);
});

it("a service with many has its share of the requests of the last ten seconds", () => {
  const clock = manualClock();
  const budget = new RetryBudget(clock);
  for (let i = 0; i < 1000; i++) budget.request();
  expect(taken(budget, 0.2, 500)).toBe(200);
  for (let i = 0; i < 50; i++) budget.request();
  expect(taken(budget, 0.2, 500)).toBe(10);
});

it("a fleet that is down altogether gets no more than its requests and their share", () => {
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
