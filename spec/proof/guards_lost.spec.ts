import { describe, expect, it } from "vitest";
import { createTimeSlices } from "../../lib/base/time_slices.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { guardsLost, type ComparedConfig, type GuardsLost } from "../../lib/proof/guards_lost.ts";
import { matchingTable } from "../../lib/proof/scratch.ts";
import { takeovers } from "../../lib/route/takeovers.ts";
import type { TableEntry } from "../../lib/route/table.ts";
import type { HeaderList } from "../../lib/http/headers.ts";
import { random, type Random } from "../support/random.ts";
import { checkRoutes, loadConfig } from "../support/schema.ts";

type ServiceInput = AnyConfigInput["services"][number];
type RouteInput = ServiceInput["routes"][number];
type PluginInput = NonNullable<ServiceInput["plugins"]>[number];

const KEY: PluginInput = { name: "key_auth", config: { key: "k" } };
const OTHER_KEY: PluginInput = { name: "key_auth", config: { key: "K" } };
const ACL: PluginInput = { name: "acl", config: { whitelist: ["10.0.0.0/8"] } };
const BASIC: PluginInput = { name: "basic_auth", config: { username: "u", password: "p" } };
const CLOSED: PluginInput = { name: "request_termination" };

/** Null: the configuration is refused. */
function loaded(config: AnyConfigInput): ComparedConfig | null {
  const result = loadConfig({ value: config }, { kinds: builtinPlugins, environment: {}, checkRoutes });
  return result.ok ? { ...result, table: matchingTable(result) } : null;
}

const lost = (before: ComparedConfig, after: ComparedConfig) => guardsLost(before, after, createTimeSlices());

function service(name: string, routes: RouteInput[], parts: Partial<ServiceInput> = {}): ServiceInput {
  return { name, base_path: "/", upstreams: [{ host: "h", port: 1 }], routes, ...parts };
}

const guarded = (name: string, path: string, more: object = {}): RouteInput => ({
  name,
  path,
  plugins: [KEY],
  ...more,
});
const open = (name: string, path: string, more: object = {}): RouteInput => ({ name, path, ...more });

