import { describe, expect, it } from "vitest";
import type { Config } from "../../lib/config/model.ts";
import { upstreamPath } from "../../lib/route/upstream_path.ts";
import { compileTable } from "../../lib/route/table.ts";
import { checkRoutes, loadConfig } from "../support/schema.ts";

/** A service below `base` with one route, `prefix` and `template` as its and the route's `upstream_path`. */
function read(base: string, path: string, prefix: string | undefined, template: string | undefined) {
  const route = { path, upstream_path: template };
  const service = {
    name: "s",
    base_path: base,
    upstream_path: prefix,
    upstreams: [{ host: "127.0.0.1", port: 1 }],
    routes: [route],
  };
  return loadConfig({ value: { services: [service] } }, { kinds: [], environment: {} });
}

/** What the upstream is asked for. */
function pathFor(
  asked: string,
  { base = "/s", path, prefix, template }: { base?: string; path: string; prefix?: string; template?: string },
): string {
  const result = read(base, path, prefix, template);
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  const [service] = (result.config as Config).services;
  const entry = {
    basePath: base,
    hosts: [],
    path,
    methods: [],
    encodedSlashes: true,
    pathParameters: false,
    target: null,
  };
  const found = compileTable([{ ...entry, upstreamPath: upstreamPath(service!, service!.routes[0]!) }]).find(
    "",
    "GET",
    asked,
    asked.includes("%2F"),
  );
  if (found.kind !== "route") throw new Error(found.kind);
  return found.upstreamPath;
}

describe("upstream_path of a service", () => {
  it.each([
    ["/s/items/7", "/api/items/7"],
    ["/s/items/7/", "/api/items/7/"],
    ["/s", "/api"],
    ["/s/", "/api/"],
    ["/s/a%2Fb/c;v=1", "/api/a%2Fb/c;v=1"],
  ])("is put before the path below base_path: %s is %s", (asked, expected) => {
    for (const prefix of ["/api", "/api/"])
      expect(pathFor(asked, { path: "/{rest*}".slice(0, asked.length > 3 ? undefined : 1), prefix })).toBe(expected);
  });

  it("/ changes nothing", () => {
    expect(pathFor("/s", { path: "/", prefix: "/" })).toBe("/");
    expect(pathFor("/s/a", { path: "/a", prefix: "/" })).toBe("/a");
  });
});

describe("upstream_path of a route", () => {
  it.each([
    ["parameters, whatever their order", "/s/7/x", { path: "/{id}/{kind}", template: "/v2/{kind}/{id}" }, "/v2/x/7"],
    [
      "parameters of base_path",
      "/t/42/orders",
      { base: "/t/{tenant}", path: "/orders", template: "/orders-of/{tenant}" },
      "/orders-of/42",
    ],
    ["no parameter", "/s/7", { path: "/{id}", template: "/one" }, "/one"],
    [
      "the prefix of the service before it",
      "/s/7",
      { path: "/{id}", prefix: "/api/", template: "/users/{id}/" },
      "/api/users/7/",
    ],
    ["parameters as they were matched", "/s/a%2Fb;v=1%20x", { path: "/{id}", template: "/u/{id}" }, "/u/a%2Fb;v=1%20x"],
    ["the rest", "/s/files/a/b", { path: "/files/{rest*}", template: "/static/{rest}" }, "/static/a/b"],
    [
      "the / at the end of the rest",
      "/s/files/a/b/",
      { path: "/files/{rest*}", template: "/static/{rest}" },
      "/static/a/b/",
    ],
    [
      "percent-encoded what looks like a parameter of other gateways",
      "/s/a",
      { path: "/a", template: "/%3Aid/%2A/a:b" },
      "/%3Aid/%2A/a:b",
    ],
    ["its own / at the end", "/s/a", { path: "/a", template: "/b/" }, "/b/"],
    ["the root", "/s/a", { path: "/a", template: "/" }, "/"],
  ])("has %s: %s", (_what, asked, given, expected) => expect(pathFor(asked, given)).toBe(expected));

  it("with a parameter called __proto__ is like any other", () => {
    expect(pathFor("/s/7", { path: "/{__proto__}", template: "/x/{__proto__}" })).toBe("/x/7");
  });
});

