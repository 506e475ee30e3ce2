/** Routes that share a pattern and differ by their conditions on headers, query, cookies and scheme. */
import { describe, expect, it } from "vitest";
import type { Conditions, Scheme } from "../../lib/http/condition_types.ts";
import type { HeaderList } from "../../lib/http/headers.ts";
import { canMeet, placedConditions, routeConditions } from "../../lib/route/conditions.ts";
import { proveRoutes, type Proof } from "../../lib/route/overlaps.ts";
import { compileTable, type TableEntry } from "../../lib/route/table.ts";
import { random, type Random } from "../support/random.ts";
import { checkRoutes } from "../support/schema.ts";

type Match = Partial<Conditions>;

interface Target {
  readonly name: string;
  readonly guards: ReadonlySet<string>;
}
type Entry = TableEntry<Target>;

const whole = (match: Match): Conditions => ({ headers: {}, query: {}, cookies: {}, ...match });

/** "GET,PUT /base+/path | guards": the name of its target. */
function entry(text: string, match?: Match, more: Partial<Entry> = {}): Entry {
  const [place, guards = ""] = text.split(" | ");
  const [methods, both] = place!.split(" ") as [string, string];
  const [basePath, path] = both.includes("+") ? (both.split("+") as [string, string]) : ["/", both];
  return {
    basePath,
    path,
    hosts: [],
    methods: methods === "*" ? [] : methods.split(","),
    match: match && routeConditions(whole(match)),
    encodedSlashes: false,
    pathParameters: false,
    target: { name: text, guards: new Set(guards === "" ? [] : guards.split(",")) },
    ...more,
  };
}

interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: HeaderList;
  readonly query?: string;
  readonly scheme?: Scheme;
}

function taker(
  entries: readonly Entry[],
  { method = "GET", path = "/a", headers = [], query = "", scheme = "http" }: Sent = {},
): string {
  const found = compileTable(entries).find("", method, path, path.includes("%2F"), headers, query, scheme);
  return found.kind === "route" ? found.target.name : found.kind;
}

const X1: Match = { headers: { "X-Version": "1" } };
const X2: Match = { headers: { "X-Version": "2" } };

describe("the route table", () => {
  const versions = [entry("* /a"), entry("GET /a v1", X1), entry("GET /a v2", X2)];

  it(
    "the route whose conditions hold gets the request, whatever the order in the configuration, " +
      "and the one without conditions the rest",
    () => {
      expect(taker(versions, { headers: ["x-version", "1"] })).toBe("GET /a v1");
      expect(taker(versions, { headers: ["x-version", "2"] })).toBe("GET /a v2");
      expect(taker(versions, { headers: ["x-version", "3"] })).toBe("* /a");
      expect(taker(versions)).toBe("* /a");
      expect(taker(versions, { method: "PUT", headers: ["x-version", "1"] })).toBe("* /a");
    },
  );

  it("the route with more conditions goes first, and of as many the first in the configuration", () => {
    const entries = [
      entry("GET /a one", X1),
      entry("GET /a two", { headers: { "X-Version": "1" }, query: { b: true } }),
      entry("GET /a other", X2),
    ];
    expect(taker(entries, { headers: ["X-Version", "1"], query: "?b" })).toBe("GET /a two");
    expect(taker(entries, { headers: ["X-Version", "1"] })).toBe("GET /a one");
    expect(taker(entries, { headers: ["X-Version", "2", "X-Version", "1"] })).toBe("GET /a one");
  });

  it("a longer base_path goes before more conditions", () => {
    const entries = [entry("GET /+/a/b", { ...X1, query: { b: "1" } }), entry("GET /a+/b", X1)];
    expect(taker(entries, { path: "/a/b", headers: ["X-Version", "1"], query: "?b=1" })).toBe("GET /a+/b");
  });

  it("a request that fulfils no conditions does not fall through to a less specific pattern", () => {
    expect(taker([entry("GET /a", X1), entry("* /{x*}")])).toBe("conditions");
  });

  it(
    "reports a wrong method where no route accepts it whatever the conditions, " +
      "with the methods of all routes of the pattern",
    () => {
      const table = compileTable([entry("GET /a", X1), entry("PUT /a", X2), entry("POST /{x}")]);
      expect(table.find("", "POST", "/a", false)).toMatchObject({ kind: "method", allow: "GET, HEAD, PUT" });
      expect(table.find("", "GET", "/a", false)).toMatchObject({ kind: "conditions", routes: [{ name: "GET /a" }] });
    },
  );

  it("HEAD goes to a fitting route that declares it, else to the route that gets GET", () => {
    const entries = [entry("HEAD /a", X1), entry("GET /a"), entry("GET /a v2", X2)];
    const head = (headers: HeaderList) => taker(entries, { method: "HEAD", headers });
    expect(head(["x-version", "1"])).toBe("HEAD /a");
    expect(head(["x-version", "2"])).toBe("GET /a v2");
    expect(head([])).toBe("GET /a");
  });

  it("a path with other readings is refused as if all conditions could hold", () => {
    const guarded = entry("GET /admin | key", X1);
    expect(taker([guarded, entry("GET /{x}")], { path: "/admin;x" })).toBe("refused");
    const open = { encodedSlashes: true };
    expect(taker([entry("GET /a/b | key", X1), entry("GET /{x}", undefined, open)], { path: "/a%2Fb" })).toBe(
      "refused",
    );
    expect(taker([entry("GET /{x}", X1), entry("GET /{x} open", undefined, open)], { path: "/a%2Fb" })).toBe(
      "GET /{x} open",
    );
    expect(
      taker([entry("GET /{x}", X1), entry("GET /{x} open", undefined, open)], {
        path: "/a%2Fb",
        headers: ["x-version", "1"],
      }),
    ).toBe("refused");
  });
});

