/**
 * Routes of the Gateway API, imported and served. The cases are those of its conformance tests for HTTPRoute and
 * GRPCRoute, in other words; each says what a request gets. Where the standard says 500, it is 503 here.
 */
import { describe, expect, it } from "vitest";
import {
  exact,
  gateway,
  header,
  importAndServe,
  listener,
  object,
  prefix,
  route,
  rule,
  SECURE,
  service,
  SERVICES,
  to,
} from "./kubernetes_objects.ts";

type Case = readonly [request: string, expected: string, headers?: Readonly<Record<string, string>>];

/** Asks for each of them; `notes` has a part of each line of the list, in any order. */
async function check(objects: readonly object[], cases: readonly Case[], notes: readonly string[] = []) {
  const { send, notes: found, ...rest } = await importAndServe([...SERVICES, ...objects]);
  const answers = [];
  for (const [request, , headers] of cases)
    answers.push(`${JSON.stringify(headers ?? {})} ${request} → ${await send(request, headers)}`);
  expect(answers).toEqual(
    cases.map(([request, expected, headers]) => `${JSON.stringify(headers ?? {})} ${request} → ${expected}`),
  );
  expect(found.filter((note) => !notes.some((part) => note.includes(part)))).toEqual([]);
  expect(notes.filter((part) => !found.some((note) => note.includes(part)))).toEqual([]);
  return rest;
}

const on = (host: string, more: object = {}) => ({ Host: host, ...more });
const HTTPS = { "X-Forwarded-Proto": "https" };
const SLASH = "a path with a slash at its end is the one without it";

describe("paths of an HTTPRoute", () => {
  it("are exact, or end with a whole segment: the longest one gets a request", () =>
    check(
      [
        gateway(),
        route("paths", [
          rule("blue", exact("/list")),
          rule("green", exact("/list/new")),
          rule("red", prefix("/list/")),
          rule("green", prefix("/list/old/one")),
          rule("blue", prefix("/")),
        ]),
      ],
      [
        ["GET /list", "blue GET /list"],
        ["GET /list/new", "green GET /list/new"],
        ["GET /list/new/x", "red GET /list/new/x"],
        ["GET /list/old", "red GET /list/old"],
        ["GET /list/old/one/two?q=1", "green GET /list/old/one/two?q=1"],
        ["GET /lists", "blue GET /lists"],
        ["GET /", "blue GET /"],
      ],
      [SLASH],
    ));

  it("without a rule for all of them get 404", () =>
    check(
      [gateway(), route("one", [rule("blue", exact("/one")), rule("green", exact("/two"))])],
      [
        ["GET /one", "blue GET /one"],
        ["GET /two", "green GET /two"],
        ["GET /", "404"],
        ["GET /one/example", "404"],
        ["GET /Two", "404"],
      ],
      [SLASH],
    ));

  it("that are regular expressions become patterns, or are left out and closed", () =>
    check(
      [
        gateway(),
        route("expressions", [
          rule("blue", { path: { type: "RegularExpression", value: "/items/[0-9]+" } }),
          rule("green", { path: { type: "RegularExpression", value: "/files/.*" } }),
          rule("red", { path: { type: "RegularExpression", value: "/odd/(a|b)/c" } }),
        ]),
      ],
      [
        ["GET /items/7", "blue GET /items/7"],
        ["GET /items/7/x", "404"],
        ["GET /files/a/b", "green GET /files/a/b"],
        ["GET /odd/a/c", "503"],
        ["GET /other", "404"],
      ],
      [
        "a placeholder is any one segment here",
        "it has alternatives (|)",
        "the route is not carried over: its requests get 503",
      ],
    ));
});

