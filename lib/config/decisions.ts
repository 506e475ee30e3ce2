/**
 * The schema of how many requests are remembered, with what became of them.
 */
import * as s from "./schema.ts";

export const DECISIONS = s.integer({
  min: 0,
  max: 1_000_000,
  describe: "How many of the latest requests are remembered, with what became of them; default 10000, 0: none.",
});