describe("guardsLost", () => {
  it.each<[string, ServiceInput[], ServiceInput[], string]>([
    [
      "a new service for one host takes a part of the paths of a guarded one for all hosts",
      [service("a", [guarded("admin", "/admin/{rest*}")])],
      [
        service("a", [guarded("admin", "/admin/{rest*}")]),
        service("b", [open("all", "/{rest*}")], { hosts: ["b.test"] }),
      ],
      "b / all lacks key_auth of a / admin: GET http://b.test/admin/x",
    ],
    [
      "a new service for names below a host takes requests of a guarded one for one of them",
      [service("a", [guarded("admin", "/admin")], { hosts: ["*.b.test"] })],
      [
        service("a", [guarded("admin", "/admin")], { hosts: ["*.b.test"] }),
        service("b", [open("all", "/{x}")], { hosts: ["*.c.b.test"] }),
      ],
      "b / all lacks key_auth of a / admin: GET http://x.c.b.test/admin",
    ],
    [
      "two patterns cross each other",
      [service("a", [guarded("left", "/{x}/b")]), service("b", [open("right", "/c/{y}/{z}")])],
      [service("a", [guarded("left", "/{x}/b")]), service("b", [open("right", "/c/{y}")])],
      "b / right lacks key_auth of a / left: GET http://localhost/c/b",
    ],
    [
      "a method that a guarded route for all methods had gets a route of its own",
      [service("a", [guarded("all", "/a")])],
      [
        service("a", [guarded("all", "/a")]),
        service("b", [open("purge", "/", { methods: ["DELETE"] })], { base_path: "/a" }),
      ],
      "b / purge lacks key_auth of a / all: DELETE http://localhost/a",
    ],
    [
      "HEAD, which went to the route of GET, gets a route of its own",
      [service("a", [guarded("get", "/a", { methods: ["GET"] })])],
      [service("a", [guarded("get", "/a", { methods: ["GET"] }), open("head", "/a", { methods: ["HEAD"] })])],
      "a / head lacks key_auth of a / get: HEAD http://localhost/a",
    ],
    [
      "a route with two patterns of values takes requests that fulfil both",
      [service("a", [guarded("one", "/a", { match: { headers: { "X-A": { matches: "^(?:v1|v2)$" } } } })])],
      [
        service("a", [
          guarded("rest", "/a"),
          open("two", "/a", { match: { headers: { "X-A": { matches: "^(?:v2|v3)$" } } } }),
        ]),
      ],
      "a / two lacks key_auth of a / one: GET http://localhost/a (x-a: v2)",
    ],
  ])("finds the request where %s", async (_title, old, next, expected) => {
    const { found, isComplete } = await lost(loaded({ services: old })!, loaded({ services: next })!);
    expect(isComplete).toBe(true);
    expect(
      found.map(
        ({ service: name, route, guards, before, example }) =>
          `${name} / ${route} lacks ${guards.join()} of ${before.service} / ${before.route}: ${example}`,
      ),
    ).toEqual([expected]);
  });

  it("finds no request where the patterns of values of two routes list different texts", async () => {
    const one = guarded("one", "/a", { match: { headers: { "X-A": { matches: "^(?:v1|v2)$" } } } });
    const two = open("two", "/a", { match: { headers: { "X-A": { matches: "^(?:v3|v4)$" } } } });
    const [before, after] = [[one], [guarded("rest", "/a"), two]].map((routes) =>
      loaded({ services: [service("a", routes)] }),
    );
    expect((await lost(before!, after!)).found).toEqual([]);
  });

  it("misses no loss and invents none: as all requests that can be spelt, sent through both route tables", async () => {
    const r = random(39);
    let [tried, withLoss] = [0, 0];
    for (let round = 0; round < ROUNDS; round++) {
      const old = someConfig(r);
      const next = changed(r, old);
      const [before, after] = [loaded(old), loaded(next)];
      if (before === null || after === null) continue;
      tried++;
      const said = `round ${round}: ${JSON.stringify([old, next])}`;
      const { found, isComplete } = await lost(before, after);
      expect(isComplete).toBe(true);
      expect(Object.fromEntries(found.map((each) => [nameOf(each), [...each.guards].sort()])), said).toEqual(
        tryAll(before, after),
      );
      for (const each of found) if (each.example !== null) expectReached(each, before, after, said);
      if (found.some(({ example }) => example !== null)) withLoss++;
    }
    expect([tried, withLoss].every((count) => count > ROUNDS / 5)).toBe(true);
  }, 60_000);

  it("looks nothing up for routes that both have, and compares 1,000 changed routes in slices", async () => {
    const routes = (plugins: PluginInput[]) =>
      Array.from({ length: 1_000 }, (_, i) => ({ name: `r${i}`, path: `/r${i}/{x}`, plugins }));
    const config = (plugins: PluginInput[]) =>
      loaded({ services: [service("a", routes(plugins)), service("b", [open("all", "/{rest*}")])] })!;
    const [before, same, less] = [config([KEY, ACL]), config([KEY, ACL]), config([KEY])];
    let slices = 0;
    const count = () => (slices++, Promise.resolve());
    expect((await guardsLost(before, same, count)).found).toEqual([]);
    const { found, isComplete } = await guardsLost(before, less, count);
    expect([found.length, isComplete, found[0]!.guards]).toEqual([1_000, true, ["acl"]]);
    expect(slices).toBeGreaterThan(1_000);
  });
});

describe("takeovers", () => {
  const entries = (open: string) =>
    Array.from({ length: 40 }, (_, i): TableEntry<string> => {
      const path = i % 2 === 0 ? `/{a}/l${i}` : `/m${i}/{b}`;
      return {
        basePath: "/",
        hosts: [],
        path,
        methods: [],
        encodedSlashes: false,
        pathParameters: false,
        target: `${open}${path}`,
      };
    });
  const run = (most?: number) => {
    const steps = takeovers(
      { before: entries("old "), after: entries("new ") },
      { isAsked: () => true, nameOf: (name) => name },
      most,
    );
    const found: string[] = [];
    for (;;) {
      const { done, value } = steps.next();
      if (done === true) return { found, isComplete: value };
      if (value !== undefined) found.push(`${value.before} > ${value.after}`);
    }
  };

  it("says that it did not compare all pairs once it has looked up as much as it may", () => {
    const { found, isComplete } = run();
    expect([found.length, isComplete]).toEqual([40, true]);
    const bounded = run(100);
    expect([bounded.found.length < 40, bounded.isComplete]).toEqual([true, false]);
  });
});