describe("conditions of an HTTPRoute", () => {
  it("on headers go on to a further rule if they do not hold", () =>
    check(
      [
        gateway(),
        route("headers", [
          rule("blue", { headers: [header("version", "one")] }),
          rule("green", { headers: [header("version", "two")] }),
          rule("blue", { headers: [header("version", "two"), header("color", "orange")] }),
          rule("blue", { headers: [header("color", "blue")] }, { headers: [header("color", "green")] }),
          rule("green", { headers: [header("color", "red")] }, { headers: [header("color", "yellow")] }),
        ]),
      ],
      [
        ["GET /", "blue GET /", { version: "one" }],
        ["GET /", "green GET /", { Version: "two" }],
        ["GET /", "blue GET /", { version: "two", color: "orange" }],
        ["GET /", "blue GET /", { color: "green" }],
        ["GET /", "green GET /", { color: "red" }],
        ["GET /", "green GET /", { color: "yellow" }],
        // Rules with as many conditions: the first one.
        ["GET /", "green GET /", { version: "two", color: "blue" }],
        ["GET /", "blue GET /", { version: "one", color: "red" }],
        ["GET /", "404", { color: "purple" }],
        ["GET /", "404"],
      ],
    ));

  it("on the query decide as those on headers do, which go before them", () =>
    check(
      [
        gateway(),
        route("query", [
          rule("blue", { queryParams: [header("animal", "whale")] }),
          rule("green", { queryParams: [header("animal", "dolphin")] }),
          rule(
            "red",
            { queryParams: [header("animal", "dolphin"), header("color", "blue")] },
            { queryParams: [header("ANIMAL", "Whale")] },
          ),
          rule("green", { headers: [header("version", "one")], queryParams: [header("animal", "whale")] }),
          rule("blue", prefix("/deep", { queryParams: [header("animal", "shark")] })),
          rule("blue", prefix("/plain")),
          rule("red", { headers: [header("version", "four")] }),
        ]),
      ],
      [
        ["GET /?animal=whale", "blue GET /?animal=whale"],
        ["GET /?animal=dolphin", "green GET /?animal=dolphin"],
        ["GET /?animal=dolphin&color=blue", "red GET /?animal=dolphin&color=blue"],
        ["GET /?ANIMAL=Whale", "red GET /?ANIMAL=Whale"],
        ["GET /?animal=whale", "green GET /?animal=whale", { version: "one" }],
        ["GET /?animal=whale", "red GET /?animal=whale", { version: "four" }],
        ["GET /deep?animal=shark", "blue GET /deep?animal=shark"],
        // The longer path does not fit: the shorter one gets it.
        ["GET /deep?animal=whale", "blue GET /deep?animal=whale"],
        ["GET /plain?animal=dolphin", "blue GET /plain?animal=dolphin"],
        ["GET /?animal=dog", "404"],
        ["GET /deep", "404"],
      ],
    ));

  it("on the method go before those on headers", () =>
    check(
      [
        gateway(),
        route("methods", [
          rule("blue", { method: "POST" }),
          rule("green", { method: "GET" }),
          rule("blue", prefix("/one", { method: "GET" })),
          rule("green", { headers: [header("version", "one")], method: "PUT" }),
          rule("red", prefix("/two", { headers: [header("version", "two")], method: "POST" })),
          rule(
            "blue",
            prefix("/three", { method: "PATCH" }),
            prefix("/four", { headers: [header("version", "three")], method: "DELETE" }),
          ),
          rule("blue", prefix("/five")),
          rule("green", { method: "PATCH" }),
          rule("red", { headers: [header("version", "four")] }),
        ]),
      ],
      [
        ["POST /", "blue POST /"],
        ["GET /", "green GET /"],
        ["GET /one", "blue GET /one"],
        ["POST /one", "blue POST /one"],
        ["PUT /", "green PUT /", { version: "one" }],
        ["POST /two", "red POST /two", { version: "two" }],
        ["POST /two", "blue POST /two"],
        ["PATCH /three", "blue PATCH /three"],
        ["DELETE /four", "blue DELETE /four", { version: "three" }],
        ["PATCH /five", "blue PATCH /five"],
        ["PATCH /", "green PATCH /", { version: "four" }],
        ["PUT /", "404"],
        ["DELETE /four", "404"],
        ["PUT /three", "red PUT /three", { version: "four" }],
      ],
    ));

  it("and paths of several HTTPRoutes are asked together", () =>
    check(
      [
        gateway(),
        route("part-one", [rule("blue", prefix("/"), { headers: [header("version", "one")] })], {
          hostnames: ["a.test", "b.test"],
        }),
        route("part-two", [rule("green", prefix("/v2"), { headers: [header("version", "two")] })], {
          hostnames: ["a.test"],
        }),
      ],
      [
        ["GET /", "blue GET /", on("a.test")],
        ["GET /example", "blue GET /example", on("b.test")],
        ["GET /v2", "green GET /v2", on("a.test")],
        ["GET /v2/x", "blue GET /v2/x", on("b.test")],
        ["GET /", "green GET /", on("a.test", { version: "two" })],
        ["GET /v2x", "blue GET /v2x", on("a.test")],
        ["GET /", "404", on("c.test")],
      ],
    ));

  it("of equal weight go to the older HTTPRoute, then to the first by name", () =>
    check(
      [
        gateway(),
        route("b", [rule("green", prefix("/x"))], {}, { creationTimestamp: "2026-02-01T00:00:00Z" }),
        route("a", [rule("blue", prefix("/y"))], {}, { creationTimestamp: "2026-02-01T00:00:00Z" }),
        route("c", [rule("red", prefix("/x"), prefix("/z"))], {}, { creationTimestamp: "2026-01-01T00:00:00Z" }),
        route("d", [rule("red", prefix("/y"))], {}, { creationTimestamp: "2026-02-01T00:00:00Z" }),
      ],
      [
        ["GET /x", "red GET /x"],
        ["GET /y", "blue GET /y"],
      ],
      ["has no route here: earlier rules get all of its requests"],
    ));
});

