/**
 * Objects of Kubernetes that are broken, twice there or too many: each has a line in the list, and nothing is opened.
 */
import { describe, expect, it } from "vitest";
import { fromKubernetes } from "./imported.ts";
import {
  exact,
  gateway,
  header,
  importAndServe,
  object,
  prefix,
  route,
  rule,
  service,
  SERVICES,
} from "./kubernetes_objects.ts";

/** An Ingress with one path. */
const entry = (rule: object, annotations: object = {}, path: unknown = "/a") =>
  object(
    "Ingress",
    JSON.stringify([rule, path]).replace(/\W+/g, "-"),
    {
      rules: [
        {
          ...rule,
          http: {
            paths: [{ path, pathType: "Prefix", backend: { service: { name: "red", port: { number: 80 } } } }],
          },
        },
      ],
    },
    {
      annotations: Object.fromEntries(
        Object.entries(annotations).map(([name, value]) => [`nginx.ingress.kubernetes.io/${name}`, value]),
      ),
    },
  );

const plugins = { annotations: { "konghq.com/plugins": "key-auth" } };
const policy = (kind: string, name: string, own = "SecurityPolicy") =>
  object(own, "p", { targetRefs: [{ group: "gateway.networking.k8s.io", kind, name }] });

const GOOD = [...SERVICES, gateway(), route("good", [rule("blue", prefix("/good"))])];

