import type { ServerResponse } from "node:http";
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { METHODS } from "../../lib/base/http_grammar.ts";
import { RouteMeter } from "../../lib/observe/metrics.ts";
import { Call } from "../../lib/http/exchange.ts";
import { definePlugin, problemReply, schema, type Gateway, type GatewayOptions } from "../../lib/index.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { CA, SERVER } from "../support/certs.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { readMetrics } from "../support/metrics_text.ts";
import { SHOP } from "../support/more_certs.ts";
import { closedPort } from "../support/origin.ts";
import { emptyFolder } from "../support/process.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { turnsDuring } from "../support/turns.ts";

const read = (gateway: Gateway) => readMetrics(gateway.metrics());
const REQUESTS = "edge_gateway_http_requests_total";

const FAMILIES = [
  "edge_gateway_http_requests_total counter",
  "edge_gateway_http_request_duration_seconds histogram",
  "edge_gateway_http_requests_in_flight gauge",
  "edge_gateway_http_received_bytes_total counter",
  "edge_gateway_http_sent_bytes_total counter",
  "edge_gateway_client_connections gauge",
  "edge_gateway_client_connections_refused_total counter",
  "edge_gateway_tls_handshakes_total counter",
  "edge_gateway_tls_handshakes_refused_total counter",
  "edge_gateway_cache_requests_total counter",
  "edge_gateway_cache_bytes gauge",
  "edge_gateway_cache_max_bytes gauge",
  "edge_gateway_cache_entries gauge",
  "edge_gateway_cache_evictions_total counter",
  "edge_gateway_plugin_requests_total counter",
  "edge_gateway_plugin_answers_total counter",
  "edge_gateway_plugin_seconds_total counter",
  "edge_gateway_plugin_results_total counter",
  "edge_gateway_plugin_faults_total counter",
  "edge_gateway_rate_limit_callers gauge",
  "edge_gateway_rate_limit_shared_total counter",
  "edge_gateway_counters_up gauge",
  "edge_gateway_counters_errors_total counter",
  "edge_gateway_state_errors_total counter",
  "edge_gateway_rate_limited_total counter",
  "edge_gateway_plugin_refusals_total counter",
  "edge_gateway_upstream_duration_seconds histogram",
  "edge_gateway_retries_total counter",
  "edge_gateway_circuit_state gauge",
  "edge_gateway_upstream_healthy gauge",
  "edge_gateway_upstream_backup gauge",
  "edge_gateway_upstream_connections gauge",
  "edge_gateway_config_last_reload_successful gauge",
  "edge_gateway_config_last_reload_success_timestamp_seconds gauge",
  "edge_gateway_config_source_up gauge",
  "edge_gateway_config_copy_age_seconds gauge",
  "edge_gateway_config_expiry_timestamp_seconds gauge",
  "edge_gateway_key_expiry_timestamp_seconds gauge",
  "edge_gateway_tls_certificate_expiry_timestamp_seconds gauge",
  "edge_gateway_tls_crl_expiry_timestamp_seconds gauge",
  "edge_gateway_acme_orders_total counter",
  "edge_gateway_acme_hosts_without_certificate gauge",
  "edge_gateway_acme_last_attempt_successful gauge",
  "edge_gateway_acme_fleet_holder gauge",
  "edge_gateway_build_info gauge",
  "process_cpu_seconds_total counter",
  "process_start_time_seconds gauge",
  "process_resident_memory_bytes gauge",
  "process_heap_bytes gauge",
  "process_heap_used_bytes gauge",
  "process_external_memory_bytes gauge",
  ...(process.platform === "linux" ? ["process_open_fds gauge"] : []),
  "edge_gateway_event_loop_lag_mean_seconds gauge",
  "edge_gateway_event_loop_lag_p50_seconds gauge",
  "edge_gateway_event_loop_lag_p99_seconds gauge",
  "edge_gateway_event_loop_lag_max_seconds gauge",
];

