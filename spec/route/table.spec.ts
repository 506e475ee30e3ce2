import { describe, expect, it } from "vitest";
import { candidatesOf } from "../../lib/route/candidates.ts";
import { readTarget } from "../../lib/route/path.ts";
import { compileTable, type Found, type TableEntry } from "../../lib/route/table.ts";
import { random, type Random } from "../support/random.ts";

type Entry = TableEntry<string>;
const entry = (basePath: string, path: string, more: Partial<Entry> = {}): Entry => ({
  basePath,
  path,
  hosts: [],
  methods: [],
  encodedSlashes: false,
  pathParameters: false,
  target: `${basePath} ${path}`,
  ...more,
});

/** Asks as the gateway does: the raw target is read first. */
function find(entries: readonly Entry[], target: string, method = "GET", authority = ""): Found<string> | "refused" {
  const read = readTarget(target);
  return "code" in read ? "refused" : compileTable(entries).find(authority, method, read.path, read.encodedSlash);
}

const route = (target: string, upstreamPath: string, params: Record<string, string> = {}) => ({
  kind: "route",
  target,
  upstreamPath,
  params,
});
const none = { kind: "none" };
const refused = (...routes: string[]) => ({
  kind: "refused",
  refusal: expect.objectContaining({ code: "path_ambiguous" }),
  routes,
});
const wrongMethod = (allow: string, ...routes: string[]) => ({ kind: "method", allow, routes });

describe("the upstream path", () => {
  it.each<[base: string, path: string, request: string, upstreamPath: string, params?: Record<string, string>]>([
    ["/a", "/b/c", "/a/b/c", "/b/c"],
    ["/a", "/b", "/a/b/", "/b/"],
    ["/a/", "/b/", "/a/b", "/b"],
    ["/a", "/", "/a", "/"],
    ["/a", "/", "/a/", "/"],
    ["/", "/", "/", "/"],
    ["/", "/b", "/b", "/b"],
    ["/", "/b", "//b//", "/b/"],
    ["/a", "/u/{id}", "/a/u/7", "/u/7", { id: "7" }],
    ["/a", "/u/{id}", "/a/u/7/", "/u/7/", { id: "7" }],
    ["/t/{tenant}", "/u/{id}/x", "/t/acme/u/7/x", "/u/7/x", { tenant: "acme", id: "7" }],
    ["/t/{tenant}", "/", "/t/acme/", "/", { tenant: "acme" }],
    ["/t/{tenant}", "/", "/t/acme", "/", { tenant: "acme" }],
    ["/f", "/{path*}", "/f/a/b.txt", "/a/b.txt", { path: "a/b.txt" }],
    ["/f", "/{path*}", "/f/a/b/", "/a/b/", { path: "a/b" }],
    ["/", "/{path*}", "/a", "/a", { path: "a" }],
    ["/a", "/{x}", "/a/caf%c3%a9%20%7e", "/caf%C3%A9%20~", { x: "caf%C3%A9%20~" }],
    ["/a", "/{__proto__}/{constructor}", "/a/1/2", "/1/2", JSON.parse(`{"__proto__": "1", "constructor": "2"}`)],
    ["/a:b", "/{x}", "/a%3ab/1%3a", "/1%3A", { x: "1%3A" }],
    ["/a%3Ab", "/c+d", "/a:b/c%2bd", "/c%2Bd"],
  ])("base_path %s and path %s: %s reaches the upstream as %s", (base, path, request, upstreamPath, params = {}) => {
    const found = find([entry(base, path)], request);
    expect(found).toMatchObject({ kind: "route", target: `${base} ${path}`, upstreamPath });
    if (found === "refused" || found.kind !== "route") throw new Error("no route");
    expect(Object.entries(found.params).sort()).toEqual(Object.entries(params).sort());
    expect(JSON.stringify(found.params)).toBe(JSON.stringify(params));
  });

  it("params have no inherited names, and the empty params are frozen", () => {
    const found = find([entry("/a", "/{x}")], "/a/1");
    if (found === "refused" || found.kind !== "route") throw new Error("no route");
    expect("toString" in found.params || "__proto__" in found.params).toBe(false);
    const empty = find([entry("/a", "/b")], "/a/b");
    if (empty === "refused" || empty.kind !== "route") throw new Error("no route");
    expect(Object.isFrozen(empty.params)).toBe(true);
  });
});

