import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** Specs that meet real foreign programs: `npm run test:peers`. They run the built gateway. */
export default defineConfig({
  root: fileURLToPath(new URL("../..", import.meta.url)),
  test: {
    include: ["spec/peers/*.spec.ts"],
    pool: "forks",
    // Nothing is proved by these: whatever is waited for is there long before, also where the machine is slow.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 30_000 } },
  },
});