/** All families with something in most of them. */
async function eventful() {
  const folder = emptyFolder();
  const paths = { cert: join(folder, "shop.pem"), key: join(folder, "shop.key") };
  writeFileSync(paths.cert, SHOP.cert);
  writeFileSync(paths.key, SHOP.key);
  const [first, second] = [await closedPort(), await backend()];
  const config = oneService(
    [first, second.port],
    {
      retries: {},
      routes: [
        { path: "/limited", name: 'l"\\', plugins: [{ name: "rate_limit", config: { limit_min: 1 } }] },
        { path: "/{rest*}", name: "rest" },
      ],
    },
    { certificates: [{ hosts: ["shop.example.com", "www.example.com"], ...paths }] },
  );
  const { gateway, port } = await running(config);
  await gateway.listen({
    port: 0,
    tls: {
      cert: Buffer.from(SERVER.cert),
      key: Buffer.from(SERVER.key),
      ca: Buffer.from(CA.cert),
      requireClientCert: false,
    },
  });
  for (const path of ["/a/x", "/a/limited", "/a/limited", "/nowhere"]) await ask(port, { path });
  return { gateway, port, paths, first, second };
}

describe("the text of all metrics", () => {
  it("the text of all metrics passes a strict reader, with every family", async () => {
    const { gateway, first, second, paths } = await eventful();
    const metrics = read(gateway);
    const told = [...metrics.families].map(([name, { type }]) => `${name} ${type}`);
    expect(told).toEqual(FAMILIES);
    expect(metrics.one(REQUESTS, { service: "s", route: "rest", method: "GET", code: "200" })).toBe(1);
    expect(metrics.one(REQUESTS, { route: 'l"\\', code: "429" })).toBe(1);
    expect(metrics.one(REQUESTS, { service: "", route: "", method: "GET", code: "404" })).toBe(1);
    expect(metrics.one("edge_gateway_http_request_duration_seconds_count", { route: 'l"\\' })).toBe(2);
    expect(metrics.one("edge_gateway_rate_limited_total", { route: 'l"\\' })).toBe(1);
    expect(metrics.one("edge_gateway_rate_limited_total", { route: "rest" })).toBe(0);
    expect(metrics.one("edge_gateway_plugin_refusals_total", { route: 'l"\\', code: "rate_limited" })).toBe(1);
    expect(metrics.one("edge_gateway_retries_total", { service: "s" })).toBe(1);
    const upstreams = [first, second.port].map((port) => ({ service: "s", upstream: `127.0.0.1:${port}` }));
    expect(upstreams.map((labels) => metrics.one("edge_gateway_upstream_duration_seconds_count", labels))).toEqual([
      1, 2,
    ]);
    expect(upstreams.map((labels) => metrics.one("edge_gateway_upstream_connections", labels))).toEqual([0, 1]);
    expect(upstreams.map((labels) => metrics.one("edge_gateway_upstream_healthy", labels))).toEqual([1, 1]);
    const expiry = "edge_gateway_tls_certificate_expiry_timestamp_seconds";
    expect(metrics.all(expiry).map(({ labels }) => labels)).toEqual([
      { file: paths.cert, host: "shop.example.com" },
      { file: paths.cert, host: "www.example.com" },
      { file: "", host: "" },
    ]);
    expect(metrics.one(expiry, { file: "" })).toBe(Date.UTC(2120, 0, 1) / 1000);
    expect(metrics.one("process_resident_memory_bytes")).toBeGreaterThan(10_000_000);
    expect(metrics.all("edge_gateway_build_info")[0]!.labels).toMatchObject({ node_version: process.version });
  });

  const promtool = spawnSync("promtool", ["--version"]).error === undefined;
  it.skipIf(!promtool)(
    "the text of all metrics passes promtool (skipped without promtool: Debian's package prometheus has it)",
    async () => {
      const { gateway } = await eventful();
      // Exit 1 with what is wrong with it, 3 with what is against the customs of names.
      expect(execFileSync("promtool", ["check", "metrics"], { input: gateway.metrics() }).toString()).toBe("");
    },
  );
});

