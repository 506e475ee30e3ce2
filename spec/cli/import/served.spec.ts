/**
 * Realistic documents, imported and served: each request asks the upstream for the path for which its source would have
 * asked.
 */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { backend, running } from "../../support/gateway.ts";
import type { Origin } from "../../support/origin.ts";
import { ask } from "../../support/raw_client.ts";
import { fromKong, fromOpenApi, type Result } from "./imported.ts";

const document = (name: string) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8")) as object;

/** Serves the result in front of a stand-in for each upstream. */
async function served({ services, global }: Result) {
  const origins = new Map<string, Origin>();
  const stood = [];
  for (const service of services) {
    const upstreams = [];
    for (const upstream of service.upstreams as { host: string }[]) {
      if (!origins.has(upstream.host)) origins.set(upstream.host, await backend());
      upstreams.push({ ...upstream, host: "127.0.0.1", port: origins.get(upstream.host)!.port });
    }
    stood.push({ ...service, upstreams });
  }
  const { port } = await running({ global: { ...global, trusted_proxies: ["127.0.0.1"] }, services: stood } as never);
  /** Such as "orders GET /api/orders/7", or the status of a refusal. */
  return async (method: string, path: string, headers: Record<string, string> = {}) => {
    const body = method === "POST" ? '{"sku":"a"}' : undefined;
    const { status } = await ask(port, {
      method,
      path,
      headers: { "X-Forwarded-Proto": "https", "Content-Type": "application/json", ...headers },
      ...(body === undefined ? {} : { body }),
    });
    const [reached] = [...origins].flatMap(([host, { seen }]) =>
      seen.splice(0).map((each) => `${host} ${each.method} ${each.url}`),
    );
    return reached ?? String(status);
  };
}

describe("a realistic file of Kong", () => {
  it("is served: each route asks its upstream for the path that Kong asks for", async () => {
    const result = await fromKong(document("kong.json"));
    const send = await served(result);
    const key = { "X-API-Key": "shop-key-1f0c" };
    const basic = { Authorization: `Basic ${Buffer.from("operator:correct-horse-battery").toString("base64")}` };
    const host = (name: string) => ({ Host: name });
    const cases: [string, string, Record<string, string>, string][] = [
      // strip_path false: the path of the service, then the whole path.
      ["GET", "/orders", key, "orders GET /api/orders"],
      ["POST", "/orders/", key, "orders POST /api/orders/"],
      ["GET", "/orders?page=2&apikey=shop-key-1f0c", {}, "orders GET /api/orders?page=2"],
      ["GET", "/orders/7", key, "orders GET /api/orders/7"],
      ["DELETE", "/orders/7", key, "orders DELETE /api/orders/7"],
      ["GET", "/orders/7/lines/b%20c", key, "orders GET /api/orders/7/lines/b%20c"],
      ["GET", "/order-refs/0a1b2c3d-00ff", key, "orders GET /api/order-refs/0a1b2c3d-00ff"],
      // strip_path true: the path of the service, then what follows the prefix.
      ["GET", "/v1/orders/7", key, "orders GET /api/7"],
      ["PUT", "/v2/orders/7/lines", key, "orders PUT /api/7/lines"],
      ["GET", "/v2/orders", key, "orders GET /api"],
      // A regular expression without "$" is a prefix.
      ["GET", "/events/orders/7/stream", key, "orders GET /api/events/orders/7/stream"],
      ["GET", "/catalog/tree/1", {}, "catalog GET /catalog/v3/tree/1"],
      ["PATCH", "/catalog", {}, "catalog PATCH /catalog/v3"],
      ["GET", "/products/A-1", {}, "catalog GET /catalog/v3/products/A-1"],
      ["POST", "/products/A-1/reviews", {}, "catalog POST /catalog/v3/products/A-1/reviews"],
      ["GET", "/products/A-1/reviews/3", {}, "catalog GET /catalog/v3/products/A-1/reviews/3"],
      ["GET", "/search/red/shoes?q=1", {}, "catalog GET /catalog/v3/search/red/shoes?q=1"],
      ["GET", "/users/7", {}, "users GET /users/7"],
      ["PATCH", "/users/me", {}, "users PATCH /users/me"],
      ["GET", "/users/7/avatar", {}, "users GET /"],
      ["GET", "/profiles/ada", {}, "users GET /ada"],
      ["DELETE", "/partners/1", host("partners.example.com"), "users DELETE /1"],
      ["POST", "/login", {}, "login POST /oauth/login"],
      ["POST", "/token", {}, "login POST /oauth/token"],
      ["GET", "/.well-known/jwks.json", {}, "login GET /oauth/.well-known/jwks.json"],
      ["GET", "/files/css/main.css", {}, "files GET /static/files/css/main.css"],
      ["GET", "/assets/logo.svg", {}, "files GET /static/logo.svg"],
      ["GET", "/big.iso", host("eu.cdn.example.com"), "files GET /static/big.iso"],
      ["GET", "/invoices/12", {}, "billing GET /v2/invoices/12"],
      ["GET", "/billing/plans", { "X-Version": "2" }, "billing GET /plans"],
      ["GET", "/billing/plans", {}, "billing GET /billing/plans"],
      ["GET", "/admin/users", basic, "admin GET /console/users"],
      ["GET", "/healthz", {}, "web GET /healthz"],
      ["GET", "/readyz", {}, "web GET /readyz"],
      ["PUT", "/anything/else", {}, "web PUT /anything/else"],
      // Refused, as by Kong.
      ["GET", "/orders/7", {}, "401"],
      ["GET", "/admin/users", {}, "401"],
      ["POST", "/login", { "X-Forwarded-Proto": "http" }, "404"],
    ];
    const found = [];
    for (const [method, path, headers] of cases) found.push(`${method} ${path} → ${await send(method, path, headers)}`);
    expect(found).toEqual(cases.map(([method, path, , expected]) => `${method} ${path} → ${expected}`));
  });

  it("names what is closed first, and all that is not carried over", async () => {
    const { notes } = await fromKong(document("kong.json"));
    const [first, ...others] = notes;
    expect(first).toBe(
      "services[6].routes[1]: the route is not carried over: its requests get 503 (request_termination) " +
        "until you replace it, or go to another route that has its guards",
    );
    expect(others.join("\n")).not.toContain("503");
    expect(others).toContain(
      'services[6].routes[1].paths[0]: "~/admin/(?!internal).*/export$" is not carried over: ' +
        "it looks ahead or behind; write routes with placeholders such as /users/{id}",
    );
  });
});

