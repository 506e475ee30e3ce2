import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const root = fileURLToPath(new URL("..", import.meta.url));

/** The suite that needs nothing but `npm ci`: every spec except those that meet foreign programs. */
export default defineConfig({
  root,
  resolve: { alias: { "edge-gateway": fileURLToPath(new URL("../lib/index.ts", import.meta.url)) } },
  test: {
    include: ["spec/**/*.spec.ts"],
    exclude: ["spec/peers/**", "**/node_modules/**"],
    globalSetup: ["spec/support/build_assets.ts"],
    pool: "forks",
    testTimeout: 15_000,
    hookTimeout: 15_000,
  },
});