describe("the stream of all metrics", () => {
  /** A gateway with many busy routes. */
  async function busy(count: number) {
    const { port } = await backend();
    const routes = Array.from({ length: count }, (_, i) => ({ name: `r${i}`, path: `/r${i}` }));
    const { gateway } = await running(oneService(port, { routes, base_path: "/" }));
    for (const { path } of routes)
      await gateway.inject({ method: "POST", url: path, headers: { Host: "h" }, body: "x" });
    return gateway;
  }

  it("the stream of all metrics has the same text in slices, each in a separate turn of the event loop", async () => {
    const gateway = await busy(300);
    const slices: Buffer[] = [];
    const turns = await turnsDuring(async () => {
      for await (const slice of gateway.metricsStream()) slices.push(slice as Buffer);
    });
    const text = Buffer.concat(slices).toString();
    const own = (all: string) => all.split("\n").filter((line) => !/^(process_|edge_gateway_event_loop)/.test(line));
    expect(own(text)).toEqual(own(gateway.metrics()));
    expect(text.length).toBeGreaterThan(6 * 64 * 1024);
    expect(slices.length).toBeGreaterThan(6);
    for (const { length } of slices) expect(length).toBeLessThan(70 * 1024);
    expect(turns).toBeGreaterThanOrEqual(slices.length - 1);
  });

  it(
    "the stream of all metrics grows only as fast as it is read, " +
      "and a reload meanwhile neither cuts it nor repeats a series",
    async () => {
      const gateway = await busy(300);
      const stream = gateway.metricsStream();
      const slices: Buffer[] = [(await once(stream, "readable"), stream.read() as Buffer)];
      for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve));
      expect(stream.readableLength).toBeLessThan(3 * 70 * 1024);
      await gateway.reload(oneService(9, { name: "another" }));
      for await (const slice of stream) slices.push(slice as Buffer);
      const metrics = readMetrics(Buffer.concat(slices).toString());
      expect(metrics.all("edge_gateway_http_request_duration_seconds_count")).toHaveLength(300);
    },
  );
});

