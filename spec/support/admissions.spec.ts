import { describe, expect, it } from "vitest";
import { shortestSpan, stale } from "./admissions.ts";

describe("shortestSpan", () => {
  const at = (sent: number, received = sent + 10) => ({ sent, received });

  it("is the time from the sending of the first to the answer of the last of so many requests", () => {
    expect(shortestSpan([at(0), at(500), at(900)], 3)).toBe(910);
    expect(shortestSpan([at(900), at(0), at(500)], 2)).toBe(410);
    expect(shortestSpan([at(0)], 1)).toBe(10);
  });

  it("is infinite for fewer requests", () => {
    expect(shortestSpan([at(0), at(1)], 3)).toBe(Infinity);
  });

  it("does not count a request that was sent early and answered late as admitted at either end", () => {
    // It may have been decided at any time between: nothing is proved by it within the window of the others.
    expect(shortestSpan([at(0, 2_000), at(900), at(950)], 3)).toBe(2_000);
  });
});

describe("stale", () => {
  const answer = (version: number, sent: number, at: number) => ({ version, sent, at });

  it("finds an older configuration's answer to a request that was sent after a newer one had answered", () => {
    const late = answer(1, 30, 40);
    expect(stale([answer(1, 0, 10), answer(2, 10, 20), late, answer(2, 50, 60)])).toEqual([late]);
  });

  it("accepts an older configuration's answer to a request that was on its way meanwhile", () => {
    expect(stale([answer(1, 15, 40), answer(2, 10, 20)])).toEqual([]);
  });
});
