import { describe, expect, it } from "vitest";
import { parsePattern, type Segment } from "../../lib/route/pattern.ts";
import { firstState, PatternIndex, type Ranked } from "../../lib/route/pattern_index.ts";
import { findSpelling, MAX_STEPS, type Spelling } from "../../lib/route/spellings.ts";

function segments(text: string): readonly Segment[] {
  const parsed = parsePattern(text, "path");
  if ("error" in parsed) throw new Error(parsed.error);
  return parsed.segments;
}

/**
 * Asks for the spellings of a pattern that another one matches, in a table without patterns, and accepts none of the
 * first ones.
 */
function tried(pattern: string, other: string, accepts: (spelling: Spelling) => boolean | "refused") {
  const index = new PatternIndex<Ranked>(new Set([""]));
  const found: Spelling[] = [];
  const steps = { taken: 0 };
  const start = firstState([""], index.rootsFrom(""));
  const [own, wanted] = [segments(pattern), segments(other)];
  const answer = findSpelling<Ranked>(own, [wanted], {
    length: own.length,
    longest: Math.max(own.length, wanted.length),
    unused: "u",
    start,
    steps,
    accepts: (_winner, spelling) => {
      found.push(spelling);
      return accepts(spelling);
    },
  });
  return { answer, found, steps: steps.taken };
}

describe("findSpelling", () => {
  it(
    "tries each way to divide the segments of another pattern among the placeholders, " +
      "where each is refused for its text",
    () => {
      const { answer, found } = tried("/{a}/x/{b}", "/{p}/x/{q}", () => "refused");
      expect(answer).toBeNull();
      expect(found.slice(1)).toEqual([
        { path: "/%2F/x/x%2Fu", decoded: "/x/x/u" },
        { path: "/u%2F/x/u%2F", decoded: "/u/x/u" },
        { path: "/u%2Fx/x/%2F", decoded: "/u/x/x" },
      ]);
    },
  );

  it("returns the first spelling that is accepted", () => {
    expect(tried("/{a}/x/{b}", "/{p}/x/{q}", ({ decoded }) => decoded === "/u/x/u").answer).toBeNull();
    expect(tried("/{a}/x/{b}", "/{p}/x/{q}", () => true).answer).toEqual({ path: "/%2F/x/x%2Fu", decoded: "/x/x/u" });
  });

  it("tries a beginning once, whatever it is spelt, where the same patterns match it", () => {
    const many = Array.from({ length: 12 }, (_, i) => `/{a${i}}/x`).join("");
    const { answer, found, steps } = tried(many, "/{rest*}", () => false);
    expect(answer).toBeNull();
    expect(found.length).toBeLessThan(100);
    expect(steps).toBeLessThan(5_000);
  });

  it("is undecided after its bound of steps, where each spelling is refused for its text", () => {
    const many = Array.from({ length: 12 }, (_, i) => `/{a${i}}/x`).join("");
    const { answer, steps } = tried(many, "/{rest*}", () => "refused");
    expect(answer).toBe("undecided");
    expect(steps).toBeLessThanOrEqual(MAX_STEPS + 100);
  });
});