describe("checkRoutes", () => {
  function conflicts(...routes: readonly (readonly [methods: string, match: Match | undefined])[]) {
    const service = { name: "s", basePath: "/", hosts: [], at: ["services", 0] };
    const declared = routes.map(([methods, match], i) => {
      const at = ["services", 0, "routes", i];
      return {
        service,
        route: {
          name: `r${i}`,
          path: "/a",
          methods: methods === "*" ? [] : methods.split(","),
          match: match && whole(match),
          at,
        },
      };
    });
    return checkRoutes(declared).map(({ at, message }) => `${at.slice(4).join(".")}: ${message}`);
  }

  it.each<[string, Match | undefined, Match | undefined]>([
    ["the same exact value", X1, { headers: { "x-version": "1" } }],
    ["different headers", X1, { headers: { "X-Other": "1" } }],
    ["a header and a query parameter", X1, { query: { "X-Version": "2" } }],
    ["a value and any value", X1, { headers: { "X-Version": true } }],
    ["a value and a pattern that matches it", X1, { headers: { "X-Version": { matches: "^[0-9]$" } } }],
    ["two patterns", { query: { b: { matches: "^a" } } }, { query: { b: { matches: "^b" } } }],
    ["lists with the same escaped value", { query: { b: { matches: "^(?:a\\\\|c)$" } } }, { query: { b: "a\\" } }],
    [
      "a list of values and a list with one of them",
      { cookies: { c: { matches: "^(?:a|b)$" } } },
      { cookies: { c: { matches: "^(b|c)$" } } },
    ],
    ["the same scheme", { scheme: "https" }, { scheme: "https" }],
    ["a scheme and a header", { scheme: "https" }, X1],
    ["absent twice", { cookies: { c: null } }, { cookies: { c: null } }],
    ["one of two conditions differs and can hold", { ...X1, query: { b: null } }, { ...X1, cookies: { c: null } }],
  ])("reports as many conditions that one request can fulfil: %s", (_title, a, b) => {
    for (const [first, second] of [
      [a, b],
      [b, a],
    ]) {
      expect(conflicts(["GET", first], ["GET,PUT", second])).toEqual([
        'match: route "r1" of service "s" and route "r0" of service "s" both match GET of "/a" below "/", ' +
          ("with the same number of conditions, and one request can fulfil all of them: " +
            "add a condition to the route that is to come first, or give the two different values of one name"),
      ]);
    }
  });

  it.each<[string, Match | undefined, Match | undefined]>([
    ["different exact values", X1, X2],
    ["values that differ in case", { query: { b: "x" } }, { query: { b: "X" } }],
    ["absent and any value", { headers: { "X-Version": null } }, { headers: { "x-version": true } }],
    ["absent and a pattern", { cookies: { c: null } }, { cookies: { c: { matches: "" } } }],
    ["a value and a pattern that does not match it", X1, { headers: { "X-Version": { matches: "^2" } } }],
    [
      "lists without a value in both",
      { query: { b: { matches: "^(?:a|b\\.c)$" } } },
      { query: { b: { matches: "^(?:c|b-c)$" } } },
    ],
    [
      "a list and a pattern that matches none of it",
      { query: { b: { matches: "^(?:a1|a2)$" } } },
      { query: { b: { matches: "^b" } } },
    ],
    ["different schemes", { ...X1, scheme: "http" }, { ...X1, scheme: "https" }],
    ["more conditions", X1, { ...X1, query: { b: true } }],
    ["conditions and none", undefined, X1],
  ])("accepts routes of one pattern: %s", (_title, a, b) => {
    expect(conflicts(["GET", a], ["GET", b])).toEqual([]);
    expect(conflicts(["*", b], ["GET", a])).toEqual([]);
  });

  it("reads each pattern a few times only, however many routes of one path are compared in pairs", () => {
    let reads = 0;
    const routes = Array.from({ length: 50 }, (_, i): [string, Match] => {
      const pattern = {
        get matches() {
          reads++;
          return `^(?:a${i}|b${i})$`;
        },
      };
      return ["GET", { headers: { "X-Tenant": pattern } }];
    });
    expect(conflicts(...routes)).toEqual([]);
    expect(reads).toBeLessThan(50 * 10);
  });

  it("accepts the same conditions with different methods", () => {
    expect(conflicts(["GET", X1], ["PUT", X1])).toEqual([]);
  });
});

