/** The limits of groups over several threads and several gateways. */
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { startBuilt } from "./built.ts";
import { RELEASES } from "./nodes.ts";
import { redis } from "./redis.ts";
import { withWorkers } from "./workers.ts";

const HOURLY = {
  limit_hour: 7,
  limits_by_group: { gold: { limit_hour: 40 }, silver: { limit_hour: 25, limit_day: 20 } },
  limit_by: "credential",
};
const MONTHLY = {
  limit: 7,
  per: "month",
  limits_by_group: { gold: { limit: 40 }, silver: { limit: 20 } },
  limit_by: "credential",
};
/** Requests that each caller may send. */
const EXPECTED = { ada: 40, bob: 20, both: 40, cid: 7 };

async function configOf(counters?: object) {
  const { port } = await backend();
  const caller = (id: string, groups: readonly string[]) => ({ id, groups, keys: [{ key: `key-of-${id}` }] });
  const identified = { name: "key_auth", config: { callers: true } };
  const of = (name: string, limit: object) =>
    oneService(port, { name, base_path: `/${name}`, plugins: [identified, limit] as never }).services[0]!;
  return {
    ...(counters && { global: { counters } }),
    callers: [
      caller("ada", ["gold"]),
      caller("bob", ["other", "silver"]),
      caller("both", ["silver", "gold"]),
      caller("cid", []),
    ],
    services: [of("hourly", { name: "rate_limit", config: HOURLY }), of("monthly", { name: "quota", config: MONTHLY })],
  };
}

/** How many requests of each caller are admitted, which all of them send at once to all of these ports. */
async function admitted(ports: readonly number[], service: string): Promise<Record<string, number>> {
  const of = async (id: string) => {
    const answers = Array.from({ length: 60 }, (_, i) =>
      ask(ports[i % ports.length]!, { path: `/${service}/x`, headers: { apiKey: `key-of-${id}` } }),
    );
    const statuses = (await Promise.all(answers)).map(({ status }) => status);
    expect(statuses.filter((status) => status !== 200 && status !== 429)).toEqual([]);
    return [id, statuses.filter((status) => status === 200).length] as const;
  };
  return Object.fromEntries(await Promise.all(Object.keys(EXPECTED).map(of)));
}

describe.each(["hourly", "monthly"])("limits_by_group (%s) admit exactly N requests of each caller", (service) => {
  it.each(RELEASES)("over the workers of Node %i", async (release) => {
    const { port } = await withWorkers(await configOf(), { release, workers: 3 });
    expect(await admitted([port], service)).toEqual(EXPECTED);
  });

  it("over two gateways that count in Redis, of which one has workers", async () => {
    const server = await redis();
    const config = await configOf({
      store: "redis",
      url: `redis://127.0.0.1:${server.port}`,
      timeout_ms: 5_000,
      on_error: "deny",
    });
    const [one, other] = [await startBuilt(config), await withWorkers(config, { workers: 2 })];
    expect(await admitted([one.port, other.port], service)).toEqual(EXPECTED);
  });
});
