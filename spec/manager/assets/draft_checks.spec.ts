import { describe, expect, it } from "vitest";
import { ApiError } from "../../../lib/manager/assets/api.ts";
import type { Validation } from "../../../lib/manager/assets/api.ts";
import { Checks } from "../../../lib/manager/assets/draft_checks.ts";

const GOOD: Validation = {
  ...{ outcome: "accepted", file: null, issues: [], warnings: [] },
  ...{ tests: null, untested: null, diff: null, requests: null },
};

/** Checks with a clock and a gateway that the test moves on. */
function harness() {
  const timers: { ms: number; run: () => void }[] = [];
  const asked: { text: string; answer: (verdict: Validation) => void; refuse: (error: unknown) => void }[] = [];
  const failed: unknown[] = [];
  let changes = 0;
  const checks = new Checks({
    validate: (text) => new Promise((answer, refuse) => void asked.push({ text, answer, refuse })),
    after(ms, run) {
      const timer = { ms, run };
      timers.push(timer);
      return () => void (timers.includes(timer) && timers.splice(timers.indexOf(timer), 1));
    },
  });
  checks.onChange(() => changes++);
  checks.failed = (error) => failed.push(error);
  return {
    ...{ checks, asked, failed, changes: () => changes, waits: () => timers.map(({ ms }) => ms) },
    tick: () => timers.shift()!.run(),
    async answer(verdict: Validation | ApiError) {
      const question = asked.at(-1)!;
      if (verdict instanceof ApiError) question.refuse(verdict);
      else question.answer(verdict);
      await new Promise((done) => setImmediate(done));
    },
  };
}

describe("checks while typing", () => {
  it("ask the gateway once the keys have rested for 400 ms", async () => {
    const { checks, asked, waits, tick, answer } = harness();
    for (const text of ["a", "ab", "abc"]) checks.check(text);
    expect([waits(), asked.length]).toEqual([[400], 0]);
    tick();
    expect(asked.map(({ text }) => text)).toEqual(["abc"]);
    await answer(GOOD);
    expect(checks.verdict?.text).toBe("abc");
    checks.check("abc");
    expect(waits()).toEqual([]);
  });

  it("have one text checked at a time, and then the last one that was typed meanwhile", async () => {
    const { checks, asked, waits, tick, answer } = harness();
    checks.check("a");
    tick();
    checks.check("ab");
    checks.check("abc");
    expect([waits(), asked.length]).toEqual([[], 1]);
    await answer(GOOD);
    expect([checks.verdict?.text, waits()]).toEqual(["a", [400]]);
    tick();
    expect(asked.at(-1)?.text).toBe("abc");
  });

  it("wait as long as the gateway asks for, whatever is typed, and say why", async () => {
    const { checks, asked, waits, tick, answer, changes } = harness();
    checks.check("a");
    tick();
    await answer(new ApiError(503, { detail: "Other texts are being checked." }, 7));
    expect([waits(), checks.trouble, changes()]).toEqual([[7000], "Other texts are being checked.", 1]);
    checks.check("ab");
    expect(waits()).toEqual([7000]);
    tick();
    expect(asked.at(-1)?.text).toBe("ab");
    await answer(GOOD);
    expect(checks.trouble).toBeNull();
  });

  it("do not repeat a text that is refused as it is, and try again while the gateway does not answer", async () => {
    const { checks, waits, tick, answer, failed } = harness();
    checks.check("a");
    tick();
    await answer(new ApiError(413, { detail: "Too large." }, null));
    expect([waits(), checks.trouble]).toEqual([[], "Too large."]);
    checks.check("b");
    tick();
    await answer(new ApiError(0, { detail: "No answer." }, null));
    expect(waits()).toEqual([5000]);
    tick();
    await answer(new ApiError(401, { detail: "The session has ended." }, null));
    expect([waits(), failed.length]).toEqual([[], 1]);
  });

  it("end with the page: nothing is asked or reported afterwards", async () => {
    const { checks, waits, tick, answer, changes } = harness();
    checks.check("a");
    tick();
    checks.stop();
    await answer(GOOD);
    expect([changes(), waits()]).toEqual([0, []]);
    checks.check("b");
    checks.stop();
    expect(waits()).toEqual([]);
  });

  it("begin anew for another page, also while the gateway had asked to wait", async () => {
    const { checks, asked, waits, tick, answer } = harness();
    checks.check("a");
    tick();
    await answer(new ApiError(503, { detail: "Others." }, 7));
    checks.stop();
    checks.check("a", 0);
    expect(waits()).toEqual([0]);
    tick();
    expect(asked).toHaveLength(2);
  });

  it("are made again for another configuration in force, and an answer about the former one is not kept", async () => {
    const { checks, asked, waits, tick, answer } = harness();
    checks.check("a");
    tick();
    checks.renew();
    await answer(GOOD);
    expect([checks.of("a"), waits()]).toEqual([null, [400]]);
    tick();
    await answer(GOOD);
    expect([checks.of("a"), checks.of("b"), asked.length]).toEqual([GOOD, null, 2]);
    checks.renew();
    expect([checks.of("a"), waits()]).toEqual([null, [400]]);
  });
});