describe("objects that cannot be read", () => {
  it.each<[string, unknown, string]>([
    ["a text", "x", "is no object of Kubernetes"],
    ["null", null, "is no object of Kubernetes"],
    ["no name", { apiVersion: "v1", kind: "Service", metadata: {} }, "it needs kind, apiVersion and name"],
    ["no kind", { apiVersion: "v1", metadata: { name: "a" } }, "it needs kind, apiVersion and name"],
    [
      "a number as its name",
      { apiVersion: "v1", kind: "Service", metadata: { name: 7 } },
      "it needs kind, apiVersion and name",
    ],
    [
      "another kind",
      object("TCPRoute", "t", {}),
      "objects of the kind TCPRoute (gateway.networking.k8s.io/v1) are not read",
    ],
    [
      "a name of an object as its kind",
      { apiVersion: "v1", kind: "constructor", metadata: { name: "a" } },
      "are not read",
    ],
    ["another group", { apiVersion: "traefik.io/v1", kind: "Ingress", metadata: { name: "a" } }, "are not read"],
    ["the same object again", service("blue", { ports: [] }), "is there more than once: the first one counts"],
    [
      "a route without rules",
      object("HTTPRoute", "r", { parentRefs: [{ name: "front" }], rules: "x" }),
      "expected an array",
    ],
    [
      "a route without a Gateway",
      object("HTTPRoute", "r", { rules: [rule("blue")] }),
      "no imported listener has the route",
    ],
    [
      "a route without a spec",
      { apiVersion: "gateway.networking.k8s.io/v1", kind: "HTTPRoute", metadata: { name: "r" } },
      "",
    ],
    ["a number as its rule", route("r", [7 as never]), ""],
  ])("are listed, and the others served: %s", async (_what, broken, note) => {
    const { send, notes } = await importAndServe([...GOOD, broken as object]);
    expect(await send("GET /good")).toBe("blue GET /good");
    expect(notes.join("\n")).toContain(note);
  });

  it.each<[string, object, string]>([
    ["an unknown type of path", { path: { type: "Glob", value: "/a" } }, "paths of the type Glob are not known here"],
    ["a path without a slash", { path: { type: "Exact", value: "a" } }, 'a path begins with "/"'],
    ["CONNECT", prefix("/a", { method: "CONNECT" }), "CONNECT is not served"],
    ["Host as a header", prefix("/a", { headers: [header("Host", "x")] }), "cannot be conditions here"],
    [
      "a pattern that looks ahead",
      prefix("/a", { headers: [{ ...header("x", "(?=a)"), type: "RegularExpression" }] }),
      "cannot be conditions here",
    ],
    [
      "an unknown type of condition",
      prefix("/a", { headers: [{ ...header("x", "a"), type: "Like" }] }),
      "conditions of the type Like",
    ],
  ])(
    "leave a match out whose condition would be lost, and close what its path begins with: %s",
    async (_what, match, note) => {
      const { send, notes } = await importAndServe([...GOOD, route("r", [rule("red", match as never)])]);
      expect([await send("GET /a"), await send("GET /good")]).toEqual([
        /slash/.test(note) ? "503" : "503",
        "blue GET /good",
      ]);
      expect(notes.join("\n")).toContain(note);
    },
  );

  it("close less specific routes where what is left out had a guard", async () => {
    const guarded = {
      ...rule("red", { path: { type: "RegularExpression", value: "/(a|b)/admin" } }),
      filters: [{ type: "ExternalAuth" }],
    };
    const { send, notes } = await importAndServe([
      ...SERVICES,
      gateway(),
      route("r", [guarded, rule("blue", prefix("/"))]),
    ]);
    expect(await send("GET /a/admin")).toBe("503");
    expect(notes.join("\n")).toContain("which is left out, without");
  });

  it(
    "close less specific routes also where the guard is a filter of its backend, " + "and the expression begins with ^",
    async () => {
      const ref = { name: "red", port: 80, filters: [{ type: "ExtensionRef" }] };
      const left = { matches: [{ path: { type: "RegularExpression", value: "^/a/(x|y)" } }], backendRefs: [ref] };
      const { send } = await importAndServe([
        ...GOOD,
        route("r", [left, rule("blue", prefix("/a/x")), rule("blue", prefix("/"))]),
      ]);
      expect([await send("GET /a/x"), await send("GET /a/y"), await send("GET /b")]).toEqual([
        "503",
        "503",
        "blue GET /b",
      ]);
    },
  );

  it.each<[string, () => object[]]>([
    ["an annotation of the route", () => [route("r", [rule("red", prefix("/a"))], {}, plugins)]],
    ["an annotation of its Service", () => [service("kept", {}, plugins), route("r", [rule("kept", prefix("/a"))])]],
    ["a policy of the route", () => [route("r", [rule("red", prefix("/a"))]), policy("HTTPRoute", "r")]],
    ["a policy of the Gateway", () => [route("r", [rule("red", prefix("/a"))]), policy("Gateway", "front")]],
  ])("close what may have a guard elsewhere: %s", async (_what, made) => {
    const { send } = await importAndServe([...SERVICES, gateway(), ...made()]);
    expect(await send("GET /a")).toBe("503");
  });

  it("leave routes open to which no policy is attached, or one that guards nothing", async () => {
    const { send } = await importAndServe([
      ...GOOD,
      policy("HTTPRoute", "other"),
      policy("HTTPRoute", "good", "BackendTLSPolicy"),
      route("r", [rule("red", prefix("/a"))], {}, { annotations: { "kubectl.kubernetes.io/restartedAt": "x" } }),
    ]);
    expect([await send("GET /good"), await send("GET /a")]).toEqual(["blue GET /good", "red GET /a"]);
  });

  it("lose of the changes of headers only those that are refused: what clients must not send is removed", async () => {
    const changes = {
      remove: ["X-User", "Connection", "Host", "X-Group"],
      set: [header("Host", "x"), header("X-Forwarded-For", "x"), header("X-Set", "1")],
    };
    const filter = { type: "RequestHeaderModifier", requestHeaderModifier: changes };
    const { send, last, notes } = await importAndServe([
      ...GOOD,
      route("r", [{ ...rule("red", prefix("/a")), filters: [filter] }]),
    ]);
    expect(await send("GET /a", { "X-User": "root", "X-Group": "all", "X-Kept": "k" })).toBe("red GET /a");
    const names = last.headers.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase());
    expect(names.filter((name) => /^x-(user|group|kept|set)$/.test(name)).sort()).toEqual(["x-kept", "x-set"]);
    for (const name of ["Connection", "Host", "X-Forwarded-For"])
      expect(notes.join("\n")).toContain(`"${name}" of "request_headers" is not carried over`);
  });

  it("lose no condition whose name is one of every object", async () => {
    const { send } = await importAndServe([
      ...GOOD,
      route("r", [
        rule("red", prefix("/a", { queryParams: [header("__proto__", "1"), header("k", "1")] })),
        rule("green", prefix("/b", { headers: [header("__proto__", "1"), header("k", "1")] })),
      ]),
    ]);
    expect([await send("GET /a?k=1"), await send("GET /a?k=1&__proto__=1")]).toEqual([
      "404",
      "red GET /a?k=1&__proto__=1",
    ]);
    expect([await send("GET /b", { k: "1" }), await send("GET /b", { k: "1", ["__proto__"]: "1" })]).toEqual([
      "404",
      "green GET /b",
    ]);
  });

  it.each(["a)|(?:.*", "a\\", "(?:a", "a)(?:"])(
    "leave a match out whose expression is none by itself, though it would be one in a group: %s",
    async (value) => {
      const broken = prefix("/a", { headers: [{ ...header("k", value), type: "RegularExpression" }] });
      const { send, notes } = await importAndServe([...GOOD, route("r", [rule("red", broken)])]);
      expect([await send("GET /a"), await send("GET /a", { k: "b" })]).toEqual(["503", "503"]);
      expect(notes.join("\n")).toContain("cannot be conditions here");
    },
  );

  it("take braces in the name of a service of gRPC as text, and no name of every object as a protocol", async () => {
    const odd = service("odd", { ports: [{ port: 80, appProtocol: "constructor" }] });
    const mirrored = {
      ...rule("odd", prefix("/m")),
      filters: [{ type: "RequestMirror", requestMirror: { backendRef: { name: "odd", port: 80 } } }],
    };
    const grpc = { matches: [{ method: { service: "{any}", method: "M" } }], backendRefs: [{ name: "red", port: 80 }] };
    const { send, notes } = await importAndServe([
      ...GOOD,
      odd,
      route("r", [mirrored]),
      object("GRPCRoute", "g", { parentRefs: [{ name: "front" }], rules: [grpc] }),
    ]);
    expect([await send("POST /x/M"), await send("GET /m")]).toEqual(["404", "odd GET /m"]);
    expect(notes.join("\n")).toContain('"constructor" is not known: requests are sent by http');
  });

  it.each<[string, object]>([
    ["a path that is a text", route("r", [rule("red", { path: "x" })])],
    ["matches that are a text", route("r", [{ ...rule("red"), matches: "x" }])],
    ["a method that is a number", route("r", [rule("red", prefix("/a", { method: 7 }))])],
    ["headers that are a text", route("r", [rule("red", prefix("/a", { headers: "x" }))])],
    ["filters that are a text", route("r", [{ ...rule("red", prefix("/a")), filters: "x" }])],
    ["a host of an Ingress that is a number", entry({ host: 7 })],
    ["a path of an Ingress that is a number", entry({ host: "any.test" }, {}, 7)],
    ["an annotation that is a list", entry({ host: "any.test" }, { "whitelist-source-range": ["10.0.0.0/8"] })],
  ])("open nothing where a value has another type: %s", async (_what, broken) => {
    const options =
      (broken as { kind: string }).kind === "Ingress" ? { gateway: "default" } : { gateway: "shop/front" };
    const { send } = await importAndServe([...GOOD, entry({ host: "good.test" }), broken], options);
    expect(await send("GET /a")).toMatch(/^(404|503)$/);
    expect(await send(options.gateway === "default" ? "GET /a" : "GET /good", { Host: "good.test" })).toMatch(
      /blue|red/,
    );
  });

  it.each([
    ["hostnames of a route", "a.test"],
    ["hostnames that are numbers", [7]],
  ])("open nothing on all hosts where the hosts have another type: %s", async (_what, hostnames) => {
    const { send } = await importAndServe([...GOOD, route("r", [rule("red", prefix("/a"))], { hostnames })]);
    expect([await send("GET /a"), await send("GET /good")]).toEqual(["404", "blue GET /good"]);
  });

  it("do not become references to secrets of this machine", async () => {
    const filter = { type: "RequestHeaderModifier", requestHeaderModifier: { set: [header("X", "${env:HOME}")] } };
    const { services } = await fromKubernetes([
      ...SERVICES,
      gateway(),
      route("r", [{ ...rule("blue"), filters: [filter] }]),
    ]);
    expect(JSON.stringify(services)).not.toMatch(/[^$]\$\{env/);
  });
});

