import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { backend, client } from "./harness.ts";

const GUARD = [{ name: "key_auth", config: { key: "secret" } }];
const CORS = [{ name: "cors", config: { allow_origins: ["https://a.example"] } }];

type Service = AnyConfigInput["services"][number];

/** Guarded routes in one service and an open catch-all route in another, as in configurations shared by teams. */
async function guarded(
  parts: {
    readonly routes?: Service["routes"];
    readonly admin?: Partial<Service>;
    readonly open?: Partial<Service>;
  } = {},
) {
  const [inner, outer] = [await backend(), await backend()];
  const { gateway, port } = await running({
    services: [
      {
        name: "inner",
        base_path: "/",
        upstreams: [{ host: "127.0.0.1", port: inner.port }],
        routes: parts.routes ?? [
          { name: "users", path: "/admin/users", methods: ["GET"], plugins: GUARD },
          { name: "file", path: "/files/{x}", plugins: GUARD },
        ],
        ...parts.admin,
      },
      {
        name: "outer",
        base_path: "/",
        upstreams: [{ host: "127.0.0.1", port: outer.port }],
        encoded_slashes: "allow",
        routes: [{ name: "rest", path: "/{rest*}" }],
        ...parts.open,
      },
    ],
  });
  const answer = async (request: string, headers: readonly string[] = []) => {
    const connection = await client(port);
    connection.send(
      `${request} HTTP/1.1\r\nHost: gw.example\r\nConnection: ` +
        `close\r\n${headers.map((line) => `${line}\r\n`).join("")}\r\n`,
    );
    const text = await connection.closed();
    return {
      status: Number(text.slice(9, 12)),
      code: /"code":"(\w+)"/.exec(text)?.[1],
      allow: /\r\nAllow: (.*)\r/.exec(text)?.[1],
      text,
    };
  };
  return { gateway, port, inner, outer, answer };
}

describe("a request that a guarded route does not accept", () => {
  it(
    "a request that a guarded route does not accept is answered with 405 for its method, " +
      "and reaches no open route",
    async () => {
      const { answer, inner, outer } = await guarded();
      for (const method of ["POST", "DELETE", "PATCH", "OPTIONS", "PROPFIND"]) {
        expect(await answer(`${method} /admin/users`), method).toMatchObject({
          status: 405,
          code: "method_not_allowed",
          allow: "GET, HEAD",
        });
      }
      for (const method of ["GET", "HEAD"]) expect((await answer(`${method} /admin/users`)).status, method).toBe(401);
      expect([...inner.seen, ...outer.seen]).toEqual([]);
    },
  );

  it.each([
    ["/files/a%2Fb", "path_ambiguous"],
    ["/files/a%2fb", "path_ambiguous"],
    ["/files%2Fa/../b", "path_ambiguous"],
    ["/admin%2Fusers", "path_ambiguous"],
    ["/%2fadmin%2F%2fusers%2F", "path_ambiguous"],
    ["/admin;x%2Fusers", "path_ambiguous"],
    ["/files%2Fa", "path_ambiguous"],
    ["/admin;x/users", "path_ambiguous"],
    ["/admin/users;jsessionid=1", "path_ambiguous"],
    ["/admin%3bx/users", "path_ambiguous"],
    ["/;/admin/users", "path_ambiguous"],
    ["/admin/;a/users/", "path_ambiguous"],
    ["/files;a/b", "path_ambiguous"],
  ])(
    "a request that a guarded route does not accept is answered with 400 for the spelling of its path, %s, " +
      "and reaches no open route",
    async (path, code) => {
      const { answer, inner, outer, gateway } = await guarded();
      for (const method of ["GET", "POST"]) {
        expect(await answer(`${method} ${path}`), method).toMatchObject({ status: 400, code });
        expect(await gateway.explain({ method, url: path })).toMatchObject({ outcome: "refused", status: 400, code });
      }
      expect([...inner.seen, ...outer.seen]).toEqual([]);
    },
  );

  it(
    "a request that a guarded route does not accept is kept from the route of all hosts " + "for the guarded host only",
    async () => {
      const { port, outer } = await guarded({ admin: { hosts: ["gw.example"] } });
      expect((await ask(port, { method: "POST", path: "/admin/users", headers: { Host: "gw.example" } })).status).toBe(
        405,
      );
      expect(
        (await ask(port, { method: "POST", path: "/admin/users", headers: { Host: "other.example" } })).status,
      ).toBe(200);
      expect(outer.seen.length).toBe(1);
    },
  );
});

