import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** Specs that meet real foreign programs: `npm run test:peers`. They run the built gateway. */
export default defineConfig({
  root: fileURLToPath(new URL("../..", import.meta.url)),
  test: {
    include: ["spec/peers/*.spec.ts"],
    pool: "forks",
    // By default vitest leaves one processor to itself, which of two is half; most of these specs wait for other
    // processes.
    maxWorkers: Math.max(2, availableParallelism()),
    // Nothing is proved by these: whatever is waited for is there long before, also where the machine is slow.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 30_000 } },
  },
});
