import { describe, expect, it } from "vitest";
import type { RouteDeclaration } from "../../lib/config/declarations.ts";
import { compileTable } from "../../lib/route/table.ts";
import { counted, growth, LINEAR } from "../support/growth.ts";
import { random } from "../support/random.ts";
import { checkRoutes } from "../support/schema.ts";

describe("checkRoutes", () => {
  /** "service base_path hosts" and below it "METHODS path". */
  function declare(services: Record<string, string[]>): RouteDeclaration[] {
    return Object.entries(services).flatMap(([head, routes], s) => {
      const [name, basePath, ...hosts] = head.split(" ") as [string, string, ...string[]];
      const service = { name, basePath, hosts, at: ["services", s] };
      return routes.map((text, r) => {
        const [methods, path] = text.split(" ") as [string, string];
        const at = ["services", s, "routes", r];
        return { service, route: { name: `r${r}`, path, methods: methods === "*" ? [] : methods.split(","), at } };
      });
    });
  }
  const places = (services: Record<string, string[]>) =>
    checkRoutes(declare(services)).map((error) => error.at.join("."));

  it("checkRoutes takes time in proportion to the routes of one path, whatever methods they have", async () => {
    const fresh = await counted(() => import("../support/schema.ts"));
    const routes = (size: number): string[] =>
      Array.from({ length: size }, (_, i) => (i % 100 < 50 ? "GET /x" : "* /x"));
    const declared = new Map([100, 800].map((size) => [size, declare({ "a /": routes(size) })]));
    const posts = new Map(
      [100, 800].map((size) => [
        size,
        declare({ "a /": [...routes(size / 2).fill("GET,PUT /x"), ...routes(size / 2).fill("POST /x")] }),
      ]),
    );
    expect(growth((size) => void fresh.checkRoutes(declared.get(size)!), 100)).toBeLessThan(LINEAR);
    expect(growth((size) => void fresh.checkRoutes(posts.get(size)!), 100)).toBeLessThan(LINEAR);
  });

  it("checkRoutes reports every broken pattern at its place, a base_path once", () => {
    expect(places({ "a a": ["GET /x", "GET x"], "b /{x}": ["GET /{x}", "GET /v{y}", "GET /ok"] })).toEqual([
      "services.0.base_path",
      "services.0.routes.1.path",
      "services.1.routes.0.path",
      "services.1.routes.1.path",
    ]);
  });

  it.each<[string, Record<string, string[]>, string[]]>([
    ["the same method and pattern", { "a /a": ["GET /x", "GET /x"] }, ["services.0.routes.1.path"]],
    ["names of placeholders do not matter", { "a /a": ["GET /{x}", "GET /<y>/"] }, ["services.0.routes.1.path"]],
    ["spelling does not matter", { "a /a": ["GET /caf%c3%a9:x", "GET /café%3Ax"] }, ["services.0.routes.1.path"]],
    ["all methods and one", { "a /a": ["* /x", "GET /x"] }, ["services.0.routes.1.path"]],
    ["one method and all", { "a /a": ["GET /x", "* /x"] }, ["services.0.routes.1.path"]],
    ["all and all", { "a /a": ["* /x", "* /x"] }, ["services.0.routes.1.path"]],
    ["one of several methods", { "a /a": ["GET,PUT /x", "POST,PUT /x", "DELETE /x"] }, ["services.0.routes.1.path"]],
    ["two services with one base_path", { "a /a": ["GET /x"], "b /a/": ["GET /x"] }, ["services.1.routes.0.path"]],
    [
      "two services that share a host",
      { "a /a h i": ["GET /x"], "b /a j I.": ["GET /x"] },
      ["services.1.routes.0.path"],
    ],
    [
      "two services that share a wildcard",
      { "a /a *.h": ["GET /x"], "b /a *.H": ["GET /x"] },
      ["services.1.routes.0.path"],
    ],
    ["other methods", { "a /a": ["GET /x", "PUT /x", "HEAD /x"] }, []],
    ["a method written twice", { "a /a": ["GET,GET /x"] }, []],
    ["a host written twice", { "a /a h H": ["GET /x"] }, []],
    ["{x} and {x*}", { "a /a": ["GET /{x}", "GET /{x*}", "GET /x"] }, []],
    ["other hosts", { "a /a h": ["GET /x"], "b /a i": ["GET /x"], "c /a *.h": ["GET /x"] }, []],
    ["hosts and none", { "a /a h": ["GET /x"], "b /a": ["GET /x"] }, []],
    ["base_paths of different length with one combined pattern", { "a /a": ["GET /b/x"], "b /a/b": ["GET /x"] }, []],
  ])("reports conflicts: %s", (_title, services, expected) => {
    expect(places(services)).toEqual(expected);
  });

  it("the pattern of a route is checked below a broken base_path, and causes no conflicts there", () => {
    const service = { name: "s", basePath: null, hosts: [], at: ["services", 0] };
    const route = (path: string, i: number) => ({
      service,
      route: { name: `r${i}`, path, methods: [], at: [...service.at, "routes", i] },
    });
    const errors = checkRoutes([route("/v{x}", 0), route("/y", 1), route("/y", 2)]);
    expect(errors.map(({ at }) => at.join("."))).toEqual(["services.0.routes.0.path"]);
  });

  it("a conflict names both routes and both services", () => {
    const [error] = checkRoutes(declare({ "users /a": ["GET /y", "GET,PUT /{x}"], "people /a": ["PUT /{y}"] }));
    expect(error?.message).toMatch(
      /route "r0" of service "people" and route "r1" of service "users" both match PUT of "\/\{y\}"/,
    );
  });

  it("a conflict with several earlier routes names the first route that accepts the first of the methods", () => {
    const earlier = (...routes: string[]) =>
      checkRoutes(declare({ "a /a": routes })).map(({ message }) => /and route "(r\d)"/.exec(message)![1]);
    expect(earlier("GET /x", "PUT /x", "PUT,GET /x")).toEqual(["r1"]);
    expect(earlier("GET /x", "PUT /x", "* /x")).toEqual(["r0"]);
    expect(earlier("GET /x", "* /x", "GET /x")).toEqual(["r0", "r1"]);
  });

  it("every route is reached by a request if checkRoutes finds no issue", () => {
    const r = random(11);
    for (let n = 0; n < 300; n++) {
      const services: Record<string, string[]> = {};
      for (let s = 0; s < 2; s++) {
        const path = () =>
          r
            .list(1, 2, () => r.pick(["a", "b", "{x}"]))
            .join("/")
            .replace("{x}/{x}", "{x}/{y}");
        const paths = r.list(1, 4, () => `${r.pick(["GET", "PUT", "*"])} /${path()}`);
        services[`s${s} /${r.pick(["a", "{b}"])}${r.chance(0.5) ? " h" : ""}`] = paths;
      }
      const declarations = declare(services);
      if (checkRoutes(declarations).length > 0) continue;
      const entries = declarations.map(({ service, route }, i) => ({
        basePath: service.basePath!,
        path: route.path,
        hosts: service.hosts,
        methods: route.methods,
        encodedSlashes: false,
        pathParameters: false,
        target: String(i),
      }));
      const table = compileTable(entries);
      for (const own of entries) {
        const request = (own.basePath + own.path).replace(/\{\w\}/g, "zz");
        const shapes = entries.filter(
          (e) => e.basePath + e.path === own.basePath + own.path && e.hosts.length === own.hosts.length,
        );
        const found = table.find(own.hosts[0] ?? "", own.methods[0] ?? "BREW", request, false);
        expect(found, JSON.stringify(services)).toMatchObject({ kind: "route" });
        if (found.kind === "route") expect(shapes.map((e) => e.target)).toContain(found.target);
      }
    }
  });
});
