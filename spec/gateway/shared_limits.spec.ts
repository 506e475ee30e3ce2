import { describe, expect, it } from "vitest";
import type { Gateway } from "../../lib/gateway/gateway.ts";
import { definePlugin, schema } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { program } from "../support/program.ts";

const config = (...plugins: object[]) => ({ services: [{ name: "a", base_path: "/a", upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path: "/x", plugins }] }] });
const perMinute = (limit: number, more: object = {}) => ({ name: "rate_limit", id: "r", config: { limit_min: limit, limit_by: "all", ...more } });
/** Answers in place of the upstream. */
const ANSWER = { name: "answer" };

/** Asks for a limiter when the first request comes. */
const late = definePlugin({
  name: "late",
  schema: schema.object({}),
  create: (_config, tools) => () => () => {
    tools.counters.limiter("late", { windows: [{ name: "second", limit: 1, ms: 1_000 }], maxCallers: 1 });
    return { status: 200, headers: [], body: null };
  },
});

const answer = definePlugin({ name: "answer", schema: schema.object({}), create: () => () => () => ({ status: 200, headers: [], body: null }) });
const PLUGINS = [late, answer];

/** How many of these requests are admitted, by each gateway in turn. */
async function admitted(gateways: readonly Gateway[], requests: number): Promise<number> {
  let count = 0;
  for (let i = 0; i < requests; i++) if ((await gateways[i % gateways.length]!.inject({ path: "/a/x" })).status === 200) count++;
  return count;
}

describe("the rate limits of a program with workers", () => {
  it("a limit holds over all workers, and over one that starts later", async () => {
    const source = config(perMinute(10), ANSWER);
    const { worker } = program(manualClock(), source, PLUGINS);
    const workers = [worker(), worker()];
    expect(await admitted(workers, 7)).toBe(7);
    expect(await admitted([...workers, worker()], 9)).toBe(3);
  });

  it("a reload with other windows and another max_callers refills no limit, also not for a worker that starts after it", async () => {
    const { main, worker } = program(manualClock(), config(perMinute(10), ANSWER), PLUGINS);
    const workers = [worker(), worker()];
    expect(await admitted(workers, 8)).toBe(8);
    const next = config(perMinute(12, { limit_hour: 100, max_callers: 500_000 }), ANSWER);
    await main.reload(next as never);
    for (const each of workers) await each.reload(next as never);
    expect(await admitted([...workers, worker(next)], 9)).toBe(4);
  });

  it("an instance that is removed and added again keeps its counts, in the memory that the main thread has kept", async () => {
    const clock = manualClock();
    const [withIt, without] = [config(perMinute(10), ANSWER), config(ANSWER)];
    const { main, worker, made } = program(clock, withIt, PLUGINS);
    const workers = [worker(), worker()];
    expect(await admitted(workers, 8)).toBe(8);
    for (const next of [without, withIt]) {
      await main.reload(next as never);
      for (const each of workers) await each.reload(next as never);
    }
    expect(await admitted([...workers, worker()], 9)).toBe(2);
    expect([...made.keys()].filter((name) => name.startsWith("rate limit"))).toHaveLength(1);
  });

  it("workers use the memory that the main thread made again for an instance that it had forgotten", async () => {
    const clock = manualClock();
    const [withIt, without] = [config(perMinute(3), ANSWER), config(ANSWER)];
    const { main, worker } = program(clock, withIt, PLUGINS);
    const workers = [worker(), worker()];
    expect(await admitted(workers, 9)).toBe(3);
    for (const each of workers) await each.reload(without as never);
    clock.advance(60_000);
    // Only the main thread forgets it: in the workers' tables the windows have not run out.
    await main.reload(without as never);
    await main.reload(withIt as never);
    for (const each of workers) await each.reload(withIt as never);
    expect(await admitted([...workers, worker()], 9)).toBe(3);
  });

  it("the main thread shows the callers that the workers have seen", async () => {
    const { main, worker } = program(manualClock(), config(perMinute(10, { limit_by: "header:x-name" }), ANSWER), PLUGINS);
    const workers = [worker(), worker()];
    for (let i = 0; i < 6; i++) await workers[i % 2]!.inject({ path: "/a/x", headers: { "x-name": `n${i % 5}` } });
    expect(main.metrics()).toMatch(/edge_gateway_rate_limit_callers\{[^}]*\} 5\n/);
  });

  it("a plugin that asks for a limiter too late in a worker is at fault, and the log says what to do", async () => {
    const { worker, errors } = program(manualClock(), config({ name: "late" }), PLUGINS);
    expect((await worker().inject({ path: "/a/x" })).status).toBe(500);
    expect(JSON.stringify(errors)).toContain('the limiter late is not known to the main thread: ask for it in \\"create\\", with the same keys and options in every thread');
  });
});
