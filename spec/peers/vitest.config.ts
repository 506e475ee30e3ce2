import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** Specs that meet real foreign programs: `npm run test:peers`. They run the built gateway. */
export default defineConfig({
  root: fileURLToPath(new URL("../..", import.meta.url)),
  test: {
    include: ["spec/peers/*.spec.ts"],
    pool: "forks",
    testTimeout: 30_000,
    hookTimeout: 30_000,
  },
});