describe("hosts of an HTTPRoute", () => {
  it("are those that it has in common with its listeners", () =>
    check(
      [
        gateway([
          listener("one", { hostname: "very.one.test" }),
          listener("two", { hostname: "*.two.test" }),
          listener("three", { hostname: "*.three.test" }),
        ]),
        route("exact", [rule("blue", prefix("/s1"))], { hostnames: ["other.test", "*.other.test", "very.one.test"] }),
        route("below", [rule("green", prefix("/s2"))], { hostnames: ["two.test", "a.two.test", "a.b.two.test"] }),
        route("wide", [rule("red", prefix("/s3"))], { hostnames: ["*.one.test"] }),
        route("equal", [rule("blue", prefix("/s4"))], { hostnames: ["*.three.test"] }),
        route("none", [rule("green", prefix("/s5"))], { hostnames: ["wrong.test", "two.test"] }),
      ],
      [
        ["GET /s1", "blue GET /s1", on("very.one.test")],
        ["GET /s1", "404", on("other.test")],
        ["GET /s2", "green GET /s2", on("a.two.test")],
        ["GET /s2", "green GET /s2", on("a.b.two.test:80")],
        ["GET /s2", "404", on("two.test")],
        ["GET /s2", "404", on("b.two.test")],
        ["GET /s3", "red GET /s3", on("very.one.test")],
        ["GET /s3", "404", on("x.one.test")],
        ["GET /s4", "blue GET /s4", on("deep.a.three.test")],
        ["GET /s5", "404", on("wrong.test")],
      ],
      ["no listener has one of its hostnames", "no imported listener has the route"],
    ));

  it("are those of the listener, if it names none: the most exact host goes first", () =>
    check(
      [
        gateway([
          listener("one", { hostname: "b.test" }),
          listener("two", { hostname: "a.b.test" }),
          listener("three", { hostname: "*.b.test" }),
        ]),
        route("r1", [rule("blue")], { parentRefs: [{ name: "front", sectionName: "one" }] }),
        route("r2", [rule("green")], { parentRefs: [{ name: "front", sectionName: "two" }] }),
        route("r3", [rule("red")], { parentRefs: [{ name: "front", sectionName: "three" }] }),
      ],
      [
        ["GET /", "blue GET /", on("b.test")],
        ["GET /", "green GET /", on("a.b.test")],
        ["GET /", "red GET /", on("c.b.test")],
        ["GET /", "404", on("c.test")],
      ],
      ["go to the routes of a wider listener"],
    ));

  it("of a wildcard get what an exact host leaves to them", () =>
    check(
      [
        gateway(),
        route("near", [rule("blue", prefix("/", { headers: [header("x", "1")] }))], { hostnames: ["a.b.test"] }),
        route("far", [rule("green", exact("/only"))], { hostnames: ["*.b.test"] }),
        route("all", [rule("red", prefix("/"))]),
      ],
      [
        ["GET /only", "blue GET /only", on("a.b.test", { x: "1" })],
        ["GET /only", "green GET /only", on("a.b.test")],
        ["GET /else", "red GET /else", on("a.b.test")],
        ["GET /else", "red GET /else", on("c.b.test")],
        ["GET /", "red GET /"],
      ],
      [SLASH],
    ));
});

