import type http from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import type { MetricsExport } from "../../lib/config/settings_types.ts";
import type { Family } from "../../lib/observe/exposition.ts";
import { ServerDurations } from "../../lib/observe/server_durations.ts";
import { MetricsExporter } from "../../lib/report/metrics_export.ts";
import { manualClock } from "../support/clock.ts";
import { eventually } from "../support/raw_client.ts";
import { recordedLog } from "../journeys/harness.ts";
import { closedPort } from "../support/origin.ts";
import { readMetrics, type ReadMetric } from "../support/otlp_metrics.ts";
import { otlpReceiver } from "../support/otlp_receiver.ts";

/** A collector of metrics that refuses what is not OTLP in JSON. */
async function receiver(answers?: Parameters<typeof otlpReceiver>[1]) {
  const exports: { readonly metrics: readonly ReadMetric[]; readonly headers: http.IncomingHttpHeaders }[] = [];
  const { origin, asked } = await otlpReceiver(
    ({ text, headers }) => void exports.push({ metrics: readMetrics(text), headers }),
    answers,
  );
  return { url: `${origin}/v1/metrics`, exports, count: asked };
}

const call = (notes: object) => ({
  notes: { status: 200, code: null, pattern: "/a/{id}", isTimed: true, ...notes },
});
const request = (notes: object, more: object = {}) =>
  ({ call: call(notes), method: "GET", scheme: "http", httpVersion: "1.1", ...more }) as unknown as Parameters<
    ServerDurations["ended"]
  >[0];

/** Exports one counter, one gauge, and durations. */
function exporting(settings: Partial<MetricsExport> & { readonly url: string }) {
  const clock = manualClock();
  const counted: { requests: number | null } = { requests: 1 };
  const durations = new ServerDurations();
  const { log, lines } = recordedLog();
  const families = (): readonly Family[] => [
    {
      name: "edge_gateway_http_received_bytes_total",
      type: "counter",
      help: "b",
      samples: counted.requests === null ? [] : [[["route", "r"], counted.requests]],
    },
    { name: "process_open_fds", type: "gauge", help: "g", samples: [[[], 7]] },
  ];
  const exporter = new MetricsExporter({
    // Longer than all intervals that pass while an answer is on its way.
    settings: { intervalMs: 60_000, temporality: "cumulative", timeoutMs: Number.MAX_SAFE_INTEGER, ...settings },
    ...{ clock, log, families },
    proxy: () => null,
    refresh: () => null,
    durations: () => durations.series,
  });
  onTestFinished(() => exporter.close());
  /** An interval is over as long as it does not hold: one that is over during an export begins none. */
  const later = (holds: () => boolean) =>
    eventually(() => {
      if (!holds()) clock.advance(60_000);
      return holds();
    });
  return { exporter, clock, counted, durations, lines, later };
}

const named = (metrics: readonly ReadMetric[], name: string) => metrics.find((metric) => metric.name === name);