describe("the result of find", () => {
  const list = [
    entry("/a", "/u/me", { methods: ["GET"] }),
    entry("/a", "/u/{id}", { methods: ["DELETE"] }),
    entry("/", "/{x*}", { methods: ["PUT"] }),
  ];

  it('find returns "none" if no pattern matches', () => {
    expect(find([], "/")).toEqual(none);
    expect(find(list, "/")).toEqual(none);
    expect(find([entry("/a", "/b")], "/a")).toEqual(none);
    expect(find([entry("/a", "/b")], "/a/b/c")).toEqual(none);
    expect(find([entry("/a", "/b")], "/A/b")).toEqual(none);
  });

  it(
    "the most specific pattern alone decides, whatever methods the other patterns accept, " +
      "and Allow lists its methods",
    () => {
      expect(find(list, "/a/u/me", "HEAD")).toEqual(route("/a /u/me", "/u/me"));
      for (const method of ["DELETE", "PUT", "POST"])
        expect(find(list, "/a/u/me", method)).toEqual(wrongMethod("GET, HEAD", "/a /u/me"));
      expect(find(list, "/a/u/7", "DELETE")).toEqual(route("/a /u/{id}", "/u/7", { id: "7" }));
      expect(find(list, "/a/u/7", "PUT")).toEqual(wrongMethod("DELETE", "/a /u/{id}"));
      expect(find(list, "/a/v", "PUT")).toEqual(route("/ /{x*}", "/a/v", { x: "a/v" }));
    },
  );

  it("each method has a separate route if routes share a pattern, in one service or in several", () => {
    const shared = [
      entry("/a", "/u/{id}", { methods: ["GET"] }),
      entry("/a", "/u/{x}", { methods: ["PUT"], target: "put" }),
      entry("/", "/a/u/{y}", { methods: ["POST", "PUT"], target: "outer" }),
    ];
    expect(find(shared, "/a/u/7", "GET")).toMatchObject({ target: "/a /u/{id}" });
    expect(find(shared, "/a/u/7", "PUT")).toMatchObject({ target: "put" });
    expect(find(shared, "/a/u/7", "POST")).toMatchObject({ target: "outer" });
    expect(find(shared, "/a/u/7", "DELETE")).toEqual(wrongMethod("GET, HEAD, POST, PUT", "/a /u/{id}", "put", "outer"));
  });

  it("the more specific pattern of two services wins, and at a tie the longer base_path", () => {
    const two = [entry("/a", "/{x}/c"), entry("/a/b", "/{y}"), entry("/", "/a/b/{z}")];
    expect(find(two, "/a/b/c")).toEqual(route("/a/b /{y}", "/c", { y: "c" }));
    const tie = [entry("/a", "/b/c"), entry("/a/b", "/c"), entry("/", "/a/b/c")];
    expect(find(tie, "/a/b/c")).toEqual(route("/a/b /c", "/c"));
    expect(find([...tie].reverse(), "/a/b/c")).toEqual(route("/a/b /c", "/c"));
  });

  it("%2F is accepted only in placeholders of services with encoded_slashes", () => {
    const allowed = entry("/a", "/{x}", { encodedSlashes: true });
    expect(find([allowed], "/a/b%2fc")).toEqual(route("/a /{x}", "/b%2Fc", { x: "b%2Fc" }));
    expect(find([entry("/a", "/{x}")], "/a/b%2Fc")).toEqual(refused("/a /{x}"));
    expect(find([entry("/a", "/b/c", { encodedSlashes: true })], "/a/b%2Fc")).toEqual(refused());
    expect(find([allowed], "/a%2Fb")).toEqual(refused());
    expect(find([allowed], "/a/..%2Fc")).toBe("refused");
  });

  it(
    "a path with %2F is refused if the most specific pattern does not accept it, " + "whatever the other patterns do",
    () => {
      const open = entry("/", "/{x*}", { encodedSlashes: true });
      const files = [
        entry("/files", "/{x}", { methods: ["GET"] }),
        entry("/", "/files/{y}", { methods: ["PUT"], encodedSlashes: true, target: "put" }),
        open,
      ];
      expect(find(files, "/files/a%2Fb")).toEqual(refused("/files /{x}", "put"));
      expect(find(files, "/files/a%2Fb", "PUT")).toMatchObject({ kind: "route", target: "put" });
      expect(find(files, "/files/a%2Fb", "DELETE")).toEqual(refused("/files /{x}", "put"));
      expect(find(files, "/files/a%2Fb/c")).toMatchObject({ kind: "route", target: "/ /{x*}" });
      expect(find([...files, entry("/", "/{x}", { hosts: ["h"], target: "host" })], "/a%2Fb", "GET", "h")).toEqual(
        refused("host"),
      );
    },
  );

  describe("path parameters", () => {
    const admin = entry("/admin", "/users", { methods: ["GET"] });
    const one = entry("/items", "/{id}");
    const open = entry("/", "/{x*}");
    const list = [admin, one, open, entry("/", "/")];

    it.each([
      "/admin;x/users",
      "/admin/users;a=1;b",
      "/admin%3Bx/users",
      "/admin;/users/",
      "/;x/admin/users",
      "/admin/;a/;b/users/;c",
      "//admin;x//users",
    ])("the path %s is refused: without its parameters it matches a more specific route", (path) => {
      for (const method of ["GET", "POST"]) expect(find(list, path, method)).toEqual(refused("/admin /users"));
    });

    it.each<[string, string]>([
      ["/items/7;v=2", "/items /{id}"],
      ["/other;x/users", "/ /{x*}"],
      ["/admin;x/others", "/ /{x*}"],
      ["/a/b;x/", "/ /{x*}"],
    ])("the path %s matches: with and without path parameters, the same route accepts it", (path, target) => {
      expect(find(list, path)).toMatchObject({ kind: "route", target });
    });

    it(
      "path parameters are accepted if every route of the other pattern allows them, " +
        "and a path that matches no route is not refused",
      () => {
        const allowed = { ...admin, pathParameters: true };
        expect(find([allowed, open], "/admin;x/users")).toMatchObject({
          target: "/ /{x*}",
          upstreamPath: "/admin;x/users",
        });
        expect(
          find([allowed, entry("/", "/admin/users", { methods: ["PUT"], target: "put" }), open], "/admin;x/users"),
        ).toEqual(refused("/admin /users", "put"));
        expect(find([admin, { ...open, pathParameters: true }], "/admin;x/users")).toEqual(refused("/admin /users"));
        expect(find([admin], "/admin;x/users")).toEqual(none);
      },
    );

    it('a ";" that a pattern spells out is not a path parameter', () => {
      const spelt = [entry("/", "/cars;red/{x}"), entry("/", "/cars/{x}"), entry("/", "/cars;red/a"), open];
      expect(find(spelt, "/cars;red/b")).toMatchObject({ target: "/ /cars;red/{x}" });
      expect(find(spelt, "/cars;red/b;c")).toMatchObject({ target: "/ /cars;red/{x}" });
      expect(find(spelt, "/cars;red/a;c")).toEqual(refused("/ /cars;red/a"));
      expect(find(spelt, "/cars;blue/b")).toEqual(refused("/ /cars/{x}"));
    });

    it("path parameters are cut off for every host", () => {
      const hosts = [
        entry("/", "/{x*}", { hosts: ["h"], target: "all" }),
        entry("/", "/a", { hosts: ["h"], target: "a" }),
        entry("/", "/a/b", { target: "open" }),
      ];
      expect(find(hosts, "/a;x", "GET", "h")).toEqual(refused("a"));
      expect(find(hosts, "/a;x/b", "GET", "h")).toMatchObject({ target: "all" });
    });
  });

  it("compileTable throws for a broken pattern", () => {
    expect(() => compileTable([entry("/a", "/v{x}")])).toThrow(/path "\/v\{x\}"/);
    expect(() => compileTable([entry("/{x}", "/{x}")])).toThrow(/occurs twice/);
  });
});

