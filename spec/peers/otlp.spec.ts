import { createRequire } from "node:module";
import { describe, expect, it } from "vitest";
import { readExport, type ReadSpan } from "../support/collector.ts";
import { backend } from "../support/gateway.ts";
import { readMetrics as readText } from "../support/metrics_text.ts";
import { closedPort } from "../support/origin.ts";
import { readLogs, type ReadLine } from "../support/otlp_logs.ts";
import { readMetrics, type ReadMetric } from "../support/otlp_metrics.ts";
import { otlpReceiver } from "../support/otlp_receiver.ts";
import { logLines, runningProgram } from "../support/process.ts";
import { prometheusName } from "../support/prometheus_name.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";

/** What protobufjs generates of a message; without the package this file still compiles. */
interface MessageType {
  fromObject(object: object): object;
  /** Null: none. */
  verify(message: object): string | null;
  encode(message: object): { finish(): Uint8Array };
  decode(bytes: Uint8Array): object;
  toObject(message: object, options: object): Fields;
}

type Fields = Readonly<Record<string, unknown>>;
type Signal = "trace" | "metrics" | "logs";

const load = createRequire(import.meta.url);
/** The messages of opentelemetry-proto, as the OpenTelemetry project has generated them. */
const { opentelemetry } = load("@opentelemetry/otlp-transformer/build/src/generated/root.js") as {
  readonly opentelemetry: {
    readonly proto: {
      readonly collector: Readonly<Record<Signal, { readonly v1: Readonly<Record<string, MessageType>> }>>;
    };
  };
};
const TYPES = {
  trace: "ExportTraceServiceRequest",
  metrics: "ExportMetricsServiceRequest",
  logs: "ExportLogsServiceRequest",
};

/** Names of attributes and metrics: all, and those that are stable. */
const conventions = {
  all: namesIn(load("@opentelemetry/semantic-conventions/incubating") as Fields),
  stable: namesIn(load("@opentelemetry/semantic-conventions") as Fields),
};

function namesIn(constants: Fields): ReadonlySet<unknown> {
  return new Set(Object.entries(constants).flatMap(([name, value]) => (/^(ATTR|METRIC)_/.test(name) ? value : [])));
}

/**
 * Reads an export as OTLP's JSON has it, over protobuf's wire and back. What comes out must be what went in: fields
 * with unknown names are gone by then, and values of other types are of the right one.
 */
function strict(signal: Signal, text: string): void {
  const type = opentelemetry.proto.collector[signal].v1[TYPES[signal]]!;
  const sent = JSON.parse(text) as object;
  const message = type.fromObject(changed(sent, "bytes") as object);
  expect(type.verify(message)).toBeNull();
  const arrived = type.decode(type.encode(message).finish());
  expect(changed(type.toObject(arrived, { longs: String, json: true }), "hex")).toEqual(changed(sent, "as it is"));
}

/** Ids are in hexadecimal (OTLP §"JSON Protobuf Encoding"), and an empty list is none. */
function changed(value: unknown, ids: "bytes" | "hex" | "as it is"): unknown {
  if (value instanceof Uint8Array || value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map((each) => changed(each, ids));
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, of]) => {
      if (Array.isArray(of) && of.length === 0) return [];
      return [[name, /^(?:trace|span|parentSpan)Id$/.test(name) ? id(of, ids) : changed(of, ids)]];
    }),
  );
}

function id(value: unknown, as: "bytes" | "hex" | "as it is"): unknown {
  if (as === "hex") return Buffer.from(value as Uint8Array).toString("hex");
  if (typeof value !== "string" || !/^(?:[0-9a-f]{32}|[0-9a-f]{16})$/i.test(value)) throw new Error("no id");
  return as === "bytes" ? Buffer.from(value, "hex") : value;
}

const point = { timeUnixNano: "1", asDouble: 1 };
const metrics = (metric: object) => ({ resourceMetrics: [{ scopeMetrics: [{ metrics: [metric] }] }] });
const logs = (record: object) => ({ resourceLogs: [{ scopeLogs: [{ logRecords: [record] }] }] });
const spans = (span: object) => ({ resourceSpans: [{ scopeSpans: [{ spans: [span] }] }] });
const attribute = (value: object) => logs({ attributes: [{ key: "k", value }] });
const ID = "5b8efff798038103d269b633813fc60c";