describe("MetricsExporter", () => {
  it("sends names with dots, units, sums since the start, gauges and durations at each interval", async () => {
    const to = await receiver();
    const { clock, counted, durations, later } = exporting({ url: to.url, headers: { "X-Key": "k" } });
    durations.ended(request({}), 3);
    durations.ended(
      request({ status: 502, code: "upstream_reset", pattern: null }, { method: "BREW", httpVersion: "2.0" }),
      60_000,
    );
    clock.advance(60_000);
    await eventually(() => to.exports.length === 1);
    counted.requests = 5;
    await later(() => to.exports.length === 2);
    const [first, second] = to.exports;
    expect(first!.headers["x-key"]).toBe("k");
    expect(named(first!.metrics, "edge_gateway.http.received")).toMatchObject({
      unit: "By",
      kind: "sum",
      temporality: 2,
      points: [{ attributes: { route: "r" }, value: 1 }],
    });
    expect(named(second!.metrics, "edge_gateway.http.received")!.points[0]!.value).toBe(5);
    expect(named(first!.metrics, "process.open.fds")).toMatchObject({
      unit: "",
      kind: "gauge",
      points: [{ value: 7 }],
    });
    const duration = named(first!.metrics, "http.server.request.duration")!;
    expect(duration).toMatchObject({ unit: "s", kind: "histogram" });
    expect(duration.points.map(({ attributes }) => attributes)).toEqual([
      {
        "http.request.method": "GET",
        "url.scheme": "http",
        "network.protocol.version": "1.1",
        "http.response.status_code": 200n,
        "http.route": "/a/{id}",
      },
      {
        "http.request.method": "_OTHER",
        "url.scheme": "http",
        "network.protocol.version": "2",
        "http.response.status_code": 502n,
        "error.type": "upstream_reset",
      },
    ]);
    expect(duration.points[0]!.value).toEqual({ counts: [1, ...new Array<number>(14).fill(0)], sum: 0.003 });
    expect(duration.points[1]!.value).toEqual({ counts: [...new Array<number>(14).fill(0), 1], sum: 60 });
  });

  it("with delta sends what has come since the last export that was accepted", async () => {
    const answers = { status: 200 };
    const to = await receiver(answers);
    const { exporter, clock, counted, later } = exporting({ url: to.url, temporality: "delta" });
    const value = () => named(to.exports.at(-1)!.metrics, "edge_gateway.http.received")!;
    clock.advance(60_000);
    await eventually(() => to.exports.length === 1);
    const first = value().points[0]!;
    answers.status = 503;
    counted.requests = 4;
    await later(() => exporter.lost >= 2);
    expect(value().points[0]!.value).toBe(3);
    answers.status = 200;
    counted.requests = 6;
    await later(() => value().points[0]!.value === 5);
    expect(value().temporality).toBe(1);
    expect(value().points[0]!.start).toBe(first.end);
  });

  it(
    "with delta sends whole what a series has that has begun again, " + "and when it has begun at the earliest",
    async () => {
      const to = await receiver();
      // Longer than all intervals that pass while an answer is on its way.
      const { counted, durations, later } = exporting({ url: to.url, temporality: "delta" });
      const next = async () => {
        const { length } = to.exports;
        await later(() => to.exports.length > length);
        return to.exports.at(-1)!.metrics;
      };
      const pointOf = (metrics: readonly ReadMetric[], name = "edge_gateway.http.received") =>
        named(metrics, name)!.points[0]!;
      for (let i = 0; i < 2; i++) durations.ended(request({}), 3);
      counted.requests = 7;
      const first = pointOf(await next()).end;
      durations.take();
      durations.ended(request({}), 3);
      counted.requests = 2;
      const second = await next();
      expect(pointOf(second)).toMatchObject({ value: 2, start: first });
      expect(pointOf(second, "http.server.request.duration").value).toMatchObject({
        counts: [1, ...new Array<number>(14).fill(0)],
      });
      // As routes that a reload takes away and another brings back.
      counted.requests = null;
      const third = await next();
      expect(named(third, "edge_gateway.http.received")).toBeUndefined();
      const gone = await next();
      counted.requests = 9;
      expect(pointOf(await next())).toMatchObject({
        value: 9,
        start: pointOf(gone, "http.server.request.duration").end,
      });
    },
  );

  it("with delta loses no request that ends while an export is on its way", async () => {
    let hold: http.ServerResponse | null = null;
    const to = await receiver((response, nth) => (nth === 0 ? void (hold = response) : void response.end("{}")));
    const { durations, later } = exporting({ url: to.url, temporality: "delta" });
    durations.ended(request({}), 3);
    await later(() => hold !== null);
    for (let i = 0; i < 2; i++) durations.ended(request({}), 3);
    hold!.end("{}");
    await later(() => to.exports.length === 2);
    const counts = to.exports.map(({ metrics }) => named(metrics, "http.server.request.duration")!.points[0]!.value);
    expect(counts).toMatchObject([1, 2].map((count) => ({ counts: [count, ...new Array<number>(14).fill(0)] })));
  });

  it("counts the points that a collector rejects of an export that it accepts, and says why", async () => {
    const body = JSON.stringify({ partialSuccess: { rejectedDataPoints: "1", errorMessage: "too old" } });
    const to = await receiver({ status: 200, body });
    const { exporter, lines, later } = exporting({ url: to.url });
    await later(() => exporter.lost === 1);
    expect(lines).toMatchObject([
      { message: "metrics could not be sent", error: "the collector rejected them: too old" },
    ]);
  });

  it("takes an export for accepted whose answer breaks off after its status", async () => {
    const to = await receiver((response) => {
      response.writeHead(200, { "Content-Length": "10" }).write("{");
      setImmediate(() => response.destroy());
    });
    const { exporter, counted, later } = exporting({ url: to.url, temporality: "delta" });
    await later(() => to.exports.length === 1);
    counted.requests = 3;
    await later(() => to.exports.length === 2);
    const values = to.exports.map(({ metrics }) => named(metrics, "edge_gateway.http.received")!.points[0]!.value);
    expect([values, exporter.lost]).toEqual([[1, 2], 0]);
  });

  it("counts what is lost, says it once for several failures, and goes on", async () => {
    const { exporter, lines, later } = exporting({ url: `http://127.0.0.1:${await closedPort()}/v1/metrics` });
    for (const lost of [2, 4, 6]) await later(() => exporter.lost >= lost);
    expect(lines.map(({ message }) => message)).toEqual(["metrics could not be sent"]);
  });

  it("begins no export while one is in progress, and its end waits for a second at most", async () => {
    const to = await receiver({ status: 0 });
    const { exporter, clock } = exporting({ url: to.url });
    clock.advance(60_000);
    await eventually(() => to.count() === 1);
    clock.advance(300_000);
    expect(to.count()).toBe(1);
    const closed = exporter.close();
    clock.advance(1_000);
    await closed;
    expect(exporter.lost).toBeGreaterThan(0);
  });

  it("sends what has come since the last export at its end", async () => {
    const to = await receiver();
    const { exporter, counted } = exporting({ url: to.url, compression: "gzip" });
    counted.requests = 9;
    await exporter.close();
    expect(named(to.exports[0]!.metrics, "edge_gateway.http.received")!.points[0]!.value).toBe(9);
  });
});