describe("the routes of one pattern", () => {
  const named = (text: string, more: Partial<Entry> = {}): Entry => {
    const [methods, path] = text.split(" ") as [string, string];
    return entry("/", path, { methods: methods === "*" ? [] : methods.split(","), target: text, ...more });
  };
  /** The winner, or the methods that its pattern takes instead; null where no pattern matches. */
  const winner = (entries: readonly Entry[], request: string) => {
    const [method, path] = request.split(" ") as [string, string];
    const found = find(entries, path, method);
    if (found === "refused" || found.kind === "refused") throw new Error("refused");
    return found.kind === "route" ? found.target : found.kind === "method" ? found.allow.split(", ") : null;
  };
  const SETS: [string[], [request: string, winner: string | string[] | null][]][] = [
    // The path decides: what the most specific pattern does not take, no other one gets.
    [
      ["GET /users/me", "DELETE /users/{id}", "PUT /{x*}"],
      [
        ["GET /users/me", "GET /users/me"],
        ["HEAD /users/me", "GET /users/me"],
        ["DELETE /users/me", ["GET", "HEAD"]],
        ["PUT /users/me", ["GET", "HEAD"]],
        ["DELETE /users/you", "DELETE /users/{id}"],
        ["POST /users/you", ["DELETE"]],
        ["PUT /users/you/x", "PUT /{x*}"],
        ["POST /x", ["PUT"]],
        ["GET /", null],
      ],
    ],
    // Backtracking is over paths: /a/b/c fails under /a/b, so /a/{x}/c decides, whatever its methods.
    [
      ["GET /a/b/d", "PUT /a/{x}/c", "GET /{x*}"],
      [
        ["PUT /a/b/c", "PUT /a/{x}/c"],
        ["GET /a/b/c", ["PUT"]],
        ["GET /a/b/e", "GET /{x*}"],
        ["PUT /a/b/d", ["GET", "HEAD"]],
      ],
    ],
    // GET implies HEAD unless HEAD is declared on the same pattern.
    [
      ["GET /a", "HEAD /a", "GET /b", "HEAD /{x}"],
      [
        ["HEAD /a", "HEAD /a"],
        ["HEAD /b", "GET /b"],
        ["HEAD /c", "HEAD /{x}"],
        ["PUT /c", ["HEAD"]],
      ],
    ],
    [
      ["GET /a", "* /{x}"],
      [
        ["HEAD /a", "GET /a"],
        ["PUT /a", ["GET", "HEAD"]],
        ["BREW /b", "* /{x}"],
      ],
    ],
    [
      ["GET /a", "PUT /a", "* /{x}"],
      [
        ["GET /a", "GET /a"],
        ["PUT /a", "PUT /a"],
        ["POST /a", ["GET", "HEAD", "PUT"]],
      ],
    ],
  ];
  for (const [patterns, requests] of SETS) {
    it.each(requests)(`routes of ${patterns.join(" | ")}: %s -> %j`, (request, expected) => {
      const entries = patterns.map((pattern) => named(pattern));
      expect(winner(entries, request)).toEqual(expected);
      expect(winner(entries.toReversed(), request), "declared in reverse").toEqual(expected);
    });
  }

  it("the route with the longer base_path wins for each method when routes of two services share a pattern", () => {
    const short = named("GET,PUT /b", { basePath: "/a", target: "short" });
    const long = named("GET /", { basePath: "/a/b", target: "long" });
    for (const list of [
      [short, long],
      [long, short],
    ]) {
      expect(winner(list, "GET /a/b")).toBe("long");
      expect(winner(list, "HEAD /a/b")).toBe("long");
      expect(winner(list, "PUT /a/b")).toBe("short");
      expect(winner(list, "DELETE /a/b")).toEqual(["GET", "HEAD", "PUT"]);
    }
    const all = named("* /a/b", { target: "all" });
    expect(winner([all, short, long], "DELETE /a/b")).toBe("all");
    expect(winner([all, short, long], "PUT /a/b")).toBe("short");
    const whole = named("* /", { basePath: "/a/b", target: "whole" });
    expect(
      winner([named("HEAD /b", { basePath: "/a" }), whole], "HEAD /a/b"),
      "a longer base_path that takes all methods",
    ).toBe("whole");
  });
});

