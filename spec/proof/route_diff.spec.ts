import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import type { ComparedConfig } from "../../lib/proof/guards_lost.ts";
import { matchingTable } from "../../lib/proof/scratch.ts";
import { view as viewOf } from "../../lib/admin/views.ts";
import { routeDiff } from "../../lib/proof/route_diff.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { fileWith } from "../support/process.ts";
import { checkRoutes, loadConfig } from "../support/schema.ts";

type ServiceInput = AnyConfigInput["services"][number];
type PluginInput = NonNullable<ServiceInput["plugins"]>[number];

function loaded(config: AnyConfigInput, environment: Record<string, string> = {}): ComparedConfig {
  const result = loadConfig({ value: config }, { kinds: builtinPlugins, environment, checkRoutes });
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return { ...result, table: matchingTable(result) };
}

const diff = (before: AnyConfigInput, after: AnyConfigInput) => routeDiff(loaded(before), loaded(after));
const NOTHING = { guardsLost: [], added: [], removed: [], changed: [], other: [] };

const key: PluginInput = { name: "key_auth", config: { key: "k" } };
const otherKey: PluginInput = { name: "key_auth", config: { key: "K" } };
const acl: PluginInput = { name: "acl", config: { whitelist: ["10.0.0.0/8"] } };
const limit: PluginInput = { name: "rate_limit", config: { limit_min: 5 } };

function shop(parts: Partial<ServiceInput> = {}): ServiceInput {
  return {
    name: "shop",
    base_path: "/shop",
    upstreams: [{ id: "one", host: "h", port: 1 }],
    routes: [
      { name: "items", path: "/items/{id}", methods: ["GET"], plugins: [key] },
      { name: "rest", path: "/{rest*}" },
    ],
    ...parts,
  };
}

const of = (...services: ServiceInput[]): AnyConfigInput => ({ services });
const withItems = (parts: Partial<ServiceInput["routes"][number]>) =>
  of(
    shop({
      routes: [
        { name: "items", path: "/items/{id}", methods: ["GET"], plugins: [key], ...parts },
        { name: "rest", path: "/{rest*}" },
      ],
    }),
  );
const base = of(shop());

