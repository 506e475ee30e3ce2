import { METHODS as METHODS_OF_NODE } from "node:http";
import { describe, expect, it } from "vitest";
import { comparable, readTarget } from "../../lib/route/path.ts";
import { proveRoutes, type Proof } from "../../lib/route/overlaps.ts";
import { MAX_STEPS_IN_ALL } from "../../lib/route/spellings.ts";
import { compileTable, type TableEntry } from "../../lib/route/table.ts";
import type { RouteDestination } from "../../lib/route/upstream_overlaps.ts";
import { upstreamPath } from "../../lib/route/upstream_path.ts";
import type { Route, Service } from "../../lib/config/model.ts";
import { random, type Random } from "../support/random.ts";

interface Target {
  readonly name: string;
  readonly guards: ReadonlySet<string>;
}

type Entry = TableEntry<Target>;

/** "METHODS base+path hosts | guards", "%" in front: its service accepts %2F. "GET,PUT /a+/b x.test,*.test | key". */
function entry(text: string): Entry {
  const [place = "", guards = ""] = text.replace(/^%/, "").split(" | ");
  const [methods = "", both = "", hosts = ""] = place.trim().split(" ");
  const [basePath, path] = both.includes("+") ? (both.split("+") as [string, string]) : ["/", both];
  return {
    basePath,
    path,
    hosts: hosts === "" ? [] : hosts.split(","),
    methods: methods === "*" ? [] : methods.split(","),
    encodedSlashes: text.startsWith("%"),
    pathParameters: false,
    target: { name: text, guards: new Set(guards === "" ? [] : guards.split(",")) },
  };
}