describe("candidates", () => {
  const list = [
    entry("/a", "/{x}", { methods: ["GET"] }),
    entry("/", "/{x*}"),
    entry("/", "/a/b", { hosts: ["h.example.com", "*.example.com"], target: "host" }),
    entry("/", "/a/b", { hosts: ["*.com"], target: "wide" }),
    entry("/", "/a/b/c", { target: "deeper" }),
  ];
  const asked = (authority: string | null) =>
    candidatesOf(compileTable(list), authority, "/a/b").map(({ target, host }) => [target, host]);

  it(
    "candidates lists every route whose pattern matches once, " + "in the order in which hosts and patterns are tried",
    () => {
      const open = [
        ["/a /{x}", ""],
        ["/ /{x*}", ""],
      ];
      expect(asked("H.example.com:80")).toEqual([["host", "h.example.com"], ["wide", ".com"], ...open]);
      expect(asked("x.example.com")).toEqual([["host", ".example.com"], ["wide", ".com"], ...open]);
      expect(asked("other")).toEqual(open);
      expect(new Set(asked(null).map(([target]) => target))).toEqual(new Set(["host", "wide", "/a /{x}", "/ /{x*}"]));
    },
  );

  it("candidates lists the most specific pattern first, in any order of declaration", () => {
    const patterns = ["/{x*}", "/{x}/b", "/{x}/{y}", "/a/{x*}", "/a/{x}", "/a/b", "/a", "/a/b/c"];
    const matching = (declared: readonly string[], path: string) =>
      candidatesOf(compileTable(declared.map((each) => entry("/", each, { target: each }))), "", path).map(
        ({ target }) => target,
      );
    for (const declared of [patterns, patterns.toReversed()]) {
      expect(matching(declared, "/a/b/")).toEqual(["/a/b", "/a/{x}", "/a/{x*}", "/{x}/b", "/{x}/{y}", "/{x*}"]);
    }
    expect(matching(["/a"], "/b")).toEqual([]);
    expect(matching(["/", "/{x*}", "/{x}"], "/")).toEqual(["/"]);
  });

  it("a candidate lists its methods, HEAD with GET", () => {
    const [one, rest] = candidatesOf(compileTable(list), "", "/a/b");
    expect(["GET", "HEAD", "PUT"].map((method) => [one!.takes(method), rest!.takes(method)])).toEqual([
      [true, true],
      [true, true],
      [false, true],
    ]);
  });
});