describe("a regular expression of Kong that is left out and begins with no text", () => {
  const documentWith = (plugins: readonly object[]) => ({
    services: [
      {
        name: "catalog",
        url: "http://catalog:80",
        plugins,
        routes: [{ name: "alternatives", paths: ["~/(de|en)/catalog$"] }],
      },
      { name: "web", url: "http://web:80", routes: [{ name: "all", paths: ["/"], strip_path: false }] },
    ],
    consumers: [{ username: "ada", keyauth_credentials: [{ key: "shop-key-1f0c" }] }],
  });

  it("leaves its requests to a less specific route, and closes that one where it lacks a guard", async () => {
    const open = await served(await fromKong(documentWith([])));
    expect(await open("GET", "/de/catalog")).toBe("web GET /de/catalog");
    const guarded = await served(await fromKong(documentWith([{ name: "key-auth" }])));
    expect([await guarded("GET", "/de/catalog"), await guarded("GET", "/")]).toEqual(["503", "503"]);
  });
});

describe("a realistic OpenAPI document", () => {
  it("is served below the path of its server, and asks the upstream for the paths below its own path", async () => {
    const result = await fromOpenApi(document("openapi.json"), "http://orders:3000/v2");
    const send = await served(result);
    const sent = [
      "GET /orders?page=2",
      "GET /orders?page=x",
      "POST /orders",
      "GET /orders/7",
      "DELETE /orders/7",
      "GET /orders/7.pdf",
      "GET /invoices/7.pdf",
      "GET /orders/7/lines/2",
      "GET /orders/export",
      "POST /$batch",
    ];
    const found = [];
    for (const each of sent) found.push(await send(each.split(" ")[0]!, `/shop/v2${each.split(" ")[1]!}`));
    expect(found).toEqual([
      "orders GET /v2/orders?page=2",
      "400",
      "orders POST /v2/orders",
      "orders GET /v2/orders/7",
      "orders DELETE /v2/orders/7",
      "orders GET /v2/orders/7.pdf",
      "orders GET /v2/invoices/7.pdf",
      "orders GET /v2/orders/7/lines/2",
      "orders GET /v2/orders/export",
      "orders POST /v2/$batch",
    ]);
    expect(result.notes.map((note) => note.slice(0, 60))).toEqual([
      'paths["/orders/{id}.pdf"].get: the route is not carried over',
      'paths["/invoices/{id}.pdf"].get: its path mixes text and pla',
    ]);
  });
});