function proofOf(
  entries: readonly Entry[],
  destinationOf: (target: Target) => RouteDestination | null = () => null,
): Proof<Target> {
  const steps = proveRoutes(entries, { guardsOf: ({ guards }) => guards, destinationOf });
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

const unreachable = (...texts: string[]) => proofOf(texts.map(entry)).unreachable.map(({ target }) => target.name);
const bypasses = (...texts: string[]) =>
  proofOf(texts.map(entry)).bypasses.flatMap(({ target, takers }) =>
    takers.map((taker) => {
      const { method, host, path } = taker.request!;
      return [target.name, taker.target.name, taker.reason, `${method} ${host}${path}`];
    }),
  );

describe("proveRoutes", () => {
  it.each<[string, string[], string[]]>([
    [
      "a pattern that more specific ones cover at every length",
      ["GET /a/{x*}", "GET /a/{y}", "GET /a/{y}/{z*}"],
      ["GET /a/{x*}"],
    ],
    ["a route of which a longer base_path takes every method", ["GET /+/a/b", "GET,PUT /a+/b"], ["GET /+/a/b"]],
    ["a route for GET and HEAD of which others take GET and HEAD", ["GET,HEAD /+/a/b", "GET /a+/b"], []],
    ["CONNECT, which is served to nobody", ["CONNECT /a"], ["CONNECT /a"]],
    [
      "a pattern that is covered on each of its hosts",
      ["GET /{x*} a.test,b.test", "GET /{x} a.test,b.test", "GET /{x}/{y*} a.test"],
      [],
    ],
    ["nothing where one length is left", ["GET /a/{x*}", "GET /a/{y}/{z}/{w*}"], []],
    ["nothing where other methods are left", ["* /+/a/b", "GET,PUT /a+/b"], []],
    [
      "nothing where a more specific pattern is on a more specific host",
      ["GET /{x}", "GET /{x} a.test", "GET /{x} *.test"],
      [],
    ],
  ])("finds unreachable routes: %s", (_title, texts, expected) => expect(unreachable(...texts)).toEqual(expected));

  it("has a request with a method that the servers accept for a route that the common methods do not reach", () => {
    const entries = ["* /+/a/b", "GET,POST,PUT,PATCH,DELETE,OPTIONS /a+/b"].map(entry);
    expect(METHODS_OF_NODE).toContain(proofOf(entries).samples.get(entries[0]!.target)!.method);
  });

  it("names the routes that take the requests of an unreachable one, and one such request", () => {
    const [found] = proofOf(["GET /a/{x*}", "PUT /a/{y}", "GET /a/{y}/{z*}"].map(entry)).unreachable;
    expect(found!.takers.map(({ name }) => name)).toEqual(["PUT /a/{y}", "GET /a/{y}/{z*}"]);
    expect(found!.request).toEqual({
      scheme: "http",
      method: "PUT",
      host: "localhost",
      path: "/a/x",
      query: "",
      headers: [],
    });
  });

  it("has a request for each route that is reached, which this route takes", () => {
    const entries = [
      "GET /{x}",
      "* /x",
      "PUT /{x}/{y*}",
      "GET /{x*} *.test",
      "GET,PUT /+/a/b",
      "GET /a+/b",
      "PUT /a+/b",
    ].map(entry);
    const table = compileTable(entries);
    const { samples, unreachable } = proofOf(entries);
    expect(unreachable.map(({ target }) => target.name)).toEqual(["GET,PUT /+/a/b"]);
    expect([...samples.keys()].map(({ name }) => name)).toEqual(
      entries.filter(({ target }) => target !== unreachable[0]!.target).map(({ target }) => target.name),
    );
    for (const [{ name }, { method, host, path }] of samples)
      expect(answerOf(table, method, host, path)?.name).toBe(name);
  });

  it.each<[string, string[], string[][]]>([
    ["a more specific pattern", ["GET /a/{x} | key", "GET /a/b"], [["specificity", "GET localhost/a/b"]]],
    ["another method of the same pattern", ["GET /a | key", "POST /a"], [["method", "POST localhost/a"]]],
    ["a longer base_path", ["* /+/a/b | key", "GET /a+/b"], [["base_path", "GET localhost/a/b"]]],
    ["a longer base_path with another method", ["GET /+/a/b | key", "POST /a+/b"], [["method", "POST localhost/a/b"]]],
    [
      "HEAD, which a route of its own takes from that of GET",
      ["GET /a | key", "HEAD /a"],
      [["method", "HEAD localhost/a"]],
    ],
    ["a more specific host", ["GET /a *.test | key", "GET /a b.test"], [["host", "GET b.test/a"]]],
    ["all other hosts", ["GET /a a.test | key", "GET /a"], [["host", "GET localhost/a"]]],
    ["another guard", ["GET /a/{x} | key,acl", "GET /a/b | key"], [["specificity", "GET localhost/a/b"]]],
    ["%2F, in two services that accept it", ["%GET /a/{x}/b | key", "%GET /a/{y}"], [["%2F", "GET localhost/a/x%2Fb"]]],
    ["%2F alone, which decodes to nothing", ["GET /a | key", "%GET /a/{y}"], [["%2F", "GET localhost/a/%2F"]]],
    ["%2F for a less specific guarded route", ["GET /{x} | key", "%GET /a/{y}"], [["%2F", "GET localhost/a/%2F"]]],
    [
      "%2F on a host whose own pattern accepts it",
      ["GET /{x}/b | key", "%GET /{y}", "%GET /a/b a.test | key"],
      [["%2F", "GET a.test/a%2Fb"]],
    ],
    [
      "%2F on a host whose own pattern is less specific",
      ["GET /a/b/c *.test | key", "%GET /a/{y} *.test", "GET /{x}/{y}/{z} x.test | key"],
      [["%2F", "GET x.test/a/b%2Fc"]],
    ],
    [
      "%2F behind the end of a guarded {name*}",
      ["%GET /a/{x*} | key", "%GET /{t}/b/c"],
      [["%2F", "GET localhost/a%2F/b/c"]],
    ],
    [
      "%2F at a length that the guarded route does not win",
      ["%GET /a/{x}/{y} | key", "%GET /a/{x}/{y*}"],
      [["%2F", "GET localhost/a/x%2Fx/%2F/%2F"]],
    ],
    [
      "%2F on a second host, where the first is another route's",
      ["%GET /a/{x}/b x.test | key", "%PUT /+/a/{y} x.test,y.test", "%PUT /a+/{y} x.test | key"],
      [["%2F", "PUT y.test/a/x%2Fb"]],
    ],
    [
      "a second host, where the first is another route's",
      ["GET /a x.test | key", "PUT /+/a x.test,y.test", "PUT /a+/ x.test | key"],
      [["host", "PUT y.test/a"]],
    ],
    [
      "a second host of a less specific pattern",
      ["GET /a x.test | key", "PUT /{p} x.test,y.test", "GET /{p}+/ x.test | key"],
      [["host", "PUT y.test/a"]],
    ],
    [
      "nothing where %2F is refused for a pattern of the same rank",
      ["GET /{u}/b/{w} | key", "%GET /{x}/a/{y}", "%GET /c/b/d | key"],
      [],
    ],
    [
      "nothing where such paths are refused for their path parameters",
      ["GET /a;b | key", "GET /{x} x.test", "GET /a x.test | key"],
      [],
    ],
    [
      "nothing where such paths with %2F are refused for their path parameters",
      ["GET /{x}/a;b | key", "%GET /{y} x.test", "%GET /{x}/{z} x.test | key", "GET /{x}/a x.test | key"],
      [],
    ],
    [
      "a wildcard below which only short names are left",
      [`GET /a | key`, `GET /a *.${"a".repeat(60)}.${"b".repeat(60)}.${"c".repeat(60)}.${"d".repeat(60)}.test`],
      [["host", `GET x.${"a".repeat(60)}.${"b".repeat(60)}.${"c".repeat(60)}.${"d".repeat(60)}.test/a`]],
    ],
    [
      "nothing where two routes divide the methods of a pattern by their own guards",
      ["GET /a | key", "PUT /a | jwt"],
      [],
    ],
    [
      "the same methods of a pattern by other guards",
      ["GET /+/a/b | key", "GET,PUT /a+/b | jwt"],
      [["base_path", "GET localhost/a/b"]],
    ],
    ["nothing for hosts that do not meet", ["GET /a a.test | key", "GET /{x*} b.test"], []],
    ["nothing for a less specific pattern", ["GET /a | key", "GET /{x*}"], []],
    [
      "nothing where a third route with the guard takes all such requests",
      ["GET /{x}/b | key", "GET /a/{y*}", "GET /a/{y} | key"],
      [],
    ],
    ["nothing where %2F is refused", ["GET /a/{x}/b | key", "%GET /a/{y}"], []],
  ])("finds bypassed guards: %s", (_title, texts, expected) => {
    expect(bypasses(...texts).filter(([guarded]) => guarded === texts[0])).toEqual(
      expected.map((rest) => [texts[0], texts[1], ...rest]),
    );
  });

  it("finds the same routes as all requests that can be spelt, sent through the route table", () => {
    const r = random(16);
    const found = {
      unreachable: 0,
      method: 0,
      base_path: 0,
      host: 0,
      specificity: 0,
      "%2F": 0,
      match: Infinity,
      upstream: Infinity,
    };
    for (let round = 0; round < ROUNDS; round++) {
      const entries = someEntries(r);
      const expected = tryAll(entries);
      const { unreachable, bypasses } = proofOf(entries);
      const said = `round ${round}: ${entries.map(({ target }) => target.name).join("; ")}`;
      expect(unreachable.map(({ target }) => target.name).sort(), said).toEqual(expected.unreachable);
      const pairs = bypasses.flatMap(({ target, takers }) =>
        takers.map((taker) => `${target.name} < ${taker.target.name}`),
      );
      expect(pairs.sort(), said).toEqual(expected.pairs);
      found.unreachable += unreachable.length;
      const table = compileTable(entries);
      for (const { target, takers } of bypasses) {
        for (const { target: taker, reason, request } of takers) {
          found[reason]++;
          const answer = request === null ? null : answerOf(table, request.method, request.host, request.path);
          expect(answer?.name, `${said}: ${JSON.stringify(request)} of ${target.name}`).toBe(taker.name);
        }
      }
    }
    for (const count of Object.values(found)) expect(count).toBeGreaterThan(ROUNDS / 50);
  }, 60_000);

  const open: RouteDestination = { addresses: ["10.0.0.1:80"], preservesHost: false };
  it.each<[string, string[], RouteDestination[], string[][]]>([
    [
      "another base_path",
      ["GET /shop+/admin/{rest*} | key", "GET /legacy+/{rest*}"],
      [open, { ...open }],
      [["GET localhost/legacy/admin/x"]],
    ],
    [
      "one address of several",
      ["GET /a+/x | key", "GET /b+/x"],
      [{ ...open, addresses: ["10.0.0.2:80", "10.0.0.1:80"] }, open],
      [["GET localhost/b/x"]],
    ],
    [
      "a method that both accept",
      ["GET,PUT /a+/x | key", "POST,PUT /b+/x"],
      [open, { ...open }],
      [["PUT localhost/b/x"]],
    ],
    [
      "a length that both win",
      ["GET /a+/{x*} | key", "GET /b+/{x*}", "GET /a+/{x}", "GET /b+/{x}/{y} | key"],
      [open, { ...open }, open, { ...open }],
      [["GET localhost/b/x/x/x"]],
    ],
    ["the root", ["GET /a+/ | key", "GET /b+/"], [open, { ...open }], [["GET localhost/b"]]],
    [
      "a less specific pattern below a placeholder",
      ["GET /a+/x | key", "GET /{t}+/x"],
      [open, { ...open }],
      [["GET localhost/x2/x"]],
    ],
    [
      "a Host that both services take and pass on",
      ["GET /a+/x a.test,b.test | key", "GET /b+/x *.test"],
      [
        { ...open, preservesHost: true },
        { ...open, preservesHost: true },
      ],
      [["GET a.test/b/x"]],
    ],
    [
      "nothing with different Hosts that both services pass on",
      ["GET /x a.test | key", "GET /x b.test"],
      [
        { ...open, preservesHost: true },
        { ...open, preservesHost: true },
      ],
      [],
    ],
    [
      "nothing at another address",
      ["GET /a+/x | key", "GET /b+/x"],
      [open, { ...open, addresses: ["10.0.0.1:81"] }],
      [],
    ],
    ["nothing with another path", ["GET /a+/x | key", "GET /b+/health"], [open, { ...open }], []],
    ["nothing with other methods", ["GET /a+/x | key", "PUT /b+/x"], [open, { ...open }], []],
    ["nothing with the same guards", ["GET /a+/x | key", "GET /b+/x | key"], [open, { ...open }], []],
    [
      "nothing where a third route with the guard takes all such requests",
      ["GET /a+/x | key", "GET /b+/{y}", "GET /b+/x | key"],
      [open, { ...open }, { ...open }],
      [],
    ],
    [
      "nothing where the guarded route gets none of them",
      ["GET /a+/{x*} | key", "GET /b+/x", "GET /a+/x"],
      [open, { ...open }, open],
      [],
    ],
  ])("finds routes that lead to the same place of an upstream: %s", (_title, texts, destinations, expected) => {
    const entries = texts.map(entry);
    const proof = proofOf(
      entries,
      (target) => destinations[entries.findIndex((each) => each.target === target)] ?? null,
    );
    const takers = proof.bypasses.find(({ target }) => target === entries[0]!.target)?.takers ?? [];
    expect(
      takers
        .filter(({ reason }) => reason === "upstream")
        .map(({ request }) => [`${request!.method} ${request!.host}${request!.path}`]),
    ).toEqual(expected);
  });

  it.each([
    ["", 0, 0],
    [", with an upstream_path of services", 0.6, 0],
    [", with an upstream_path of services and routes", 0.3, 0.5],
  ])(
    "finds the same routes to one place of an upstream as all requests that can be spelt, " +
      "sent through the route table%s",
    (_title, ofServices, ofRoutes) => {
      const r = random(26);
      let count = 0;
      const rounds = ofServices > 0 ? ROUNDS / 2 : ROUNDS;
      for (let round = 0; round < rounds; round++) {
        const prefixes = new Map<string, string | undefined>();
        const entries = someEntries(r).map((each) => {
          const place = `${each.basePath} ${each.hosts.join()}`;
          const prefix = prefixes.has(place)
            ? prefixes.get(place)
            : r.chance(ofServices)
              ? r.pick(["/a", "/a/", "/b/a"])
              : undefined;
          prefixes.set(place, prefix);
          const replaced = r.chance(ofRoutes) ? someTemplate(r, each) : undefined;
          const { basePath, path } = each;
          const written = upstreamPath(
            { basePath, upstreamPath: prefix } as Service,
            { path, upstreamPath: replaced } as Route,
          );
          return {
            ...each,
            upstreamPath: written,
            target: { ...each.target, name: `${each.target.name} to ${prefix}+${replaced}` },
          };
        });
        const services = new Map<string, RouteDestination>();
        const destinations = new Map(
          entries.map(({ basePath, hosts, target }) => {
            const name = `${basePath} ${hosts.join()} ${r.chance(0.2)}`;
            const made = { addresses: r.pick([["u"], ["u"], ["v"], ["u", "v"]]), preservesHost: r.chance(0.3) };
            services.set(name, services.get(name) ?? made);
            return [target, services.get(name)!] as const;
          }),
        );
        const destinationOf = (target: Target) => destinations.get(target)!;
        const said =
          `round ${round}: ` +
          `${entries.map(({ target }) => `${target.name} ${JSON.stringify(destinationOf(target))}`).join("; ")}`;
        const { bypasses } = proofOf(entries, destinationOf);
        const otherwise = new Set(tryAll(entries).pairs);
        const table = compileTable(entries);
        const pairs: string[] = [];
        for (const { target, takers } of bypasses) {
          for (const { target: taker, reason, request } of takers) {
            if (reason !== "upstream") continue;
            pairs.push(`${target.name} < ${taker.name}`);
            expect(answerOf(table, request!.method, request!.host, request!.path)?.name, said).toBe(taker.name);
          }
        }
        expect(pairs.sort(), said).toEqual(
          [...tryPlaces(entries, destinationOf)].filter((pair) => !otherwise.has(pair)).sort(),
        );
        count += pairs.length;
      }
      expect(count).toBeGreaterThan(rounds / 10);
    },
    60_000,
  );

  it("tries few spellings with %2F for forty routes with eight placeholders each, none of which is bypassed", () => {
    const open = Array.from({ length: 20 }, (_, i) =>
      entry(`%GET ${"/{}/x".repeat(8).replace(/\{\}/g, named())}${"/x".repeat(i)}/t`),
    );
    const guarded = Array.from({ length: 20 }, (_, i) =>
      entry(`%GET ${"/{}".repeat(8).replace(/\{\}/g, named())}${"/x".repeat(12 + i)}/m/t | key`),
    );
    const { bypasses, steps } = proofOf([...open, ...guarded]);
    expect(bypasses).toEqual([]);
    expect(steps).toBeLessThan(200_000);
  });

  it("reports a bypass without an example where it cannot try all spellings with %2F", () => {
    // Eight x have to be placed among 24 segments, no two of them where a guarded route of another pattern wins.
    const pair = (i: number, j: number) =>
      Array.from({ length: 24 }, (_, at) => (at === i || at === j ? "/x" : `/{p${at}}`)).join("");
    const pairs = Array.from({ length: 24 }, (_, i) =>
      Array.from({ length: 24 }, (_, j) => (j > i && (i * 7 + j * 11) % 5 < 3 ? pair(i, j) : null)),
    ).flat();
    const others = pairs.flatMap((path) => (path === null ? [] : entry(`GET ${path} | key`)));
    const guarded = entry(`%GET ${"/{}".repeat(24).replace(/\{\}/g, named())} | key`);
    const taking = entry(`%GET ${"/{}/x".repeat(8).replace(/\{\}/g, named())}`);
    const { bypasses, steps } = proofOf([guarded, taking, ...others]);
    expect(bypasses.find(({ target }) => target === guarded.target)?.takers).toEqual([
      { target: taking.target, reason: "%2F", request: null },
    ]);
    expect(steps).toBeLessThanOrEqual(MAX_STEPS_IN_ALL);
  });
});

function named(): () => string {
  let count = 0;
  return () => `{p${count++}}`;
}

/** Of some of the parameters, and of the same literals as the patterns. */
function someTemplate(r: Random, { basePath, path }: Entry): string {
  const rest = /\{(p\d+)\*\}/.exec(path)?.[1];
  const names = [...`${basePath}${path}`.matchAll(/\{(p\d+)\}/g)]
    .map(([, name]) => `{${name}}`)
    .filter(() => r.chance(0.7));
  const segments = r.list(0, 2, () => r.pick(["a", "b", "c", names.pop() ?? "a"]));
  return `/${[...segments, ...(rest !== undefined && r.chance(0.7) ? [`{${rest}}`] : [])].join("/")}`;
}

const ROUNDS = Number(process.env["ROUNDS"] ?? 80);

function someEntries(r: Random): Entry[] {
  const taken = new Set<string>();
  // Without literals, patterns hide each other more often.
  const texts = r.chance(0.2) ? ["{}"] : ["a", "a", "b", "{}", "{}"];
  const segment = () => r.pick(texts);
  const areHostsNamed = r.chance(0.4);
  return r
    .list(2, 6, () => {
      const base = r.pick(["", "", "", "/a", "/{}"]);
      const isOpen = r.chance(0.3);
      const path =
        "/" + [...r.list(0, (base === "" ? 3 : 2) - Number(isOpen), segment), ...(isOpen ? ["{*}"] : [])].join("/");
      const methods = r.pick(["*", "GET", "GET", "PUT", "GET,PUT", "HEAD"]);
      const hosts = areHostsNamed ? r.pick(["", "", "x.test", "*.test", "x.test,y.test"]) : "";
      const guards = r.pick(["", "", "k", "k", "l", "k,l"]);
      let count = 0;
      const named = (text: string) => text.replace(/\{(\*?)\}/g, (_, star) => `{p${count++}${star}}`);
      const text = `${r.chance(0.5) ? "%" : ""}${methods} ${named(base) || "/"}+${named(path)} ${hosts} | ${guards}`;
      // What `checkRoutes` refuses is left out: the same method of the same pattern on the same host, below base_paths
      // of one length.
      const pattern = (base + path).replace(/\/$/, "").replace(/\{\*\}/g, "*");
      const marks = (hosts || "-")
        .split(",")
        .flatMap((host) =>
          (methods === "*" ? ["*"] : methods.split(",")).map(
            (method) => `${host} ${base.split("/").length} ${pattern} ${method}`,
          ),
        );
      const clash = (mark: string) =>
        taken.has(mark) ||
        taken.has(mark.replace(/\S+$/, "*")) ||
        (mark.endsWith("*") && [...taken].some((each) => each.startsWith(mark.slice(0, -1))));
      if (marks.some(clash)) return null;
      for (const mark of marks) taken.add(mark);
      return entry(text);
    })
    .filter((each) => each !== null);
}

const METHODS = ["GET", "HEAD", "PUT", "POST"];
const HOSTS = ["x.test", "y.test", "z.test", "other"];
const PATHS = paths();

/**
 * All paths of up to three segments that decode to up to four, and of four segments that decode to up to three, of a, b
 * and c.
 */
function paths(): string[] {
  const texts = (count: number): string[] =>
    count === 0 ? [""] : texts(count - 1).flatMap((text) => ["a", "b", "c"].map((each) => `${text}%2F${each}`));
  const segments = [0, 1, 2, 3, 4].map((count) => {
    const spelt = texts(count).map((text) => text.slice(3));
    return count === 0 ? ["%2F"] : count === 1 ? [...spelt, ...spelt.map((text) => `${text}%2F`)] : spelt;
  });
  const from = (raw: number, decoded: number): string[] =>
    raw === 0
      ? [""]
      : segments
          .slice(0, decoded + 1)
          .flatMap((list, count) =>
            list.flatMap((segment) => from(raw - 1, decoded - count).map((rest) => `/${segment}${rest}`)),
          );
  const plain = texts(4).map((text) => text.replaceAll("%2F", "/"));
  return ["/", ...[1, 2, 3].flatMap((raw) => from(raw, 4)), ...from(4, 3), ...plain];
}

function answerOf(
  table: ReturnType<typeof compileTable<Target>>,
  method: string,
  host: string,
  path: string,
): Target | null {
  const target = readTarget(path);
  if ("code" in target) throw new Error(`${path}: ${target.detail}`);
  const found = table.find(host, method, target.path, target.encodedSlash);
  return found.kind === "route" ? found.target : null;
}

/** The patterns alone, for each route. */
function matchers(entries: readonly Entry[]) {
  return entries.map(({ basePath, path }) => {
    const text = `${basePath === "/" ? "" : basePath}${path}`.replace(/\/$/, "");
    const regex = new RegExp(`^${text.replace(/\{p\d+\*\}/g, ".+").replace(/\{p\d+\}/g, "[^/]+")}/?$`);
    return (spelt: string) => regex.test(spelt === "/" ? "" : spelt);
  });
}

const DECODED = PATHS.map((path) => comparable(path).replaceAll("%2F", "/").replace(/\/\/+/g, "/"));

function tryAll(entries: readonly Entry[]) {
  const table = compileTable(entries);
  const matches = matchers(entries).map((match) => PATHS.map((path, i) => match(path) || match(DECODED[i]!)));
  const reached = new Set<Target>();
  const pairs = new Set<string>();
  const index = new Map(entries.map(({ target }, i) => [target, i]));
  const meets = entries.map((a) => entries.map((b) => meet(a.hosts, b.hosts) && !haveOwnMethods(a, b)));
  for (const method of METHODS) {
    for (const host of entries.some(({ hosts }) => hosts.length > 0) ? HOSTS : ["other"]) {
      PATHS.forEach((path, p) => {
        const found = table.find(host, method, path, path.includes("%2F"));
        if (found.kind !== "route") return;
        reached.add(found.target);
        const taker = index.get(found.target)!;
        entries.forEach(({ target }, i) => {
          const isMissing = [...target.guards].some((guard) => !found.target.guards.has(guard));
          if (i !== taker && isMissing && meets[i]![taker] && matches[i]![p])
            pairs.add(`${target.name} < ${found.target.name}`);
        });
      });
    }
  }
  return {
    unreachable: entries
      .map(({ target }) => target)
      .filter((each) => !reached.has(each))
      .map(({ name }) => name)
      .sort(),
    pairs: [...pairs].sort(),
  };
}

/** All paths of up to five segments, of a, b and c, without %2F. */
const PLAIN = [0, 1, 2, 3, 4, 5].flatMap((length) =>
  Array.from(
    { length: 3 ** length },
    (_, i) => "/" + Array.from({ length }, (_, at) => "abc"[Math.floor(i / 3 ** at) % 3]).join("/"),
  ),
);

/**
 * For each pair of routes, of different services or where a route has an upstream_path: whether a request for the one
 * and one for the other lead to the same place.
 */
function tryPlaces(entries: readonly Entry[], destinationOf: (target: Target) => RouteDestination): Set<string> {
  const table = compileTable(entries);
  const places = new Map<Target, Set<string>>();
  for (const method of METHODS) {
    for (const host of HOSTS) {
      for (const path of PLAIN) {
        const found = table.find(host, method, path, false);
        if (found.kind !== "route") continue;
        const { addresses } = destinationOf(found.target);
        const known = places.get(found.target) ?? new Set();
        for (const address of addresses)
          for (const named of [host, "any"])
            known.add(`${method} ${address} ${named} ${found.upstreamPath.replace(/\/$/, "")}`);
        places.set(found.target, known);
      }
    }
  }
  const pairs = new Set<string>();
  for (const [a, reached] of places) {
    for (const [b, others] of places) {
      const [to, other] = [destinationOf(a), destinationOf(b)];
      const isSameService =
        to === other &&
        !entries.some(({ target, upstreamPath }) => destinationOf(target) === to && upstreamPath?.isOfRoute);
      const [own, of] = [a, b].map((each) => entries.find(({ target }) => target === each)!);
      if (a === b || isSameService || haveOwnMethods(own!, of!) || ![...a.guards].some((guard) => !b.guards.has(guard)))
        continue;
      const isHostTold = to.preservesHost && other.preservesHost;
      if (
        [...reached].some(
          (place) => others.has(place) && (isHostTold ? !place.includes(" any ") : place.includes(" any ")),
        )
      )
        pairs.add(`${a.name} < ${b.name}`);
    }
  }
  return pairs;
}

/** Whether two routes of one pattern divide its methods, and each has a guard that the other one lacks. */
function haveOwnMethods(a: Entry, b: Entry): boolean {
  const [pattern, other] = [a, b].map(({ basePath, path }) =>
    `${basePath}/${path}`
      .replace(/\{p\d+/g, "{")
      .replace(/\/+/g, "/")
      .replace(/\/$/, ""),
  );
  const hosts = (of: Entry) => (of.hosts.length === 0 ? ["*"] : of.hosts);
  const methods = (of: Entry) => (of.methods.includes("GET") ? [...of.methods, "HEAD"] : of.methods);
  const isLacking = (of: Entry, needed: Entry) => [...needed.target.guards].some((each) => !of.target.guards.has(each));
  return (
    pattern === other &&
    hosts(a).some((host) => hosts(b).includes(host)) &&
    a.methods.length > 0 &&
    b.methods.length > 0 &&
    !methods(a).some((method) => methods(b).includes(method)) &&
    isLacking(a, b) &&
    isLacking(b, a)
  );
}

function meet(a: readonly string[], b: readonly string[]): boolean {
  const covers = (hosts: readonly string[], host: string) =>
    hosts.length === 0 || hosts.includes(host) || (host.endsWith(".test") && hosts.includes("*.test"));
  return HOSTS.some((host) => covers(a, host) && covers(b, host));
}
