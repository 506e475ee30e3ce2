import { createHash } from "node:crypto";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import type { KeptClient } from "../support/kept_client.ts";
import { readMetrics } from "../support/metrics_text.ts";
import { emptyFolder } from "../support/process.ts";
import { replaced } from "./manager_pages.ts";
import { RELEASES, type Release } from "./nodes.ts";
import { until } from "./redis.ts";
import { clientOn, probeModule, withWorkers, workersOn } from "./workers.ts";

const ROUTES = [
  { name: "counted", path: "/counted" },
  { name: "waits", path: "/waits" },
  { name: "others", path: "/{rest*}" },
];

/** A gateway with two workers, and a connection to each. The upstream answers `/waits` when `release` is called. */
async function started(release: Release) {
  const waiting: (() => void)[] = [];
  const { port } = await backend((request, response) => {
    if (request.url!.endsWith("/waits")) waiting.push(() => response.end("ok"));
    else response.end("ok");
  });
  const probe = probeModule();
  const withModules = (...further: (typeof probe)[]) =>
    oneService(port, { plugins: [{ name: "probe" }], routes: ROUTES }, { plugin_modules: [probe, ...further] });
  const config = withModules();
  const running = await withWorkers(config, { release });
  const found = await workersOn(running.port, 2);
  const on = (place: 0 | 1) => clientOn(running.port, (worker) => worker === found[place]);
  const json = async (path: string, method?: string) => JSON.parse(await running.admin(path, method)) as any;
  return {
    running,
    withModules,
    on,
    json,
    clients: [await on(0), await on(1)] as const,
    metrics: async () => readMetrics(await running.admin("/metrics")),
    upstreamHas: (count: number) => until(() => waiting.length === count),
    release: () => waiting.splice(0).forEach((answer) => answer()),
    restarted: (times: number) => until(async () => (await json("/gateway/status")).workers.restarts === times),
  };
}

const COUNTED = { service: "s", route: "counted", method: "GET", code: "200" };

