import { describe, expect, it } from "vitest";
import { atLeast, type Ring } from "../../lib/store/window_marks.ts";
import { random } from "../support/random.ts";

const NONE: Ring = { times: [], newest: 0 };

/** The time of each admission, newest first. */
function admissions({ times, newest }: Ring, batch: number): number[] {
  return [...times].reverse().flatMap((time, i) => new Array<number>(i === 0 ? newest : batch).fill(time));
}

describe("what two callers have used at most", () => {
  it.each<[Ring, Ring, number, Ring]>([
    [NONE, NONE, 1, { times: [], newest: 0 }],
    [NONE, { times: [1, 2], newest: 1 }, 1, { times: [1, 2], newest: 1 }],
    [{ times: [1, 5], newest: 1 }, { times: [2, 3, 4], newest: 1 }, 1, { times: [2, 3, 5], newest: 1 }],
    [{ times: [1, 9], newest: 2 }, { times: [4], newest: 3 }, 3, { times: [4, 9], newest: 2 }],
  ])("%j and %j in marks of %i are %j", (a, b, batch, expected) => {
    expect(atLeast(a, b, batch)).toEqual(expected);
  });

  it("is never less than either has at any moment, and has as many admissions and marks as the one who has more", () => {
    const from = random(4);
    for (let n = 0; n < 500; n++) {
      const batch = from.pick([1, 1, 2, 5, 16]);
      const ring = (): Ring => {
        const times = from.list(0, 8, () => from.int(0, 20)).sort((x, y) => x - y);
        return { times, newest: times.length === 0 ? 0 : from.int(1, batch) };
      };
      const [a, b] = [ring(), ring()];
      const merged = atLeast(a, b, batch);
      const [all, ofA, ofB] = [admissions(merged, batch), admissions(a, batch), admissions(b, batch)];
      expect(all.length).toBe(Math.max(ofA.length, ofB.length));
      expect(merged.times.length).toBe(Math.ceil(all.length / batch));
      expect(merged.times).toEqual([...merged.times].sort((x, y) => x - y));
      all.forEach((time, k) => {
        const least = Math.max(ofA[k] ?? -1, ofB[k] ?? -1);
        expect(time).toBeGreaterThanOrEqual(least);
        if (batch === 1) expect(time).toBe(least);
      });
    }
  });
});
