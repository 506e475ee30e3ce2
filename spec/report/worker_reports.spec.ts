/**
 * The gateways of a main thread and of two workers, here in one thread; in their own threads see
 * `spec/peers/workers_whole.spec.ts`.
 */
import { describe, expect, it, onTestFinished } from "vitest";
import type { Followers } from "../../lib/gateway/bundle.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { CompleteOptions } from "../../lib/gateway/options.ts";
import { workerReportsOf, type WorkerReport } from "../../lib/report/worker_reports.ts";
import { createGateway, definePlugin, schema, type ConfigInput } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { collector } from "../support/collector.ts";
import { backend, oneService } from "../support/gateway.ts";
import { readMetrics } from "../support/metrics_text.ts";
import { closedPort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";
import { threadsOf } from "../support/threads.ts";

const read = (gateway: Gateway) => readMetrics(gateway.metrics());
const get = (gateway: Gateway, path: string) => gateway.inject({ url: path, headers: { Host: "shop.example.com" } });

/** A gateway as each thread of a program with two workers has one. Messages between them are copies. */
function three(config: ConfigInput, options: Partial<CompleteOptions> = {}) {
  const clock = manualClock();
  const threads = threadsOf(2);
  const gatewayAt = (place: number) => {
    const gateway = new Gateway({ config, clock, ...options, modules: withAllFeatures() }, threads(place));
    onTestFinished(async () => void (await gateway.close(0)));
    return gateway;
  };
  const main = gatewayAt(-1);
  const workers = [gatewayAt(0), gatewayAt(1)] as const;
  const { configuration } = Gateway.internalsOf(main);
  const reports = workerReportsOf(Gateway.internalsOf(main))!;
  const report = (place: number, extent: "counts" | "all" = "counts"): WorkerReport =>
    structuredClone(workerReportsOf(Gateway.internalsOf(workers[place]!))!.take(extent));
  const collect = async (extent: "counts" | "all" = "counts") =>
    workers.forEach((_, place) => reports.add(place, report(place, extent)));
  const followers = {
    configured: 2,
    serving: 2,
    restarts: 0,
    collect,
    announceStop() {},
    close: () => Promise.resolve("drained"),
  };
  configuration.followers = followers as unknown as Followers;
  return { main, workers, clock, reports, report, collect, followers };
}

const broken = definePlugin({
  name: "broken",
  schema: schema.object({}),
  create: () => () => () => {
    throw new Error("lost");
  },
});

describe("the main thread of several workers", () => {
  it(
    "has the metrics, statistics and plugin faults that one thread would have for the same requests, " +
      "and keeps those of a worker that has ended",
    async () => {
      const { port } = await backend();
      const routes = [
        { name: "one", path: "/one" },
        { name: "limited", path: "/limited", plugins: [{ name: "rate_limit", config: { limit_min: 1 } }] },
        { name: "broken", path: "/broken", plugins: [{ name: "broken" }] },
        { name: "cached", path: "/cached", plugins: [{ name: "response_cache", config: {} }] },
      ];
      const config = oneService([port, await closedPort()], { retries: {}, routes });
      const { main, workers, clock, collect, reports } = three(config, { plugins: [broken] });
      const alone = createGateway({ config, clock, plugins: [broken] });
      onTestFinished(async () => void (await alone.close(0)));
      const paths = ["/a/one", "/a/one", "/a/broken", "/a/cached", "/nowhere", "/a/one", "/a/broken"];
      for (const path of paths) await get(alone, path);
      for (const [i, path] of paths.entries()) {
        // Round robin, which each worker does by itself, in step.
        await get(workers[path === "/a/one" || path === "/a/cached" ? 0 : i % 2]!, path);
        if (i % 3 === 0) await collect();
      }
      await collect();
      const own = (gateway: Gateway) =>
        gateway
          .metrics()
          .split("\n")
          .filter(
            (line) =>
              !new RegExp(
                String.raw`^(# |process_|edge_gateway_(event_loop|worker|upstream_connections|` +
                  String.raw`cache_(bytes|max_bytes|entries)))`,
              ).test(line),
          );
      expect(own(main)).toEqual(own(alone));
      expect(own(main)).toContain(
        'edge_gateway_http_requests_total{service="s",route="one",method="GET",code="200"} 3',
      );
      expect(main.stats).toEqual(alone.stats);
      expect(main.status.pluginFaults).toEqual([
        { plugin: "broken", id: null, level: "route", service: "s", route: "broken", count: 2 },
      ]);
      expect(main.status.pluginFaults).toEqual(alone.status.pluginFaults);
      reports.forget(0);
      reports.forget(1);
      expect(own(main)).toEqual(own(alone));
      expect(main.status.pluginFaults).toEqual(alone.status.pluginFaults);
    },
  );

  it("sums what the caches of all workers hold until these have ended, and keeps what they have dropped", async () => {
    const { port } = await backend(
      (_request, response) => void response.writeHead(200, { "Cache-Control": "max-age=60" }).end("x".repeat(20_000)),
    );
    const caching = (most: number) =>
      oneService(port, {
        plugins: [{ name: "response_cache", config: { max_bytes: most, max_object_bytes: 30_000 } }],
      });
    const { main, workers, collect, reports } = three(caching(65_536));
    const told = () =>
      ["max_bytes", "entries", "evictions_total"].map((what) =>
        read(main).one(`edge_gateway_cache_${what}`, { plugin: "response_cache", id: "1" }),
      );
    expect(told()).toEqual([131_072, 0, 0]);
    for (let i = 0; i < 6; i++) await get(workers[i % 2]!, `/a/${i}`);
    await get(workers[0], "/a/6");
    await collect();
    await collect();
    expect(told()).toEqual([131_072, 6, 1]);
    expect(read(main).one("edge_gateway_cache_bytes")).toBeGreaterThan(120_000);
    reports.forget(0);
    expect(told()).toEqual([131_072, 3, 1]);
    // A report of a cache that is no longer configured.
    Gateway.internalsOf(main).configuration.followers = null;
    await main.reload(oneService(port));
    await collect();
    expect(told()).toEqual([undefined, undefined, undefined]);
  });

  it(
    "counts requests in flight and connections of all workers by route and upstream, " +
      "until they are over or their worker has ended",
    async () => {
      const waiting: (() => void)[] = [];
      const { port } = await backend((_request, response) => void waiting.push(() => response.end("ok")));
      const { main, workers, collect, reports, report } = three(oneService(port));
      const open = [get(workers[0], "/a/x"), get(workers[0], "/a/y"), get(workers[1], "/a/x")];
      await eventually(() => waiting.length === 3);
      await collect();
      await collect();
      const figures = () => {
        const { routes, upstreams } = main.stats.services[0]!;
        const connections = read(main).one("edge_gateway_upstream_connections", { service: "s" });
        return [
          routes[0]!.inFlight,
          upstreams[0]!.inFlight,
          main.health.services[0]!.upstreams[0]!.inFlight,
          connections,
        ];
      };
      expect(figures()).toEqual([3, 3, 3, 3]);
      reports.forget(0);
      expect(figures()).toEqual([1, 1, 1, 1]);
      reports.add(0, report(0));
      expect(figures()).toEqual([3, 3, 3, 3]);
      for (const answer of waiting.splice(0)) answer();
      await Promise.all(open);
      await collect();
      expect(figures()).toEqual([0, 0, 0, 3]);
      reports.forget(1);
      expect(figures()).toEqual([0, 0, 0, 2]);
    },
  );

  it(
    "does not take over requests in flight on a route that a reload has removed, " +
      "and counts them in all when they end",
    async () => {
      const waiting: (() => void)[] = [];
      const { port } = await backend((_request, response) => void waiting.push(() => response.end("ok")));
      const { main, workers, collect } = three(oneService(port));
      const open = get(workers[0], "/a/x");
      await eventually(() => waiting.length === 1);
      await collect();
      Gateway.internalsOf(main).configuration.followers = null;
      await main.reload(oneService(port, { routes: [{ name: "new", path: "/new" }] }));
      waiting[0]!();
      await open;
      await collect();
      expect(main.stats.services[0]!.routes).toMatchObject([{ name: "new", inFlight: 0, requestsPerS: 0 }]);
      expect(main.stats.point.requests).toBe(1);
      expect(read(main).all("edge_gateway_http_requests_total")).toEqual([]);
    },
  );

  it(
    "reports the state of shared counters at the worker for which it is the worst, " +
      "and sums the decisions by on_error",
    async () => {
      const { port } = await backend();
      const counters = { store: "redis", url: `redis://127.0.0.1:${await closedPort()}`, on_error: "allow" } as const;
      const { main, workers, collect, reports, report } = three(
        oneService(port, { plugins: [{ name: "rate_limit", config: { limit_min: 1 } }] }, { counters }),
      );
      expect(main.status.counters).toMatchObject({ state: "connecting" });
      for (const worker of workers) for (let i = 0; i < 2; i++) await get(worker, "/a/x");
      await eventually(() => workers.every((worker) => worker.status.counters!.state === "down"));
      await collect();
      expect(main.status).toMatchObject({ counters: { state: "down" }, warnings: [{ code: "counters_down" }] });
      const errors = () =>
        read(main)
          .all("edge_gateway_counters_errors_total")
          .reduce((sum, { value }) => sum + value, 0);
      expect(errors()).toBe(4);
      await collect();
      expect(errors()).toBe(4);
      const states = ["up", "connecting", "down"] as const;
      for (const [i, first] of states.entries()) {
        for (const [j, second] of states.entries()) {
          const at = (place: number, state: (typeof states)[number]) => {
            const told = report(place);
            reports.add(place, { ...told, counters: { ...told.counters!, state } });
          };
          at(0, first);
          at(1, second);
          expect(main.status.counters!.state).toBe(states[Math.max(i, j)]);
          expect(read(main).one("edge_gateway_counters_up")).toBe(i + j === 0 ? 1 : 0);
        }
      }
    },
  );

  it("sums the spans of traces that all workers have sent, and those that they have lost", async () => {
    const { port } = await backend();
    const { url } = await collector();
    const { main, workers, collect } = three(oneService(port), { tracing: { url } } as Partial<CompleteOptions>);
    for (const worker of workers) await get(worker, "/a/x");
    for (const worker of workers) await worker.close(1_000);
    const exported = workers.map((worker) => read(worker).one("edge_gateway_trace_spans_exported_total")!);
    await collect();
    await collect();
    expect(Math.min(...exported)).toBeGreaterThan(0);
    expect(read(main).one("edge_gateway_trace_spans_exported_total")).toBe(exported[0]! + exported[1]!);
    expect(read(main).one("edge_gateway_trace_spans_dropped_total")).toBe(0);
  });

  it("exposes how many workers serve and were replaced, and warns while some are missing", () => {
    const { main, followers } = three(oneService(9));
    const told = () =>
      ["edge_gateway_workers", "edge_gateway_worker_restarts_total"].map((name) => read(main).one(name));
    expect([main.status.workers, main.status.warnings, told()]).toEqual([
      { configured: 2, serving: 2, restarts: 0 },
      [],
      [2, 0],
    ]);
    Object.assign(followers, { serving: 1, restarts: 3 });
    expect([main.status.workers, told()]).toEqual([{ configured: 2, serving: 1, restarts: 3 }, [1, 3]]);
    expect(main.status.warnings).toMatchObject([
      {
        code: "workers_missing",
        path: null,
        message: "1 of 2 workers serve: the others have ended and are being replaced.",
      },
    ]);
    main.announceStop();
    expect(main.status.warnings).toEqual([]);
  });

  it("has no label and no family of workers where one thread serves", async () => {
    const alone = createGateway({ config: oneService(9) });
    onTestFinished(async () => void (await alone.close(0)));
    expect(alone.metrics()).not.toContain("worker=");
    expect(alone.metrics()).not.toContain("edge_gateway_worker");
    expect(alone.status.workers).toBeNull();
  });

  it(
    "measures the event loops and heaps of workers only when metrics are asked for, " +
      "and keeps the last figures until then",
    async () => {
      const { main, collect, reports, report } = three(oneService(9));
      await collect("counts");
      expect(reports.threads).toEqual([]);
      const figures = { heapBytes: 1e15, heapUsedBytes: 1, externalBytes: 1, lag: [1, 2, 3, 4] } as const;
      reports.add(0, { ...report(0, "all"), thread: figures });
      await collect("counts");
      expect(reports.threads).toEqual([figures]);
      expect(read(main).one("process_heap_bytes")).toBeGreaterThan(1e15);
      expect(read(main).one("edge_gateway_event_loop_lag_max_seconds")).toBe(4);
      reports.forget(0);
      expect(reports.threads).toEqual([]);
    },
  );

  it("counts connections that a limit has refused in all workers", () => {
    const { main, workers, reports, report } = three(oneService(9));
    for (const [place, worker] of workers.entries()) {
      Gateway.internalsOf(worker).listener.connections.refused = place + 1;
      reports.add(place, report(place));
      reports.add(place, report(place));
    }
    expect(read(main).one("edge_gateway_client_connections_refused_total")).toBe(3);
  });
});