describe("listeners", () => {
  it("of HTTPS and HTTP have their own routes: a redirect for one, a Service for the other", () =>
    check(
      [
        gateway([listener("web"), listener("safe", SECURE)]),
        route(
          "redirect",
          [{ filters: [{ type: "RequestRedirect", requestRedirect: { scheme: "https", statusCode: 301 } }] }],
          { parentRefs: [{ name: "front", sectionName: "web" }] },
        ),
        route("app", [rule("blue", prefix("/app"))], { parentRefs: [{ name: "front", sectionName: "safe" }] }),
        route("both", [rule("green", prefix("/both"))]),
      ],
      [
        ["GET /app/x?q", "301 https://any.test/app/x?q"],
        ["GET /app/x?q", "blue GET /app/x?q", HTTPS],
        ["GET /other", "301 https://any.test/other"],
        ["GET /other", "404", HTTPS],
        ["GET /both", "green GET /both"],
        ["GET /both", "green GET /both", HTTPS],
      ],
      ["certificates are not in the file", "a proxy that ends TLS has to be in global.trusted_proxies"],
    ));

  it("that do not allow a route's namespace or kind, or lack its section or port, get nothing of it", () =>
    check(
      [
        gateway([
          listener("web"),
          listener("every", { hostname: "all.test", allowedRoutes: { namespaces: { from: "All" } } }),
          listener("chosen", {
            hostname: "chosen.test",
            allowedRoutes: { namespaces: { from: "Selector", selector: {} } },
          }),
          listener("grpc", { hostname: "grpc.test", allowedRoutes: { kinds: [{ kind: "GRPCRoute" }] } }),
          listener("raw", { protocol: "TCP", port: 9000 }),
          listener("high", { port: 8080, hostname: "high.test" }),
        ]),
        service("far", {}, { namespace: "other" }),
        route("near", [rule("blue", exact("/a"))], { parentRefs: [{ name: "front", sectionName: "grpc" }] }),
        route("port", [rule("blue", exact("/b"))], { parentRefs: [{ name: "front", port: 81 }] }),
        route("section", [rule("blue", exact("/c"))], {
          parentRefs: [{ name: "front", sectionName: "web", port: 81 }],
        }),
        route(
          "other",
          [rule("far", exact("/d"))],
          { parentRefs: [{ name: "front", namespace: "shop" }] },
          { namespace: "other" },
        ),
        route("mesh", [rule("blue", exact("/e"))], { parentRefs: [{ kind: "Service", group: "", name: "blue" }] }),
      ],
      [
        ["GET /a", "404", on("grpc.test")],
        ["GET /b", "404"],
        ["GET /c", "404"],
        ["GET /d", "far GET /d", on("all.test")],
        ["GET /d", "404"],
        ["GET /d", "503", on("chosen.test")],
        ["GET /e", "404", on("chosen.test")],
        ["GET /d", "404", on("high.test")],
        ["GET /e", "404"],
      ],
      [
        SLASH,
        "no listener allows its kind and namespace",
        "no listener that is imported has this name and port",
        "no route is attached by a selector",
        "its requests get 503 (request_termination) until you replace it",
        "a listener for TCP is not carried over",
        "ports cannot be conditions",
        "is not in the file, or no Gateway",
        "no imported listener has the route",
        "go to the routes of a wider listener",
      ],
    ));
});