describe("metrics of plugins, bodies and connections", () => {
  const pausing = (clock: ManualClock) =>
    definePlugin({
      name: "pausing",
      schema: schema.object({
        ms: schema.integer(),
        answers: schema.withDefault(schema.boolean(), false),
        later: schema.withDefault(schema.boolean(), false),
      }),
      create({ ms, answers, later }) {
        return (next) => (exchange) => {
          const go = () => {
            clock.advance(ms);
            return answers ? problemReply(exchange.call, { code: "no", status: 403, title: "No" }) : next(exchange);
          };
          return later ? Promise.resolve().then(go) : go();
        };
      },
    });

  it(
    "metrics of plugins, bodies and connections have the time of each plugin until it passes the request on or " +
      "answers it, without the time of the upstream",
    async () => {
      const clock = manualClock();
      const { port } = await backend((_request, response) => {
        clock.advance(1_000);
        response.end();
      });
      const global = { plugins: [{ name: "pausing", config: { ms: 1 } }] };
      const routes = [
        {
          path: "/on",
          name: "on",
          plugins: [
            { name: "pausing", config: { ms: 30, later: true } },
            { name: "pausing", id: "mine", config: { ms: 4 } },
          ],
        },
        { path: "/no", name: "no", plugins: [{ name: "pausing", config: { ms: 500, answers: true } }] },
        { path: "/quiet", name: "quiet", plugins: [{ name: "pausing", config: { ms: 5 } }] },
      ];
      const { gateway } = await running(oneService(port, { routes }, global), { clock, plugins: [pausing(clock)] });
      for (const path of ["/a/on", "/a/on", "/a/no"]) await gateway.inject({ url: path });
      const told = (name: string) =>
        read(gateway)
          .all(name)
          .map(({ labels: { plugin, level, service, route, id }, value }) => [
            plugin,
            level,
            service,
            route,
            id,
            value,
          ]);
      expect(told("edge_gateway_plugin_seconds_total")).toEqual([
        ["pausing", "global", "", "", "1", 0.003],
        ["pausing", "route", "s", "on", "1", 0.06],
        ["pausing", "route", "s", "on", "mine", 0.008],
        ["pausing", "route", "s", "no", "1", 0.5],
      ]);
      expect(told("edge_gateway_plugin_requests_total").map((row) => row.at(-1))).toEqual([3, 2, 2, 1]);
      expect(told("edge_gateway_plugin_answers_total").map((row) => row.at(-1))).toEqual([0, 0, 0, 1]);
      const ofRoute = async (route: string) =>
        (await gateway.routePlugins("s", route))!.map(({ level, id, requests, answered }) => [
          level,
          id,
          requests,
          answered,
        ]);
      expect(await ofRoute("on")).toEqual([
        ["global", null, 3, 0],
        ["route", null, 2, 0],
        ["route", "mine", 2, 0],
      ]);
      expect(await ofRoute("no")).toEqual([
        ["global", null, 3, 0],
        ["route", null, 1, 1],
      ]);
    },
  );

  it(
    "metrics of plugins, bodies and connections have the results that a plugin reports, " +
      "at most 32 different ones, also after a reload",
    async () => {
      const counting = definePlugin({
        name: "counting",
        schema: schema.object({}),
        create:
          (_config, { tally }) =>
          (next) =>
          (exchange) => {
            tally(exchange.upstreamPath.slice(1));
            return next(exchange);
          },
      });
      const { port } = await backend();
      const config = oneService(port, {
        plugins: [{ name: "counting" }, { name: "counting", id: "mine", enabled: false }],
      });
      const { gateway } = await running(config, { plugins: [counting] });
      for (const path of ["/a/x", "/a/y", "/a/x"]) await gateway.inject({ url: path });
      await gateway.reload(config);
      await gateway.inject({ url: "/a/y" });
      const told = () =>
        read(gateway)
          .all("edge_gateway_plugin_results_total")
          .map(({ labels: { plugin, level, service, route, id, result }, value }) => [
            plugin,
            level,
            service,
            route,
            id,
            result,
            value,
          ]);
      expect(told()).toEqual([
        ["counting", "service", "s", "", "1", "x", 2],
        ["counting", "service", "s", "", "1", "y", 2],
      ]);
      for (let i = 0; i < 40; i++) await gateway.inject({ url: `/a/${i}` });
      expect([told().length, told().at(-1)!.slice(-2)]).toEqual([33, ["other", 10]]);
    },
  );

  it("a result that is no text does not break the metrics", async () => {
    const counting = definePlugin({
      name: "counting",
      schema: schema.object({}),
      create:
        (_config, { tally }) =>
        (next) =>
        (exchange) => {
          for (const result of [200, undefined, null, {}]) tally(result as never);
          return next(exchange);
        },
    });
    const { gateway } = await running(oneService((await backend()).port, { plugins: [{ name: "counting" }] }), {
      plugins: [counting],
    });
    expect((await gateway.inject({ url: "/a/x" })).status).toBe(200);
    expect(
      read(gateway)
        .all("edge_gateway_plugin_results_total")
        .map(({ labels }) => labels.result),
    ).toEqual(["200", "undefined", "null", "[object Object]"]);
  });

  it(
    "metrics of plugins, bodies and connections have the result of each cache look-up, " +
      "without the time behind the cache",
    async () => {
      const clock = manualClock();
      const { port } = await backend((request, response) => {
        clock.advance(1_000);
        if (request.headers["if-none-match"] === '"x"')
          return void response.writeHead(304, { ETag: '"x"', "Cache-Control": "max-age=60" }).end();
        response.writeHead(200, { "Cache-Control": "max-age=60", ETag: '"x"' }).end("body");
      });
      const { gateway } = await running(
        oneService(port, { plugins: [{ name: "response_cache" }], routes: [{ path: "/{rest*}", name: "r" }] }),
        { clock },
      );
      const get = (path: string, method = "GET") => gateway.inject({ url: path, method });
      for (let i = 0; i < 3; i++) await get("/a/x");
      clock.advance(120_000);
      await get("/a/x");
      await get("/a/x", "POST");
      const results = read(gateway)
        .all("edge_gateway_cache_requests_total")
        .map(({ labels: { service, route, result }, value }) => [service, route, result, value]);
      expect(results).toEqual([
        ["s", "r", "miss", 1],
        ["s", "r", "hit", 2],
        ["s", "r", "revalidated", 1],
        ["s", "r", "bypass", 1],
      ]);
      expect(read(gateway).one("edge_gateway_plugin_seconds_total", { plugin: "response_cache" })).toBe(0);
    },
  );

  it(
    "metrics of plugins, bodies and connections have what each cache holds, " +
      "its bound and what it dropped for want of room, over a reload that replaces it",
    async () => {
      const { port } = await backend(
        (_request, response) => void response.writeHead(200, { "Cache-Control": "max-age=60" }).end("x".repeat(20_000)),
      );
      const caching = (...bounds: number[]): AnyConfigInput =>
        oneService(port, {
          plugins: bounds.map((most, i) => ({
            name: "response_cache",
            ...(i === 0 && { id: "big" }),
            config: { max_bytes: most, max_object_bytes: 30_000 },
          })),
        });
      const { gateway } = await running(caching(65_536, 131_072));
      const told = (id: string) =>
        ["bytes", "max_bytes", "entries", "evictions_total"].map((what) =>
          read(gateway).one(`edge_gateway_cache_${what}`, {
            plugin: "response_cache",
            level: "service",
            service: "s",
            route: "",
            id,
          }),
        );
      expect([told("big"), told("2")]).toEqual([
        [0, 65_536, 0, 0],
        [0, 131_072, 0, 0],
      ]);
      for (let i = 0; i < 4; i++) await gateway.inject({ url: `/a/${i}` });
      const [bytes, ...others] = told("big");
      expect(others).toEqual([65_536, 3, 1]);
      expect(bytes).toBeGreaterThan(60_000);
      expect(bytes).toBeLessThan(65_536);
      expect(told("2").slice(1)).toEqual([131_072, 4, 0]);
      // A candidate that is refused, and one that comes into force, with a store of their own.
      await expect(
        gateway.reload({
          ...caching(80_000),
          tests: [{ name: "t", request: { url: "/a/1" }, expect: { status: 418 } }],
        }),
      ).rejects.toThrow();
      expect(told("big").slice(1)).toEqual([65_536, 3, 1]);
      await gateway.reload(caching(80_000));
      expect([told("big"), told("2")]).toEqual([
        [0, 80_000, 0, 1],
        [undefined, undefined, undefined, undefined],
      ]);
    },
  );

  it.each([true, false])(
    "metrics of plugins, bodies and connections have the bytes of bodies by route, " +
      "whether the access log is on or off (%s)",
    async (enabled) => {
      const { port } = await backend((_request, response) => void response.end("12345"));
      const { gateway, port: own } = await running(
        oneService(port, { routes: [{ path: "/{rest*}", name: "r" }] }, { access_log: { enabled } }),
        { accessLog: () => {} },
      );
      for (const body of ["abc", "defgh"]) await ask(own, { method: "POST", path: "/a/x", body });
      await eventually(() => gateway.inFlight === 0, "no request being in flight");
      expect(
        ["received", "sent"].map((way) => read(gateway).one(`edge_gateway_http_${way}_bytes_total`, { route: "r" })),
      ).toEqual([8, 10]);
    },
  );

  it(
    "metrics of plugins, bodies and connections have the connections of clients, " + "and the refused connections",
    async () => {
      const { gateway, port } = await running(oneService(9, {}, { limits: { max_connections: 2 } }));
      const [first] = [await connect(port), await connect(port)];
      // It may be reset before it is said to stand.
      await connect(port).catch(() => {});
      await eventually(
        () => read(gateway).one("edge_gateway_client_connections_refused_total") === 1,
        "a refused connection in the metrics",
      );
      expect(read(gateway).one("edge_gateway_client_connections")).toBe(2);
      first.socket.destroy();
      await eventually(() => read(gateway).one("edge_gateway_client_connections") === 1, "a connection in the metrics");
    },
  );

  it(
    "metrics of plugins, bodies and connections have the callers that a rate limit remembers, " +
      "and the decisions for callers that share one allowance",
    async () => {
      const { port } = await backend();
      const limit = { limit_min: 2, limit_by: "header:x-caller", max_callers: 2 };
      const { gateway } = await running(oneService(port, { plugins: [{ name: "rate_limit", config: limit }] }));
      const send = (caller: string) => gateway.inject({ url: "/a/x", headers: { Host: "h", "X-Caller": caller } });
      // Callers who have used up their limit are never forgotten.
      for (const caller of ["a", "b", "a", "b"]) await send(caller);
      const labels = { plugin: "rate_limit", level: "service", service: "s", route: "", id: "1" };
      const told = () =>
        ["callers", "shared_total"].map((what) => read(gateway).one(`edge_gateway_rate_limit_${what}`, labels));
      expect(told()).toEqual([2, 0]);
      for (const caller of ["c", "d", "e"]) await send(caller);
      expect(told()).toEqual([2, 3]);
    },
  );

  it("metrics of plugins, bodies and connections have the state of each circuit breaker", async () => {
    const { port } = await backend((_request, response) => void response.writeHead(500).end());
    const breaking = oneService(port, {
      circuit_breaker: { min_requests: 1 },
      health: { passive: { max_failures: 0 } },
    });
    const { gateway } = await running(breaking);
    const states = () =>
      read(gateway)
        .all("edge_gateway_circuit_state")
        .map(({ labels: { service, state }, value }) => [service, state, value]);
    expect(states()).toEqual([
      ["s", "closed", 1],
      ["s", "open", 0],
      ["s", "half_open", 0],
    ]);
    await gateway.inject({ url: "/a/x" });
    expect(states()).toEqual([
      ["s", "closed", 0],
      ["s", "open", 1],
      ["s", "half_open", 0],
    ]);
  });
});