describe("the check by the messages of opentelemetry-proto", () => {
  it.each<[string, Signal, object]>([
    ["a point", "metrics", metrics({ name: "n", gauge: { dataPoints: [point] } })],
    ["a record with ids", "logs", logs({ traceId: ID, spanId: ID.slice(16), severityNumber: 9, timeUnixNano: "1" })],
    [
      "a number that is none",
      "metrics",
      metrics({ name: "n", gauge: { dataPoints: [{ ...point, asDouble: "NaN" }] } }),
    ],
  ])("accepts %s", (_title, signal, sent) => {
    strict(signal, JSON.stringify(sent));
  });

  it.each<[string, Signal, object]>([
    ["a field with an unknown name", "logs", logs({ timestamp: "1" })],
    ["a name with underscores", "logs", logs({ time_unix_nano: "1" })],
    [
      "a field of another message",
      "metrics",
      metrics({ name: "n", gauge: { dataPoints: [point], isMonotonic: true } }),
    ],
    ["a 64-bit integer as number", "logs", logs({ timeUnixNano: 1 })],
    ["a 64-bit integer of an attribute as number", "logs", attribute({ intValue: 1 })],
    ["a fraction as integer", "logs", attribute({ intValue: "1.5" })],
    ["a double as text", "metrics", metrics({ name: "n", gauge: { dataPoints: [{ ...point, asDouble: "1" }] } })],
    ["a number as text of an attribute", "logs", attribute({ stringValue: 1 })],
    ["the name of an enum", "logs", logs({ severityNumber: "SEVERITY_NUMBER_INFO" })],
    ["the name of a kind", "trace", spans({ kind: "SPAN_KIND_SERVER" })],
    ["a boolean as text", "metrics", metrics({ name: "n", sum: { isMonotonic: "true" } })],
    ["an id in base64", "trace", spans({ traceId: "W47/95gDgQPSabYzgT/GDA==" })],
    ["a number in place of a list", "logs", { resourceLogs: 1 }],
    ["attributes as an object", "logs", logs({ attributes: { k: { stringValue: "v" } } })],
    ["two values in one", "logs", attribute({ stringValue: "1", boolValue: true })],
    ["metrics among the logs", "logs", metrics({ name: "n" })],
  ])("refuses %s", (_title, signal, sent) => {
    expect(() => strict(signal, JSON.stringify(sent))).toThrow();
  });
});

/** A collector of all three signals, whatever the path says. */
async function collecting() {
  const found = {
    spans: [] as ReadSpan[],
    lines: [] as ReadLine[],
    exports: [] as (readonly ReadMetric[])[],
    resources: new Set<string>(),
    scopes: new Set<string>(),
  };
  const readers: Readonly<Record<string, (text: string) => void>> = {
    trace: (text) => void found.spans.push(...readExport(text).spans),
    metrics: (text) => void found.exports.push(readMetrics(text)),
    logs: (text) => void found.lines.push(...readLogs(text)),
  };
  const { origin } = await otlpReceiver(({ url, text }) => {
    const signal = url.slice("/v1/".length).replace("traces", "trace") as Signal;
    strict(signal, text);
    readers[signal]!(text);
    const [[of]] = Object.values(JSON.parse(text) as Readonly<Record<string, [Fields]>>) as [[Fields]];
    const [scopes] = Object.values(of).filter(Array.isArray) as [{ readonly scope: object; schemaUrl: string }[]];
    found.resources.add(JSON.stringify((of["resource"] as Fields)["attributes"]));
    for (const { scope, schemaUrl } of scopes) found.scopes.add(JSON.stringify([scope, schemaUrl]));
  });
  return { origin, ...found };
}

