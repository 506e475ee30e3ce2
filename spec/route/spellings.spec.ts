import { describe, expect, it } from "vitest";
import { parsePattern, type Segment } from "../../lib/route/pattern.ts";
import { spellings } from "../../lib/route/spellings.ts";

function segments(text: string): readonly Segment[] {
  const parsed = parsePattern(text, "path");
  if ("error" in parsed) throw new Error(parsed.error);
  return parsed.segments;
}

describe("spellings", () => {
  it("lists each way to divide the segments of another pattern among the placeholders", () => {
    const found = [...spellings(segments("/{a}/x/{b}"), [segments("/{p}/x/{q}")], { length: 3, longest: 3, unused: "u" })];
    expect(found).toEqual([
      { path: "/%2F/x/x%2Fu", decoded: "/x/x/u" },
      { path: "/u%2F/x/u%2F", decoded: "/u/x/u" },
      { path: "/u%2Fx/x/%2F", decoded: "/u/x/x" },
    ]);
  });

  it("ends early for a pattern with so many placeholders that its ways cannot all be tried", () => {
    const many = segments(Array.from({ length: 12 }, (_, i) => `/{a${i}}/x`).join(""));
    const found = [...spellings(many, [segments("/{rest*}")], { length: many.length, longest: 24, unused: "u" })];
    expect(found.length).toBeGreaterThan(0);
    expect(found.length).toBeLessThanOrEqual(100_000);
  });
});
