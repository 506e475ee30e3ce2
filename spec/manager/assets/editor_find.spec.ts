import { expect, it } from "vitest";
import { foundIn } from "../../../lib/manager/assets/editor_find.ts";
import { Lines } from "../../../lib/manager/assets/text_lines.ts";

it("the find bar finds each match in any case, one behind the other", () => {
  expect(foundIn(new Lines("aAa\nb\nBaa"), "aa")).toEqual([0, 7]);
  expect(foundIn(new Lines("abc"), "")).toEqual([]);
});

it("the find bar finds 10,000 matches at most, be they in one line or in many", () => {
  for (const text of ["a".repeat(50_000), "a\n".repeat(50_000), `${"a".repeat(3)}\n`.repeat(50_000)])
    expect(foundIn(new Lines(text), "a")).toHaveLength(10_000);
});