describe("backends", () => {
  const invalid = (refs: readonly object[], objects: readonly object[] = []) =>
    check([gateway(), ...objects, route("r", [{ backendRefs: refs }])], [["GET /", "503"]], ["it has no backend"]);

  it.each([
    ["a Service that is not there", [to("nowhere")]],
    ["a port that the Service does not have", [to("blue", { port: 81 })]],
    ["no port", [{ name: "blue" }]],
    ["another kind", [to("blue", { kind: "Bucket", group: "storage.test" })]],
    ["another namespace without a grant", [to("far", { namespace: "other" })]],
  ])("that are none are answered with 503, which the list says: %s", async (_what, refs) => {
    await invalid(refs, [service("far", {}, { namespace: "other" })]);
  });

  const grant = (from: object, target: object, namespace = "other") =>
    object(
      "ReferenceGrant",
      `grant-${JSON.stringify([from, target, namespace]).length}`,
      { from: [from], to: [target] },
      { namespace },
    );
  const FROM = { group: "gateway.networking.k8s.io", kind: "HTTPRoute", namespace: "shop" };

  it(
    "of another namespace are used with a ReferenceGrant there, for the kind, " + "the namespace and the name",
    async () => {
      const far = service("far", {}, { namespace: "other" });
      const cases: [object, string][] = [
        [grant(FROM, { group: "", kind: "Service" }), "far GET /"],
        [grant(FROM, { group: "", kind: "Service", name: "far" }), "far GET /"],
        [grant(FROM, { group: "", kind: "Service", name: "near" }), "503"],
        [grant(FROM, { group: "", kind: "Secret" }), "503"],
        [grant(FROM, { group: "not.test", kind: "Service" }), "503"],
        [grant({ ...FROM, group: "not.test" }, { group: "", kind: "Service" }), "503"],
        [grant({ ...FROM, kind: "Gateway" }, { group: "", kind: "Service" }), "503"],
        [grant({ ...FROM, namespace: "elsewhere" }, { group: "", kind: "Service" }), "503"],
        [grant(FROM, { group: "", kind: "Service" }, "shop"), "503"],
      ];
      for (const [allowed, expected] of cases) {
        const { send } = await importAndServe([
          far,
          gateway(),
          allowed,
          route("r", [{ backendRefs: [to("far", { namespace: "other" })] }]),
        ]);
        expect([allowed, await send("GET /")]).toEqual([allowed, expected]);
      }
    },
  );

  it("share requests by weight, 0 gets none, and the share of one that is none gets 503", async () => {
    const objects = (refs: object[]) => [...SERVICES, gateway(), route("r", [{ backendRefs: refs }])];
    const counted = async (refs: object[]) => {
      const { send } = await importAndServe(objects(refs));
      const counts: Record<string, number> = {};
      for (let i = 0; i < 20; i++) {
        const answer = (await send("GET /")).split(" ")[0]!;
        counts[answer] = (counts[answer] ?? 0) + 1;
      }
      return counts;
    };
    expect(await counted([to("blue", { weight: 70 }), to("green", { weight: 30 }), to("red", { weight: 0 })])).toEqual({
      blue: 14,
      green: 6,
    });
    expect(await counted([to("blue", { weight: 1_000_000 }), to("green", { weight: 1_000_000 })])).toEqual({
      blue: 10,
      green: 10,
    });
    expect(await counted([to("blue", { weight: 3 }), to("nowhere", { weight: 1 })])).toEqual({ blue: 15, 503: 5 });
    expect(await counted([to("blue", { weight: 0 })])).toEqual({ 503: 20 });
    expect(await counted([])).toEqual({ 503: 20 });
  });

  it(
    "are named as in the cluster, with the ports of pods for a headless Service, " + "and the host of an ExternalName",
    async () => {
      const upstream = async (spec: object, port: unknown = 80, options = {}) => {
        const { services } = await importAndServe(
          [service("s", spec as never), gateway(), route("r", [{ backendRefs: [to("s", { port })] }])],
          options,
        );
        const { protocol, upstreams } = services[0]!;
        return [protocol, upstreams];
      };
      const ports = (more: object = {}) => ({ ports: [{ name: "web", port: 80, targetPort: 8080, ...more }] });
      expect(await upstream(ports())).toEqual(["http", [{ host: "s.shop.svc", port: 80 }]]);
      expect(await upstream(ports(), 80, { domain: "cluster.local" })).toEqual([
        "http",
        [{ host: "s.shop.svc.cluster.local", port: 80 }],
      ]);
      expect(await upstream({ ...ports(), clusterIP: "None" })).toEqual(["http", [{ host: "s.shop.svc", port: 8080 }]]);
      expect(await upstream({ ...ports({ targetPort: "web" }), clusterIP: "None" })).toEqual([
        "http",
        [{ host: "s.shop.svc", port: 80 }],
      ]);
      expect(await upstream({ type: "ExternalName", externalName: "api.example.com." }, 443)).toEqual([
        "http",
        [{ host: "api.example.com", port: 443 }],
      ]);
      expect(await upstream(ports({ appProtocol: "kubernetes.io/h2c" }))).toEqual([
        "h2c",
        [{ host: "s.shop.svc", port: 80 }],
      ]);
      expect(await upstream(ports({ appProtocol: "https" }))).toEqual(["https", [{ host: "s.shop.svc", port: 80 }]]);
      expect(await upstream(ports({ appProtocol: "kubernetes.io/ws" }))).toEqual([
        "http",
        [{ host: "s.shop.svc", port: 80 }],
      ]);
    },
  );
});

