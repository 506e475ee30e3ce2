import { describe, expect, it, onTestFinished } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import { createGateway, type ConfigInput } from "../../lib/index.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { manualClock } from "../support/clock.ts";
import { backend, oneService } from "../support/gateway.ts";
import { threadsOf } from "../support/threads.ts";
import { startAdmin } from "./harness.ts";
import { workerReportsOf } from "../../lib/report/worker_reports.ts";

async function asking(config: ConfigInput, made?: Gateway) {
  const clock = manualClock();
  const gateway = made ?? (createGateway({ config, clock }) as Gateway);
  onTestFinished(async () => void (await gateway.close(0)));
  const { ask, session } = await startAdmin({ clock, gateway });
  const headers = { cookie: await session() };
  const get = (url: string, more: Record<string, string> = {}) =>
    gateway.inject({ url, headers: { Host: "shop.example", ...more } });
  return {
    gateway,
    ask,
    get,
    read: async (path: string) => (await ask("GET", path, { headers })).json as Record<string, any>,
  };
}

const LAG = {
  mean: expect.any(Number) as number,
  p50: expect.any(Number) as number,
  p99: expect.any(Number) as number,
  max: expect.any(Number) as number,
};

describe("GET /gateway/process", () => {
  it("has memory, connections and the delay of the event loop of the one thread, for a session alone", async () => {
    const { ask, read } = await asking(oneService(9));
    const { threads, ...whole } = await read("/gateway/process");
    expect(whole).toEqual({
      rss_bytes: expect.any(Number) as number,
      cpu_s: expect.any(Number) as number,
      open_files: expect.any(Number) as number,
      connections: 0,
      in_flight: 0,
      source: null,
    });
    expect(threads).toEqual([
      {
        worker: null,
        heap_bytes: expect.any(Number) as number,
        heap_used_bytes: expect.any(Number) as number,
        external_bytes: expect.any(Number) as number,
        lag_ms: LAG,
        connections: 0,
        in_flight: 0,
      },
    ]);
    for (const path of ["/gateway/process", "/gateway/plugin-figures"]) {
      expect([(await ask("GET", path)).status, (await ask("POST", path)).status]).toEqual([401, 405]);
    }
  });

  it("has those of each worker by its place, in the order of the places", async () => {
    const threads = threadsOf(2);
    const gatewayAt = (place: number) =>
      new Gateway({ config: oneService(9), clock: manualClock(), modules: withAllFeatures() }, threads(place));
    const [main, first, worker] = [gatewayAt(-1), gatewayAt(0), gatewayAt(1)];
    for (const each of [first, worker]) onTestFinished(async () => void (await each.close(0)));
    const { runtime } = Gateway.internalsOf(worker);
    const reports = workerReportsOf(Gateway.internalsOf(worker));
    runtime.connections!.take("192.0.2.1", 0, 0);
    runtime.inFlight!.take(0, 2);
    workerReportsOf(Gateway.internalsOf(main))!.add(1, structuredClone(reports!.take("all")));
    const { read } = await asking(oneService(9), main);
    const found = await read("/gateway/process");
    expect(found).toMatchObject({
      connections: 1,
      in_flight: 2,
      threads: [{ worker: 1, connections: 1, in_flight: 2, lag_ms: LAG }],
    });
    expect(found.threads).toHaveLength(1);
    workerReportsOf(Gateway.internalsOf(main))!.add(
      0,
      structuredClone(workerReportsOf(Gateway.internalsOf(first))!.take("all")),
    );
    expect((await read("/gateway/process")).threads).toMatchObject([
      { worker: 0, connections: 0, in_flight: 0 },
      { worker: 1, connections: 1, in_flight: 2 },
    ]);
  });
});

describe("GET /gateway/plugin-figures", () => {
  it("has what plugins, caches and circuit breakers have counted, by names", async () => {
    const { port } = await backend(
      (request, response) =>
        void response.writeHead(request.url === "/bad" ? 500 : 200, { "Cache-Control": "max-age=60" }).end(),
    );
    const config = oneService(port, {
      circuit_breaker: { min_requests: 100 },
      routes: [
        { name: "open", path: "/open", plugins: [{ name: "response_cache", config: {} }] },
        {
          name: "closed",
          path: "/closed",
          plugins: [
            { name: "key_auth", id: "door", config: { key: "under-the-mat" } },
            { name: "rate_limit", config: { limit_min: 10 } },
          ],
        },
        { name: "bad", path: "/bad" },
      ],
    });
    const { get, read } = await asking(config);
    for (const url of ["/a/open", "/a/open", "/a/closed", "/a/bad"]) await get(url);
    await get("/a/closed", { apiKey: "under-the-mat" });
    const { plugins, routes, caches, circuits } = await read("/gateway/plugin-figures");
    const of = { level: "route", service: "s", seconds: expect.any(Number) as number, results: {}, callers: null };
    expect(plugins).toEqual([
      { ...of, plugin: "response_cache", route: "open", id: "1", requests: 2, answered: 1 },
      { ...of, plugin: "key_auth", route: "closed", id: "door", requests: 2, answered: 1 },
      { ...of, plugin: "rate_limit", route: "closed", id: "1", requests: 1, answered: 0, callers: 1 },
    ]);
    expect(routes).toEqual([
      { service: "s", route: "open", cache: { miss: 1, hit: 1 }, refusals: {} },
      { service: "s", route: "closed", cache: {}, refusals: { key_missing: 1 } },
    ]);
    expect(caches).toEqual([
      {
        plugin: "response_cache",
        level: "route",
        service: "s",
        route: "open",
        id: "1",
        bytes: expect.any(Number) as number,
        max_bytes: 64 * 1024 * 1024,
        entries: 1,
        evictions: 0,
      },
    ]);
    expect(circuits).toEqual([{ service: "s", state: "closed", requests: 3, failures: 1 }]);
    expect(JSON.stringify({ plugins, routes })).not.toContain("under-the-mat");
  });
});