async function upstream() {
  const origin = await backend();
  origin.server.on("upgrade", (_request, socket) => {
    socket.on("error", () => {});
    socket.end("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
  });
  return origin.port;
}

const AUTHORIZATION = `Basic ${Buffer.from("a:password-of-a-test").toString("base64")}`;
const PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/** Requests of all kinds; resolves when each of them is over. */
async function traffic(port: number): Promise<void> {
  for (const path of ["/a/1", "/a/2", "/a/2", "/limited", "/limited", "/broken/x", "/nowhere"])
    await ask(port, { path, headers: { traceparent: PARENT } });
  await ask(port, { path: "/a/3?apiKey=secret", method: "POST", body: "twelve bytes" });
  await ask(port, { path: "/a/4", method: "PROPFIND" });
  const socket = await connect(port);
  socket.send(
    "GET /a/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
  );
  await socket.closed();
  const unreadable = await connect(port);
  unreadable.send("GET /\x01 HTTP/1.1\r\n\r\n");
  await unreadable.closed();
}

const keyOf = (name: string, labels: Readonly<Record<string, unknown>>) =>
  `${name} ${JSON.stringify(Object.entries(labels).map(([label, value]) => [label, String(value)]))}`;

/** All that one export has, by the names that Prometheus gives it: a histogram with sum and count of each bucket. */
function series(metricsOf: readonly ReadMetric[]): Map<string, number> {
  const all = new Map<string, number>();
  for (const metric of metricsOf) {
    const name = prometheusName(metric);
    for (const { attributes, value } of metric.points) {
      if (typeof value === "number") all.set(keyOf(name, attributes), value);
      else {
        all.set(keyOf(`${name}_sum`, attributes), value.sum);
        value.counts.forEach((count, i) => all.set(keyOf(`${name} ${i}`, attributes), count));
      }
    }
  }
  return all;
}

/** The same of the text of `/metrics`. */
function exposed(text: string): Map<string, number> {
  const all = new Map<string, number>();
  for (const { name, type, samples } of readText(text).families.values()) {
    let [bucket, before] = [0, 0];
    for (const { name: sampled, labels, value } of samples) {
      const { le, ...others } = labels;
      if (type !== "histogram" || sampled.endsWith("_sum")) all.set(keyOf(sampled, labels), value);
      else if (le !== undefined) {
        if (le === "0.001") [bucket, before] = [0, 0];
        all.set(keyOf(`${name} ${bucket++}`, others), value - before);
        before = value;
      }
    }
  }
  return all;
}

/** What changes without a request. */
const MOVING =
  /^(?:process_|edge_gateway_(?:event_loop_lag|trace_spans|otlp_lost|client_connections|http_requests_in_flight))/;

describe.each(["cumulative", "delta"] as const)("a running gateway with %s sums", (temporality) => {
  it("sends traces, metrics and logs that are what opentelemetry-proto and /metrics say", async () => {
    const to = await collecting();
    const [port, bad] = [await upstream(), await closedPort()];
    const upstreams = (...ports: number[]) => ports.map((each) => ({ host: "127.0.0.1", port: each }));
    const limit = [{ name: "rate_limit", config: { limit_hour: 1 } }];
    const config = {
      services: [
        { name: "s", base_path: "/a", upstreams: upstreams(port), routes: [{ path: "/{id}" }] },
        { name: "l", base_path: "/limited", upstreams: upstreams(port), plugins: limit, routes: [{ path: "/" }] },
        { name: "b", base_path: "/broken", upstreams: upstreams(bad), routes: [{ path: "/{rest*}" }] },
      ],
    };
    const running = await runningProgram(config, [], {
      OTEL_EXPORTER_OTLP_ENDPOINT: to.origin,
      OTEL_METRICS_EXPORTER: "otlp",
      OTEL_LOGS_EXPORTER: "otlp",
      OTEL_METRIC_EXPORT_INTERVAL: "100",
      OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: temporality,
      OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=test",
      ADMIN_USER: "a",
      ADMIN_PASSWORD: "password-of-a-test",
    });
    await traffic(running.port);
    const written = () => logLines(running.stdout());
    await eventually(() => written().length === 11, "the lines of all requests");

    // Metrics: what two exports agree on has not changed between them.
    const next = async () => {
      const { length } = to.exports;
      await eventually(() => to.exports.length >= length + 2);
      return series(to.exports.at(-1)!);
    };
    const sums = () => {
      const all = new Map<string, number>();
      for (const each of to.exports)
        for (const metric of each)
          for (const [key, value] of series([metric]))
            all.set(key, metric.kind === "gauge" ? value : (all.get(key) ?? 0) + value);
      return all;
    };
    await next();
    const answer = await fetch(`${running.started["admin"] as string}/metrics`, {
      headers: { authorization: AUTHORIZATION },
    });
    const shown = exposed(await answer.text());
    const last = await next();
    const sent = temporality === "cumulative" ? last : sums();
    expect([...shown.keys()].filter((key) => !sent.has(key))).toEqual([]);
    const more = [...sent.keys()].filter((key) => !shown.has(key));
    expect(more.filter((key) => !key.startsWith("http_server_request_duration_seconds"))).toEqual([]);
    // In `/metrics` times are in whole microseconds.
    const still = [...shown].filter(([key]) => !MOVING.test(key));
    expect(still.length).toBeGreaterThan(60);
    for (const [key, value] of still) expect([key, sent.get(key)!]).toEqual([key, expect.closeTo(value, 5)]);

    // Metrics: kinds and times.
    const names = to.exports.at(-1)!.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    const ends = new Map<string, bigint>();
    const began = to.exports[0]!.flatMap(({ points }) => points).find(({ start }) => start > 0n)!.start;
    let before = began;
    for (const each of to.exports) {
      const { end: now } = each[0]!.points[0]!;
      expect(now).toBeGreaterThan(before);
      for (const metric of each) {
        expect(metric.temporality).toBe(metric.kind === "gauge" ? null : temporality === "delta" ? 1 : 2);
        expect(metric.description).not.toBe("");
        for (const { attributes, start, end } of metric.points) {
          expect(end).toBe(now);
          if (metric.kind === "gauge") continue;
          const key = keyOf(metric.name, attributes);
          // A new series has begun behind the last export.
          expect(start).toBe(temporality === "delta" ? (ends.get(key) ?? before) : began);
          ends.set(key, end);
        }
      }
      before = now;
    }

    // http.server.request.duration, by the semantic conventions.
    const duration = to.exports[0]!.concat(...to.exports).filter(({ name }) => name === "http.server.request.duration");
    expect(conventions.stable).toContain("http.server.request.duration");
    expect(new Set(duration.map(({ unit }) => unit))).toEqual(new Set(["s"]));
    const of = duration.at(-1)!.points.map(({ attributes }) => attributes);
    for (const attributes of of) {
      for (const name of Object.keys(attributes)) expect(conventions.stable).toContain(name);
      expect(attributes).toMatchObject({ "http.request.method": expect.any(String), "url.scheme": "http" });
    }
    const common = { "url.scheme": "http", "network.protocol.version": "1.1" };
    const by = (method: string, status: bigint, more: object) => ({
      "http.request.method": method,
      ...common,
      "http.response.status_code": status,
      ...more,
    });
    expect(of).toEqual(
      expect.arrayContaining([
        by("GET", 200n, { "http.route": "/a/{id}" }),
        by("POST", 200n, { "http.route": "/a/{id}" }),
        by("_OTHER", 200n, { "http.route": "/a/{id}" }),
        by("GET", 429n, { "http.route": "/limited" }),
        by("GET", 502n, { "http.route": "/broken/{rest*}", "error.type": "upstream_connect_failed" }),
        by("GET", 404n, {}),
      ]),
    );
    expect([...sent].filter(([key]) => / 0 \[/.test(key) && key.startsWith("http_server"))).toHaveLength(of.length);

    // Logs, and the spans that they belong to.
    running.child.kill("SIGTERM");
    const { stdout, stderr } = await running.ended;
    const ofLog = (log: string) => to.lines.filter(({ attributes }) => attributes["edge_gateway.log"] === log);
    const text = (value: unknown) => (typeof value === "string" ? value : null);
    expect(
      ofLog("access").map(({ traceId, spanId, attributes }) => [
        attributes["edge_gateway.request_id"],
        traceId ?? null,
        spanId,
      ]),
    ).toEqual(logLines(stdout).map((line) => [line["request_id"], text(line["trace_id"]), line["span_id"]]));
    const servers = new Map(to.spans.filter(({ kind }) => kind === 2).map((span) => [span.spanId, span]));
    const recorded = ofLog("access").filter(({ spanId }) => spanId !== undefined);
    expect(recorded).toHaveLength(servers.size);
    for (const { traceId, spanId, time, observed, attributes } of recorded) {
      const span = servers.get(spanId!)!;
      expect(span.traceId).toBe(traceId);
      for (const name of [
        "http.request.method",
        "http.response.status_code",
        "url.path",
        "client.address",
        "error.type",
      ])
        expect([name, attributes[name]]).toEqual([name, span.attributes[name]]);
      // Milliseconds against nanoseconds.
      expect(time + 1_000_000n).toBeGreaterThan(span.start);
      expect(observed).toBeGreaterThanOrEqual(time);
    }
    expect(recorded.filter(({ traceId }) => traceId === PARENT.slice(3, 35))).toHaveLength(7);
    for (const { severity, severityText, attributes } of ofLog("access")) {
      const isError = Number(attributes["http.response.status_code"] ?? 0) >= 500;
      expect([severity, severityText]).toEqual(isError ? [17, "ERROR"] : [9, "INFO"]);
    }
    const numbers: Readonly<Record<string, number>> = { debug: 5, info: 9, warn: 13, error: 17 };
    expect(ofLog("program").map(({ severity, severityText, body }) => [severity, severityText, body])).toEqual(
      logLines(stderr).map(({ level, message }) => [numbers[String(level)], String(level).toUpperCase(), message]),
    );
    for (const attributes of [...to.lines, ...to.spans].map((each) => each.attributes))
      for (const name of Object.keys(attributes))
        if (!name.startsWith("edge_gateway.")) expect(conventions.all).toContain(name);
    expect(
      JSON.stringify(to.lines.concat(), (_name, value: unknown) => (typeof value === "bigint" ? 0 : value)),
    ).not.toContain("secret");

    // One gateway, whatever it sends.
    expect(to.scopes.size).toBe(1);
    expect(to.resources.size).toBe(1);
    const resource = JSON.parse([...to.resources][0]!) as { key: string; value: { stringValue: string } }[];
    expect(Object.fromEntries(resource.map(({ key, value }) => [key, value.stringValue]))).toEqual({
      "service.name": "edge-gateway",
      "service.version": expect.stringMatching(/^\d+\.\d+\.\d+/),
      "service.instance.id": expect.stringMatching(
        /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
      ),
      "deployment.environment.name": "test",
    });
    for (const { key } of resource) expect(conventions.all).toContain(key);
  });
});