describe("hosts", () => {
  const hosts = (target: string, path: string, names: string[], methods: string[] = []) =>
    entry("/", path, { hosts: names, target, methods });
  const list = [
    hosts("open", "/{x}", []),
    hosts("wide", "/{x}", ["*.example.com"]),
    hosts("longer", "/{x}", ["*.eu.example.com"]),
    hosts("exact", "/{x}", ["API.eu.example.com.", "[::1]"]),
    hosts("exact", "/only", ["api.eu.example.com"]),
  ];
  it.each([
    ["api.eu.example.com", "exact"],
    ["API.EU.Example.COM", "exact"],
    ["api.eu.example.com:8008", "exact"],
    ["api.eu.example.com.", "exact"],
    ["api.eu.example.com.:443", "exact"],
    ["[::1]", "exact"],
    ["[::1]:8443", "exact"],
    ["x.eu.example.com", "longer"],
    ["x.y.eu.example.com", "longer"],
    ["eu.example.com", "wide"],
    ["x.y.example.com:80", "wide"],
    ["example.com", "open"],
    [".example.com", "open"],
    ["badexample.com", "open"],
    ["example.com.evil", "open"],
    ["", "open"],
    [":80", "open"],
    ["[", "open"],
    ["[::2]", "open"],
    ["x.".repeat(5000) + "example.com", "open"],
  ])("%s gets its answer from the service %s", (authority, target) => {
    expect(find(list, "/a", "GET", authority)).toMatchObject({ kind: "route", target });
  });

  it("the next less specific host is tried if no pattern of a host matches", () => {
    const one = [
      hosts("exact", "/a", ["x.example.com"]),
      hosts("wide", "/b", ["*.example.com"]),
      hosts("open", "/c", []),
    ];
    for (const [path, target] of [
      ["/a", "exact"],
      ["/b", "wide"],
      ["/c", "open"],
    ] as const) {
      expect(find(one, path, "GET", "x.example.com")).toMatchObject({ target });
    }
    expect(find(one, "/a", "GET", "y.example.com")).toEqual(none);
    expect(find(one, "/b", "GET", "example.com")).toEqual(none);
  });

  it("a host has priority over a more specific pattern of a service without hosts", () => {
    expect(find([hosts("open", "/a", []), hosts("exact", "/{x}", ["h"])], "/a", "GET", "h")).toMatchObject({
      target: "exact",
    });
  });

  it("a request that the route of its host refuses does not go to another host's route", () => {
    const two = [hosts("exact", "/a", ["h"], ["GET"]), hosts("open", "/a", [], ["PUT"])];
    expect(find(two, "/a", "PUT", "h")).toEqual(wrongMethod("GET, HEAD", "exact"));
    expect(find(two, "/a", "PUT", "other")).toMatchObject({ target: "open" });
    expect(find(two, "/a", "POST", "other")).toEqual(wrongMethod("PUT", "open"));
  });
});

