/**
 * Shows a plugin kind of one's own: its schema, its code, and a configuration that asks for it.
 * How the gateway is embedded otherwise is `embed.ts`. Run it with `npx tsx examples/custom_plugin.ts`: it ends by itself.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { ConfigError, createGateway, definePlugin, headerValue, problemReply, schema, withAddedHeader, withHeader, type ConfigInput, type PluginConfig } from "edge-gateway";

/** Lets requests pass that name a known tenant, tells the upstream which plan it is on, and the client which tenant was served. */
const tenant = definePlugin({
  name: "tenant",
  // Validator, defaults and the type of `config` in one. snake_case in the configuration, camelCase in code.
  schema: schema.object({
    header_name: schema.withDefault(schema.string({ min: 1, describe: "The header that names the tenant." }), "X-Tenant"),
    plans: schema.record(schema.oneOf(["free", "paid"]), { describe: "Tenants and their plans." }),
  }),
  // Runs once for each instance in the configuration; what it returns wraps the rest of the chain.
  create(config, tools) {
    const header = config.headerName.toLowerCase();
    const plans = new Map(Object.entries(config.plans));
    return (next) => async (exchange) => {
      const name = headerValue(exchange.headers, header);
      const plan = name === undefined ? undefined : plans.get(name);
      if (name === undefined || plan === undefined) {
        tools.log.debug("unknown tenant", { request_id: exchange.requestId });
        return problemReply(exchange.call, { code: "tenant_unknown", status: 403, title: "The tenant is not known" });
      }
      // Exchanges and replies are never changed in place: changed copies are passed on.
      const reply = await next(exchange.with({ identity: name, headers: withHeader(exchange.headers, "X-Plan", plan) }));
      return { ...reply, headers: withAddedHeader(reply.headers, "X-Served-Tenant", name) };
    };
  },
});

const backend = http.createServer((request, response) => response.end(`plan ${request.headers["x-plan"]}\n`));
backend.listen(0, "127.0.0.1");
await once(backend, "listening");

// From here on the compiler knows the kind: a configuration with { name: "tennant" } or { plan: … } does not compile.
declare module "edge-gateway" {
  interface CustomPlugins {
    readonly tenant: PluginConfig<typeof tenant>;
  }
}

const configFor = (config: PluginConfig<typeof tenant>): ConfigInput => ({
  services: [
    {
      name: "reports",
      base_path: "/reports",
      upstreams: [{ host: "127.0.0.1", port: (backend.address() as AddressInfo).port }],
      plugins: [
        { name: "tenant", config },
        // Counts by the identity that the plugin before it has set.
        { name: "rate_limit", config: { limit_min: 2, limit_by: "credential" } },
      ],
      routes: [{ path: "/{rest*}" }],
    },
  ],
});

const gateway = createGateway({ config: configFor({ plans: { acme: "paid", initech: "free" } }), plugins: [tenant] });
const ask = (headers: Record<string, string>) => gateway.inject({ url: "/reports/today", headers });

const unknown = await ask({ "X-Tenant": "hooli" });
assert.equal(unknown.status, 403);
assert.equal((unknown.json() as { code: string }).code, "tenant_unknown");

const served = await ask({ "X-Tenant": "acme", "X-Plan": "claimed by the client" });
assert.equal(served.text(), "plan paid\n");
assert.equal(served.header("x-served-tenant"), "acme");

// The third request within a minute of one tenant is one too many; another tenant has its own count.
assert.equal((await ask({ "X-Tenant": "acme" })).status, 200);
assert.equal((await ask({ "X-Tenant": "acme" })).status, 429);
assert.equal((await ask({ "X-Tenant": "initech" })).text(), "plan free\n");
console.log("tenant plugin: 403, 200, 200, 429, 200");

// What the schema does not allow is said like any other error of the configuration.
try {
  // @ts-expect-error: the compiler finds it, too
  createGateway({ config: configFor({ plan: { acme: "gold" } }), plugins: [tenant] });
  assert.fail("a broken configuration was taken");
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  console.log(error.message);
}

await gateway.close();
backend.close();
backend.closeAllConnections();
