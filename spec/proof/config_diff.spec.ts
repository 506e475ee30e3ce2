import { describe, expect, it } from "vitest";
import type { Json } from "../../lib/config/json.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { changesBetween } from "../../lib/gateway/config_diff.ts";
import { createGateway } from "../../lib/index.ts";

type ServiceInput = AnyConfigInput["services"][number];

function shown(config: AnyConfigInput, environment: Record<string, string> = { KEY: "k" }): Json {
  return createGateway({ config, environment }).shownConfig;
}

/** One line a change. */
function lines(before: AnyConfigInput, after: AnyConfigInput): string[] {
  return changesBetween(shown(before), shown(after)).map(({ kind, name, change }) => `${change} ${kind}: ${name}`);
}

const limit = (limit_min: number, id?: string) => ({
  name: "rate_limit",
  config: { limit_min },
  ...(id === undefined ? {} : { id }),
});

function shop(parts: Partial<ServiceInput> = {}): ServiceInput {
  return {
    name: "shop",
    base_path: "/shop",
    upstreams: [
      { id: "one", host: "h", port: 1 },
      { host: "h", port: 2 },
    ],
    plugins: [{ name: "key_auth", config: { key: "${env:KEY}" } }],
    routes: [
      { name: "items", path: "/items" },
      { path: "/orders", methods: ["GET"], plugins: [limit(1), limit(2)] },
    ],
    ...parts,
  };
}

const base: AnyConfigInput = { services: [shop()] };

describe("changesBetween", () => {
  it("there are no changes between configurations that differ in the order of fields only", () => {
    const turned = {
      services: [Object.fromEntries(Object.entries(shop()).reverse())],
      global: {},
    } as unknown as AnyConfigInput;
    expect(lines(base, base)).toEqual([]);
    expect(lines(base, turned)).toEqual([]);
  });

  it("an added or removed part is listed with all parts in it", () => {
    const all = [
      'service: service "shop"',
      'upstream: service "shop" / upstream "one"',
      'upstream: service "shop" / upstream "h:2"',
      'plugin: service "shop" / plugin key_auth',
      'route: service "shop" / route "items"',
      'route: service "shop" / route "GET /orders"',
      'plugin: service "shop" / route "GET /orders" / plugin rate_limit',
      'plugin: service "shop" / route "GET /orders" / plugin rate_limit #2',
    ];
    expect(lines({ services: [] }, base)).toEqual(all.map((line) => `added ${line}`));
    expect(lines(base, { services: [] })).toEqual(all.map((line) => `removed ${line}`));
  });

  it.each<[string, AnyConfigInput, string]>([
    ["a setting of the whole gateway", { services: [shop()], global: { name: "x" } }, "altered global: global"],
    [
      "a global plugin",
      { services: [shop()], global: { plugins: [limit(5, "flood")] } },
      'added plugin: global / plugin rate_limit "flood"',
    ],
    ["a service's own field", { services: [shop({ base_path: "/store" })] }, 'altered service: service "shop"'],
    [
      "an upstream",
      {
        services: [
          shop({
            upstreams: [
              { id: "one", host: "h", port: 9 },
              { host: "h", port: 2 },
            ],
          }),
        ],
      },
      'altered upstream: service "shop" / upstream "one"',
    ],
    [
      "a service's plugin",
      { services: [shop({ plugins: [{ name: "key_auth", config: { key: "other" } }] })] },
      'altered plugin: service "shop" / plugin key_auth',
    ],
    [
      "a route",
      { services: [shop({ routes: [{ name: "items", path: "/things" }, shop().routes[1]!] })] },
      'altered route: service "shop" / route "items"',
    ],
    [
      "the second plugin of a kind in a route",
      {
        services: [
          shop({ routes: [shop().routes[0]!, { path: "/orders", methods: ["GET"], plugins: [limit(1), limit(3)] }] }),
        ],
      },
      'altered plugin: service "shop" / route "GET /orders" / plugin rate_limit #2',
    ],
    [
      "the order of upstreams, which is the service's",
      { services: [shop({ upstreams: [...shop().upstreams].reverse() })] },
      'altered service: service "shop"',
    ],
  ])("names %s, and no surrounding part", (_what, after, line) => {
    expect(lines(base, after)).toEqual([line]);
  });

  it("a plugin that moves is recognised by its id, and the part that has the list is altered", () => {
    const before = { services: [shop({ plugins: [limit(1, "a"), limit(2, "b")] })] };
    expect(lines(before, { services: [shop({ plugins: [limit(2, "b"), limit(1, "a")] })] })).toEqual([
      'altered service: service "shop"',
    ]);
    expect(lines(before, { services: [shop({ plugins: [limit(2, "b")] })] })).toEqual([
      'removed plugin: service "shop" / plugin rate_limit "a"',
    ]);
  });

  it("a new order of services changes the global part", () => {
    const other = shop({ name: "other", base_path: "/other" });
    expect(lines({ services: [shop(), other] }, { services: [other, shop()] })).toEqual(["altered global: global"]);
  });

  it("names that look like a path to another part are quoted, and two such routes stay distinct", () => {
    const tricky = shop({
      routes: [
        { name: 'a" / plugin key_auth', path: "/x" },
        { name: "a", path: "/y", plugins: [limit(1)] },
      ],
    });
    const after = shop({
      routes: [
        { name: 'a" / plugin key_auth', path: "/z" },
        { name: "a", path: "/y", plugins: [] },
      ],
    });
    expect(lines({ services: [tricky] }, { services: [after] })).toEqual([
      'altered route: service "shop" / route "a\\" / plugin key_auth"',
      'removed plugin: service "shop" / route "a" / plugin rate_limit',
    ]);
  });

  it("changes contain no values, neither literal nor referenced", () => {
    const after = { services: [shop({ plugins: [{ name: "key_auth", config: { key: "written-secret" } }] })] };
    const text = JSON.stringify(changesBetween(shown(base, { KEY: "hidden-secret" }), shown(after)));
    expect(text).not.toMatch(/secret/);
    expect(changesBetween(shown(base, { KEY: "one" }), shown(base, { KEY: "two" }))).toEqual([]);
  });
});
