import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** They run the built program, in which nothing takes the place of our codec, and none of them is about it. */
const OF_THE_PROGRAM = ["admin_events", "config_tests", "idle_process", "life", "plugin_modules", "reload", "signed_configuration"];

/** They replace a module before anything has loaded it, or measure the memory of their own process or of one that it starts (which begins with the peak of its parent). */
const OF_OWN_PROCESS = ["plugins/key_auth", "store/memory", "journeys/streaming", "cli/verify"].map((name) => `spec/${name}.spec.ts`);

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/**
 * The suite that needs nothing but `npm ci`: every spec except those that meet foreign programs. The specs that meet HTTP/1 clients run
 * twice, with our own codec and with node's server in its place (`global.http1`), but for those of the built program.
 */
export default defineConfig({
  root: at(".."),
  resolve: { alias: [{ find: /^edge-gateway$/, replacement: at("../lib/index.ts") }] },
  test: {
    globalSetup: ["spec/support/build.ts"],
    setupFiles: ["spec/support/entry_faults.ts"],
    pool: "forks",
    // By default vitest leaves one processor to itself, which of two is half.
    maxWorkers: Math.max(2, availableParallelism()),
    testTimeout: 15_000,
    hookTimeout: 15_000,
    projects: [
      {
        extends: true,
        // A process loads each module once for all of its files: loading took half of the time of the suite.
        test: { name: "all", isolate: false, include: ["spec/**/*.spec.ts"], exclude: ["spec/peers/**", "**/node_modules/**", ...OF_OWN_PROCESS] },
      },
      {
        extends: true,
        test: { name: "own process", include: OF_OWN_PROCESS },
      },
      {
        extends: true,
        resolve: { alias: [{ find: /^.*\/http1_wire\.ts$/, replacement: at("support/node_for_wire.ts") }] },
        test: { name: "http1: node", isolate: false, include: ["spec/journeys/**/*.spec.ts", "spec/server/listener.spec.ts"], exclude: OF_THE_PROGRAM.map((name) => `spec/journeys/${name}.spec.ts`) },
      },
    ],
  },
});
