import { describe, expect, it } from "vitest";
import { backend } from "../support/gateway.ts";
import { BASIC, json, tokenOf, fullGateway } from "./full_gateway.ts";

const config = (port: number) => ({
  global: { plugins: [{ name: "rate_limit", config: { limit_hour: 1000 } }] },
  services: [
    {
      name: "a",
      base_path: "/a",
      upstreams: [{ host: "127.0.0.1", port }],
      routes: [
        { name: "bc", path: "/b/c" },
        { name: "user", path: "/users/{id}/orders/{order}" },
      ],
    },
    {
      name: "long",
      base_path: "/a/b",
      upstreams: [{ host: "127.0.0.1", port }],
      routes: [{ name: "deep", path: "/deep" }],
    },
  ],
});

describe("4.1 Admin interface", () => {
  it(
    "POST /login with Authorization: Basic and no body answers 200 with Set-Cookie: " + "token=<JWT>; HttpOnly; Secure",
    async () => {
      const { admin } = await fullGateway({ services: [] });
      const answer = await admin("POST", "/login", { Authorization: BASIC });
      expect(answer.status).toBe(200);
      const [token, ...attributes] = answer.headers["set-cookie"]![0]!.split("; ");
      expect(token).toMatch(/^token=[\w-]+\.[\w-]+\.[\w-]+$/);
      expect(attributes).toEqual(expect.arrayContaining(["HttpOnly", "Secure"]));
    },
  );

  it("DELETE /logout with the token cookie clears it", async () => {
    const { admin, login } = await fullGateway({ services: [] });
    const Cookie = `token=${await login()}`;
    const answer = await admin("DELETE", "/logout", { Cookie });
    expect(answer.status).toBe(204);
    expect(answer.headers["set-cookie"]![0]).toMatch(/^token=; .*Max-Age=0/);
    expect((await admin("GET", "/gateway", { Cookie })).status).toBe(401);
  });

  it(
    "GET /gateway returns services with name and routes of name and path, " + "and plugins with name and config",
    async () => {
      const { admin, login } = await fullGateway(config(9));
      const answer = await admin("GET", "/gateway", { Cookie: `token=${await login()}` });
      expect(answer.status).toBe(200);
      expect(answer.headers["content-type"]).toBe("application/json");
      const { services, plugins } = json(answer);
      expect(
        services.map(({ name, routes }: any) => [name, routes.map((route: any) => [route.name, route.path])]),
      ).toEqual([
        [
          "a",
          [
            ["bc", "/b/c"],
            ["user", "/users/{id}/orders/{order}"],
          ],
        ],
        ["long", [["deep", "/deep"]]],
      ]);
      expect(plugins).toEqual([
        expect.objectContaining({
          name: "rate_limit",
          config: expect.objectContaining({ limit_hour: 1000 }) as object,
        }),
      ]);
    },
  );

  it("GET /gateway/config returns the object of section 2.6", async () => {
    const { admin, login } = await fullGateway({ services: [] });
    const answer = await admin("GET", "/gateway/config", { Cookie: `token=${await login()}` });
    expect(Object.keys(json(answer)).slice(0, 6)).toEqual([
      "ServerCertPath",
      "ServerKeyPath",
      "CACertPath",
      "AdminUser",
      "AdminPassword",
      "ConfigFilePath",
    ]);
  });

  it.each(["/gateway", "/gateway/config"])("rule 1: GET %s requires the token cookie", async (path) => {
    const { admin, login } = await fullGateway({ services: [] });
    expect((await admin("GET", path)).status).toBe(401);
    expect((await admin("GET", path, { Authorization: BASIC })).status).toBe(401);
    expect((await admin("GET", path, { Cookie: "token=" })).status).toBe(401);
    expect((await admin("GET", path, { Cookie: `other=${await login()}` })).status).toBe(401);
    expect((await admin("GET", path, { Cookie: `token=${await login()}` })).status).toBe(200);
  });

  it("rule 2: the token is valid for every later request that sends it", async () => {
    const { admin } = await fullGateway({ services: [] });
    const Cookie = `token=${tokenOf(await admin("POST", "/login", { Authorization: BASIC }))}`;
    for (const path of ["/gateway", "/gateway/config", "/gateway"])
      expect((await admin("GET", path, { Cookie })).status).toBe(200);
    expect((await admin("GET", "/gateway")).status).toBe(401);
  });
});

