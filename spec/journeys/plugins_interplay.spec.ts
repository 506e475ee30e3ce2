import { createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { PluginInput } from "../../lib/config/model.ts";
import { definePlugin, headerValues, schema, withHeader } from "../../lib/index.ts";
import { madeUpTools } from "../support/exercise.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";

const KEYS = {
  name: "key_auth",
  config: {
    keys: [
      { id: "ann", key: "k-ann" },
      { id: "bob", key: "k-bob" },
    ],
  },
};
const limit = (config: object) => ({ name: "rate_limit", config: { limit_hour: 2, ...config } });

describe("plugins that work together", () => {
  it(
    "plugins that work together apply a limit by credential to each caller that authentication has " +
      "identified, in either plugin order",
    async () => {
      const origin = await backend();
      const { port } = await running(
        oneService(
          origin.port,
          { routes: [{ path: "/{rest*}", plugins: [limit({ limit_by: "credential" })] }] },
          { plugins: [KEYS] },
        ),
      );
      const statuses = async (apiKey: string, times: number) => {
        const all: number[] = [];
        for (let i = 0; i < times; i++) all.push((await ask(port, { path: "/a/x", headers: { apiKey } })).status);
        return all;
      };
      expect(await statuses("k-ann", 3)).toEqual([200, 200, 429]);
      expect(await statuses("k-bob", 3)).toEqual([200, 200, 429]);
      // Authentication refuses the request before the limit counts it.
      expect(await statuses("wrong", 3)).toEqual([401, 401, 401]);
      expect(origin.seen).toHaveLength(4);
    },
  );

  it(
    "plugins that work together count and report in shadow mode without refusing a request or " +
      "changing the limit beside it",
    async () => {
      const origin = await backend();
      const { log, lines } = madeUpTools();
      const shadow = { ...limit({ limit_hour: 1, mode: "shadow" }), id: "trial" };
      const { port } = await running(oneService(origin.port, { plugins: [shadow, limit({})] }), { log });
      const replies = [];
      for (let i = 0; i < 3; i++) replies.push(await ask(port, { path: "/a/x" }));
      expect(replies.map(({ status }) => status)).toEqual([200, 200, 429]);
      expect(replies.map(({ headers }) => String(headers["ratelimit-policy"]).includes("q=1;"))).toEqual([
        false,
        false,
        false,
      ]);
      expect(
        lines.filter(({ message }) => message.includes("shadow") || message.includes("would")).length,
      ).toBeGreaterThan(0);
    },
  );

  it(
    "plugins that work together run from global over service to route on the request, " +
      "and in reverse on the response",
    async () => {
      const origin = await backend();
      const adding = (name: string, value: string) => ({ name, config: { add: { "X-Way": value } } });
      const both = (level: string) => [adding("request_headers", level), adding("response_headers", level)];
      const config = oneService(
        origin.port,
        { plugins: both("service"), routes: [{ path: "/{rest*}", plugins: both("route") }] },
        { plugins: both("global") },
      );
      const { port } = await running(config);
      const { headers } = await ask(port, { path: "/a/x" });
      expect(headers["x-way"]).toBe("route, service, global");
      expect(headerValues(origin.seen[0]!.headers, "x-way").join(", ")).toBe("global, service, route");
    },
  );
});

describe("a header that a plugin sets for the upstream", () => {
  const own = definePlugin({
    name: "own",
    schema: schema.object({}),
    create: () => (next) => (exchange) =>
      next(exchange.with({ headers: withHeader(exchange.headers, "X-User", "own") })),
  });
  const secret = "0123456789abcdef0123456789abcdef";
  const jwt = () => {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const signed = `${part({ alg: "HS256" })}.${part({ sub: "jwt", exp: 4_000_000_000 })}`;
    return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
  };
  const saying: [name: string, plugin: (auth: string) => PluginInput][] = [
    ["own", () => ({ name: "own" })],
    ["request_headers", () => ({ name: "request_headers", config: { set: { "X-User": "request_headers" } } })],
    ["jwt", () => ({ name: "jwt", config: { alg: "HS256", secret, claims_to_headers: { sub: "X-User" } } })],
    ["forward_auth", (auth) => ({ name: "forward_auth", config: { url: auth, response_headers: ["X-User"] } })],
  ];

  it.each(
    saying.flatMap(([name, plugin]) =>
      ["x-user", "close, X-User", "X-USER ,keep-alive", "Upgrade, X-User"].map(
        (option) => [name, option, plugin] as const,
      ),
    ),
  )(
    "a header that a plugin sets for the upstream cannot be removed by the client when %s sets it and the " +
      "client sends Connection: %s",
    async (name, Connection, plugin) => {
      const origin = await backend();
      const auth = await backend(
        (_request, response) => void response.writeHead(200, { "X-User": "forward_auth" }).end(),
      );
      const config = oneService(origin.port, { plugins: [plugin(`http://127.0.0.1:${auth.port}/`)] });
      const { port } = await running(config, { plugins: [own] });
      const { status } = await ask(port, {
        path: "/a/x",
        headers: { Connection, "X-User": "root", Authorization: `Bearer ${jwt()}` },
      });
      expect(status).toBe(200);
      expect(headerValues(origin.seen[0]!.headers, "x-user")).toEqual([name]);
    },
  );
});