describe("a request that no guarded route could match", () => {
  it.each(["/other", "/admin", "/admin/users/7", "/files", "/a;x/b", "/a%2Fb", "/admin/others;x"])(
    "a request that no guarded route could match reaches the open route unchanged: %s",
    async (path) => {
      const { answer, outer } = await guarded();
      expect((await answer(`POST ${path}`)).status).toBe(200);
      expect(outer.seen.map(({ url }) => url)).toEqual([path]);
    },
  );

  it(
    "a request that no guarded route could match keeps its %2F before the routes of services that allow encoded " +
      "slashes, and before less specific routes",
    async () => {
      const { answer, outer } = await guarded({ admin: { encoded_slashes: "allow" } });
      expect((await answer("GET /admin%2Fusers")).status).toBe(200);
      expect(outer.seen.map(({ url }) => url)).toEqual(["/admin%2Fusers"]);
      const routes = [{ name: "file", path: "/files/{x}" }];
      const other = await guarded({ routes, admin: { encoded_slashes: "allow" }, open: { encoded_slashes: "reject" } });
      expect((await other.answer("GET /files/a%2Fb")).status).toBe(200);
      expect(other.inner.seen.map(({ url }) => url)).toEqual(["/files/a%2Fb"]);
    },
  );

  it("a request that no guarded route could match is matched by its method where routes share a pattern", async () => {
    const routes = [
      { name: "read", path: "/admin/users", methods: ["GET"] },
      { name: "write", path: "/admin/users", methods: ["POST", "PUT"], plugins: GUARD },
    ];
    const { answer } = await guarded({ routes });
    expect((await answer("GET /admin/users")).status).toBe(200);
    expect((await answer("POST /admin/users")).status).toBe(401);
    expect(await answer("DELETE /admin/users")).toMatchObject({ status: 405, allow: "GET, HEAD, POST, PUT" });
  });

  it(
    "a request that no guarded route could match keeps its path parameters where the stricter service says " +
      '"path_parameters": "allow", and only there',
    async () => {
      const { answer, outer } = await guarded({ admin: { path_parameters: "allow" } });
      expect((await answer("GET /admin;x/users")).status).toBe(200);
      expect(outer.seen.map(({ url }) => url)).toEqual(["/admin;x/users"]);
      const { answer: other } = await guarded({ open: { path_parameters: "allow" } });
      expect((await other("GET /admin;x/users")).status).toBe(400);
    },
  );
});

describe("a CORS preflight", () => {
  const preflight = (method: string) => ["Origin: https://a.example", `Access-Control-Request-Method: ${method}`];

  it("a CORS preflight is answered by the cors plugin of the route that accepts the method it asks for", async () => {
    const { answer } = await guarded({
      routes: [{ path: "/admin/users", methods: ["GET"], plugins: CORS }],
      open: { plugins: CORS },
    });
    expect(await answer("OPTIONS /admin/users", preflight("GET"))).toMatchObject({ status: 204 });
    expect(await answer("OPTIONS /admin/users", preflight("POST"))).toMatchObject({ status: 405, allow: "GET, HEAD" });
    expect(await answer("OPTIONS /admin", preflight("POST"))).toMatchObject({ status: 204 });
  });
});

it("explain names the route that decides, and the routes that would accept the request otherwise", async () => {
  const { gateway } = await guarded();
  const why = async (method: string, url: string) => (await gateway.explain({ method, url })).reasons.slice(1);
  const rest =
    'Route "rest" of service "outer" (/{rest*}) would accept it, but is less specific: host and path alone decide.';
  expect(await why("POST", "/admin/users")).toEqual([
    'Route "users" of service "inner" (/admin/users) matches the path, but accepts only GET.',
    rest,
  ]);
  expect(await why("GET", "/files/a%2Fb")).toEqual([
    'Route "file" of service "inner" (/files/{x}) matches the path, ' +
      'but its service does not allow %2F ("encoded_slashes").',
    rest,
  ]);
  expect(await why("GET", "/admin;x/users")).toEqual([
    'Route "users" of service "inner" (/admin/users) would match the path without its parameters after “;”, ' +
      'and its service does not allow such paths on other routes ("path_parameters").',
    rest,
  ]);
});