describe("filters of an HTTPRoute", () => {
  const filter = (type: string, member: string, value: object) => ({ type, [member]: value });
  const filtered = (path: object, filters: object[], more: object = {}) => ({
    matches: [path],
    filters,
    backendRefs: [to("blue")],
    ...more,
  });

  it("redirect: to a host, a scheme, a port, a path, a prefix, with a status", () => {
    const redirect = (path: string, value: object) =>
      filtered(prefix(path), [filter("RequestRedirect", "requestRedirect", value)]);
    return check(
      [
        gateway(),
        route("redirects", [
          redirect("/host", { hostname: "new.test" }),
          redirect("/status", { hostname: "new.test", statusCode: 301 }),
          redirect("/scheme", { scheme: "https" }),
          redirect("/port", { port: 8443, scheme: "https" }),
          redirect("/usual", { port: 443, scheme: "https" }),
          redirect("/port80", { port: 80, hostname: "new.test" }),
          redirect("/high", { port: 8080, hostname: "new.test" }),
          redirect("/old", { path: { type: "ReplacePrefixMatch", replacePrefixMatch: "/young" } }),
          redirect("/full", { path: { type: "ReplaceFullPath", replaceFullPath: "/whole" } }),
          redirect("/other", { statusCode: 303 }),
          redirect("/kept", { statusCode: 307 }),
          redirect("/moved", { statusCode: 308 }),
        ]),
      ],
      [
        ["GET /host/x?q=1", "302 http://new.test/host/x?q=1"],
        ["GET /status", "301 http://new.test/status"],
        ["GET /scheme/a", "302 https://any.test/scheme/a"],
        ["GET /port", "302 https://any.test:8443/port"],
        ["GET /usual", "302 https://any.test/usual"],
        ["GET /port80", "302 http://new.test/port80"],
        ["GET /high", "302 http://new.test:8080/high"],
        ["GET /old/lemon", "302 /young/lemon"],
        ["GET /old", "302 /young"],
        ["GET /full/path/x", "302 /whole"],
        ["GET /other", "303 /other"],
        ["GET /kept", "307 /kept"],
        ["GET /moved", "308 /moved"],
      ],
    );
  });

  it("rewrite the path: a prefix, also of a rule that further conditions come before, or the whole", () => {
    const rewrite = (path: object, value: object) =>
      filtered(path, [filter("URLRewrite", "urlRewrite", { path: value })]);
    const replaced = (to: string) => ({ type: "ReplacePrefixMatch", replacePrefixMatch: to });
    return check(
      [
        gateway(),
        route("rewrites", [
          rewrite(prefix("/prefix/one"), replaced("/one")),
          rewrite(prefix("/strip"), replaced("/")),
          rewrite(prefix("/empty"), replaced("")),
          rewrite(prefix("/slash/"), replaced("/xyz/")),
          rewrite(prefix("/full/one"), { type: "ReplaceFullPath", replaceFullPath: "/one" }),
          rule("green", prefix("/strip/more", { headers: [header("x", "1")] })),
          rule("red", prefix("/strip", { headers: [header("x", "2")] })),
        ]),
      ],
      [
        ["GET /prefix/one/two?q", "blue GET /one/two?q"],
        ["GET /prefix/one", "blue GET /one"],
        ["GET /prefix/one/", "blue GET /one/"],
        ["GET /strip/three", "blue GET /three"],
        ["GET /strip", "blue GET /"],
        ["GET /empty/a", "blue GET /a"],
        ["GET /empty/", "blue GET /"],
        ["GET /slash/bar", "blue GET /xyz/bar"],
        ["GET /full/one/two", "blue GET /one"],
        ["GET /strip/more/x", "green GET /strip/more/x", { x: "1" }],
        ["GET /strip/more/x", "blue GET /more/x"],
        ["GET /strip/more", "red GET /strip/more", { x: "2" }],
      ],
    );
  });

  it("set, add and remove headers of requests, whose Host stays, unless it is replaced", async () => {
    const change = {
      set: [header("X-Set", "a${b}{c}"), header("x-set", "second")],
      add: [header("X-Add", "more")],
      remove: ["X-Remove"],
    };
    const { send, last } = await importAndServe([
      ...SERVICES,
      gateway(),
      route("r", [
        filtered(prefix("/a"), [filter("RequestHeaderModifier", "requestHeaderModifier", change)]),
        filtered(prefix("/b"), [filter("URLRewrite", "urlRewrite", { hostname: "one.test" })]),
      ]),
    ]);
    expect(await send("GET /a", { "X-Set": "old", "X-Add": "first", "X-Remove": "x" })).toBe("blue GET /a");
    const values = (name: string) =>
      last.headers.filter((_, i, all) => i % 2 === 1 && all[i - 1]!.toLowerCase() === name);
    expect(["x-set", "x-add", "x-remove", "host"].map(values)).toEqual([
      ["a${b}{c}"],
      ["first", "more"],
      [],
      ["any.test"],
    ]);
    await send("GET /b");
    expect(values("host")).toEqual([expect.stringMatching(/^127\.0\.0\.1:/)]);
  });

  it("become plugins for headers of replies, copies, pages of other origins", async () => {
    const { services } = await importAndServe([
      ...SERVICES,
      gateway(),
      route("r", [
        filtered(prefix("/"), [
          filter("ResponseHeaderModifier", "responseHeaderModifier", {
            set: [header("X-Frame-Options", "DENY")],
            remove: ["Server"],
          }),
          filter("RequestMirror", "requestMirror", { backendRef: to("green"), percent: 20 }),
          filter("RequestMirror", "requestMirror", {
            backendRef: to("red"),
            fraction: { numerator: 1, denominator: 8 },
          }),
          filter("CORS", "cors", {
            allowOrigins: ["https://a.test", "https://*.b.test"],
            allowMethods: ["GET", "PUT"],
            allowHeaders: ["x-one"],
            exposeHeaders: ["x-two"],
            allowCredentials: true,
            maxAge: 3600,
          }),
        ]),
      ]),
    ]);
    expect(services[0]!.plugins).toEqual([
      { name: "response_headers", config: { remove: ["Server"], set: { "X-Frame-Options": "DENY" } } },
      { name: "mirror", config: { url: "http://green.shop.svc:80", percent: 20 } },
      { name: "mirror", config: { url: "http://red.shop.svc:80", percent: 12.5 } },
      {
        name: "cors",
        config: {
          allow_origins: ["https://a.test", "https://*.b.test"],
          allow_methods: ["GET", "PUT"],
          allow_headers: ["x-one"],
          expose_headers: ["x-two"],
          allow_credentials: true,
          max_age: 3600,
        },
      },
    ]);
  });

  it.each([
    [
      "an extension",
      filter("ExtensionRef", "extensionRef", { group: "a.test", kind: "Auth", name: "x" }),
      "ExtensionRef",
    ],
    [
      "external authorization",
      filter("ExternalAuth", "externalAuth", { protocol: "HTTP", backendRef: to("green") }),
      "ExternalAuth",
    ],
    ["an unknown kind", { type: "Later", later: {} }, "Later"],
  ])(
    "that may decide who passes close their rule with 503, with its place in the list: %s",
    async (_what, filter, name) => {
      const { send, notes } = await importAndServe([
        ...SERVICES,
        gateway(),
        route("r", [
          filtered(prefix("/a"), [filter]),
          { ...rule("green", prefix("/b")), backendRefs: [to("green", { filters: [filter] })] },
          rule("red"),
        ]),
      ]);
      expect([await send("GET /a/x"), await send("GET /b"), await send("GET /")]).toEqual(["503", "503", "red GET /"]);
      expect(notes[0]).toContain(
        `["HTTPRoute shop/r"].spec.rules[0], ["HTTPRoute shop/r"].spec.rules[1]: "${name}" may decide who passes`,
      );
    },
  );

  it("of one backend are those of the rule; of one of several they are listed", async () => {
    const own = filter("URLRewrite", "urlRewrite", { path: { type: "ReplaceFullPath", replaceFullPath: "/whole" } });
    const headers = filter("RequestHeaderModifier", "requestHeaderModifier", { set: [header("a", "b")] });
    await check(
      [
        gateway(),
        route("r", [
          { matches: [prefix("/one")], backendRefs: [to("blue", { filters: [own] })] },
          { matches: [prefix("/two")], backendRefs: [to("green", { filters: [headers] }), to("red", { weight: 0 })] },
        ]),
      ],
      [
        ["GET /one/x", "blue GET /whole"],
        ["GET /two", "green GET /two"],
      ],
      ["filters of one of several backends are not carried over"],
    );
  });
});