function proofOf(entries: readonly Entry[]): Proof<Target> {
  const steps = proveRoutes(entries, { guardsOf: ({ guards }) => guards });
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

describe("proveRoutes", () => {
  const unreachable = (...entries: Entry[]) =>
    proofOf(entries).unreachable.map(({ target, takers }) => [target.name, ...takers.map(({ name }) => name)]);
  const bypasses = (...entries: Entry[]) =>
    proofOf(entries).bypasses.flatMap(({ target, takers }) =>
      takers.map(({ target: { name }, reason, request }) => {
        const { method, path, query, headers } = request!;
        return [target.name, name, reason, `${method} ${path}${query} ${headers.join(": ")}`.trim()];
      }),
    );

  it("a route is unreachable if a longer base_path takes all that its conditions let through", () => {
    expect(unreachable(entry("GET /+/a/b", X1), entry("GET /a+/b"))).toEqual([["GET /+/a/b", "GET /a+/b"]]);
    expect(unreachable(entry("GET /+/a/b", X1), entry("GET /a+/b", { headers: { "X-Version": true } }))).toEqual([
      ["GET /+/a/b", "GET /a+/b"],
    ]);
    expect(unreachable(entry("GET /+/a/b", { headers: { "X-Version": true } }), entry("GET /a+/b", X1))).toEqual([]);
    expect(
      unreachable(
        entry("GET /+/a/b"),
        entry("GET /a+/b", X1),
        entry("GET /a+/b v2", { headers: { "X-Version": null } }),
      ),
    ).toEqual([]);
    const two = [entry("GET /a+/b some", { cookies: { c: true } }), entry("GET /a+/b none", { cookies: { c: null } })];
    expect(unreachable(entry("GET /+/a/b"), ...two)).toEqual([["GET /+/a/b", "GET /a+/b none"]]);
    const schemes = [
      entry("GET /a", { scheme: "https" }),
      entry("GET /a plain", { scheme: "http" }),
      entry("GET /a other"),
    ];
    expect(unreachable(...schemes)).toEqual([["GET /a other", "GET /a plain"]]);
  });

  it("a sample request has the headers, query and cookies with which the route gets it", () => {
    const conditions: Match = {
      headers: { "X-Version": { matches: "^v[0-9]+-beta$" } },
      query: { "a b": "ü&", c: true },
      cookies: { d: "1", e: null, f: "2" },
      scheme: "https",
    };
    const entries = [
      entry("GET /a", conditions),
      entry("GET /a rest"),
      entry("PUT /a", { headers: { "X-A": null, "X-B": null } }),
      entry("PUT /a rest", { headers: { "X-A": true } }),
    ];
    const { samples } = proofOf(entries);
    expect([...samples.values()]).toEqual([
      {
        method: "GET",
        host: "localhost",
        path: "/a",
        headers: ["x-version", "v0-beta", "cookie", "d=1; f=2"],
        query: "?a%20b=%C3%BC%26&c=x",
        scheme: "https",
      },
      { method: "GET", host: "localhost", path: "/a", headers: [], query: "", scheme: "http" },
      { method: "PUT", host: "localhost", path: "/a", headers: [], query: "", scheme: "http" },
      { method: "PUT", host: "localhost", path: "/a", headers: ["x-a", "x"], query: "", scheme: "http" },
    ]);
    for (const [{ name }, sent] of samples) expect(taker(entries, sent)).toBe(name);
  });

  it("a route without a guard that a client selects by a header avoids the guard of its sibling", () => {
    expect(bypasses(entry("GET /a | key"), entry("GET /a", X1))).toEqual([
      ["GET /a | key", "GET /a", "match", "GET /a x-version: 1"],
    ]);
    expect(bypasses(entry("GET /a | key"), entry("GET /a", { query: { b: "1" } }))).toEqual([
      ["GET /a | key", "GET /a", "match", "GET /a?b=1"],
    ]);
    expect(bypasses(entry("GET /a | key"), entry("GET /a", { cookies: { c: true } }))).toEqual([
      ["GET /a | key", "GET /a", "match", "GET /a cookie: c=x"],
    ]);
  });

  it("a route without a guard that takes what does not fulfil the conditions of its sibling avoids the guard", () => {
    expect(bypasses(entry("GET /a | key", X1), entry("GET /a"))).toEqual([
      ["GET /a | key", "GET /a", "match", "GET /a"],
    ]);
    expect(bypasses(entry("GET /a | key", { headers: { "X-Version": null } }), entry("GET /a"))).toEqual([
      ["GET /a | key", "GET /a", "match", "GET /a x-version: x"],
    ]);
    expect(bypasses(entry("GET /a | key", X1), entry("GET /a | key"))).toEqual([]);
  });

  it("a route is reached, and avoids a guard, by one value for each rival that takes all other values", () => {
    const [not1, not2]: Match[] = ["1", "2"].map((not) => ({ headers: { x: { not } } }));
    const all = [entry("GET /a/b+/c", not1), entry("GET /a+/b/c | key", not2), entry("GET /a/b/c")];
    expect(proofOf(all).unreachable).toEqual([]);
    expect(bypasses(...all)).toEqual([
      ["GET /a+/b/c | key", "GET /a/b+/c", "base_path", "GET /a/b/c"],
      ["GET /a+/b/c | key", "GET /a/b/c", "match", "GET /a/b/c x: 1: x: 2"],
    ]);
    const [a, b]: Match[] = ["a", "b"].map((matches) => ({ headers: { x: { not: { matches } } } }));
    expect(proofOf([entry("GET /a/b+/c", a), entry("GET /a+/b/c", b), entry("GET /a/b/c")]).unreachable).toEqual([]);
    expect(bypasses(entry("GET /a+/b | key", not2), entry("GET /a/b", { headers: { x: "1" } }))).toEqual([
      ["GET /a+/b | key", "GET /a/b", "match", "GET /a/b x: 1: x: 2"],
    ]);
    const one: Match = { headers: { x: "1" } };
    const hidden = [entry("GET /a/b+/c", not1), entry("GET /a+/b/c", one), entry("GET /a/b/c")];
    expect(proofOf(hidden).unreachable.map(({ target }) => target.name)).toEqual(["GET /a/b/c"]);
  });

  it("a more specific pattern with conditions takes only what fulfils them, and the rest gets no route", () => {
    expect(bypasses(entry("GET /{x} | key"), entry("GET /a", X1))).toEqual([
      ["GET /{x} | key", "GET /a", "specificity", "GET /a x-version: 1"],
    ]);
    expect(bypasses(entry("GET /a | key", X1), entry("GET /{x}"))).toEqual([]);
  });
});

describe("comparison with a reading of the rules that tries every route and every request", () => {
  const PATHS = ["/a/b", "/a/z"];
  const METHODS = ["GET", "HEAD", "PUT", "POST"];
  const ALONE = ["1", "2", "z1", "z", "q"].map((value) => [value]);
  const SENT = [[], ...ALONE, ["1", "2"], ["1", "z"], ["2", "z"], ["2", "z1"], ["1", "2", "z"]];
  const REQUESTS = PATHS.flatMap((path) =>
    METHODS.flatMap((method) =>
      SENT.flatMap((versions) =>
        ["", "?b", "?b=1", "?b=2&b=1", "?b&b=1"].flatMap((query) =>
          [[], ["Cookie", "d=1; c=1"], ["Cookie", "c=9"]].flatMap((cookie) =>
            (["http", "https"] as const).map((scheme) => ({
              method,
              path,
              query,
              scheme,
              headers: [...versions.flatMap((each) => ["X", each]), ...cookie],
            })),
          ),
        ),
      ),
    ),
  );

  function someEntries(r: Random, hasPatterns: boolean): Entry[] {
    const patterns = hasPatterns ? [{ matches: "^z" }, { matches: "1" }, { not: { matches: "^z" } }] : [];
    const nots = ["1", "2", true, null].map((not) => ({ not }));
    const some = (choices: readonly unknown[], share: number) => (r.chance(share) ? r.pick(choices) : undefined);
    const drafts = r.list(2, 6, () => {
      const x = some(["1", "2", true, null, ...patterns, ...nots], 0.6);
      const b = some(["1", "", true, null, { not: "1" }], 0.3);
      const c = some(["1", true, null, { not: "1" }, { not: true }], 0.2);
      const scheme = some(["http", "https", { not: "http" }, { not: "https" }], 0.2);
      const match = {
        headers: x === undefined ? {} : { x },
        query: b === undefined ? {} : { b },
        cookies: c === undefined ? {} : { c },
        ...(scheme !== undefined && { scheme }),
      } as Conditions;
      const isMatched = [x, b, c, scheme].some((each) => each !== undefined);
      const path = r.pick(["/+/a/b", "/a+/b", "/+/a/{x}", "/a+/{x}"]);
      const text = `${r.pick(["*", "GET", "GET", "PUT", "GET,PUT", "HEAD"])} ${path}`;
      return entry(
        `${text} ${isMatched ? [x, b, c, scheme].map((each) => JSON.stringify(each) ?? "-").join() : ""} | ` +
          `${r.pick(["", "", "k", "k,l"])}`,
        isMatched ? match : undefined,
      );
    });
    const declared = drafts.map(({ basePath, path, methods, match: { written: match } = {} }, i) => {
      const service = { name: `s${i}`, basePath, hosts: [], at: ["services", i] };
      return { service, route: { name: "r", path, methods, match, at: [...service.at, "routes", 0] } };
    });
    const wrong = new Set(checkRoutes(declared).map(({ at }) => at[1]));
    return drafts.filter((_each, i) => !wrong.has(i));
  }

  /** Values of the request that a condition is about. */
  function fulfils({ headers, query, cookies, scheme }: Conditions, sent: Required<Sent>): boolean {
    const versions = sent.headers.filter((_text, i) => i % 2 === 1 && sent.headers[i - 1] === "X");
    const holds = (wanted: unknown, values: readonly string[]): boolean =>
      typeof wanted === "object" && wanted !== null && "not" in wanted
        ? !holds(wanted.not, values)
        : wanted === null
          ? values.length === 0
          : values.some(
              (value) =>
                wanted === true ||
                wanted === value ||
                (typeof wanted === "object" && new RegExp((wanted as { matches: string }).matches).test(value)),
            );
    return (
      (scheme === undefined || (typeof scheme === "string" ? scheme === sent.scheme : scheme.not !== sent.scheme)) &&
      Object.values(headers).every((wanted) => holds(wanted, versions)) &&
      Object.values(query).every((wanted) => holds(wanted, new URLSearchParams(sent.query).getAll("b"))) &&
      Object.values(cookies).every((wanted) =>
        holds(wanted, sent.headers.at(-2) === "Cookie" ? [sent.headers.at(-1)!.slice(-1)] : []),
      )
    );
  }

  const isFor = ({ path }: Entry, asked: string) => path.endsWith("/{x}") || asked === "/a/b";
  const sizeOf = ({ match }: Entry) => match?.list.length ?? 0;

  /** The rules one by one, as docs/routing.md states them. */
  function naive(entries: readonly Entry[], sent: Required<Sent>): string {
    const isExact = entries.some(({ path }) => !path.endsWith("/{x}") && sent.path === "/a/b");
    const pattern = entries.filter((each) => isFor(each, sent.path) && each.path.endsWith("/{x}") !== isExact);
    if (pattern.length === 0) return "none";
    const ordered = pattern.toSorted((a, b) => b.basePath.length - a.basePath.length || sizeOf(b) - sizeOf(a));
    const fitting = ordered.filter(({ match }) => match === undefined || fulfils(match.written, sent));
    const first = (method: string) => fitting.find(({ methods }) => methods.length === 0 || methods.includes(method));
    const found = first(sent.method);
    const isHead = sent.method === "HEAD" && found?.methods.includes("HEAD") !== true;
    const taken = isHead ? first("GET") : found;
    if (taken !== undefined) return taken.target.name;
    const accepted = sent.method === "HEAD" ? ["HEAD", "GET"] : [sent.method];
    return pattern.some(({ methods }) => methods.length === 0 || methods.some((each) => accepted.includes(each)))
      ? "conditions"
      : "method";
  }

  it("the route table gives every request to the route that the rules name", () => {
    const r = random(19);
    const seen: Record<string, number> = { conditions: 0, method: 0, route: 0 };
    for (let round = 0; round < 150; round++) {
      const entries = someEntries(r, true);
      const table = compileTable(entries);
      for (const sent of REQUESTS) {
        const found = table.find("", sent.method, sent.path, false, sent.headers, sent.query, sent.scheme);
        const name = found.kind === "route" ? found.target.name : found.kind;
        if (name !== naive(entries, sent))
          expect(name, `${JSON.stringify(sent)} of ${entries.map(({ target }) => target.name).join("; ")}`).toBe(
            naive(entries, sent),
          );
        seen[found.kind] = (seen[found.kind] ?? 0) + 1;
      }
    }
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(500);
  });

  it.each([false, true])(
    "the prover finds the unreachable routes and the bypassed guards that all requests show, " +
      "with patterns of values: %s",
    (hasPatterns) => {
      const r = random(20);
      const count = { unreachable: 0, match: 0 };
      for (let round = 0; round < 200; round++) {
        const entries = someEntries(r, hasPatterns);
        const said = `round ${round}: ${entries.map(({ target }) => target.name).join("; ")}`;
        const table = compileTable(entries);
        const { samples, unreachable, bypasses } = proofOf(entries);
        const reached = new Set<string>();
        const pairs = new Set<string>();
        for (const sent of REQUESTS) {
          const taken = naive(entries, sent);
          const { target } = entries.find((each) => each.target.name === taken) ?? {};
          if (target === undefined) continue;
          reached.add(taken);
          for (const other of entries) {
            if (other.target === target || !isFor(other, sent.path)) continue;
            if ([...other.target.guards].some((guard) => !target.guards.has(guard)))
              pairs.add(`${other.target.name} < ${taken}`);
          }
        }
        expect(unreachable.map(({ target }) => target.name).sort(), said).toEqual(
          entries
            .map(({ target }) => target.name)
            .filter((name) => !reached.has(name))
            .sort(),
        );
        const found = bypasses.flatMap(({ target, takers }) =>
          takers.map((each) => `${target.name} < ${each.target.name}`),
        );
        expect(found.sort(), said).toEqual([...pairs].sort());
        const requests = [...samples].concat(
          bypasses.flatMap(({ takers }) => takers.map(({ target, request }) => [target, request!] as const)),
        );
        for (const [{ name }, { method, path, headers, query, scheme }] of requests) {
          expect(
            table.find("", method, path, false, headers, query, scheme),
            `${said}: ${JSON.stringify({ method, path, headers, query, scheme })}`,
          ).toMatchObject({ target: { name } });
        }
        count.unreachable += unreachable.length;
        count.match += bypasses.filter(({ takers }) => takers.some(({ reason }) => reason === "match")).length;
      }
      expect(Math.min(count.unreachable, count.match)).toBeGreaterThan(20);
    },
  );

  it("conditions that no request of the list fulfils both are found to conflict or not as the requests show", () => {
    const plain = ["1", "2", true, null, { matches: "^z" }, { matches: "^(?:1|q)$" }];
    const values = [...plain, ...plain.map((not) => ({ not }))];
    for (const a of values) {
      for (const b of values) {
        const [one, two] = [a, b].map((x) => whole({ headers: { x } } as Match));
        const isShown = REQUESTS.some(
          (sent) =>
            sent.headers.filter((text) => text === "X").length < 2 && fulfils(one!, sent) && fulfils(two!, sent),
        );
        // Two patterns are assumed to meet.
        const areOpen =
          [a, b].every((each) => typeof each === "object" && each !== null) &&
          [a, b].some((each) => JSON.stringify(each).includes("^z"));
        expect(canMeet(placedConditions(one!), placedConditions(two!)) || areOpen, JSON.stringify([a, b])).toBe(
          isShown || areOpen,
        );
      }
    }
  });
});
