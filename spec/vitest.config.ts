import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const filesOf = (...names: string[]) => names.map((name) => `spec/${name}.spec.ts`);

/** They run the built program, in which nothing takes the place of our codec, and none of them is about it. */
const OF_THE_PROGRAM = filesOf(
  ...["admin_tail", "config_tests", "idle_process", "life", "plugin_modules", "reload", "signed_configuration"].map(
    (name) => `journeys/${name}`,
  ),
);

/**
 * They replace a module before anything has loaded it, or measure memory and processor time of their own process, or of
 * one that it starts (which begins with the peak of its parent).
 */
const OF_OWN_PROCESS = filesOf("plugins/key_auth", "store/memory", "journeys/streaming", "cli/verify");

const OF_CODECS = ["spec/journeys/**/*.spec.ts", ...filesOf("server/listener")];

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const OF_NODE = { alias: [{ find: /^.*\/client_connection\.ts$/, replacement: at("support/node_for_wire.ts") }] };
const OURS = { alias: [] };

/**
 * Without `isolate` a process loads each module once for all of its files: loading took half of the time of the suite.
 */
function project(
  name: string,
  resolve: typeof OURS | typeof OF_NODE,
  include: string[],
  exclude: string[],
  isolate: boolean,
) {
  return {
    extends: true as const,
    resolve,
    test: { name, include, exclude: ["spec/peers/**", "**/node_modules/**", ...exclude], isolate },
  };
}

/**
 * The suite that needs nothing but `npm ci`: every spec except those that meet foreign programs. The specs that meet
 * HTTP/1 clients run twice, with our own codec and with node's server in its place (`global.http1`), but for those of
 * the built program.
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
    // Nothing is proved by these: whatever is waited for is there long before, also where the machine is slow.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    expect: { poll: { timeout: 15_000 } },
    projects: [
      project("all", OURS, ["spec/**/*.spec.ts"], OF_OWN_PROCESS, false),
      project("own process", OURS, OF_OWN_PROCESS, [], true),
      project("http1: node", OF_NODE, OF_CODECS, [...OF_THE_PROGRAM, ...OF_OWN_PROCESS], false),
      project(
        "http1: node, own process",
        OF_NODE,
        OF_OWN_PROCESS.filter((path) => path.includes("/journeys/")),
        [],
        true,
      ),
    ],
  },
});