const ROUNDS = Number(process.env["ROUNDS"] ?? 120);

const nameOf = ({ service: name, route }: Pick<GuardsLost, "service" | "route">) => `${name} / ${route}`;

function someService(r: Random, name: string): ServiceInput {
  return service(
    name,
    r.list(1, 3, () => null).map((_, i) => someRoute(r, `r${i}`)),
    {
      base_path: r.pick(["/", "/", "/a", "/{base}"]),
      hosts: r.pick([[], [], ["x.test"], ["*.test"], ["x.test", "y.test"]]),
      plugins: r.chance(0.2) ? [somePlugin(r)] : [],
      encoded_slashes: r.pick(["reject", "allow"]),
    },
  );
}

function someRoute(r: Random, name: string): RouteInput {
  const segments = r.list(0, 2, () => r.pick(["a", "b", "{}"]));
  const path = `/${[...segments, ...(r.chance(0.25) ? ["{*}"] : [])].join("/")}`;
  let count = 0;
  const match = r.chance(0.3) ? { match: someMatch(r) } : {};
  return {
    name,
    path: path.replace(/\{(\*?)\}/g, (_, star: string) => `{p${count++}${star}}`),
    methods: r.pick([[], [], ["GET"], ["PUT"], ["GET", "PUT"], ["HEAD"]]),
    plugins: r.list(0, 2, () => somePlugin(r)),
    ...match,
  };
}

function someMatch(r: Random): NonNullable<RouteInput["match"]> {
  const value = () => r.pick(["1", "2", true, null, { matches: "^(?:1|2)$" }] as const);
  const headers = r.pick([{ "X-A": value() }, { "X-B": value() }, { "X-A": value(), "X-B": value() }]);
  return r.chance(0.2) ? { scheme: "https" } : { headers };
}

const somePlugin = (r: Random): PluginInput => r.pick([KEY, KEY, OTHER_KEY, ACL, BASIC, CLOSED]);

function someConfig(r: Random): AnyConfigInput {
  return { services: r.list(1, 3, () => null).map((_, i) => someService(r, `s${i}`)) };
}

/** One part is added, removed or replaced, or two. */
function changed(r: Random, config: AnyConfigInput): AnyConfigInput {
  const services = structuredClone(config.services) as ServiceInput[];
  for (let changes = r.int(1, 2); changes > 0; changes--) {
    const i = r.int(0, Math.max(0, services.length - 1));
    const each = services[i];
    const routes = [...(each?.routes ?? [])];
    const j = r.int(0, Math.max(0, routes.length - 1));
    const other = someRoute(r, `n${changes}`);
    const replaced = (list: readonly RouteInput[]) => (services[i] = { ...each!, routes: [...list] });
    if (each === undefined || r.chance(0.15)) services.push(someService(r, `n${changes}`));
    else if (r.chance(0.1)) services.splice(i, 1);
    else if (r.chance(0.2)) services[i] = { ...someService(r, each.name), routes };
    else if (r.chance(0.3) || routes.length === 0) replaced([...routes, other]);
    else if (r.chance(0.3)) replaced(routes.filter((_, at) => at !== j));
    else if (r.chance(0.4))
      replaced(routes.map((route, at) => (at === j ? { ...route, plugins: other.plugins! } : route)));
    else
      replaced(
        routes.map((route, at) => (at === j ? { ...other, name: route.name!, plugins: route.plugins! } : route)),
      );
  }
  return { services };
}

