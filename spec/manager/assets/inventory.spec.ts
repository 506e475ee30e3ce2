import { describe, expect, it } from "vitest";
import type { Figures, PluginConfig, ProxyConfig, Stats, Status } from "../../../lib/manager/assets/api.ts";
import {
  addressOf,
  clientErrorShare,
  disabledOf,
  endpointsOf,
  errorShare,
  faultsOf,
  figuresByName,
  methodsOf,
  ownerOf,
  patternOf,
  placeOf,
  pluginsOf,
  refusalsText,
  statusesText,
  warningCounts,
} from "../../../lib/manager/assets/inventory.ts";

const plugin = (name: string, more: Partial<PluginConfig> = {}): PluginConfig => ({
  name,
  enabled: true,
  config: {},
  ...more,
});
const figures = (requests: number, more: Partial<Figures> = {}): Figures => ({
  requests_per_s: requests,
  errors_per_s: 0,
  limited_per_s: 0,
  statuses_per_s: {},
  p50_ms: 1,
  p95_ms: 2,
  p99_ms: 3,
  in_flight: 0,
  ...more,
});

const service = {
  name: "shop",
  base_path: "/shop",
  protocol: "http",
  load_balancing_strategy: "round_robin",
  upstreams: [],
  routes: [
    { name: "items", path: "/items/{id}", methods: ["GET"], plugins: [plugin("acl")] },
    { name: "all", path: "/{rest*}", plugins: [] },
  ],
  plugins: [plugin("key_auth")],
};
const config: ProxyConfig = {
  services: [service],
  plugins: [plugin("rate_limit", { id: "flood" })],
  global: { name: "g", plugins: [] },
};

describe("plugins of the configuration", () => {
  it("plugins of the configuration have their level, service and route", () => {
    expect(
      pluginsOf(config).map(({ level, service: of, route, plugin: { name } }) => [level, of, route, name]),
    ).toEqual([
      ["global", null, null, "rate_limit"],
      ["service", "shop", null, "key_auth"],
      ["route", "shop", "items", "acl"],
    ]);
  });

  it("plugins of the configuration that are disabled are found for a route, without those of other routes", () => {
    const off = (name: string) => plugin(name, { enabled: false });
    const [items, all] = service.routes as [(typeof service.routes)[0], (typeof service.routes)[0]];
    const partly = {
      ...service,
      plugins: [off("key_auth"), plugin("acl")],
      routes: [
        { ...items, plugins: [off("cors")] },
        { ...all, plugins: [off("jwt")] },
      ],
    };
    expect(disabledOf(config, partly, partly.routes[0]!).map(({ level, plugin: { name } }) => [level, name])).toEqual([
      ["service", "key_auth"],
      ["route", "cors"],
    ]);
  });

  it("plugins of the configuration have only the faults of their own kind, id and place", () => {
    const fault = { plugin: "acl", id: null, level: "route", service: "shop", route: "items", count: 3 };
    const status = {
      plugin_faults: [fault, { ...fault, route: "all", count: 5 }, { ...fault, id: "x", count: 7 }],
    } as unknown as Status;
    const running = (["global", "service", "route"] as const).map((level) =>
      placeOf({ level, name: "acl", id: null, config: {} }, "shop", "items"),
    );
    expect(running.map((placed) => faultsOf(status, placed))).toEqual([0, 0, 3]);
    expect(faultsOf(null, running[2]!)).toBe(0);
  });
});

describe("texts for configured values", () => {
  it.each([
    ["/shop", "/items", "/shop/items"],
    ["/", "/items", "/items"],
    ["/shop", "/", "/shop"],
    ["/shop/", "/items/", "/shop/items"],
    ["/", "/", "/"],
  ])("joins base_path %s and path %s to the pattern %s", (base_path, path, pattern) =>
    expect(patternOf({ base_path }, { path })).toBe(pattern),
  );

  it("writes an empty list of methods as all methods", () => {
    expect([methodsOf({}), methodsOf({ methods: [] }), methodsOf({ methods: ["GET", "PUT"] })]).toEqual([
      "all methods",
      "all methods",
      "GET, PUT",
    ]);
  });

  it("puts an IPv6 address in brackets before its port", () => {
    expect([
      addressOf({ host: "::1", port: 80 }),
      addressOf({ host: "[::1]", port: 80 }),
      addressOf({ host: "a.b", port: 8080 }),
    ]).toEqual(["[::1]:80", "[::1]:80", "a.b:8080"]);
  });
});

