import { describe, expect, it, onTestFinished, vi } from "vitest";
import { asking, figuresAt } from "../../../lib/manager/assets/asking.ts";
import { whenChanged } from "../../../lib/manager/assets/dom.ts";

/** Questions whose answers come when they are told to, and what was made of them. */
function questions() {
  const answers: { resolve(found: string): void; reject(error: unknown): void }[] = [];
  const seen: string[] = [];
  const node = { isConnected: true };
  const load = asking<string>({
    node,
    ask: () => new Promise((resolve, reject) => void answers.push({ resolve, reject })),
    show: (found) => seen.push(found),
    failed: (error) => seen.push(String(error)),
  });
  return { load, node, answers, seen };
}

describe("a question of a page", () => {
  it("a question of a page shows the answer to the last one, whichever comes first", async () => {
    const { load, answers, seen } = questions();
    const [first, second] = [load(), load()];
    answers[1]!.resolve("new");
    await second;
    answers[0]!.resolve("old");
    await first;
    expect(seen).toEqual(["new"]);
  });

  it(
    "a question of a page fails with the error of the last one, " + "and shows the answer when it is asked again",
    async () => {
      const { load, answers, seen } = questions();
      const [first, second] = [load(), load()];
      answers[0]!.reject(new Error("old"));
      answers[1]!.reject(new Error("new"));
      await Promise.all([first, second]);
      const third = load();
      answers[2]!.resolve("there");
      await third;
      expect(seen).toEqual(["Error: new", "there"]);
    },
  );

  it.each(["resolve", "reject"] as const)("a question of a page ends with the page: %s", async (how) => {
    const { load, node, answers, seen } = questions();
    const loaded = load();
    node.isConnected = false;
    answers[0]![how]("late");
    await loaded;
    expect(seen).toEqual([]);
  });
});

describe("figures of a page", () => {
  it(
    "figures of a page are asked for again after their pause, which is longer after an answer that took long, " +
      "and not while one is awaited",
    async () => {
      const answers: ((value: unknown) => void)[] = [];
      vi.stubGlobal("document", {
        createElement: () => ({ isConnected: true, setAttribute: () => {}, append: () => {} }),
      });
      vi.stubGlobal(
        "fetch",
        () => new Promise((resolve) => void answers.push((value) => resolve(Response.json(value)))),
      );
      const clock = vi.spyOn(performance, "now");
      onTestFinished(() => void (vi.unstubAllGlobals(), clock.mockRestore()));
      const seen: unknown[] = [];
      const { update } = figuresAt("/figures", "Figures", (found) => seen.push(found));
      const updateAt = (ms: number) => (clock.mockReturnValue(ms), update());
      for (const ms of [1, 2_500, 9_000]) updateAt(ms);
      expect(answers).toHaveLength(1);
      answers[0]!("late");
      await vi.waitFor(() => expect(seen).toEqual(["late"]));
      for (const ms of [9_001, 11_002, 13_999]) updateAt(ms);
      expect(answers).toHaveLength(1);
      updateAt(14_000);
      expect(answers).toHaveLength(2);
      answers[1]!("again");
      await vi.waitFor(() => expect(seen).toEqual(["late", "again"]));
      updateAt(15_999);
      expect(answers).toHaveLength(2);
      updateAt(16_000);
      expect(answers).toHaveLength(3);
    },
  );
});

describe("what is drawn when it has changed", () => {
  it("what is drawn when it has changed is compared as JSON, by its first value or by what it shows of all", () => {
    const drawn: unknown[] = [];
    const one = whenChanged((value: readonly number[]) => drawn.push(value));
    for (const value of [[], [1], [1], [2]]) one(value);
    const both = whenChanged(
      (a: number, b: number) => drawn.push([a, b]),
      (a, b) => a + b,
    );
    for (const [a, b] of [
      [1, 2],
      [2, 1],
      [2, 2],
    ] as const)
      both(a, b);
    expect(drawn).toEqual([[], [1], [2], [1, 2], [2, 2]]);
  });
});