describe("routeDiff", () => {
  it(
    "finds nothing between configurations that differ in the order of fields and " + "in written defaults only",
    async () => {
      const turned = of(
        Object.fromEntries(Object.entries(shop({ hosts: [], protocol: "http" })).reverse()) as unknown as ServiceInput,
      );
      expect(await diff(base, base)).toEqual(NOTHING);
      expect(await diff(base, turned)).toEqual(NOTHING);
    },
  );

  it(
    "authorize is a guard with its rules: another rule is another guard, " + "and a route without it has lost one",
    async () => {
      const rules = (...given: object[]): PluginInput => ({ name: "authorize", config: { rules: given } as never });
      const [staff, own] = [{ groups: ["staff"] }, { params: { id: "${caller.id}" } }];
      const before = withItems({ plugins: [key, rules(staff)] });
      const lost = async (...plugins: PluginInput[]) =>
        (await diff(before, withItems({ plugins }))).guardsLost.map(({ guards, altered, example }) => ({
          guards,
          altered,
          example,
        }));
      const example = "GET http://localhost/shop/items/x";
      expect(await lost(key)).toEqual([{ guards: ["authorize"], altered: [], example }]);
      expect(await lost(key, rules(staff, own))).toEqual([{ guards: ["authorize"], altered: ["authorize"], example }]);
      expect(await lost(key, rules(staff), rules(own))).toEqual([]);
      const changedText = await diff(
        withItems({ plugins: [key, rules(own)] }),
        withItems({ plugins: [key, rules({ params: { id: "x-${caller.id}" } })] }),
      );
      expect(changedText.guardsLost.map(({ altered }) => altered)).toEqual([["authorize"]]);
    },
  );

  it("lists added and removed routes, with a whole service too, without the parts in them", async () => {
    const more = of(
      shop({ routes: [...shop().routes, { name: "cart", path: "/cart", plugins: [limit] }] }),
      shop({ name: "blog", base_path: "/blog" }),
    );
    const places = [
      { service: "shop", route: "cart" },
      { service: "blog", route: "items" },
      { service: "blog", route: "rest" },
    ];
    expect(await diff(base, more)).toEqual({ ...NOTHING, added: places });
    expect(await diff(more, base)).toMatchObject({ added: [], removed: places, changed: [], other: [] });
  });

  it.each<[string, AnyConfigInput, string[]]>([
    ["another path", withItems({ path: "/things/{id}" }), ["path /items/{id} is now /things/{id}"]],
    ["other methods", withItems({ methods: [] }), ["methods GET is now (all)"]],
    [
      "added conditions, without their values",
      withItems({ match: { headers: { "X-Version": "secret" }, query: { beta: true } } }),
      ["match (none) is now header X-Version and query parameter beta"],
    ],
    ["an added plugin", withItems({ plugins: [key, limit] }), ["plugin rate_limit added"]],
    [
      "a plugin that is configured differently, without its secret",
      withItems({ plugins: [otherKey] }),
      ["plugin key_auth altered (config.key)"],
    ],
    ["a disabled plugin", withItems({ plugins: [{ ...key, enabled: false }] }), ["plugin key_auth altered (enabled)"]],
    ["plugins in another order", withItems({ plugins: [acl, key] }), ["order of plugins altered"]],
  ])("names %s of a route", async (_what, after, changes) => {
    const before = after.services[0]!.routes[0]!.plugins?.[0] === acl ? withItems({ plugins: [key, acl] }) : base;
    expect(await diff(before, after)).toMatchObject({
      added: [],
      removed: [],
      changed: [{ service: "shop", route: "items", changes }],
      other: [],
    });
  });

  it.each<[string, AnyConfigInput, string[]]>([
    ["its base_path", of(shop({ base_path: "/store" })), ["base_path /shop is now /store"]],
    ["its hosts", of(shop({ hosts: ["a.test", "*.b.test"] })), ["hosts (all) is now a.test, *.b.test"]],
    [
      "its settings",
      of(shop({ timeouts: { connect_ms: 5 }, preserve_host: true })),
      ["service preserve_host altered", "service timeouts.connect_ms altered"],
    ],
    [
      "its upstreams",
      of(
        shop({
          upstreams: [
            { id: "one", host: "h", port: 1, weight: 2 },
            { id: "two", host: "h", port: 2 },
          ],
        }),
      ),
      ['upstream "one" altered (weight)', 'upstream "two" added'],
    ],
    ["its plugins", of(shop({ plugins: [limit] })), ["service plugin rate_limit added"]],
    ["the global plugins", { ...base, global: { plugins: [limit] } }, ["global plugin rate_limit added"]],
  ])("a change of a service concerns all of its routes: %s", async (_what, after, changes) => {
    const everyRoute = ["items", "rest"].map((route) => ({
      service: "shop",
      route,
      changes: expect.arrayContaining(changes) as unknown,
    }));
    const found = await diff(base, after);
    expect(found).toMatchObject({ changed: everyRoute, other: [] });
    expect(found.changed[0]!.changes).toHaveLength(changes.length);
  });

  it("lists what belongs to no route apart", async () => {
    const empty = shop({ name: "empty", base_path: "/empty", routes: [] });
    expect((await diff(base, { global: { name: "x", limits: { max_uri_bytes: 100 } }, ...base })).other).toEqual([
      "global altered (name, limits.max_uri_bytes)",
    ]);
    expect((await diff(base, of(shop(), empty))).other).toEqual(['service "empty" added']);
    expect(
      (await diff(of(shop(), empty), of(shop(), { ...empty, preserve_host: true, plugins: [limit] }))).other,
    ).toEqual(['service "empty" altered (preserve_host)', 'service "empty" / plugin rate_limit added']);
    expect((await diff({ services: [] }, { services: [], global: { plugins: [limit] } })).other).toEqual([
      "global / plugin rate_limit added",
    ]);
    expect(await diff(base, of(shop({ routes: [...shop().routes].reverse() })))).toEqual({
      ...NOTHING,
      other: ['service "shop" altered (order of routes)'],
    });
    const both = await diff(base, of(shop({ routes: [...shop().routes].reverse(), preserve_host: true })));
    expect([both.other, both.changed[0]!.changes]).toEqual([
      ['service "shop" altered (order of routes)'],
      ["service preserve_host altered"],
    ]);
  });

  it("is written in the spelling of JSON, guards first", async () => {
    const view = viewOf(await diff(base, withItems({ plugins: [] })));
    expect(Object.keys(view)).toEqual(["guards_lost", "added", "removed", "changed", "other"]);
    expect(JSON.parse(JSON.stringify(view.guards_lost))).toEqual([
      {
        service: "shop",
        route: "items",
        guards: ["key_auth"],
        altered: [],
        before: { service: "shop", route: "items" },
        example: "GET http://localhost/shop/items/x",
      },
    ]);
  });
});

