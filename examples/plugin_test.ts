/**
 * Shows how a plugin is tested without sockets, how it is loaded from a file, and how a test of a whole configuration looks.
 * Run it with `npx tsx examples/plugin_test.ts`: it ends by itself.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { ConfigError, createGateway, definePlugin, exercisePlugin, headerValue, loadPluginModules, problemReply, schema, type ConfigInput } from "edge-gateway";

const office = definePlugin({
  name: "office_hours",
  schema: schema.object({
    from: schema.integer({ min: 0, max: 23, describe: "First hour, UTC." }),
    to: schema.integer({ min: 1, max: 24, describe: "Hour in which it ends, UTC." }),
  }),
  create: (config, tools) => (next) => (exchange) => {
    const hour = new Date(tools.clock.wall()).getUTCHours();
    if (hour >= config.from && hour < config.to) return next(exchange);
    tools.log.info("closed", { hour });
    return problemReply(exchange.call, { code: "closed", status: 503, title: "Closed at this hour" }, { headers: ["Retry-After", "3600"] });
  },
});

// The clock stands at midnight, UTC, until it is moved.
const exercise = exercisePlugin(office, { from: 8, to: 18 });
const early = await exercise.send({ url: "/orders?new", method: "POST", body: "two, please" });
assert.deepEqual([early.status, early.code, early.header("retry-after"), early.forwarded], [503, "closed", "3600", null]);
assert.deepEqual(exercise.lines, [{ level: "info", message: "closed", fields: { hour: 0 } }]);

exercise.clock.advance(9 * 3_600_000);
const open = await exercise.send({ url: "/orders?new", method: "POST", body: "two, please", headers: { "X-A": "b" } });
assert.equal(open.text(), "from upstream");
assert.equal(headerValue(open.forwarded!.headers, "x-a"), "b");
assert.equal(open.forwardedBody.toString(), "two, please");

// What a person may write wrong is part of the plugin.
assert.throws(() => exercisePlugin(office, { from: 8, to: 25 }), (error) => error instanceof ConfigError && /config\.to +expected an integer 1–24, found 25/.test(error.message));
console.log("exercised: 503, 200");

const path = fileURLToPath(new URL("plugin_module.mjs", import.meta.url));
const sha256 = createHash("sha256").update(readFileSync(path)).digest("hex");
// What the kind of a module takes, for the compiler.
declare module "edge-gateway" {
  interface CustomPlugins {
    readonly deadline: { readonly header?: string; readonly required?: boolean };
  }
}

const config: ConfigInput = {
  global: { plugin_modules: [{ path, sha256 }], plugins: [{ name: "deadline", config: { required: true } }] },
  services: [{ name: "orders", base_path: "/", upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path: "/{rest*}" }] }],
};
const gateway = createGateway({ config, modules: await loadPluginModules(config) });
const late = await gateway.inject({ url: "/orders", headers: { "X-Deadline": "1000" } });
assert.equal((late.json() as { code: string }).code, "deadline_passed");
console.log(`from a module: ${late.status}`);
await gateway.close();