describe.each(RELEASES)("the figures of two workers, on Node %i", (release) => {
  it("are those of both at the moment of the question, in metrics, status, statistics and a dry run", async () => {
    const { clients, json, metrics, upstreamHas, release: answer } = await started(release);
    for (let i = 1; i <= 5; i++) {
      for (const client of clients) for (let j = 0; j < 10; j++) await client.ask("/a/counted");
      expect((await metrics()).one("edge_gateway_http_requests_total", COUNTED)).toBe(i * 20);
    }
    const text = await metrics();
    expect(text.one("edge_gateway_http_request_duration_seconds_count", { route: "counted" })).toBe(100);
    expect(text.one("edge_gateway_plugin_requests_total", { plugin: "probe" })).toBeGreaterThanOrEqual(100);
    // Two that found the workers, and these two; the rest have been closed.
    await until(async () => (await metrics()).one("edge_gateway_client_connections") === 4);
    expect([text.one("edge_gateway_workers"), text.one("edge_gateway_worker_restarts_total")]).toEqual([2, 0]);
    expect(text.one("process_heap_used_bytes")).toBeGreaterThan(20_000_000);
    expect(
      [...text.families.values()].flatMap(({ samples }) => samples.flatMap(({ labels }) => Object.keys(labels))),
    ).not.toContain("worker");

    const waiting = clients.map((client) => client.ask("/a/waits"));
    await upstreamHas(2);
    const [status, stats, health] = [
      await json("/gateway/status"),
      await json("/gateway/stats"),
      await json("/gateway/health"),
    ];
    expect([status.in_flight, status.workers]).toEqual([2, { configured: 2, serving: 2, restarts: 0 }]);
    const routes = Object.fromEntries(
      stats.services[0].routes.map((route: any) => [
        route.name,
        [Math.round(route.requests_per_s * 1e3) > 0, route.in_flight],
      ]),
    );
    expect(routes).toMatchObject({ counted: [true, 0], waits: [false, 2] });
    expect([
      stats.total.in_flight,
      stats.services[0].upstreams[0].in_flight,
      health.services[0].upstreams[0].in_flight,
    ]).toEqual([2, 2, 2]);
    const steps = [...stats.history, stats.point].reduce((sum: number, { requests }: any) => sum + requests, 0);
    expect(steps).toBeGreaterThanOrEqual(100);
    expect((await json("/gateway/reload?dry_run=true", "POST")).requests.checked).toBeGreaterThanOrEqual(102);
    answer();
    await Promise.all(waiting);
    expect((await json("/gateway/status")).in_flight).toBe(0);
  });

  it(
    "are what became of the last 100 requests of both, exactly, each found by its id, " +
      "also after a change of their number",
    async () => {
      const { port } = await backend();
      const config = (decisions: number) =>
        oneService(port, { plugins: [{ name: "probe" }] }, { decisions, plugin_modules: [probeModule()] });
      const running = await withWorkers(config(100), { release });
      const clients: KeptClient[] = [];
      for (const found of await workersOn(running.port, 2))
        clients.push(await clientOn(running.port, (worker) => worker === found));
      const remembered = async (id: string) =>
        JSON.parse(await running.admin(`/gateway/requests/${id}`)) as {
          readonly path?: string;
          readonly by?: string;
          readonly status: number;
        };
      const asked = async (from: number, count: number) => {
        const ids: string[] = [];
        const ask = async (place: number) => {
          for (let i = place; i < count; i += 2)
            ids[i] = (await clients[place]!.ask(`/a/${from + i}`)).headers["x-request-id"]!;
        };
        await Promise.all([ask(0), ask(1)]);
        // The reply is there before its request has ended.
        for (const [i, id] of ids.entries()) {
          await until(async () => (await remembered(id)).status === 200);
          expect(await remembered(id)).toMatchObject({ path: `/a/${from + i}`, status: 200, by: "upstream" });
        }
        return ids;
      };
      const count = async (ids: readonly string[]) => {
        let found = 0;
        for (const id of ids) if ((await remembered(id)).by === "upstream") found++;
        return found;
      };
      const first = await asked(0, 20);
      const next = await asked(20, 90);
      expect([await count(first), await count(next)]).toEqual([10, 90]);
      writeFileSync(running.file, JSON.stringify(config(150)));
      expect(await running.admin("/gateway/reload", "POST")).toContain('"changed":true');
      const last = await asked(110, 30);
      expect([await count(first), await count(next), await count(last)]).toEqual([10, 90, 30]);
    },
  );

  it("keep what a worker had counted until it ended, and drop what it had in progress", async () => {
    const { clients, on, json, metrics, upstreamHas, release: answer, restarted } = await started(release);
    for (const client of clients) for (let i = 0; i < 25; i++) await client.ask("/a/counted");
    const waiting = [clients[0].ask("/a/waits"), clients[1].ask("/a/waits")] as const;
    await upstreamHas(2);
    expect((await json("/gateway/status")).in_flight).toBe(2);
    const other = await on(0);
    for (let i = 0; i < 7; i++) await other.ask("/a/counted");
    const ended = expect(waiting[0]).rejects.toThrow();
    await expect(other.ask("/a/counted?exit")).rejects.toThrow();
    await ended;
    await restarted(1);
    // What it had counted since its last report came with its end.
    expect((await metrics()).one("edge_gateway_http_requests_total", COUNTED)).toBe(57);
    const stats = await json("/gateway/stats");
    const waits = stats.services[0].routes.find(({ name }: any) => name === "waits");
    expect([waits.in_flight, stats.total.in_flight, stats.services[0].upstreams[0].in_flight]).toEqual([1, 1, 1]);
    answer();
    await waiting[1];
    await until(async () => (await json("/gateway/status")).workers.serving === 2);
    expect((await metrics()).one("edge_gateway_worker_restarts_total")).toBe(1);
  });

  it("are there while a worker hangs, with what that one has reported before", async () => {
    const { clients, metrics, on } = await started(release);
    for (const client of clients) await client.ask("/a/counted");
    expect((await metrics()).one("edge_gateway_http_requests_total", COUNTED)).toBe(2);
    const hanging = (await on(0)).ask("/a/counted?hang").catch(() => {});
    for (let i = 0; i < 3; i++) await clients[1].ask("/a/counted");
    await until(async () => (await metrics()).one("edge_gateway_http_requests_total", COUNTED) === 5);
    expect((await metrics()).one("edge_gateway_workers")).toBe(2);
    void hanging;
  });

  it("are complete while workers load the modules of a new configuration", async () => {
    const { clients, running, withModules, json, metrics } = await started(release);
    const [folder, name] = [emptyFolder(), "slow.mjs"];
    const text = slowModule(folder);
    writeFileSync(join(folder, name), text);
    const sha256 = createHash("sha256").update(text).digest("hex");
    const next = JSON.stringify(withModules({ path: join(folder, name), sha256 }));
    replaced(running.file, next);
    const reloaded = json("/gateway/reload", "POST");
    await until(() => readdirSync(folder).filter((each) => each.startsWith("waits")).length === 2);
    for (const client of clients) for (let i = 0; i < 10; i++) await client.ask("/a/counted");
    await until(async () => (await metrics()).one("edge_gateway_http_requests_total", COUNTED) === 20);
    writeFileSync(join(folder, "go"), "");
    // The watcher of the file may have been first: then this one changes nothing.
    expect((await reloaded).digest).toBe(createHash("sha256").update(next).digest("hex").slice(0, 12));
    expect((await metrics()).one("edge_gateway_http_requests_total", COUNTED)).toBe(20);
  });
});

/** A plugin module that a worker loads only once there is a file "go" in the folder. */
function slowModule(folder: string): string {
  return `import { existsSync, writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { threadId } from "node:worker_threads";
if (threadId > 0) {
  writeFileSync(${JSON.stringify(folder)} + "/waits" + threadId, "");
  while (!existsSync(${JSON.stringify(join(folder, "go"))})) await setTimeout(5);
}
export default ({ definePlugin, schema }) => definePlugin({ name: "slow", schema: schema.object({}), create: () => \
(next) => next });
`;
}