describe("time limits and retries of an HTTPRoute", () => {
  it.each([
    [{ timeouts: { request: "1m30s" } }, { timeouts: { total_ms: 90_000, response_ms: 90_000, idle_ms: 90_000 } }],
    [
      { timeouts: { request: "10s", backendRequest: "500ms" } },
      { timeouts: { total_ms: 500, response_ms: 500, idle_ms: 500 } },
    ],
    [
      { timeouts: { request: "0s", backendRequest: "0h" } },
      { timeouts: { total_ms: 0, response_ms: 86_400_000, idle_ms: 86_400_000 } },
    ],
    [{ timeouts: { request: "soon" } }, {}],
    [
      { retry: { attempts: 3, codes: [500, 503] } },
      { retries: { attempts: 3, on: ["connect", "reset", "timeout", 500, 503] } },
    ],
    [{ retry: { codes: [] } }, { retries: { on: ["connect", "reset", "timeout"] } }],
  ])("are timeouts of its routes, and retries of their service: %j", async (fields, expected) => {
    const { services } = await importAndServe([...SERVICES, gateway(), route("r", [{ ...rule("blue"), ...fields }])]);
    const { routes, retries } = services[0]!;
    const [timeouts, ...others] = routes.map((each) => each.timeouts);
    for (const other of others) expect(other).toEqual(timeouts);
    expect(JSON.parse(JSON.stringify({ timeouts, retries }))).toEqual(expected);
  });
});