/** All paths of up to five segments of a, b and c, and some with %2F. */
const PATHS = [
  ...[0, 1, 2, 3, 4].flatMap((length) =>
    Array.from(
      { length: 3 ** length },
      (_, i) => "/" + Array.from({ length }, (_each, at) => "abc"[Math.floor(i / 3 ** at) % 3]).join("/"),
    ),
  ),
  ...["/a%2Fb", "/%2F", "/a/b%2Fa", "/a%2Fa/b", "/b/%2Fb", "/a/a%2Fb/b", "/c%2Fc/c"],
];
const METHODS = ["GET", "HEAD", "PUT", "POST"];
const HOSTS = ["x.test", "y.test", "z.test", "other"];
const HEADERS: readonly HeaderList[] = [[], ["x-a", "1"], ["x-a", "2"], ["x-a", "c"]].flatMap((first) =>
  [[], ["x-b", "1"], ["x-b", "2"], ["x-b", "c"]].map((second) => [...first, ...second]),
);

type Asked = readonly [host: string, method: string, path: string, headers: HeaderList, scheme: "http" | "https"];

function routeOf({ table }: ComparedConfig, [host, method, path, headers, scheme]: Asked) {
  const found = table.find(host, method, path, path.includes("%2F"), headers, "", scheme);
  return found.kind === "route" ? { service: found.target.service.name, route: found.target.route.name } : null;
}

/** The guards of each route, by its name: kind and configuration; null for one that refuses all requests. */
function guardsOf({ config: { services } }: ComparedConfig) {
  return new Map(
    services.flatMap((each) =>
      each.routes.map((route) => {
        const plugins = [...each.plugins, ...route.plugins];
        const list = plugins.map(({ name, config }) => ({ name, text: JSON.stringify([name, config]) }));
        return [nameOf({ service: each.name, route: route.name }), list] as const;
      }),
    ),
  );
}

function tryAll(before: ComparedConfig, after: ComparedConfig): Record<string, string[]> {
  const [olds, news] = [guardsOf(before), guardsOf(after)];
  const hasMatch = [before, after].some(({ config }) =>
    config.services.some(({ routes }) => routes.some(({ match }) => match !== undefined)),
  );
  const lost = new Map<string, Set<string>>();
  const note = (was: string, is: string) => {
    const kept = news.get(is)!;
    if (kept.some(({ name }) => name === "request_termination")) return;
    for (const { name, text } of olds.get(was)!) {
      if (kept.some((each) => each.text === text)) continue;
      lost.set(is, (lost.get(is) ?? new Set()).add(name));
    }
  };
  for (const name of olds.keys()) if (news.has(name)) note(name, name);
  const known = new Set<string>();
  for (const host of HOSTS) {
    for (const path of PATHS) {
      for (const method of METHODS) {
        for (const headers of hasMatch ? HEADERS : [[]]) {
          for (const scheme of hasMatch ? (["http", "https"] as const) : (["http"] as const)) {
            const asked: Asked = [host, method, path, headers, scheme];
            const was = routeOf(before, asked);
            const is = was === null ? null : routeOf(after, asked);
            if (was === null || is === null) continue;
            const pair = `${nameOf(was)} > ${nameOf(is)}`;
            if (!known.has(pair)) note(nameOf(was), nameOf(is));
            known.add(pair);
          }
        }
      }
    }
  }
  return Object.fromEntries([...lost].map(([name, kinds]) => [name, [...kinds].sort()]));
}

/** "GET http://x.test/a (x-a: 1)" goes to the one route before, and to the other one after. */
function expectReached(
  { example, before: place, service: name, route }: GuardsLost,
  before: ComparedConfig,
  after: ComparedConfig,
  said: string,
) {
  const [, method, scheme, host, path, lines] = /^(\w+) (https?):\/\/([^/]+)([^ ]*)(?: \((.*)\))?$/.exec(example!)!;
  const headers = lines === undefined ? [] : lines.split(", ").flatMap((line) => line.split(": "));
  const asked: Asked = [host!, method!, path!, headers, scheme as "http"];
  expect(routeOf(before, asked), `${example} before, ${said}`).toEqual(place);
  expect(routeOf(after, asked), `${example} after, ${said}`).toEqual({ service: name, route });
}
