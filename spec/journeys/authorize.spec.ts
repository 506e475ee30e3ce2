/** Callers with groups in a whole gateway: what `authorize` and `limits_by_group` make of them. */
import { createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import { headerValue } from "../../lib/http/headers.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { ask } from "../support/raw_client.ts";
import { backend, client, codeIn, get, statusesIn } from "./harness.ts";

const CALLERS = [
  { id: "ada", groups: ["staff", "gold"], keys: [{ key: "k-ada" }] },
  { id: "bob", groups: ["gold"], keys: [{ key: "k-bob" }] },
  { id: "jörg m", keys: [{ key: "k-jorg" }] },
];
const KEYS = { name: "key_auth", config: { callers: true } };
const RULES = {
  name: "authorize",
  config: { rules: [{ groups: ["staff"] }, { params: { user: "${caller.id}" }, methods: ["GET"] }] },
};

async function users(plugins: readonly object[], more: object = {}) {
  const origin = await backend();
  const config = {
    ...oneService(origin.port, { routes: [{ path: "/users/{user}/{rest*}", plugins }] } as never, { h2c: true }),
    callers: CALLERS,
    ...more,
  };
  const { gateway, port } = await running(config as never);
  const status = async (path: string, apiKey?: string, method = "GET") =>
    (await ask(port, { method, path: `/a/users/${path}`, headers: apiKey === undefined ? {} : { apiKey } })).status;
  return { origin, gateway, config, port, status };
}

describe("authorize", () => {
  it("admits by group, and by a parameter of the path that is the caller", async () => {
    const { origin, status } = await users([KEYS, RULES]);
    expect([await status("bob/orders", "k-ada"), await status("bob/orders", "k-ada", "DELETE")]).toEqual([200, 200]);
    expect([
      await status("bob/orders", "k-bob"),
      await status("bob/orders", "k-bob", "HEAD"),
      await status("bob/orders", "k-bob", "DELETE"),
    ]).toEqual([200, 200, 403]);
    expect([
      await status("ada/orders", "k-bob"),
      await status("j%C3%B6rg%20m/x", "k-jorg"),
      await status("j%c3%b6rg%20m/x", "k-jorg"),
    ]).toEqual([403, 200, 200]);
    expect(await status("bob/orders", "wrong")).toBe(401);
    expect(origin.seen).toHaveLength(6);
  });

  it.each([
    "/a/users/%62ob/x",
    "/a/users//bob/x",
    "/a/users/bob/../ada/x",
    "/a/users/ada;/../bob/x",
    "/a/users/ada/x?user=bob",
    "/a/users/bob%2f..%2fada/x",
    "/a/users/bob;x/x",
  ])("takes no other spelling of a path for another caller's: %s", async (path) => {
    const { origin, port } = await users([KEYS, RULES]);
    const connection = await client(port);
    connection.send(get(path, "apiKey: k-bob", "Connection: close"));
    const [status] = statusesIn(await connection.closed());
    const forwarded = origin.seen.map(({ url }) => url);
    // Whatever was admitted reached the upstream as a path of bob.
    expect(status === 200 ? forwarded : []).toEqual(forwarded);
    for (const url of forwarded) expect(url).toMatch(/^\/users\/bob\//);
  });

  it("answers somebody who is nobody with 401 and a challenge, over HTTP/1.1 and HTTP/2", async () => {
    const { port } = await users([RULES]);
    const connection = await client(port);
    connection.send(get("/a/users/bob/x", "Connection: close"));
    const text = await connection.closed();
    expect([statusesIn(text), codeIn(text)]).toEqual([[401], "identity_required"]);
    expect(text).toMatch(/\r\nWWW-Authenticate: Bearer realm="edge-gateway"\r\n/);
    const reply = await h2Ask(h2Session(port), { path: "/a/users/bob/x" });
    expect([reply.status, reply.headers["www-authenticate"]]).toEqual([401, 'Bearer realm="edge-gateway"']);
  });

  it("reads claims of a token, and does not take those of a token that another plugin refused", async () => {
    const secret = "0123456789abcdef0123456789abcdef";
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const token = (claims: object, key = secret) => {
      const signed = `${part({ alg: "HS256" })}.${part({ sub: "ada", exp: 4_000_000_000, ...claims })}`;
      return `${signed}.${createHmac("sha256", key).update(signed).digest("base64url")}`;
    };
    const { port } = await users([
      { name: "jwt", config: { alg: "HS256", secret, aud: "shop" } },
      {
        name: "authorize",
        config: { rules: [{ claims: { "realm.roles": "admin", email: { matches: "@example\\.com$" } } }] },
      },
    ]);
    const status = async (text: string) =>
      (await ask(port, { path: "/a/users/x/y", headers: { Authorization: `Bearer ${text}` } })).status;
    const admin = { aud: "shop", realm: { roles: ["user", "admin"] }, email: "ada@example.com" };
    expect([
      await status(token(admin)),
      await status(token({ ...admin, email: "ada@example.org" })),
      await status(token(admin, "another secret of thirty-two bytes")),
    ]).toEqual([200, 403, 401]);
  });

  it("a reload that takes a group from a caller is in force with the next request", async () => {
    const { gateway, config, status } = await users([
      KEYS,
      { name: "authorize", config: { rules: [{ groups: ["staff"] }] } },
    ]);
    expect([await status("x/y", "k-ada"), await status("x/y", "k-bob")]).toEqual([200, 403]);
    await gateway.reload({
      ...config,
      callers: [
        { ...CALLERS[0], groups: [] },
        { ...CALLERS[1], groups: ["staff"] },
      ],
    } as never);
    expect([await status("x/y", "k-ada"), await status("x/y", "k-bob")]).toEqual([403, 200]);
  });
});

describe("limits_by_group", () => {
  const tiers = (limits: object) => ({
    name: "rate_limit",
    config: { limit_hour: 1, limit_by: "credential", limits_by_group: limits },
  });

  it("gives callers of a group its limits, and others the others", async () => {
    const { status, port } = await users([
      KEYS,
      tiers({ staff: { limit_hour: 3, limit_day: 9 }, gold: { limit_hour: 2 } }),
    ]);
    const statuses = async (apiKey: string, times: number) => {
      const all: number[] = [];
      for (let i = 0; i < times; i++) all.push(await status("x/y", apiKey));
      return all;
    };
    expect([await statuses("k-ada", 4), await statuses("k-bob", 3), await statuses("k-jorg", 2)]).toEqual([
      [200, 200, 200, 429],
      [200, 200, 429],
      [200, 429],
    ]);
    const { rawHeaders } = await ask(port, { path: "/a/users/x/y", headers: { apiKey: "k-ada" } });
    expect(headerValue(rawHeaders, "ratelimit-policy")).toBe('"hour";q=3;w=3600, "day";q=9;w=86400');
  });

  it(
    "refills nothing on a reload that changes the limit of a group, " +
      "and counts callers of it in the metrics of the instance",
    async () => {
      const { gateway, config, status } = await users([KEYS, tiers({ gold: { limit_hour: 2 } })]);
      expect([await status("x/y", "k-bob"), await status("x/y", "k-bob"), await status("x/y", "k-bob")]).toEqual([
        200, 200, 429,
      ]);
      expect(await status("x/y", "k-jorg")).toBe(200);
      expect(gateway.metrics()).toMatch(/^edge_gateway_rate_limit_callers\{[^}]*route="[^"]*"[^}]*\} 2$/m);
      const [service] = config.services;
      await gateway.reload({
        ...config,
        services: [
          { ...service, routes: [{ ...service!.routes[0], plugins: [KEYS, tiers({ gold: { limit_hour: 3 } })] }] },
        ],
      } as never);
      expect([await status("x/y", "k-bob"), await status("x/y", "k-bob")]).toEqual([200, 429]);
    },
  );
});
