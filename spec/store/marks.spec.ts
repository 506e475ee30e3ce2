import { describe, expect, it } from "vitest";
import { batchOf, marksOf, merged, type History } from "../../lib/store/marks.ts";
import { random, type Random } from "../support/random.ts";

/** The time of each admission, newest first. */
function admissions({ times, used, batch }: History): number[] {
  return Array.from({ length: used }, (_, i) => times[Math.floor((used - 1 - i) / batch)]!);
}

function historyOf(from: Random, limit: number): History {
  const batch = batchOf(limit);
  const used = from.int(0, limit);
  const times = Array.from({ length: Math.ceil(used / batch) }, () => from.int(0, 1_000)).sort((a, b) => a - b);
  return { times, used, batch };
}

const exact = (...times: number[]): History => ({ times, used: times.length, batch: 1 });

describe("marks", () => {
  it.each([
    [1, 1, 1],
    [64, 1, 64],
    [65, 2, 33],
    [100, 2, 50],
    [5_000, 79, 64],
  ])("marks with a limit of %i represent %i admissions each, and number %i at most", (limit, batch, marks) => {
    expect([batchOf(limit), marksOf(limit)]).toEqual([batch, marks]);
  });
});

describe("merged histories", () => {
  it.each<[number, readonly History[], History]>([
    [5, [], exact()],
    [5, [exact(), exact(1, 2)], exact(1, 2)],
    [5, [exact(1, 5), exact(2, 3, 4)], exact(2, 3, 5)],
    [2, [exact(1, 2, 3, 4)], exact(3, 4)],
    // Six admissions of a limit of 100, two to a mark, in marks of three.
    [192, [{ times: [1, 2, 3], used: 6, batch: 2 }], { times: [2, 3], used: 6, batch: 3 }],
  ])("merged histories with a limit of %i turn %j into %j", (limit, histories, expected) => {
    expect(merged(limit, histories)).toEqual(expected);
  });

  it(
    "merged histories contain at least each of the given histories up to the limit, at any moment, " +
      "and no more admissions than the longest",
    () => {
      const from = random(4);
      for (let n = 0; n < 1_000; n++) {
        const limits = [1, 5, 64, 65, 200, 1_000];
        const limit = from.pick(limits);
        const given = from.list(1, 2, () => historyOf(from, from.pick(limits)));
        const result = merged(limit, given);
        const all = admissions(result);
        expect(all.length).toBe(Math.min(limit, Math.max(...given.map(({ used }) => used))));
        expect(result.times.length).toBe(Math.ceil(all.length / result.batch));
        expect(result.times).toEqual([...result.times].sort((a, b) => a - b));
        const own = given.map(admissions);
        all.forEach((time, k) => {
          const least = Math.max(...own.map((times) => times[k] ?? -1));
          if (time < least) expect.fail(`admission ${k} at ${time}, not ${least}`);
          if (result.batch === 1 && time !== least) expect.fail(`admission ${k} at ${time}, not ${least}`);
        });
      }
    },
  );
});