describe("changed conditions", () => {
  const withMatch = (match: NonNullable<ServiceInput["routes"][number]["match"]>) => withItems({ match });

  it("are named without their values", async () => {
    const changes = async (after: AnyConfigInput) =>
      (await diff(withMatch({ headers: { "X-Version": "1" } }), after)).changed[0]?.changes;
    expect(await changes(withMatch({ headers: { "X-Version": "2" } }))).toEqual(["match.headers altered"]);
    expect(await changes(withMatch({ cookies: { a: "1" } }))).toEqual([
      "match.headers X-Version is now (none)",
      "match.cookies (none) is now a",
    ]);
    expect(await changes(withMatch({ headers: { "X-Version": "1" } }))).toBe(undefined);
    expect(await changes(base)).toEqual(["match header X-Version is now (none)"]);
  });
});

describe("guards lost", () => {
  it(
    "are found where a route with conditions takes requests from a guarded one, " + "with an example that has them",
    async () => {
      const routes = (...all: ServiceInput["routes"]) => of(shop({ routes: all }));
      const guarded = { name: "guarded", path: "/a", plugins: [key] };
      const before = routes(guarded);
      const lostTo = async (after: AnyConfigInput, from = before) =>
        (await diff(from, after)).guardsLost.map(({ route, example }) => `${route}: ${example}`);
      expect(
        await lostTo(
          routes(guarded, {
            name: "open",
            path: "/a",
            match: { headers: { "X-A": { matches: "^v[12]" } }, cookies: { c: true } },
          }),
        ),
      ).toEqual(["open: GET http://localhost/shop/a (x-a: v1, cookie: c=x)"]);
      expect(await lostTo(routes({ ...guarded, match: { query: { q: "1" } } }, { name: "open", path: "/a" }))).toEqual([
        "open: GET http://localhost/shop/a",
      ]);
      expect(await lostTo(routes({ ...guarded, match: { query: { q: "1" } } }))).toEqual([]);
      const old = routes({ ...guarded, match: { headers: { "X-A": "1" } } });
      const two = { name: "open", path: "/a", match: { headers: { "X-B": "1" } } };
      expect(await lostTo(routes(two, { ...guarded, name: "rest" }), old)).toEqual([
        "open: GET http://localhost/shop/a (x-a: 1, x-b: 1)",
      ]);
      const loose = routes({ ...guarded, match: { headers: { "X-A": true, "X-B": "1" } } });
      const strict = { name: "open", path: "/a", match: { headers: { "X-A": "1", "X-C": "1" } } };
      expect(await lostTo(routes(strict, { ...guarded, name: "rest" }), loose)).toEqual([
        "open: GET http://localhost/shop/a (x-a: 1, x-b: 1, x-c: 1)",
      ]);
    },
  );

  it("have examples without secrets", async () => {
    const config = (match?: object): AnyConfigInput =>
      of(
        shop({
          routes: [
            { name: "g", path: "/a", plugins: [key] },
            ...(match === undefined ? [] : [{ name: "open", path: "/a", match }]),
          ],
        }),
      );
    const after = loaded(config({ headers: { "X-Token": "s3cret-s3cret" } }));
    expect((await routeDiff(loaded(config()), after)).guardsLost).toMatchObject([
      { example: "GET http://localhost/shop/a (x-token: ********)" },
    ]);
  });

  /** One line each: the route, the guards, and the route that has them. */
  const lost = async (before: AnyConfigInput, after: AnyConfigInput) =>
    (await diff(before, after)).guardsLost.map(
      ({ route, guards, altered, before: { route: was } }) =>
        `${route}: ${guards.join()}${altered.length === 0 ? "" : ` (altered: ${altered.join()})`}, as ${was}`,
    );

  it.each<[string, AnyConfigInput, AnyConfigInput, string[]]>([
    ["a guard is removed", base, withItems({ plugins: [] }), ["items: key_auth, as items"]],
    ["a guard is disabled", base, withItems({ plugins: [{ ...key, enabled: false }] }), ["items: key_auth, as items"]],
    [
      "nothing: a route that refuses all requests instead",
      base,
      withItems({ plugins: [{ name: "request_termination" }] }),
      [],
    ],
    [
      "a guard is configured differently",
      base,
      withItems({ plugins: [otherKey] }),
      ["items: key_auth (altered: key_auth), as items"],
    ],
    [
      "a guard of the service is removed",
      of(shop({ plugins: [acl] })),
      base,
      ["items: acl, as items", "rest: acl, as rest"],
    ],
    [
      "a global guard is removed",
      { ...base, global: { plugins: [acl] } },
      base,
      ["items: acl, as items", "rest: acl, as rest"],
    ],
    [
      "a guarded route gets another name and no guard",
      base,
      of(shop({ routes: [{ name: "new", path: "/items/{key}" }] })),
      ["new: key_auth, as items"],
    ],
    [
      "a guarded route is removed, and another one gets its requests",
      base,
      of(shop({ routes: [{ name: "rest", path: "/{rest*}" }] })),
      ["rest: key_auth, as items"],
    ],
    ["a guarded route moves away", base, withItems({ path: "/things/{id}" }), ["rest: key_auth, as items"]],
    [
      "a more specific route gets a part of its requests",
      base,
      of(shop({ routes: [...shop().routes, { name: "health", path: "/items/health" }] })),
      ["health: key_auth, as items"],
    ],
    [
      "a route on a host gets a part of its requests",
      base,
      of(shop(), shop({ name: "b", hosts: ["*.b.test"], routes: [{ name: "open", path: "/items/{id}" }] })),
      ["open: key_auth, as items"],
    ],
    [
      "a method goes elsewhere",
      withItems({ methods: [] }),
      of(
        shop({
          base_path: "/shop",
          routes: [
            { name: "items", path: "/items/{id}", methods: ["GET"], plugins: [key] },
            { name: "put", path: "/items/{id}", methods: ["PUT"] },
          ],
        }),
      ),
      ["put: key_auth, as items"],
    ],
    [
      "a method that no route names goes elsewhere",
      withItems({ methods: [] }),
      of(
        shop({ routes: [{ name: "items", path: "/items/{id}", methods: ["GET"], plugins: [key] }] }),
        shop({ name: "b", base_path: "/", routes: [{ name: "others", path: "/shop/items/{id}" }] }),
      ),
      ["others: key_auth, as items"],
    ],
    [
      "only long paths go elsewhere",
      of(
        shop({
          routes: [
            { name: "one", path: "/{a}" },
            { name: "all", path: "/{a*}", plugins: [key] },
          ],
        }),
      ),
      of(
        shop({
          routes: [
            { name: "one", path: "/{a}" },
            { name: "all", path: "/{a*}" },
          ],
        }),
      ),
      ["all: key_auth, as all"],
    ],
    ["a route that no request reaches loses its guard", hidden([key]), hidden([]), ["all: key_auth, as all"]],
  ])("are found when %s", async (_what, before, after, expected) => {
    expect(await lost(before, after)).toEqual(expected);
  });

  it.each<[string, AnyConfigInput, AnyConfigInput]>([
    ["a guard is added", withItems({ plugins: [] }), base],
    [
      "a guard moves to the service",
      base,
      of(shop({ plugins: [key], routes: shop().routes.map((route) => ({ ...route, plugins: [] })) })),
    ],
    [
      "a guard is written in another order of fields",
      base,
      withItems({ plugins: [{ config: { key: "k" }, name: "key_auth" }] }),
    ],
    ["a plugin that guards nothing is removed", withItems({ plugins: [key, limit] }), base],
    [
      "a guarded route is removed, and nothing gets its requests",
      of(shop({ routes: [shop().routes[0]!] })),
      { services: [] },
    ],
    ["a guarded route gets another name and keeps its guard", base, withItems({ name: "things" })],
  ])("are none when %s", async (_what, before, after) => {
    expect(await lost(before, after)).toEqual([]);
  });

  it("have an example that reaches the route, however long its path must be", async () => {
    const withAll = (plugins: PluginInput[]) =>
      of(
        shop({
          routes: [
            { name: "one", path: "/{a}" },
            { name: "two", path: "/{a}/{b}" },
            { name: "all", path: "/{a*}", plugins },
          ],
        }),
      );
    expect((await diff(withAll([key]), withAll([]))).guardsLost).toMatchObject([
      { route: "all", example: expect.stringMatching(/^GET http:\/\/localhost\/shop(\/x){3,}$/) },
    ]);
    expect((await diff(hidden([key]), hidden([]))).guardsLost).toMatchObject([{ route: "all", example: null }]);
  });

  it(
    "are none when a reference has the same text, whatever its value is, " +
      "and an altered guard when it has another text",
    async () => {
      const config = (key: string) => withItems({ plugins: [{ name: "key_auth", config: { key } }] });
      const environment = { KEY: "a", OTHER: "a" };
      expect(
        await routeDiff(loaded(config("${env:KEY}"), environment), loaded(config("${env:KEY}"), { KEY: "b" })),
      ).toEqual(NOTHING);
      for (const other of ["${env:OTHER}", "a"]) {
        expect(
          await routeDiff(loaded(config("${env:KEY}"), environment), loaded(config(other), environment)),
        ).toMatchObject({ guardsLost: [{ guards: ["key_auth"], altered: ["key_auth"] }] });
      }
    },
  );

  it("are none when a file that a guard names has another content", async () => {
    const keySet = () =>
      JSON.stringify({
        keys: [generateKeyPairSync("ec", { namedCurve: "P-256" }).publicKey.export({ format: "jwk" })],
      });
    const file = fileWith(keySet(), "keys.json");
    const config = withItems({ plugins: [{ name: "jwt", config: { jwks_file: file, algs: ["ES256"], iss: "i" } }] });
    const before = loaded(config);
    writeFileSync(file, keySet());
    expect(await routeDiff(before, loaded(config))).toEqual(NOTHING);
  });

  it("each route is listed once, with all guards that it lacks of several routes", async () => {
    const before = of(
      shop({
        routes: [
          { name: "a", path: "/a", plugins: [key] },
          { name: "b", path: "/b", plugins: [acl] },
          { name: "rest", path: "/{rest*}" },
        ],
      }),
    );
    const after = of(shop({ routes: [{ name: "rest", path: "/{rest*}" }] }));
    expect((await diff(before, after)).guardsLost).toMatchObject([
      { route: "rest", guards: ["key_auth", "acl"], before: { route: "a" }, example: "GET http://localhost/shop/a" },
    ]);
  });
});

/** Nothing reaches the route "all". */
function hidden(plugins: PluginInput[]): AnyConfigInput {
  const routes = [
    { name: "one", path: "/{a}" },
    { name: "more", path: "/{a}/{b*}" },
    { name: "all", path: "/{a*}", plugins },
  ];
  return of(shop({ routes }));
}
