import { describe, expect, it } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import { FigureHistory } from "../../lib/report/figure_history.ts";
import { manualClock } from "../support/clock.ts";
import { together } from "../support/following.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask as send } from "../support/raw_client.ts";
import { startAdmin } from "./harness.ts";

const START = Date.parse("2026-01-30T12:00:00Z");
const ODD = "50 % é/?#&x";
const CALLERS = [
  { id: "ada", groups: ["gold"], keys: [{ key: "hush-ada" }, { key: "hush-2", expires_at: "2026-02-28T00:00:00Z" }] },
  { id: ODD, keys: [{ key: "hush-odd" }] },
];
const limit = (config: object, more: object = {}) => ({ name: "rate_limit", config, ...more });
const byCaller = (config: object, more: object = {}) => limit({ limit_by: "credential", ...config }, more);

const GLOBAL = [{ name: "key_auth", config: { callers: true } }, byCaller({ limit_min: 10, limit_hour: 6 })];
const OF_SERVICE = [
  { name: "quota", id: "month", config: { limit: 50, per: "month", limits_by_group: { gold: { limit: 100 } } } },
];
const OF_ROUTE = [
  limit({ limit_min: 50 }),
  byCaller({ limit_min: 7 }, { enabled: false }),
  byCaller({ limit_min: 8, limits_by_group: { gold: { limit_min: 20 } } }),
];

async function limited(more: object = {}) {
  const origin = await backend();
  const config = oneService(
    origin.port,
    {
      name: "shop",
      plugins: OF_SERVICE as never,
      routes: [{ name: "all", path: "/{rest*}", plugins: OF_ROUTE as never }],
    },
    { plugins: GLOBAL as never },
  );
  return { ...config, callers: CALLERS, ...more } as typeof config;
}

const at = (id: string) => `/gateway/caller?${new URLSearchParams({ id })}`;

async function interfaceOf(gateway: Gateway, clock = manualClock(START)) {
  const { ask, session } = await startAdmin({ clock, gateway });
  const cookie = await session();
  return async (path: string) => {
    const { status, json } = await ask("GET", path, { headers: { cookie } });
    return { status, json: json as Record<string, unknown> };
  };
}