describe("statistics by name", () => {
  const stats = {
    services: [
      {
        name: "shop",
        total: figures(4, { p95_ms: 7 }),
        routes: [{ name: "a", ...figures(3, { p95_ms: 10 }) }],
        upstreams: [{ id: "u", ...figures(4, { p95_ms: 7 }) }],
        groups: [
          { group: "canary", ...figures(1) },
          { group: null, ...figures(3) },
        ],
      },
    ],
  } as unknown as Stats;

  it("statistics by name have the value null before the statistics of services arrive", () => {
    for (const none of [figuresByName(null), figuresByName({ ...stats, services: null })]) {
      expect([
        none.route("shop", "a"),
        none.upstream("shop", "u"),
        none.group("shop", null),
        none.service("shop"),
      ]).toEqual([null, null, null, null]);
    }
  });

  it("statistics by name have the value zero, without times, for routes and services without traffic", () => {
    const { route, upstream, group, service: whole } = figuresByName(stats);
    for (const idle of [
      route("shop", "c"),
      route("toString", "a"),
      upstream("shop", "x"),
      group("shop", "beta"),
      whole("other"),
    ])
      expect(idle).toMatchObject({ requests_per_s: 0, p50_ms: null, in_flight: 0 });
  });

  it("statistics by name have services and groups as the gateway has counted them", () => {
    const { service: whole, group } = figuresByName(stats);
    expect([whole("shop"), group("shop", "canary"), group("shop", null)]).toMatchObject([
      { requests_per_s: 4, p95_ms: 7 },
      { requests_per_s: 1 },
      { requests_per_s: 3 },
    ]);
  });

  it("statistics by name have classes of statuses, and refusals with 401, 403 and 404 alone", () => {
    const refusing = figures(10, { statuses_per_s: { "2xx": 8, "4xx": 2, "401": 1.5, "404": 0.5 } });
    expect(statusesText(refusing)).toBe("2xx 8/s · 4xx 2/s (401 1.5/s · 404 0.5/s)");
    expect([refusalsText(refusing), refusalsText(null), statusesText(figures(0))]).toEqual([
      "401 1.5/s · 404 0.5/s",
      "",
      "",
    ]);
    expect([clientErrorShare(refusing), clientErrorShare(figures(0))]).toEqual([0.2, null]);
  });

  it("statistics by name have no share of errors without requests", () => {
    expect([
      errorShare(figures(0)),
      errorShare(figures(4, { errors_per_s: 1 })),
      errorShare(figures(1, { errors_per_s: 1.01 })),
    ]).toEqual([null, 0.25, 1]);
  });
});

describe("the number of warnings", () => {
  const about = (service: string | null, route: string | null) => ({ code: "x", message: "", service, route });
  const counts = warningCounts({
    warnings: [
      about(null, null),
      about("shop", null),
      about("shop", "items"),
      about("shop", "items"),
      about("till", "items"),
    ],
  } as unknown as Status);

  it("counts for a service those of its routes", () =>
    expect([counts.service("shop"), counts.service("till"), counts.service("none")]).toEqual([3, 1, 0]));

  it("counts for a route only its own", () =>
    expect([counts.route("shop", "items"), counts.route("till", "items"), counts.route("shop", "all")]).toEqual([
      2, 1, 0,
    ]));

  it("is 0 before the status is known", () => expect(warningCounts(null).service("shop")).toBe(0));
});

describe("endpoints of upstreams", () => {
  const upstreams = [
    { id: "u", host: "orders.test", port: 80 },
    { id: "u/b", host: "127.0.0.1", port: 80 },
    { id: "r", srv: "_http._tcp.orders.test" },
  ];
  const healthOf = (...ids: readonly string[]) =>
    ({ name: "s", circuitBreaker: null, upstreams: ids.map((id) => ({ id, group: null })) }) as never;
  const ids = (health: Parameters<typeof endpointsOf>[1]) => endpointsOf({ upstreams }, health).map(({ id }) => id);

  it("are the addresses of a name and the targets of a record, or those while there are none", () => {
    expect(ids(null)).toEqual(["u", "u/b", "r"]);
    expect(ids(healthOf("u", "u/b"))).toEqual(["u", "u/b", "r"]);
    const found = ["u/10.0.0.1:80", "u/[::1]:80", "u/b", "r/a.test:80"];
    expect(ids(healthOf(...found))).toEqual(found);
  });

  it("are configured as the upstream that they are of", () => {
    const owners = ["u", "u/b", "u/10.0.0.1:80", "r/a.test:80", "x/10.0.0.1:80"].map(
      (id) => ownerOf(upstreams, id)?.id,
    );
    expect(owners).toEqual([undefined, undefined, "u", "r", undefined]);
  });
});