describe("ServerDurations", () => {
  it("counts at most 2000 series, and all further ones in one that says so", () => {
    const durations = new ServerDurations();
    for (let i = 0; i < 2_100; i++) durations.ended(request({ pattern: `/r${i}` }), 1);
    expect(durations.series.size).toBe(2_001);
    expect(durations.series.get(JSON.stringify(["otel.metric.overflow", true]))!.counts[0]).toBe(100);
  });

  it("leaves WebSockets and event streams out, and has no status of a client that left before one", () => {
    const durations = new ServerDurations();
    durations.ended(request({ status: 101 }), 1);
    durations.ended(request({ isTimed: false }), 1);
    durations.ended(request({ status: null, code: "client_closed" }), 1);
    expect([...durations.series.keys()].map((key) => (JSON.parse(key) as unknown[]).slice(-4))).toEqual([
      ["http.route", "/a/{id}", "error.type", "client_closed"],
    ]);
  });

  it("adds the report of a worker to what it has", () => {
    const [all, worker] = [new ServerDurations(), new ServerDurations()];
    for (const each of [all, worker]) each.ended(request({}), 1);
    all.add(worker.take());
    expect([...all.series.values()]).toEqual([{ counts: [2, ...new Array<number>(14).fill(0)], sumMs: 2 }]);
    expect(worker.take()).toEqual([]);
  });
});
