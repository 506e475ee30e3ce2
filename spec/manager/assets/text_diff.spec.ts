import { describe, expect, it } from "vitest";
import { merged, textDiff, type Hunk } from "../../../lib/manager/assets/text_diff.ts";
import { counted, growth, LINEAR } from "../../support/growth.ts";
import { random } from "../../support/random.ts";

const shown = (hunk: Hunk) => hunk.map(({ kind, text }) => `${{ same: " ", removed: "-", added: "+" }[kind]}${text}`);
const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => String(from + i));

/** Applies the hunks to the old text. */
function patched(before: string, hunks: readonly Hunk[]): string {
  const lines = before.split("\n");
  const made: string[] = [];
  let next = 0;
  for (const line of hunks.flat()) {
    if (line.before !== null) {
      while (next < line.before - 1) made.push(lines[next++]!);
      expect(lines[next]).toBe(line.text);
      next += 1;
    }
    if (line.kind === "removed") continue;
    if (line.before === null) while (made.length < line.after! - 1) made.push(lines[next++]!);
    expect(line.after).toBe(made.push(line.text));
  }
  return [...made, ...lines.slice(next)].join("\n");
}

describe("the difference of two texts", () => {
  it("is empty for the same text", () => {
    expect(textDiff("a\nb\n", "a\nb\n")).toEqual([]);
    expect(textDiff("", "")).toEqual([]);
  });

  it("has the changed lines with three lines around them and the numbers of both texts", () => {
    const before = numbers(1, 20).join("\n");
    const [hunk, ...others] = textDiff(before, before.replace("\n10\n", "\nten\nand a half\n"));
    expect(others).toEqual([]);
    expect(shown(hunk!)).toEqual([" 7", " 8", " 9", "-10", "+ten", "+and a half", " 11", " 12", " 13"]);
    expect(hunk!.map((line) => [line.before, line.after])).toEqual([
      [7, 7],
      [8, 8],
      [9, 9],
      [10, null],
      [null, 10],
      [null, 11],
      [11, 12],
      [12, 13],
      [13, 14],
    ]);
  });

  it("joins changes that are six lines apart, and parts those that are seven apart", () => {
    const lines = numbers(1, 30);
    const changed = (...at: number[]) => lines.map((line, i) => (at.includes(i) ? "x" : line)).join("\n");
    expect(textDiff(lines.join("\n"), changed(10, 17))).toHaveLength(1);
    expect(textDiff(lines.join("\n"), changed(10, 18))).toHaveLength(2);
  });

  it("shows a missing line end at the end, and another kind of line ends, as a difference", () => {
    expect(shown(textDiff("a\n", "a")[0]!)).toEqual([" a", "-"]);
    expect(shown(textDiff("a\r\nb", "a\nb")[0]!)).toEqual(["-a\r", "+a", " b"]);
  });

  it("turns the one text into the other, and is as short as possible while the texts are alike", () => {
    for (let seed = 0; seed < 2000; seed++) {
      const r = random(seed);
      const before = r.list(0, 30, () => r.pick(["a", "b", "c", "d"]));
      const after = r.chance(0.2)
        ? r.list(0, 30, () => r.pick(["a", "b", "e"]))
        : before.flatMap((line) => (r.chance(0.1) ? [] : r.chance(0.1) ? [line, "new"] : [line]));
      const hunks = textDiff(before.join("\n"), after.join("\n"));
      expect(patched(before.join("\n"), hunks), `seed ${seed}`).toBe(after.join("\n"));
      const [old, next] = [before, after].map((lines) => lines.join("\n").split("\n"));
      expect(hunks.flat().filter(({ kind }) => kind !== "same").length, `seed ${seed}`).toBe(
        old!.length + next!.length - 2 * commonLength(old!, next!),
      );
    }
  });

  it("replaces everything between the first and the last difference of texts that differ too much", () => {
    const before = ["{", ...numbers(1, 3000), "}"].join("\n");
    const after = ["{", ...numbers(5001, 8000), "}"].join("\n");
    const hunks = textDiff(before, after);
    expect(patched(before, hunks)).toBe(after);
    expect(hunks.flat().filter(({ kind }) => kind === "removed")).toHaveLength(3000);
  });

  it("takes time in proportion to the lines, also for texts made to take long", async () => {
    const fresh = await counted(() => import("../../../lib/manager/assets/text_diff.ts"));
    const lines = (count: number, of: (i: number) => string) =>
      Array.from({ length: count }, (_, i) => of(i)).join("\n");
    const compare = (size: number) => {
      const [before, after] = [
        lines(size, (i) => (i % 3 === 0 ? "a" : "b")),
        lines(size, (i) => (i % 2 === 0 ? "a" : "b")),
      ];
      fresh.textDiff(before!, after!);
    };
    expect(growth(compare, 2_000)).toBeLessThan(LINEAR);
  });
});

describe("the changes of two people", () => {
  const base = numbers(1, 12).join("\n");

  it("come together where they are in different places", () => {
    const mine = base.replace("\n3\n", "\nthree\nand more\n");
    const theirs = base.replace("\n9\n", "\n").replace("12", "12\n13");
    expect(merged(base, mine, theirs)).toBe("1\n2\nthree\nand more\n4\n5\n6\n7\n8\n10\n11\n12\n13");
    expect(merged(base, theirs, mine)).toBe(merged(base, mine, theirs));
    expect(merged(base, base, theirs)).toBe(theirs);
  });

  it("are merged in a text of 200,000 lines", () => {
    const lines = Array.from({ length: 200_000 }, (_, i) => `${i}`);
    const text = lines.join("\n");
    expect(merged(text, `${text}\nmine`, `theirs\n${text}`)).toBe(`theirs\n${text}\nmine`);
  });

  it("are left to the people where they are in the same lines or in lines beside each other", () => {
    expect(merged(base, base.replace("\n3\n", "\nthree\n"), base.replace("\n3\n", "\ndrei\n"))).toBeNull();
    expect(merged(base, base.replace("\n3\n", "\nthree\n"), base.replace("\n4\n", "\nvier\n"))).toBeNull();
    expect(merged(base, base.replace("\n3\n", "\n3\nmine\n"), base.replace("\n3\n", "\n3\ntheirs\n"))).toBeNull();
  });
});

/** The length of a longest common subsequence, by the table of all pairs. */
function commonLength(a: readonly string[], b: readonly string[]): number {
  let row = new Array<number>(b.length + 1).fill(0);
  for (const line of a)
    row = b.reduce<number[]>(
      (made, other, j) => [...made, line === other ? row[j]! + 1 : Math.max(made[j]!, row[j + 1]!)],
      [0],
    );
  return row[b.length]!;
}
