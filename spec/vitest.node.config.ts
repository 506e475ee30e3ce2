import { fileURLToPath } from "node:url";
import { defineConfig, mergeConfig } from "vitest/config";
import base from "./vitest.config.ts";

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The specs that meet clients of HTTP/1 once more, with node's server in the place of our own codec (`global.http1`). */
export default mergeConfig(
  base,
  defineConfig({
    resolve: { alias: [{ find: /^.*\/http1_wire\.ts$/, replacement: at("support/node_for_wire.ts") }] },
  }),
);
