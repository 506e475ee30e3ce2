/**
 * What the compiler accepts as a configuration, and what it refuses: `npm run check` compiles this file, and nothing
 * runs it.
 */
import { createGateway, defineConfig, definePlugin, schema, type ConfigInput, type PluginConfig } from "edge-gateway";

const stamp = definePlugin({
  name: "stamp",
  schema: schema.object({ text: schema.string(), max_length: schema.optional(schema.integer()) }),
  create: () => (next) => next,
});

declare module "edge-gateway" {
  interface CustomPlugins {
    readonly stamp: PluginConfig<typeof stamp>;
  }
}

type Plugins = NonNullable<NonNullable<ConfigInput["global"]>["plugins"]>;

export const accepted: Plugins = [
  { name: "rate_limit", config: { limit_min: 3 } },
  { name: "rate_limit", id: undefined, enabled: undefined, config: { limit_min: 3, limit_hour: undefined } },
  { name: "compress" },
  { name: "key_auth", config: { keys: [{ id: "a", key: "${env:KEY}" }] } },
  { name: "stamp", config: { text: "a", max_length: undefined } },
];

export const refused: Plugins = [
  // @ts-expect-error: there is no such kind
  { name: "rate_limi", config: { limit_min: 3 } },
  // @ts-expect-error: rate_limit has no such field
  { name: "rate_limit", config: { limit_mni: 3 } },
  // @ts-expect-error: a limit is a number
  { name: "rate_limit", config: { limit_min: "3" } },
  // @ts-expect-error: a field of another kind
  { name: "compress", config: { limit_min: 3 } },
  // @ts-expect-error: the list of keys has objects
  { name: "key_auth", config: { keys: ["a"] } },
  // @ts-expect-error: a kind of the program's own is typed as well
  { name: "stamp", config: { text: "a", max_lenght: 3 } },
  // @ts-expect-error: it needs its text
  { name: "stamp" },
  // @ts-expect-error: an instance has no such field
  { name: "compress", enable: false },
];

const service = { name: "shop", base_path: "/shop", upstreams: [{ host: "127.0.0.1", port: 1 }] };
const routes = [{ path: "/items", methods: undefined, match: undefined }];

export const everywhere = [
  defineConfig({
    $schema: undefined,
    global: undefined,
    services: [{ ...service, routes, timeouts: { connect_ms: undefined } }],
  }),
  // @ts-expect-error: in a service
  defineConfig({ services: [{ ...service, routes, plugins: [{ name: "rate_limi" }] }] }),
  defineConfig({
    // @ts-expect-error: in a route
    services: [{ ...service, routes: [{ path: "/", plugins: [{ name: "rate_limit", config: { limit_mni: 3 } }] }] }],
  }),
  // @ts-expect-error: in the options of a gateway
  createGateway({ config: { global: { plugins: [{ name: "rate_limi" }] }, services: [] } }),
];

export const reload = (gateway: ReturnType<typeof createGateway>) =>
  // @ts-expect-error: for a reload
  gateway.reload({ global: { plugins: [{ name: "rate_limi" }] }, services: [] });