describe("a GRPCRoute", () => {
  const grpc = (rules: object[], spec: object = {}) =>
    object("GRPCRoute", "g", { parentRefs: [{ name: "front" }], rules, ...spec });
  const method = (service?: string, name?: string, more: object = {}) => ({
    method: { ...(service === undefined ? {} : { service }), ...(name === undefined ? {} : { method: name }) },
    ...more,
  });

  it("is a path for a service and a method, with conditions on headers", () =>
    check(
      [
        gateway(),
        grpc([
          rule("blue", method("shop.Cart", "Add")),
          rule("green", method("shop.Cart")),
          rule("red", method(undefined, "Ping")),
          rule("blue", method("shop.Cart", undefined, { headers: [header("version", "one")] })),
        ]),
      ],
      [
        ["POST /shop.Cart/Add", "blue POST /shop.Cart/Add"],
        ["POST /shop.Cart/List", "green POST /shop.Cart/List"],
        ["POST /shop.Cart/Ping", "green POST /shop.Cart/Ping"],
        ["POST /shop.Cart/List", "blue POST /shop.Cart/List", { version: "one" }],
        ["POST /other.Thing/Ping", "red POST /other.Thing/Ping"],
        ["POST /other.Thing/Pong", "404"],
      ],
    ));

  it("speaks HTTP/2 with its backends, and without matches gets every method", async () => {
    const { services } = await check(
      [gateway(), grpc([{ backendRefs: [to("blue")] }])],
      [["POST /a.B/C", "blue POST /a.B/C"]],
    );
    expect(services[0]).toMatchObject({ protocol: "h2c" });
  });
});