describe("comparison with a matcher that tries every pattern", () => {
  const LITERALS = ["a", "b", "c"];
  const METHODS = ["GET", "HEAD", "PUT", "POST"];
  const HOSTS = ["x.h.com", "y.h.com", "*.h.com", "*.com", "z.com"];
  const ASKED = ["x.h.com", "y.h.com:80", "Q.h.com", "x.y.h.com.", "z.com", "h.com", "com", ""];

  const segment = (r: Random, name: string) => (r.chance(0.35) ? `{${name}}` : r.pick(LITERALS));
  function anyEntries(r: Random): Entry[] {
    const services = r.list(1, 4, () => ({
      basePath:
        "/" +
        r
          .list(0, 2, () => 0)
          .map((_, i) => segment(r, `b${i}`))
          .join("/"),
      hosts: r.chance(0.5) ? [] : r.list(1, 2, () => r.pick(HOSTS)),
    }));
    let number = 0;
    return r.list(1, 12, () => {
      const segments = r.list(0, 3, () => 0).map((_, i) => segment(r, `p${i}`));
      if (r.chance(0.2)) segments.push("{rest*}");
      const methods = r.chance(0.3) ? [] : r.list(1, 2, () => r.pick(METHODS));
      const path = "/" + segments.join("/");
      return entry("", "", {
        ...r.pick(services),
        path,
        methods,
        target: `#${number++}`,
        encodedSlashes: r.chance(0.3),
        pathParameters: r.chance(0.3),
      });
    });
  }

  it(
    "the table and a matcher that tries every pattern agree on route, parameters, " +
      "upstream path, Allow and refusals",
    () => {
      const r = random(3);
      const seen = { route: 0, method: 0, refused: 0, none: 0, conditions: Infinity };
      for (let n = 0; n < 1_500; n++) {
        const entries = anyEntries(r);
        const table = compileTable(entries);
        for (let m = 0; m < 20; m++) {
          const parts = r.list(0, 5, () =>
            r.chance(0.1) ? "d%2Fe" : r.chance(0.05) ? "a;d" : r.pick([...LITERALS, "d"]),
          );
          const path = "/" + parts.join("/") + (parts.length > 0 && r.chance(0.25) ? "/" : "");
          const method = r.pick([...METHODS, "DELETE"]);
          const host = r.pick(ASKED);
          const found = table.find(host, method, path, path.includes("%2F"));
          const ordered =
            found.kind === "method" || found.kind === "refused"
              ? { ...found, routes: [...found.routes].sort() }
              : found;
          expect(ordered, `${method} ${host}${path} of ${JSON.stringify(entries)}`).toEqual(
            naive(entries, host, method, path),
          );
          seen[found.kind]++;
        }
      }
      expect(Math.min(...Object.values(seen))).toBeGreaterThan(500);
    },
  );
});

const split = (path: string) => path.split("/").filter((part) => part !== "");
const isOne = (part: string) => part.startsWith("{") && !part.endsWith("*}");
const isRest = (part: string) => part.endsWith("*}");

/**
 * The entries of the most specific pattern that matches, the longer base_path first: tries all, then compares those
 * that match, segment by segment.
 */