describe("metrics of requests", () => {
  it("metrics of requests count all unknown methods together", async () => {
    const { port } = await backend();
    const { gateway } = await running(oneService(port));
    for (const method of ["FOO", "BAR", "get"]) await gateway.inject({ method, url: "/a/x" });
    const counted = read(gateway).all(REQUESTS);
    expect(new Set(counted.map(({ labels }) => labels.method))).toEqual(new Set(["other"]));
    expect(counted.reduce((sum, { value }) => sum + value, 0)).toBe(3);
  });

  it("metrics of requests have no label with text from a client", async () => {
    const { port } = await backend(
      (request, response) => void response.writeHead(request.url === "/odd" ? 799 : 200).end(),
    );
    const { gateway } = await running(oneService(port, { routes: [{ path: "/{rest*}", name: "r" }] }));
    for (const path of ["/a/secret", "/a/odd", "/a/secret?secret", "/secret"])
      await gateway.inject({ url: path, headers: { "User-Agent": "secret", Host: "secret" } });
    expect(gateway.metrics()).not.toContain("secret");
    expect(
      read(gateway)
        .all(REQUESTS)
        .map(({ labels: { route, code }, value }) => [route, code, value]),
    ).toEqual([
      ["r", "200", 2],
      ["r", "other", 1],
      ["", "404", 1],
    ]);
  });

  it(
    "metrics of requests count a request whose client disconnected without a status, " +
      "and a WebSocket without its time",
    async () => {
      const held = await backend(() => {});
      const { gateway, port } = await running(oneService(held.port, { routes: [{ path: "/{rest*}", name: "r" }] }));
      const leaving = await connect(port);
      leaving.send("GET /a/x HTTP/1.1\r\nHost: a\r\n\r\n");
      await eventually(() => held.seen.length === 1, "a request at the held");
      expect(read(gateway).one("edge_gateway_http_requests_in_flight")).toBe(1);
      leaving.socket.destroy();
      await eventually(() => gateway.inFlight === 0, "no request being in flight");
      expect(read(gateway).one(REQUESTS, { route: "r", code: "none" })).toBe(1);
      expect(read(gateway).one("edge_gateway_upstream_duration_seconds_count")).toBeUndefined();
      const meter = new RouteMeter();
      const { notes } = new Call({ id: "1", remoteAddress: "", trustedRemote: false, startedAt: 0, inform: () => {} });
      meter.ended("GET", Object.assign(notes, { status: 101 }), 3_600_000);
      expect(meter.recent.counts).toBeNull();
      expect([...meter.requests()]).toEqual([["GET", "101", 1]]);
    },
  );

  it("metrics of requests count an event stream without its time, and other replies with theirs", async () => {
    const held: ServerResponse[] = [];
    const streams = await backend((request, response) => {
      response.writeHead(200, {
        "Content-Type": request.url === "/events" ? "Text/Event-Stream; charset=utf-8" : "text/plain",
      });
      response.write("data: 1\n\n");
      if (request.url === "/events") held.push(response);
      else response.end();
    });
    const { gateway, port } = await running(oneService(streams.port, { routes: [{ path: "/{rest*}", name: "r" }] }));
    const times = () => [
      read(gateway).one(REQUESTS, { route: "r", code: "200" }),
      read(gateway).one("edge_gateway_http_request_duration_seconds_count", { route: "r" }),
      gateway.stats.total.p95Ms !== null,
    ];
    const { body } = await fetch(`http://127.0.0.1:${port}/a/events`);
    await body!.getReader().read();
    held[0]!.end("data: 2\n\n");
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
    expect(times()).toEqual([1, undefined, false]);
    await ask(port, { path: "/a/text" });
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
    expect(times()).toEqual([2, 1, true]);
  });

  it("metrics of requests exist for each route; a route without requests holds no histogram and no tables", () => {
    const [quiet, asked] = [new RouteMeter(), new RouteMeter()];
    const { notes } = new Call({ id: "1", remoteAddress: "", trustedRemote: false, startedAt: 0, inform: () => {} });
    asked.ended("GET", Object.assign(notes, { status: 403, code: "forbidden", route: { name: "r", path: "/" } }), 2);
    expect(asked.recent.counts!.filter((count) => count > 0)).toEqual([1]);
    expect([...asked.refusals!]).toEqual([["forbidden", 1]]);
    expect([quiet.recent.counts, quiet.refusals]).toEqual([null, null]);
  });

  it("metrics of requests count refusals of plugins, without faults of upstreams, the gateway or plugins", async () => {
    const refusing = definePlugin({
      name: "refusing",
      schema: schema.object({}),
      create: () => () => (exchange) => {
        if (exchange.path === "/a/throw") throw new Error("no");
        return problemReply(exchange.call, { code: `own_${exchange.path.slice(3)}`, status: 400, title: "No" });
      },
    });
    const routes = [
      { path: "/x", name: "x" },
      { path: "/{rest*}", name: "r", plugins: [{ name: "refusing", config: {} }] },
    ];
    const { gateway } = await running(oneService(await closedPort(), { routes } as never), { plugins: [refusing] });
    await gateway.inject({ url: "/a/x" });
    await gateway.inject({ url: "/a/throw" });
    await gateway.inject({ url: "/a/1" });
    const refusals = () => read(gateway).all("edge_gateway_plugin_refusals_total");
    expect(refusals().map(({ labels, value }) => [labels, value])).toEqual([
      [{ service: "s", route: "r", code: "own_1" }, 1],
    ]);
    for (let i = 0; i < 200; i++) await gateway.inject({ url: `/a/${i}` });
    expect(refusals().length).toBe(65);
    expect(refusals().find(({ labels }) => labels.code === "other")?.value).toBe(136);
  });

  it("metrics of requests have 0 for the health of an ejected upstream", async () => {
    const [bad, good] = [await closedPort(), await backend()];
    const { gateway, port } = await running(oneService([bad, good.port], { health: { passive: { max_failures: 1 } } }));
    for (let i = 0; i < 2; i++) await ask(port, { path: "/a/x" });
    expect(
      read(gateway)
        .all("edge_gateway_upstream_healthy")
        .map(({ value }) => value),
    ).toEqual([0, 1]);
  });

  it("metrics of requests name the backups, with 1 for one that gets the requests", async () => {
    const [bad, good] = [await closedPort(), await backend()];
    const upstreams = [
      { id: "main", host: "127.0.0.1", port: bad },
      { id: "spare", host: "127.0.0.1", port: good.port, backup: true },
    ];
    const { gateway, port } = await running(oneService([], { upstreams, health: { passive: { max_failures: 1 } } }));
    const found = () =>
      read(gateway)
        .all("edge_gateway_upstream_backup")
        .map(({ labels, value }) => [labels.upstream, value]);
    expect(found()).toEqual([["spare", 0]]);
    await ask(port, { path: "/a/x" });
    expect(found()).toEqual([["spare", 1]]);
  });
});

