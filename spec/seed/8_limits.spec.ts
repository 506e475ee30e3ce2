import { describe, expect, it } from "vitest";
import { manualClock } from "../support/clock.ts";
import { backend, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { fullGateway } from "./full_gateway.ts";

interface Levels {
  readonly global?: object;
  readonly service?: object;
  readonly route?: object;
}

const limited = (port: number, levels: Levels) => {
  const at = (config: object | undefined) =>
    config === undefined ? [] : [{ name: "rate_limit", config: config as Record<string, unknown> }];
  const service = (name: string) => ({
    name,
    base_path: `/${name}`,
    upstreams: [{ host: "127.0.0.1", port }],
    plugins: name === "a" ? at(levels.service) : [],
    routes: [{ path: "/r", plugins: name === "a" ? at(levels.route) : [] }, { path: "/s" }],
  });
  return { global: { plugins: at(levels.global) }, services: [service("a"), service("b")] };
};

describe("8. Limits", () => {
  it.each([
    ["limit_second", 1_000],
    ["limit_min", 60_000],
    ["limit_hour", 3_600_000],
  ])("allows %s requests in its window, and answers 429 to more until it has passed", async (field, window) => {
    const origin = await backend();
    const clock = manualClock();
    const { port } = await running(limited(origin.port, { route: { [field]: 3 } }), { clock });
    const statuses = async (count: number) => {
      const statuses: number[] = [];
      for (let i = 0; i < count; i++) statuses.push((await ask(port, { path: "/a/r" })).status);
      return statuses;
    };
    expect(await statuses(5)).toEqual([200, 200, 200, 429, 429]);
    clock.advance(window - 1);
    expect(await statuses(1)).toEqual([429]);
    clock.advance(1);
    expect(await statuses(4)).toEqual([200, 200, 200, 429]);
    expect(origin.seen).toHaveLength(6);
  });

  it("applies the three limits side by side, and a request that one refuses does not count in the others", async () => {
    const origin = await backend();
    const clock = manualClock();
    const { port } = await running(limited(origin.port, { route: { limit_second: 1, limit_min: 2, limit_hour: 3 } }), {
      clock,
    });
    const status = async () => (await ask(port, { path: "/a/r" })).status;
    expect([await status(), await status()]).toEqual([200, 429]);
    clock.advance(1_000);
    expect([await status(), await status()]).toEqual([200, 429]);
    clock.advance(1_000);
    expect(await status()).toBe(429); // the two requests of the minute are used up
    clock.advance(60_000);
    expect([await status(), await status()]).toEqual([200, 429]);
    clock.advance(60_000);
    expect(await status()).toBe(429); // the three requests of the hour are used up
  });

  it("states in a refusal when to retry, and in every reply the remaining quota", async () => {
    const origin = await backend();
    const clock = manualClock();
    const { port } = await running(limited(origin.port, { route: { limit_min: 1 } }), { clock });
    const first = await ask(port, { path: "/a/r" });
    expect([first.headers["ratelimit-policy"], first.headers.ratelimit]).toEqual([
      '"minute";q=1;w=60',
      '"minute";r=0;t=60',
    ]);
    clock.advance(20_000);
    const second = await ask(port, { path: "/a/r" });
    expect([second.status, second.headers["retry-after"], second.headers.ratelimit]).toEqual([
      429,
      "40",
      '"minute";r=0;t=40',
    ]);
    expect(JSON.parse(second.body.toString())).toMatchObject({ code: "rate_limited", status: 429 });
  });

  it.each([
    ["global", [429, 429, 429]],
    ["service", [429, 200, 200]],
    ["route", [200, 200, 200]],
  ] as const)("counts one request for everything the limit covers when attached at %s level", async (level, others) => {
    const origin = await backend();
    const { proxy } = await fullGateway(limited(origin.port, { [level]: { limit_hour: 1 } }));
    expect((await proxy("/a/r")).status).toBe(200);
    expect((await proxy("/a/r")).status).toBe(429);
    const statuses: number[] = [];
    for (const path of ["/a/s", "/b/r", "/b/s"]) statuses.push((await proxy(path)).status);
    expect(statuses).toEqual(others);
  });

  it.each([{}, { limit_second: 0 }, { limit_min: -1 }, { limit_hour: 1.5 }, { limit_hour: "many" }, { limit_week: 5 }])(
    "requires integer fields and at least one of them: %j is refused",
    async (config) => {
      await expect(fullGateway(limited(9, { global: config }))).rejects.toThrow(/global\.plugins\[0\]\.config/);
    },
  );
});
