import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { countingPeriods } from "../contracts/quotas.ts";
import { countingReserves } from "../contracts/reserves.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { random } from "../support/random.ts";
import { ask } from "../support/raw_client.ts";
import { redis, until, type Redis } from "./redis.ts";

/** A gateway that counts in Redis, behind an upstream whose replies cost what their path says. */
async function gatewayOn(server: Redis, plugin: object) {
  const upstream = await backend(
    (request, response) => void response.writeHead(200, { "X-Cost": request.url!.slice(1) }).end(),
  );
  const config: AnyConfigInput = oneService(
    upstream.port,
    { plugins: [plugin as never] },
    { counters: { store: "redis", url: `redis://127.0.0.1:${server.port}`, timeout_ms: 5_000 } },
  );
  const made = await running(config);
  const left = async (cost: number) => {
    const { status, headers } = await ask(made.port, { path: `/a/${cost}` });
    return [status, Number(/;r=(\d+)/.exec(String(headers.ratelimit))![1])];
  };
  await until(
    () => made.gateway.status.counters?.state === "up",
    () => JSON.stringify(made.gateway.status.counters),
  );
  return { ...made, left };
}

const calls = async (server: Redis) =>
  Number(/cmdstat_evalsha:calls=(\d+)/.exec(await server.cli("INFO", "commandstats"))?.[1] ?? 0);

describe("quotas and costs in Redis", () => {
  countingPeriods(async () => {
    const server = await redis();
    return async (per) => {
      const made = await gatewayOn(server, { name: "quota", config: { limit: 1, per, limit_by: "all" } });
      return async () => (await made.left(1))[0]!;
    };
  });

  countingReserves(async () => {
    const server = await redis();
    return async (upstream, plugins) => {
      const url = `redis://127.0.0.1:${server.port}`;
      const config = oneService(
        upstream,
        { plugins: plugins as never },
        { counters: { store: "redis", url, timeout_ms: 5_000 } },
      );
      const gateways = [await running(config), await running(config)];
      await until(
        () => gateways.every(({ gateway }) => gateway.status.counters?.state === "up"),
        () => "the counters to be shared",
      );
      return gateways.map(({ port }) => port);
    };
  });

  it("gateways count a quota together, in one call a request, and it outlives them", async () => {
    const server = await redis();
    const plugin = { name: "quota", config: { limit: 10, per: "month", limit_by: "all" } };
    const [a, b] = [await gatewayOn(server, plugin), await gatewayOn(server, plugin)];
    const before = await calls(server);
    const statuses = (await Promise.all(Array.from({ length: 15 }, (_, i) => (i % 2 === 0 ? a : b).left(1)))).map(
      ([status]) => status,
    );
    expect(statuses.filter((status) => status === 200)).toHaveLength(10);
    expect((await calls(server)) - before).toBe(15);
    await a.gateway.close(0);
    const c = await gatewayOn(server, plugin);
    expect(await c.left(1)).toEqual([429, 0]);
    expect(c.gateway.status.warnings.map(({ code }) => code)).not.toContain("quota_not_durable");
  });

  it.each([
    ["quota", { limit: 1000, per: "day" }],
    ["rate_limit", { limit_hour: 1000 }],
    ["rate_limit", { limit_hour: 50, limit_min: 64 }],
  ])("%s %j counts costs there as it does in memory", async (name, config) => {
    const server = await redis();
    const plugin = { name, config: { ...config, limit_by: "all", cost: { response_header: "X-Cost" } } };
    const shared = await gatewayOn(server, plugin);
    const upstream = await backend(
      (request, response) => void response.writeHead(200, { "X-Cost": request.url!.slice(1) }).end(),
    );
    const own = await running(oneService(upstream.port, { plugins: [plugin as never] }));
    const from = random(5);
    for (let i = 0; i < 25; i++) {
      const cost = from.pick([0, 1, 7, from.int(0, 90)]);
      const { status, headers } = await ask(own.port, { path: `/a/${cost}` });
      const expected = [status, Number(/;r=(\d+)/.exec(String(headers.ratelimit))![1])];
      // A cost is booked a moment after the client has the reply.
      await until(
        () => own.gateway.status.inFlight === 0 && shared.gateway.status.inFlight === 0,
        () => "requests in flight",
      );
      expect([i, await shared.left(cost)]).toEqual([i, expected]);
    }
  });
});
