/**
 * A response_cache configured outside the plugins that guard a route never answers a request that they would refuse.
 */
import { createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { definePlugin, schema } from "../../lib/index.ts";
import { problem } from "../../lib/http/reply.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";

const CACHE = { name: "response_cache" };
const SECRET = "0123456789abcdef0123456789abcdef";

function token(): string {
  const signed = [{ alg: "HS256" }, { exp: 4_000_000_000, sub: "ann" }]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".");
  return `${signed}.${createHmac("sha256", SECRET).update(signed).digest("base64url")}`;
}

/** Answers with the number of requests so far, as a response that caches may store. */
const counting = () =>
  backend(
    (_request, response) =>
      void response.writeHead(200, { "cache-control": "public, max-age=60" }).end(String(origins++)),
  );
let origins = 0;

async function get(port: number, headers: Record<string, string> = {}, method = "GET") {
  const {
    status,
    body,
    headers: got,
  } = await ask(port, { path: "/a/x", headers: { Host: "gw.example", "User-Agent": "reader", ...headers }, method });
  return { status, body: body.toString(), isHit: String(got["cache-status"]).includes("; hit") };
}

type Plugins = NonNullable<AnyConfigInput["services"][number]["plugins"]>;

const onRoute = (port: number, plugins: Plugins, global: Plugins): AnyConfigInput =>
  oneService(port, { routes: [{ path: "/{rest*}", name: "all", plugins }] }, { plugins: global });
const bot = { name: "bot_protection", config: { blacklist: ["crawler"] } };

describe("a cache at the global level and a guard of the route", () => {
  it.each<[string, Plugins[number], Record<string, string>, Record<string, string>, number]>([
    ["key_auth", { name: "key_auth", config: { key: "k" } }, { apiKey: "k" }, {}, 401],
    [
      "basic_auth",
      { name: "basic_auth", config: { username: "ann", password: "pw" } },
      { Authorization: `Basic ${btoa("ann:pw")}` },
      {},
      401,
    ],
    ["jwt", { name: "jwt", config: { alg: "HS256", secret: SECRET } }, { Authorization: `Bearer ${token()}` }, {}, 401],
    [
      "acl",
      { name: "acl", config: { whitelist: ["192.0.2.1"] } },
      { "X-Forwarded-For": "192.0.2.1" },
      { "X-Forwarded-For": "192.0.2.2" },
      403,
    ],
  ])(
    "refuses a client that %s rejects, and answers a client that it admits from the cache",
    async (_name, guard, admitted, refused, status) => {
      const origin = await counting();
      const config = onRoute(origin.port, [guard], [CACHE]);
      const { port } = await running({ ...config, global: { ...config.global, trusted_proxies: ["127.0.0.1"] } });
      expect(await get(port, refused)).toMatchObject({ status, isHit: false });
      const first = await get(port, admitted);
      expect(first).toMatchObject({ status: 200, isHit: false });
      expect(await get(port, admitted)).toEqual({ ...first, isHit: true });
      expect(await get(port, refused)).toMatchObject({ status, isHit: false });
      expect(await get(port, refused, "HEAD")).toMatchObject({ status, isHit: false });
      expect(origin.seen).toHaveLength(1);
    },
  );

  it("asks forward_auth about each request, including those that the cache answers", async () => {
    const origin = await counting();
    const authServer = await backend(
      (request, response) => void response.writeHead(request.headers["x-pass"] === undefined ? 403 : 204).end(),
    );
    const guard = {
      name: "forward_auth",
      config: { url: `http://127.0.0.1:${authServer.port}/`, request_headers: ["X-Pass"], timeout_ms: 60_000 },
    };
    const { port } = await running(onRoute(origin.port, [guard], [CACHE]));
    for (let i = 0; i < 2; i++) expect((await get(port, { "X-Pass": "1" })).status).toBe(200);
    expect((await get(port)).status).toBe(403);
    expect(authServer.seen).toHaveLength(3);
  });

  it("runs a custom plugin kind that declares itself a guard before the cache", async () => {
    const door = (guards: boolean) =>
      definePlugin({
        name: "door",
        schema: schema.object({}),
        guards,
        create: () => (next) => (exchange) =>
          exchange.headers.includes("X-Pass") ? next(exchange) : problem(exchange.call, "forbidden"),
      });
    const origin = await counting();
    const statuses = async (guards: boolean) => {
      const { port } = await running(onRoute(origin.port, [{ name: "door" }], [CACHE]), { plugins: [door(guards)] });
      return [(await get(port, { "X-Pass": "1" })).status, (await get(port)).status];
    };
    expect(await statuses(true)).toEqual([200, 403]);
    expect(await statuses(false)).toEqual([200, 200]);
  });

  it("answers routes without a guard from the cache before any route plugin runs", async () => {
    const origin = await counting();
    const routes = [
      { path: "/x", name: "open" },
      { path: "/y", name: "shut", plugins: [{ name: "key_auth", config: { key: "k" } }] },
    ];
    const { port } = await running(oneService(origin.port, { routes }, { plugins: [CACHE] }));
    await get(port);
    expect(await get(port)).toMatchObject({ status: 200, isHit: true });
    expect((await ask(port, { path: "/a/y" })).status).toBe(401);
  });

  it(
    "keeps plugins that are no guards behind the cache: " + "a rate limit does not count responses from the cache",
    async () => {
      const origin = await counting();
      const limit = { name: "rate_limit", config: { limit_hour: 1 } };
      const { port } = await running(onRoute(origin.port, [limit], [CACHE]));
      for (let i = 0; i < 3; i++) expect((await get(port)).status).toBe(200);
    },
  );
});