function naiveGroup(entries: readonly Entry[], authority: string, path: string) {
  const parts = split(path);
  const host = authority.toLowerCase().replace(/:\d+$/, "").replace(/\.$/, "");
  const candidates = entries.flatMap((e) => {
    const pattern = [...split(e.basePath), ...split(e.path)];
    const fits =
      pattern.every((p, i) => (isRest(p) ? parts.length > i : isOne(p) ? i < parts.length : p === parts[i])) &&
      (isRest(pattern.at(-1) ?? "") || parts.length === pattern.length);
    const rank = pattern.map((p) => (isRest(p) ? 2 : isOne(p) ? 1 : 0)).join("");
    const base = split(e.basePath).length;
    const shape = pattern.map((p) => (isRest(p) ? "{*}" : isOne(p) ? "{}" : p)).join("/");
    const ranked = (hostRank: number) => ({
      group: `${String(hostRank).padStart(4, "0")} ${rank}`,
      shape: `${hostRank} ${shape}`,
    });
    return fits ? hostRanks(e.hosts, host).map((hostRank) => ({ e, pattern, base, ...ranked(hostRank) })) : [];
  });
  candidates.sort((a, b) => (a.group < b.group ? -1 : a.group > b.group ? 1 : b.base - a.base));
  return candidates.filter(({ group }) => group === candidates[0]!.group);
}

/** The greater of two texts is the stricter pattern. */
function strictness(pattern: readonly string[]): string {
  return pattern.map((p) => (isRest(p) ? 0 : isOne(p) ? 1 : 2)).join("");
}

function naive(entries: readonly Entry[], authority: string, method: string, path: string): Found<string> {
  const group = naiveGroup(entries, authority, path);
  const encodedSlash = path.includes("%2F");
  const asRefused = (those: typeof group) => refused(...reached(those).sort()) as unknown as Found<string>;
  if (group.length === 0) return encodedSlash ? asRefused([]) : { kind: "none" };

  const bare = naiveGroup(entries, authority, path.replace(/;[^/]*/g, ""));
  const inTheWay = new Set(reached(bare));
  const isOther = bare.length > 0 && bare[0]!.shape !== group[0]!.shape;
  if (isOther && bare.some(({ e }) => inTheWay.has(e.target) && !e.pathParameters)) return asRefused(bare);

  const winner = taker(group, method);
  if (encodedSlash && winner?.e.encodedSlashes !== true) return asRefused(group);
  if (encodedSlash) {
    const decodedPath = path.replaceAll("%2F", "/");
    const decoded = naiveGroup(entries, authority, decodedPath);
    const isElsewhere =
      decoded.length > 0 &&
      decoded[0]!.shape !== group[0]!.shape &&
      strictness(decoded[0]!.pattern) >= strictness(group[0]!.pattern);
    if (isElsewhere && decoded.some(({ e }) => reached(decoded).includes(e.target) && !e.encodedSlashes))
      return asRefused(decoded);
    const both = naiveGroup(entries, authority, decodedPath.replace(/;[^/]*/g, ""));
    const isBeyond = decoded.length > 0 && both.length > 0 && both[0]!.shape !== decoded[0]!.shape;
    if (isBeyond && both.some(({ e }) => reached(both).includes(e.target) && !e.pathParameters)) return asRefused(both);
  }
  if (winner === undefined) {
    const allow = new Set(group.flatMap(({ e }) => (e.methods.includes("GET") ? [...e.methods, "HEAD"] : e.methods)));
    return { kind: "method", allow: [...allow].sort().join(", "), routes: reached(group).sort() };
  }
  const parts = split(path);
  const params: Record<string, string> = {};
  winner.pattern.forEach((p, i) => {
    if (isRest(p)) params[p.slice(1, -2)] = parts.slice(i).join("/");
    else if (isOne(p)) params[p.slice(1, -1)] = parts[i]!;
  });
  const below = parts.slice(winner.base);
  const upstreamPath = "/" + below.join("/") + (below.length > 0 && path.endsWith("/") ? "/" : "");
  return { kind: "route", target: winner.e.target, params, upstreamPath };
}