describe("4.2 Traffic interface", () => {
  it(
    "rule 1: the path prefix selects the service by its base_path, " + "the more specific one where two match",
    async () => {
      const origin = await backend();
      const { proxy } = await fullGateway(config(origin.port));
      expect((await proxy("/a/b/c")).status).toBe(200);
      expect((await proxy("/a/b/deep")).status).toBe(200);
      expect(origin.seen.map(({ url }) => url)).toEqual(["/b/c", "/deep"]);
      expect((await proxy("/ab/c")).status).toBe(404);
      expect((await proxy("/b/c")).status).toBe(404);
    },
  );

  it("rule 2: the remainder is matched against the whole path of the route", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway(config(origin.port));
    expect((await proxy("/a/b")).status).toBe(404);
    expect((await proxy("/a/b/c/d")).status).toBe(404);
    expect((await proxy("/a")).status).toBe(404);
    expect(origin.seen).toEqual([]);
  });

  it("rule 2: a {name} segment matches one value, which is passed on in the forwarded path", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway(config(origin.port));
    expect((await proxy("/a/users/42/orders/x%20y")).status).toBe(200);
    expect(origin.seen[0]!.url).toBe("/users/42/orders/x%20y");
    expect((await proxy("/a/users/42/43/orders/1")).status).toBe(404);
  });

  it("rule 3: round_robin selects upstreams in turn", async () => {
    const names: string[] = [];
    const origins = await Promise.all(
      ["one", "two"].map((name) => backend((_q, response) => (names.push(name), response.end()))),
    );
    const upstreams = origins.map(({ port }, i) => ({ id: `u${i}`, host: "127.0.0.1", port }));
    const { proxy } = await fullGateway({
      services: [{ name: "s", base_path: "/s", upstreams, routes: [{ path: "/r" }, { path: "/t" }] }],
    });
    for (const path of ["/s/r", "/s/t", "/s/r", "/s/t"]) await proxy(path);
    expect(names).toEqual(["one", "two", "one", "two"]);
  });

  it("rule 4: base_path /a and route path /b/c reach the upstream as /b/c: the base_path is removed", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway(config(origin.port));
    await proxy("/a/b/c");
    expect(origin.seen[0]!.url).toBe("/b/c");
  });

  it("rule 4: the request goes to <upstream host>:<upstream port>, with method, query, headers and body", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway(config(origin.port));
    await proxy("/a/b/c?x=1&y=%2F", { method: "PUT", headers: { "X-Own": "v" }, body: "content" });
    const { method, url, headers, body } = origin.seen[0]!;
    expect([method, url, body.toString()]).toEqual(["PUT", "/b/c?x=1&y=%2F", "content"]);
    expect(headers).toEqual(expect.arrayContaining(["X-Own", "v", "Host", `127.0.0.1:${origin.port}`]));
  });

  it("rule 5: plugins are applied in the order global, service, route", async () => {
    const origin = await backend();
    const key = (key: string) => ({ name: "key_auth", config: { key } });
    const limit = { name: "rate_limit", config: { limit_hour: 1 } };
    const at = (plugins: { global?: object[]; service?: object[]; route?: object[] }) => ({
      global: { plugins: plugins.global ?? [] },
      services: [
        {
          name: "s",
          base_path: "/s",
          upstreams: [{ host: "127.0.0.1", port: origin.port }],
          plugins: plugins.service ?? [],
          routes: [{ path: "/r", plugins: plugins.route ?? [] }],
        },
      ],
    });
    // A request that one plugin refuses does not reach the next, which shows their order.
    const twice = async (plugins: Parameters<typeof at>[0]) => {
      const { proxy } = await fullGateway(at(plugins));
      return [(await proxy("/s/r")).status, (await proxy("/s/r")).status];
    };
    expect(await twice({ global: [key("k")], service: [limit] })).toEqual([401, 401]);
    expect(await twice({ global: [limit], service: [key("k")] })).toEqual([401, 429]);
    expect(await twice({ service: [key("k")], route: [limit] })).toEqual([401, 401]);
    expect(await twice({ service: [limit], route: [key("k")] })).toEqual([401, 429]);
    expect(await twice({ global: [key("k")], route: [limit] })).toEqual([401, 401]);
    expect(await twice({ global: [limit], route: [key("k")] })).toEqual([401, 429]);
  });

  it("rule 6: the upstream's response returns to the client: status, headers, body, and what plugins add", async () => {
    const origin = await backend((_request, response) => {
      response.writeHead(207, { "X-Upstream": "yes" });
      response.end("the body");
    });
    const { proxy } = await fullGateway(config(origin.port));
    const answer = await proxy("/a/b/c");
    expect([answer.status, answer.headers["x-upstream"], answer.body.toString()]).toEqual([207, "yes", "the body"]);
    expect(answer.headers["ratelimit-policy"]).toContain("q=1000");
  });
});