describe("several entrances", () => {
  const two = [
    ...SERVICES,
    gateway(undefined, "front"),
    gateway(undefined, "back"),
    route("a", [rule("blue")]),
    route("b", [rule("green")], { parentRefs: [{ name: "back" }] }),
    object("Ingress", "c", { rules: [], defaultBackend: { service: { name: "red", port: { number: 80 } } } }),
  ];

  it("are an error that names them, since each has an address of its own", async () => {
    await expect(fromKubernetes(two)).rejects.toThrow(
      "import one of them with --gateway: default, shop/back, shop/front",
    );
    await expect(fromKubernetes(two, { gateway: "shop/none" })).rejects.toThrow(
      '--gateway: "shop/none" has no routes here; default, shop/back',
    );
  });

  it.each([
    ["shop/front", "blue GET /"],
    ["shop/back", "green GET /"],
    ["default", "red GET /"],
  ])("are imported by their name: %s", async (gateway, expected) => {
    const { send } = await importAndServe(two, { gateway });
    expect(await send("GET /")).toBe(expected);
  });
});

describe("rules that need too many routes", () => {
  /** Each has a header of its own: any of them can hold together. */
  const rules = (count: number) =>
    Array.from({ length: count }, (_, i) => rule("blue", prefix("/a", { headers: [header(`x-${i}`, "1")] })));

  it("answer 503 from more than 64 on, which the list says; other paths are served", async () => {
    const few = await importAndServe([...GOOD, route("r", rules(16))]);
    expect([await few.send("GET /a", { "x-5": "1", "x-9": "1" }), await few.send("GET /a")]).toEqual([
      "blue GET /a",
      "404",
    ]);
    const { send, notes } = await importAndServe([...GOOD, route("r", rules(70))]);
    expect([await send("GET /a", { "x-5": "1" }), await send("GET /good")]).toEqual(["503", "blue GET /good"]);
    expect(notes[0]).toContain("more than 64 routes would be needed to tell the rules here apart");
  });

  it(
    "are not many where values of one header, or hosts, tell them apart: " + "each has routes of its own alone",
    async () => {
      const values = Array.from({ length: 500 }, (_, i) =>
        rule("blue", prefix("/a", { headers: [header("x", String(i))] })),
      );
      const hosts = Array.from({ length: 300 }, (_, i) =>
        route(`h${i}`, [rule("green", exact("/h"))], { hostnames: [`h${i}.test`] }),
      );
      const { services } = await fromKubernetes([...SERVICES, gateway(), route("r", values.slice(0, 60)), ...hosts]);
      expect(services.flatMap(({ routes }) => routes).length).toBe(60 * 2 + 300);
      const { notes } = await fromKubernetes([...GOOD, route("r", values)]);
      expect(notes[0]).toContain("more than 64 routes would be needed");
    },
  );

  it("are an error where hosts with conditions alone would repeat all paths of a cluster", async () => {
    const wide = Array.from({ length: 300 }, (_, i) => rule("green", prefix(`/p${i}`)));
    const narrow = Array.from({ length: 200 }, (_, i) =>
      route(`h${i}`, [rule("blue", prefix("/", { headers: [header("x", "1")] }))], { hostnames: [`h${i}.test`] }),
    );
    await expect(fromKubernetes([...SERVICES, gateway(), route("r", wide), ...narrow])).rejects.toThrow(
      "more than 100000 routes would be needed: import fewer objects at a time",
    );
  });
});