/** HEAD goes where it is declared by name, else with GET. */
function taker(group: ReturnType<typeof naiveGroup>, method: string) {
  const first = (wanted: string) => group.find(({ e }) => e.methods.length === 0 || e.methods.includes(wanted));
  const winner = first(method);
  return method === "HEAD" && !winner?.e.methods.includes("HEAD") ? first("GET") : winner;
}

/** The targets that some method leads to: an entry all of whose methods another one takes is not among them. */
function reached(group: ReturnType<typeof naiveGroup>): string[] {
  const methods = ["GET", "HEAD", "PUT", "POST", "DELETE"];
  return [...new Set(methods.flatMap((method) => taker(group, method)?.e.target ?? []))];
}

/** 0 for the exact host, more the shorter a matching wildcard is, 1000 for a service without hosts. */
function hostRanks(hosts: readonly string[], host: string): number[] {
  if (hosts.length === 0) return [1000];
  const below = (wildcard: string) =>
    wildcard.startsWith("*") && host.endsWith(wildcard.slice(1)) && host.length >= wildcard.length;
  const ranks = hosts.map((h) => (h === host ? 0 : below(h) ? 500 - h.length : -1));
  return [...new Set(ranks.filter((rank) => rank >= 0))];
}

describe("the path for a backend that decodes it once", () => {
  /** Literals as a person would write them, decoded; "%41" and "a%2Fb" are texts with a percent sign. */
  const NAMES = ["a", "B~", "x:y", "c+d", "e;f", "g|h", "{i}", "100%", "%41", "caf\xc3\xa9", "...", "@j"];
  const encode = (name: string) => [...name].map((c) => (/[\w.~-]/.test(c) ? c : hex(c))).join("");
  const hex = (c: string) => "%" + c.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase();

  it("a path is matched by its decoded segments, as a backend that decodes once sees them", () => {
    const r = random(5);
    let matched = 0;
    for (let n = 0; n < 800; n++) {
      const patterns = r.list(2, 8, () => r.list(1, 3, () => (r.chance(0.25) ? null : r.pick(NAMES))));
      const entries = patterns.map((pattern, i) =>
        entry("/", "/" + pattern.map((name, j) => (name === null ? `{p${j}}` : encode(name))).join("/"), {
          target: String(i),
        }),
      );
      const table = compileTable(entries);
      for (let m = 0; m < 20; m++) {
        // One of the patterns, respelt at random, sometimes with something in between.
        const byte = (c: string) => (r.chance(0.5) ? hex(c) : hex(c).toLowerCase());
        const spell = (name: string) =>
          [...name].map((c) => (r.chance(0.4) || /[%\x80-\xff]/.test(c) ? byte(c) : c)).join("");
        const noise = () => (r.chance(0.06) ? r.pick(["%2e", "..", "/", "%25", "%5c", ".;", "%253a", "%00"]) : "");
        const segments = r.pick(patterns).map((name) => noise() + spell(name ?? r.pick(NAMES)) + noise());
        const raw = segments.map((segment) => r.pick(["/", "/", "/", "//"]) + segment).join("") + r.pick(["", "/"]);
        const read = readTarget(raw);
        if ("code" in read || read.encodedSlash) continue;
        const decoded = read.path.replace(/%(..)/g, (_, digits: string) => String.fromCharCode(parseInt(digits, 16)));
        const parts = split(decoded);
        const fitting = patterns
          .map((pattern, i) => ({ pattern, i, rank: pattern.map((name) => (name === null ? 1 : 0)).join("") }))
          .filter(
            ({ pattern }) =>
              pattern.length === parts.length && pattern.every((name, j) => name === null || name === parts[j]),
          )
          .sort((a, b) => (a.rank < b.rank ? -1 : a.rank > b.rank ? 1 : a.i - b.i));
        const found = table.find("", "GET", read.path, false);
        const expected = fitting.length > 0 ? String(fitting[0]!.i) : null;
        expect(found.kind === "route" ? found.target : null, `${raw} of ${JSON.stringify(patterns)}`).toBe(expected);
        if (found.kind === "route") {
          expect(found.upstreamPath).toBe(read.path);
          matched++;
        }
      }
    }
    expect(matched).toBeGreaterThan(4_000);
  });
});
