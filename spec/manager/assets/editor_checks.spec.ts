import { describe, expect, it } from "vitest";
import { ApiError } from "../../../lib/manager/assets/api.ts";
import { Checks, moved, offsetIn, tokenEnd, type Verdict } from "../../../lib/manager/assets/editor_checks.ts";

const GOOD: Verdict = { issues: [], warnings: [], tests: null };

/** Checks with a clock and a gateway that the test moves on. */
function harness() {
  const timers: { ms: number; run: () => void }[] = [];
  const asked: { text: string; answer: (verdict: Verdict) => void; refuse: (error: unknown) => void }[] = [];
  const failed: unknown[] = [];
  let changes = 0;
  const checks = new Checks({
    validate: (text) => new Promise((answer, refuse) => void asked.push({ text, answer, refuse })),
    after(ms, run) {
      const timer = { ms, run };
      timers.push(timer);
      return () => void (timers.includes(timer) && timers.splice(timers.indexOf(timer), 1));
    },
    changed: () => changes++,
    failed: (error) => failed.push(error),
  });
  return {
    ...{ checks, asked, failed, changes: () => changes, waits: () => timers.map(({ ms }) => ms) },
    tick: () => timers.shift()!.run(),
    async answer(verdict: Verdict | ApiError) {
      const question = asked.at(-1)!;
      if (verdict instanceof ApiError) question.refuse(verdict);
      else question.answer(verdict);
      await new Promise((done) => setImmediate(done));
    },
  };
}

const WARNING = { code: "stale_acceptance", path: null, example: null, service: null, route: null } as const;

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

  it("give errors and warnings with their places, and those of other files without", async () => {
    const { checks, tick, answer } = harness();
    checks.check('{\n "😀": "x"}');
    tick();
    const place = { line: 2, column: 7 };
    await answer({
      issues: [
        { path: "services[0].name", ...place, message: "expected a name" },
        { path: "", line: null, column: null, message: "not signed" },
        { path: "[0]", ...place, message: "wrong", file: "/etc/tests.json" },
      ],
      warnings: [
        { ...WARNING, message: "Open to all.", remedy: "Add key_auth.", ...place },
        { ...WARNING, message: "Old.", remedy: "Remove it.", line: null, column: null },
      ],
      tests: null,
    });
    expect(checks.verdict?.findings).toEqual([
      { kind: "error", at: 9, message: "services[0].name: expected a name" },
      { kind: "error", at: null, message: "not signed" },
      { kind: "error", at: null, message: "/etc/tests.json:2:7: [0]: wrong" },
      { kind: "warning", at: 9, message: "Open to all. Remedy: Add key_auth." },
      { kind: "warning", at: null, message: "Old. Remedy: Remove it." },
    ]);
  });
});

describe("the place of a finding", () => {
  it("moves with the text around it, and is lost where the text has been changed", () => {
    const place = moved("one two three", "zero one 2 three");
    expect([0, 4, 8, 12].map(place)).toEqual([null, null, 11, 15]);
    expect([0, 3].map(moved("same", "same"))).toEqual([0, 3]);
    expect([0, 1].map(moved("aa", "aaa"))).toEqual([0, 1]);
    expect([0, 1].map(moved("ab", ""))).toEqual([null, null]);
  });

  it("counts lines and columns from 1, characters and not halves of them, and ends with the text", () => {
    expect(
      [
        [1, 1],
        [2, 1],
        [2, 3],
        [9, 9],
        [1, 99],
      ].map(([line, column]) => offsetIn("ab\n😀c", line!, column!)),
    ).toEqual([0, 3, 6, 6, 6]);
  });

  it("is a whole string, number or word, or one character", () => {
    expect([0, 6, 10, 12].map((offset) => tokenEnd('"a b": 5, true}', offset))).toEqual([5, 7, 14, 14]);
    expect([tokenEnd("{}", 0), tokenEnd("", 0)]).toEqual([1, 1]);
  });
});