describe("a reload that changes the guards of a route", () => {
  it(
    "serves no stored response to a client that the new guard refuses, " +
      "nor any response stored before the guard was added",
    async () => {
      const origin = await counting();
      const trusting = (plugins: Plugins) => ({
        ...onRoute(origin.port, plugins, [CACHE]),
        global: { plugins: [CACHE], trusted_proxies: ["127.0.0.1"] },
      });
      const acl = (...blacklist: string[]) => ({ name: "acl", config: { blacklist } });
      const { gateway, port } = await running(trusting([]));
      const stranger = { "X-Forwarded-For": "192.0.2.9" };
      const first = await get(port, stranger);
      expect(await get(port)).toEqual({ ...first, isHit: true });
      await gateway.reload(trusting([acl("192.0.2.9")]));
      expect(await get(port, stranger)).toMatchObject({ status: 403, isHit: false });
      const guarded = await get(port);
      expect(guarded).toMatchObject({ status: 200, isHit: false });
      expect(guarded.body).not.toBe(first.body);
      await gateway.reload(trusting([acl("192.0.2.9", "192.0.2.10")]));
      expect(await get(port)).toMatchObject({ status: 200, isHit: false });
    },
  );

  it(
    "keeps stored responses while the guards stay the same, " + "and while a guard is disabled that is enabled later",
    async () => {
      const origin = await counting();
      const { gateway, port } = await running(onRoute(origin.port, [bot], [CACHE]));
      await get(port);
      await gateway.reload(
        onRoute(origin.port, [bot, { name: "acl", enabled: false, config: { whitelist: ["192.0.2.1"] } }], [CACHE]),
      );
      expect(await get(port)).toMatchObject({ status: 200, isHit: true });
      await gateway.reload(onRoute(origin.port, [bot, { name: "acl", config: { whitelist: ["192.0.2.1"] } }], [CACHE]));
      expect(await get(port)).toMatchObject({ status: 403, isHit: false });
      await gateway.reload(onRoute(origin.port, [{ name: "request_termination" }], [CACHE]));
      expect(await get(port)).toMatchObject({ status: 503, isHit: false });
    },
  );

  it("an unsafe request to a guarded route invalidates what an open route has stored for the same target", async () => {
    const origin = await counting();
    const routes = [
      { path: "/{rest*}", name: "read", methods: ["GET"] },
      { path: "/{rest*}", name: "write", methods: ["POST"], plugins: [{ name: "key_auth", config: { key: "k" } }] },
    ];
    const { port } = await running(oneService(origin.port, { routes }, { plugins: [CACHE] }));
    await get(port);
    expect((await get(port, {}, "POST")).status).toBe(401);
    expect((await get(port)).isHit).toBe(true);
    expect((await get(port, { apiKey: "k" }, "POST")).status).toBe(200);
    expect((await get(port)).isHit).toBe(false);
  });
});

it("explain lists a cache where it runs: behind the last guard", async () => {
  const config = onRoute(
    9,
    [bot, { name: "rate_limit", config: { limit_min: 5 } }],
    [CACHE, { name: "key_auth", config: { key: "k" } }],
  );
  const { gateway } = await running(config);
  const { plugins } = await gateway.explain({ method: "GET", url: "/a/x" });
  expect(plugins.map(({ name }) => name)).toEqual(["key_auth", "response_cache", "bot_protection", "rate_limit"]);
});

it(
  "bot_protection is no guard: it refuses a client before a cache that is written behind it, " +
    "and after one that is written before it",
  async () => {
    const crawler = { "User-Agent": "a crawler" };
    for (const [plugins, status] of [
      [[bot, CACHE], 403],
      [[CACHE, bot], 200],
    ] as const) {
      const { port } = await running(onRoute((await counting()).port, plugins, []));
      expect([(await get(port, crawler)).status, (await get(port)).status, (await get(port, crawler)).status]).toEqual([
        403,
        200,
        status,
      ]);
    }
  },
);