describe("GET /gateway/caller", () => {
  it("has rates of the last minute and a history by its remembered requests alone", async () => {
    const clock = manualClock(START);
    const { gateway, port } = await running(await limited(), { clock });
    const get = await interfaceOf(gateway as Gateway, clock);
    const parts = Gateway.internalsOf(gateway as Gateway);
    Object.assign(Gateway.reportingOf(gateway as Gateway), { openHistory: async () => new FigureHistory(parts) });
    const history = async (query: Record<string, string> = { caller: "ada" }) =>
      (await get(`/gateway/figures?${new URLSearchParams(query)}`)) as {
        status: number;
        json: { points: { at: string; requests: number; limited: number }[]; since: string | null };
      };
    expect((await history()).json).toMatchObject({ points: [], since: null, recorded: true, step_s: 10 });
    const times = async (key: string, count: number) => {
      for (let i = 0; i < count; i++) await send(port, { path: "/a/x", headers: { apiKey: key } });
    };
    await times("hush-odd", 2);
    clock.advance(30_000);
    // Six in an hour.
    await times("hush-ada", 8);
    clock.advance(25_000);
    const figures = async () => (await get(at("ada"))).json.figures as Record<string, unknown>;
    expect(await figures()).toMatchObject({
      // Eight in the 55 seconds since the start.
      ...{ requests_per_s: 0.1455, errors_per_s: 0, limited_per_s: 0.0364 },
      statuses_per_s: { "2xx": 0.1091, "4xx": 0.0364 },
    });
    const { json } = await history();
    expect(json.since).toBe(new Date(START).toISOString());
    expect(
      json.points.map(({ at: begin, requests, limited: refused }) => [begin.slice(14, 19), requests, refused]),
    ).toEqual(
      ["00:00", "00:10", "00:20", "00:30", "00:40"].map((begin) => [
        begin,
        begin === "00:30" ? 8 : 0,
        begin === "00:30" ? 2 : 0,
      ]),
    );
    expect((await history({ caller: "nobody" })).json.points.every(({ requests }) => requests === 0)).toBe(true);
    clock.advance(60_000);
    expect(await figures()).toMatchObject({ requests_per_s: 0, p95_ms: null, statuses_per_s: {} });
    for (const query of [
      { caller: "ada", service: "shop" },
      { caller: "ada", upstream: "u", service: "shop" },
    ])
      expect((await history(query as never)).status).toBe(400);
  });

  it("says when a caller was here and what is left of each limit that has counted it, without counting", async () => {
    const clock = manualClock(START);
    const { gateway, port } = await running(await limited(), { clock });
    const get = await interfaceOf(gateway as Gateway, clock);
    expect(await get(at("ada"))).toMatchObject({
      status: 200,
      json: { id: "ada", last_seen: null, used: false, counters: "memory", limits: [], limits_total: 0 },
    });
    const times = async (key: string, count: number) => {
      for (let i = 0; i < count; i++)
        expect((await send(port, { path: "/a/x", headers: { apiKey: key } })).status).toBe(200);
    };
    await times("hush-ada", 3);
    await times("hush-odd", 1);
    clock.advance(20_000);
    const month = Math.ceil((Date.parse("2026-02-01T00:00:00Z") - START - 20_000) / 1000);
    const first = { level: "global", service: null, route: null, kind: "rate_limit", id: null };
    const expected = [
      {
        ...{ ...first, group: null },
        windows: [
          { per: "minute", limit: 10, left: 7, reset_s: 40 },
          { per: "hour", limit: 6, left: 3, reset_s: 3580 },
        ],
      },
      {
        ...{ level: "route", service: "shop", route: "all", kind: "rate_limit", id: null, group: "gold" },
        windows: [{ per: "minute", limit: 20, left: 17, reset_s: 40 }],
      },
      {
        ...{ level: "service", service: "shop", route: null, kind: "quota", id: "month", group: "gold" },
        windows: [{ per: "month", limit: 100, left: 97, reset_s: month }],
      },
    ];
    for (let times = 0; times < 2; times++) {
      const { json } = await get(at("ada"));
      expect(json).toEqual({
        figures: expect.objectContaining({ limited_per_s: 0 }) as object,
        ...{ id: "ada", groups: ["gold"], enabled: true, file: null, keys: 2 },
        key_ends: "2026-02-28T00:00:00.000Z",
        plugins: [{ kind: "key_auth", service: null, route: null, level: "global" }],
        ...{ used: true, last_seen: new Date(START).toISOString(), counters: "memory" },
        ...{ limits: expected, limits_total: 3 },
      });
      expect(JSON.stringify(json)).not.toContain("hush");
    }
    const other = (await get(at(ODD))).json as { limits: { group: unknown; windows: { limit: number }[] }[] };
    expect(other.limits.map(({ group, windows }) => [group, windows[0]!.limit])).toEqual([
      [null, 10],
      [null, 8],
      [null, 50],
    ]);
    await times("hush-ada", 3);
    expect((await send(port, { path: "/a/x", headers: { apiKey: "hush-ada" } })).status).toBe(429);
  });

  it("reads what all workers have counted", async () => {
    const { main, ports } = await together({ config: await limited() });
    for (const port of ports)
      expect((await send(port, { path: "/a/x", headers: { apiKey: "hush-ada" } })).status).toBe(200);
    const { json } = await (await interfaceOf(main))(at("ada"));
    const { limits } = json as { limits: { windows: { left: number }[] }[] };
    expect(limits.map(({ windows }) => windows[0]!.left)).toEqual([8, 18, 98]);
  });

  it.each(["eve", "", "%zz", "ada/", "__proto__", "ada&id=ada"])(
    "answers 404 where nobody has the id %j",
    async (id) => {
      const { gateway } = await running(await limited());
      const get = await interfaceOf(gateway as Gateway);
      expect(await get(at(id))).toMatchObject({ status: 404, json: { code: "route_not_found" } });
    },
  );

  it("answers 400 where the request names nobody", async () => {
    const { gateway } = await running(await limited());
    const get = await interfaceOf(gateway as Gateway);
    for (const path of ["/gateway/caller", "/gateway/caller?name=ada"])
      expect(await get(path)).toMatchObject({ status: 400, json: { code: "request_invalid" } });
  });

  it("answers 404 where there are no callers", async () => {
    const { plugins: _plugins, ...global } = (await limited()).global ?? {};
    const { gateway } = await running(await limited({ callers: [], global }));
    expect((await (await interfaceOf(gateway as Gateway))(at("ada"))).status).toBe(404);
  });

  it("names the hundred limits of which most is used, and how many there are, where more have counted", async () => {
    const origin = await backend();
    const routes = Array.from({ length: 120 }, (_, i) => ({
      ...{ name: `r${i}`, path: `/${i}` },
      plugins: [byCaller({ limit_hour: 200 - i })],
    }));
    const config = oneService(origin.port, { routes: routes as never }, { plugins: GLOBAL.slice(0, 1) as never });
    const { gateway, port } = await running({ ...config, callers: CALLERS } as typeof config);
    for (let i = 0; i < 120; i++) await send(port, { path: `/a/${i}`, headers: { apiKey: "hush-ada" } });
    const { json } = await (await interfaceOf(gateway as Gateway))(at("ada"));
    const { limits, limits_total } = json as { limits: { route: string }[]; limits_total: number };
    expect([limits.length, limits_total, limits[0]!.route, limits.at(-1)!.route]).toEqual([100, 120, "r119", "r20"]);
  });
});