describe("an upstream_path is refused, with its place and what to write, where it", () => {
  const ofService = "services[0].upstream_path";
  const ofRoute = "services[0].routes[0].upstream_path";
  it.each([
    [
      "is a relative path",
      "api",
      undefined,
      ofService,
      'expected a path that starts with "/", found "api": write "/api"',
    ],
    [
      "is of a service and has a parameter",
      "/api/{id}",
      undefined,
      ofService,
      '"{id}" cannot stand in the upstream_path of a service: its routes can have an upstream_path of their own',
    ],
    ["has an empty segment", "/api//v1", undefined, ofService, '"" is an empty segment: write "/" once'],
    [
      "has a dot segment",
      "/api/../x",
      undefined,
      ofService,
      '".." cannot be forwarded: the path has a “.” or “..” segment',
    ],
    [
      "has an encoded dot segment",
      undefined,
      "/%2e%2E/x",
      ofRoute,
      '"%2e%2E" cannot be forwarded: the path has a “.” or “..” segment',
    ],
    [
      "has an encoded /",
      undefined,
      "/a%2Fb",
      ofRoute,
      '"a%2Fb" has an encoded "/", which some servers read as "/": write "/"',
    ],
    [
      "has a query",
      undefined,
      "/a?b=1",
      ofRoute,
      '"a?b=1" has a "?" or a "#": the query of the client is forwarded as it is, and none can be added',
    ],
    ["has a space", undefined, "/a b", ofRoute, '"a b" is not in the form in which paths are forwarded: write "a%20b"'],
    [
      "has a character outside ASCII",
      undefined,
      "/ü",
      ofRoute,
      '"ü" cannot be forwarded: the path has a byte outside ASCII that is not percent-encoded',
    ],
    [
      "has a line break",
      undefined,
      "/a\r\nX: y",
      ofRoute,
      '"a\\r\\nX: y" cannot be forwarded: the path has a control character, raw or encoded',
    ],
    [
      "names a parameter that the pattern has not",
      undefined,
      "/x/{user}",
      ofRoute,
      '"{user}" is no parameter of base_path and path: they have "{id}", "{rest}"',
    ],
    [
      "has a parameter twice",
      undefined,
      "/{id}/{id}",
      ofRoute,
      '"{id}" stands there twice: a parameter can be inserted once',
    ],
    [
      "has the rest before its end",
      undefined,
      "/{rest}/x",
      ofRoute,
      '"{rest}" stands for the rest of the path, a "/" at its end included: nothing can stand behind it',
    ],
    [
      "has a / behind the rest",
      undefined,
      "/x/{rest}/",
      ofRoute,
      '"{rest}" stands for the rest of the path, a "/" at its end included: nothing can stand behind it',
    ],
    ["has nothing but an empty segment", "//", undefined, ofService, '"" is an empty segment: write "/" once'],
    [
      "is of a route and has nothing but an empty segment",
      undefined,
      "//",
      ofRoute,
      '"" is an empty segment: write "/" once',
    ],
    ["has a star", undefined, "/x/{rest*}", ofRoute, '"{rest*}" needs no "*" here: write "{rest}"'],
    [
      "has a parameter of other gateways",
      undefined,
      "/x/:id",
      ofRoute,
      '":id" is no parameter: a parameter is written like "{id}" (%3A, %2A and %24 are the characters themselves)',
    ],
    [
      "has a group of other gateways",
      undefined,
      "/x/$1",
      ofRoute,
      '"$1" is no parameter: a parameter is written like "{id}" (%3A, %2A and %24 are the characters themselves)',
    ],
    [
      "has a star of other gateways",
      "/x/*",
      undefined,
      ofService,
      '"*" is no parameter: a parameter is written like "{id}" (%3A, %2A and %24 are the characters themselves)',
    ],
    [
      "mixes text and a parameter",
      undefined,
      "/u-{id}",
      ofRoute,
      '"u-{id}" mixes text and parameters: a parameter is a whole segment, ' +
        'like "{id}" (%7B and %7D are the braces themselves)',
    ],
  ])("%s", (_what, prefix, template, at, message) => {
    const result = read("/s", "/{id}/{rest*}", prefix, template);
    if (result.ok) throw new Error("it was accepted");
    expect(
      result.issues.map((issue) => [
        issue.at
          .map((part) => (typeof part === "number" ? `[${part}]` : `.${part}`))
          .join("")
          .slice(1),
        issue.message,
      ]),
    ).toEqual([[at, message]]);
  });

  it("names a parameter, and the pattern is wrong: only the pattern is reported", () => {
    const routes = [{ path: "/{a", upstream_path: "/{a}" }];
    const result = loadConfig(
      { value: { services: [{ name: "s", base_path: "/s", upstreams: [{ host: "127.0.0.1", port: 1 }], routes }] } },
      { kinds: [], environment: {}, checkRoutes },
    );
    expect(result.ok || result.issues.map(({ at }) => at.at(-1))).toEqual(["path"]);
  });
});
