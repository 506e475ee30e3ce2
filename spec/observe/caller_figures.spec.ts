import { expect, it } from "vitest";
import { minuteOfCaller } from "../../lib/observe/caller_figures.ts";
import { MAX_LOOKED } from "../../lib/observe/decision_list.ts";
import { remembering } from "../support/remembered.ts";

it("rates of a caller are those of the time that was looked at, where more requests than that have ended", async () => {
  const { end, clock, metrics } = remembering(3 * MAX_LOOKED);
  const rate = async () => {
    const { requestsPerS } = await minuteOfCaller(metrics, "ada", { now: clock.wall(), uptimeMs: 600_000 });
    return requestsPerS;
  };
  // 1,000 a second, of which a tenth are the caller's.
  for (let i = 0; i < 2 * MAX_LOOKED; i++) {
    end(`r${i}`, {}, { identity: i % 10 === 0 ? "ada" : "bob" });
    if (i % 100 === 99) clock.advance(100);
  }
  expect(await rate()).toBeCloseTo(100, 0);
  // A minute in which little has ended is a whole one.
  clock.advance(60_001);
  for (let i = 0; i < 6; i++) end(`late${i}`, {}, { identity: "ada" });
  expect(await rate()).toBeCloseTo(0.1, 5);
});
