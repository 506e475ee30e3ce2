/** A request header with "_" in its name never arrives, unless it is allowed: whatever waits for one is an error. */
import { describe, expect, it } from "vitest";
import { createGateway } from "../../lib/index.ts";

const DROPPED = 'headers with "_" in their names are dropped, unless "underscore_headers" of "global" is "allow"';

async function issuesOf(service: object, global: object = {}): Promise<string[]> {
  const upstreams = [{ host: "127.0.0.1", port: 9 }];
  const services = [{ name: "a", base_path: "/a", upstreams, routes: [{ path: "/" }], ...service }];
  try {
    await createGateway({ config: { global, services } as never }).close(0);
    return [];
  } catch (error) {
    return (error as { issues: { at: unknown[]; message: string }[] }).issues.map(
      ({ at, message }) => `${at.slice(2).join(".")}: ${message}`,
    );
  }
}

const plugin = (name: string, config: object) => ({ plugins: [{ name, config }] });
const KEYS = { keys: [{ id: "a", key: "a-key-of-some-length" }] };

describe("a header with an underscore in its name", () => {
  it.each<[string, object, string]>([
    ["key_auth.from", plugin("key_auth", { ...KEYS, from: ["header:api_key"] }), "plugins.0.config.from.0"],
    [
      "rate_limit.limit_by",
      plugin("rate_limit", { limit_min: 1, limit_by: "header:x_user" }),
      "plugins.0.config.limit_by",
    ],
    [
      "quota.limit_by",
      plugin("quota", { limit: 1, per: "day", limit_by: "header:x_user" }),
      "plugins.0.config.limit_by",
    ],
    [
      "concurrency.limit_by",
      plugin("concurrency", { max_in_flight: 1, limit_by: "header:x_user" }),
      "plugins.0.config.limit_by",
    ],
    ["response_cache.vary_by", plugin("response_cache", { vary_by: ["header:x_lang"] }), "plugins.0.config.vary_by.0"],
    [
      "forward_auth.request_headers",
      plugin("forward_auth", { url: "http://127.0.0.1:9/", request_headers: ["X_User"] }),
      "plugins.0.config.request_headers.0",
    ],
    [
      "request_headers.rename",
      plugin("request_headers", { rename: { x_user: "X-User" } }),
      "plugins.0.config.rename.x_user",
    ],
    [
      "request_validation.headers.required",
      plugin("request_validation", { headers: { required: ["x_user"] } }),
      "plugins.0.config.headers.required.0",
    ],
    [
      "request_validation.headers.properties",
      plugin("request_validation", { headers: { properties: { x_user: { type: "string" } } } }),
      "plugins.0.config.headers.properties.x_user",
    ],
    ["hash_on", { load_balancing_strategy: "hash", hash_on: "header:x_user" }, "hash_on"],
    [
      "match.headers",
      { routes: [{ path: "/", match: { headers: { x_user: true } } }] },
      "routes.0.match.headers.x_user",
    ],
  ])("is an error in %s while such headers are dropped, and none where they are allowed", async (_, service, place) => {
    const issues = await issuesOf(service);
    expect(issues).toHaveLength(1);
    expect(issues[0]!.startsWith(`${place}: `)).toBe(true);
    expect(issues[0]!.endsWith(DROPPED)).toBe(true);
    expect(await issuesOf(service, { underscore_headers: "allow" })).toEqual([]);
  });

  it(
    "is no error where the gateway does not wait for it: parameters, cookies, " + "and headers that it sets or removes",
    async () => {
      const services = [
        plugin("key_auth", { ...KEYS, from: ["query:api_key"] }),
        plugin("response_cache", { vary_by: ["cookie:a_b"] }),
        plugin("request_headers", { remove: ["x_user"], set: { x_tenant: "1" }, rename: { "X-User": "x_user" } }),
        plugin("response_headers", { rename: { x_user: "X-User" } }),
        { load_balancing_strategy: "hash", hash_on: "cookie:a_b" },
      ];
      for (const service of services) expect(await issuesOf(service)).toEqual([]);
    },
  );
});
