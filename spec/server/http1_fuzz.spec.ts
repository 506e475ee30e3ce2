import { expect, it } from "vitest";
import { fuzz } from "../support/http1_fuzz.ts";

const CASES = 20_000;

// A seed that failed stands in the title: `npm run bench -- http1_fuzz 20000 SEED` runs it again.
it.each([14, Math.floor(Math.random() * 2 ** 31)])(
  `refuses what node's parser refuses and reads all else alike, on ${CASES} random connections (seed %d)`,
  { timeout: 120_000 },
  (seed) => {
    const { cases, same, bothRefuse, stricter, defects } = fuzz(CASES, seed);
    expect(defects.join("\n\n"), `with seed ${seed}`).toBe("");
    expect(cases).toBe(CASES);
    // The generator makes enough of both kinds, and ours is not strict beyond reason.
    expect(same).toBeGreaterThan(CASES / 5);
    expect(bothRefuse).toBeGreaterThan(CASES / 5);
    expect([...stricter.values()].reduce((sum, times) => sum + times, 0)).toBeLessThan(CASES / 20);
  },
);