describe("metrics over reloads", () => {
  const named = (port: number, ...routes: string[]): AnyConfigInput =>
    oneService(port, { routes: routes.map((name) => ({ path: `/${name}`, name })) });

  it(
    "metrics over reloads continue for names that stay, vanish for removed names, " +
      "and start from 0 when a name returns",
    async () => {
      const { port } = await backend();
      const clock = manualClock();
      const { gateway } = await running(named(port, "one", "two"), { clock } as Partial<GatewayOptions>);
      const count = (route: string) => read(gateway).one(REQUESTS, { route });
      for (const path of ["/a/one", "/a/two"]) await gateway.inject({ url: path });
      clock.advance(5_000);
      await gateway.reload(named(port, "one"));
      await gateway.inject({ url: "/a/one" });
      expect([count("one"), count("two")]).toEqual([2, undefined]);
      expect(gateway.metrics()).not.toContain("two");
      expect(read(gateway).one("edge_gateway_config_last_reload_success_timestamp_seconds")).toBe(
        Date.UTC(2026, 0, 1, 0, 0, 5) / 1000,
      );
      await gateway.reload(named(port, "one", "two"));
      await gateway.inject({ url: "/a/two" });
      expect([count("one"), count("two")]).toEqual([2, 1]);
      expect(read(gateway).one("edge_gateway_upstream_duration_seconds_count", { upstream: `127.0.0.1:${port}` })).toBe(
        4,
      );
      const other = await backend();
      await gateway.reload(named(other.port, "one"));
      expect(gateway.metrics()).not.toContain(`127.0.0.1:${port}"`);
    },
  );

  it("metrics over reloads show a refused reload, and keep all counts", async () => {
    const { port } = await backend();
    const { gateway } = await running(named(port, "one"));
    await gateway.inject({ url: "/a/one" });
    const taken = read(gateway).one("edge_gateway_config_last_reload_success_timestamp_seconds");
    expect(read(gateway).one("edge_gateway_config_last_reload_successful")).toBe(1);
    await expect(gateway.reload({ services: [{}] } as never)).rejects.toThrow();
    const metrics = read(gateway);
    expect(metrics.one("edge_gateway_config_last_reload_successful")).toBe(0);
    expect(metrics.one("edge_gateway_config_last_reload_success_timestamp_seconds")).toBe(taken);
    expect(metrics.one(REQUESTS, { route: "one" })).toBe(1);
    await gateway.reload(named(port, "one"));
    expect(read(gateway).one("edge_gateway_config_last_reload_successful")).toBe(1);
  });
});

describe("the lag of the event loop", () => {
  it("the lag of the event loop shows a blocked turn since the last scrape", async () => {
    const { gateway } = await running(oneService(9));
    expect(read(gateway).one("edge_gateway_event_loop_lag_max_seconds")).toBe(0);
    await eventually(() => {
      const until = performance.now() + 100;
      while (performance.now() < until);
      return read(gateway).one("edge_gateway_event_loop_lag_max_seconds")! > 0.05;
    }, "the lag of the event loop in the metrics");
  });
});

it("the fixed methods equal the methods of HTTP", () => {
  expect(METHODS).toEqual(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY"]);
});
