import { describe, expect, it } from "vitest";
import { version } from "../../lib/base/version.ts";
import type { TracingSettings } from "../../lib/config/settings_types.ts";
import { readLogsExport, readMetricsExport, readTracing, tracingProblem } from "../../lib/config/tracing.ts";
import { CA } from "../support/certs.ts";
import { OTHER_CA } from "../support/more_certs.ts";

const read = (environment: Record<string, string>) => {
  const issues: string[] = [];
  return { settings: readTracing(environment, issues), issues };
};
/** What every signal has without a setting. */
const RESOURCE = {
  "service.version": version,
  "service.instance.id": expect.stringMatching(/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/) as string,
};
const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318" };
const DEFAULTS: TracingSettings = {
  url: "http://collector:4318/v1/traces",
  headers: {},
  timeoutMs: 10_000,
  resource: RESOURCE,
  serviceName: "edge-gateway",
  sampler: "parentbased_always_on",
  ratio: 1,
};

describe("readTracing", () => {
  it("names one gateway in all signals", () => {
    const environment = { ...ENDPOINT, OTEL_METRICS_EXPORTER: "otlp", OTEL_LOGS_EXPORTER: "otlp" };
    const all = [readTracing, readMetricsExport, readLogsExport].map((reader) => reader(environment, [])!.resource);
    expect(new Set(all.map((each) => each!["service.instance.id"])).size).toBe(1);
  });

  it.each<[string, Record<string, string>]>([
    ["nothing is set", {}],
    ["the endpoint is empty", { OTEL_EXPORTER_OTLP_ENDPOINT: " ", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "" }],
    [
      "all but an endpoint is set, rightly or not",
      { OTEL_TRACES_SAMPLER: "what", OTEL_EXPORTER_OTLP_PROTOCOL: "grpc", OTEL_SERVICE_NAME: "x" },
    ],
    [
      "the SDK is disabled, whatever else is wrong",
      { ...ENDPOINT, OTEL_SDK_DISABLED: "TRUE", OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" },
    ],
    ["traces are exported nowhere", { ...ENDPOINT, OTEL_TRACES_EXPORTER: "none" }],
  ])("switches nothing on where %s", (_title, environment) => {
    expect(read(environment)).toEqual({ settings: null, issues: [] });
  });

  it("needs only an endpoint", () => {
    expect(read(ENDPOINT)).toEqual({ settings: DEFAULTS, issues: [] });
    expect(
      read({
        ...ENDPOINT,
        OTEL_SDK_DISABLED: "1",
        OTEL_TRACES_EXPORTER: "otlp",
        OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      }).settings,
    ).toEqual(DEFAULTS);
  });

  it.each([
    ["http://h:4318", undefined, "http://h:4318/v1/traces"],
    ["http://h:4318/", undefined, "http://h:4318/v1/traces"],
    ["https://h/otlp", undefined, "https://h/otlp/v1/traces"],
    ["https://h/otlp/?key=1", undefined, "https://h/otlp/v1/traces?key=1"],
    ["http://h:4318", "http://t/x", "http://t/x"],
    [undefined, "http://t:4318", "http://t:4318/"],
    ["not even read", "http://t/v1/traces", "http://t/v1/traces"],
  ])("with endpoint %s and traces endpoint %s, traces are sent to %s", (general, own, url) => {
    const environment = { OTEL_EXPORTER_OTLP_ENDPOINT: general ?? "", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: own ?? "" };
    expect(read(environment)).toMatchObject({ settings: { url }, issues: [] });
  });

  it("prefers the variables for traces to those for all signals", () => {
    const environment = {
      ...ENDPOINT,
      OTEL_EXPORTER_OTLP_HEADERS: "x-all=1",
      OTEL_EXPORTER_OTLP_TRACES_HEADERS: "x-own=a%2Cb%3D, Authorization=Basic%20c2VjcmV0==",
      OTEL_EXPORTER_OTLP_TIMEOUT: "1",
      OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: "2500",
      OTEL_EXPORTER_OTLP_PROTOCOL: "grpc",
      OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "http/json",
    };
    const { settings, issues } = read(environment);
    expect(issues).toEqual([]);
    expect(settings).toMatchObject({
      headers: { "x-own": "a,b=", Authorization: "Basic c2VjcmV0==" },
      timeoutMs: 2500,
    });
  });

  it.each<[Record<string, string>, string, Record<string, string>]>([
    [{ OTEL_RESOURCE_ATTRIBUTES: "service.name=shop,host.name=a%20b" }, "shop", { "host.name": "a b" }],
    [{ OTEL_RESOURCE_ATTRIBUTES: "service.name=shop", OTEL_SERVICE_NAME: "edge" }, "edge", RESOURCE],
    [{ OTEL_RESOURCE_ATTRIBUTES: "service.instance.id=pod-1" }, "edge-gateway", { "service.instance.id": "pod-1" }],
  ])("reads the service name and the resource from %j", (environment, serviceName, resource) => {
    expect(read({ ...ENDPOINT, ...environment }).settings).toMatchObject({ serviceName, resource });
  });

  it.each([
    [{ OTEL_TRACES_SAMPLER: "traceidratio" }, "traceidratio", 1],
    [{ OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "0.25" }, "traceidratio", 0.25],
    [
      { OTEL_TRACES_SAMPLER: "parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG: "1e-3" },
      "parentbased_traceidratio",
      0.001,
    ],
    [{ OTEL_TRACES_SAMPLER: "always_off", OTEL_TRACES_SAMPLER_ARG: "what" }, "always_off", 1],
  ])("reads the sampler from %j", (environment, sampler, ratio) => {
    expect(read({ ...ENDPOINT, ...environment })).toMatchObject({ settings: { sampler, ratio }, issues: [] });
  });

  it("reads the CA file and the compression, and prefers the variables for traces", () => {
    const files: Record<string, string> = { "/all.pem": CA.cert, "/traces.pem": OTHER_CA.cert };
    const settings = (environment: Record<string, string>) =>
      readTracing({ ...ENDPOINT, ...environment }, [], (path) => files[path]!);
    const all = { OTEL_EXPORTER_OTLP_CERTIFICATE: "/all.pem", OTEL_EXPORTER_OTLP_COMPRESSION: "gzip" };
    expect(settings(all)).toEqual({ ...DEFAULTS, ca: Buffer.from(CA.cert), compression: "gzip" });
    const traces = {
      OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: "/traces.pem",
      OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: "none",
    };
    expect(settings({ ...all, ...traces })).toEqual({ ...DEFAULTS, ca: Buffer.from(OTHER_CA.cert) });
  });

  it.each<[Record<string, string>, string]>([
    [{ OTEL_EXPORTER_OTLP_COMPRESSION: "zstd" }, 'OTEL_EXPORTER_OTLP_COMPRESSION: expected gzip or none, found "zstd"'],
    [{ OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: "GZIP" }, "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: expected gzip or none"],
    [
      { OTEL_EXPORTER_OTLP_CERTIFICATE: "/nowhere/ca.pem" },
      "OTEL_EXPORTER_OTLP_CERTIFICATE: cannot read /nowhere/ca.pem: no such file",
    ],
    [
      { OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: import.meta.filename },
      `OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: ${import.meta.filename} is not a certificate in PEM form`,
    ],
    [
      { OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" },
      'OTEL_EXPORTER_OTLP_PROTOCOL: expected http/json, the only supported protocol, found "grpc"',
    ],
    [{ OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "http/protobuf" }, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: expected http/json"],
    [
      { OTEL_EXPORTER_OTLP_ENDPOINT: "collector:4318" },
      "OTEL_EXPORTER_OTLP_ENDPOINT: expected an http:// or https:// URL",
    ],
    [
      { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://u:hush@h/" },
      "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: expected an http:// or https:// URL without user name",
    ],
    [{ OTEL_EXPORTER_OTLP_HEADERS: "hush" }, "OTEL_EXPORTER_OTLP_HEADERS: expected name=value pairs"],
    [{ OTEL_EXPORTER_OTLP_HEADERS: "a=%hush" }, "OTEL_EXPORTER_OTLP_HEADERS: expected name=value pairs"],
    [
      { OTEL_EXPORTER_OTLP_HEADERS: "Authorization: Basic hush=" },
      "OTEL_EXPORTER_OTLP_HEADERS: one of the names before a = is not the name of a header",
    ],
    [
      { OTEL_EXPORTER_OTLP_HEADERS: "key=hush%0A" },
      "OTEL_EXPORTER_OTLP_HEADERS: the value of key is not text that a header can carry",
    ],
    [
      { OTEL_EXPORTER_OTLP_HEADERS: "Content-Length=1" },
      "OTEL_EXPORTER_OTLP_HEADERS: Content-Length cannot be set here",
    ],
    [
      { OTEL_EXPORTER_OTLP_TIMEOUT: "10s" },
      'OTEL_EXPORTER_OTLP_TIMEOUT: expected milliseconds, an integer 1–600000, found "10s"',
    ],
    [{ OTEL_EXPORTER_OTLP_TIMEOUT: "0" }, "OTEL_EXPORTER_OTLP_TIMEOUT: expected milliseconds"],
    [{ OTEL_RESOURCE_ATTRIBUTES: "=x" }, "OTEL_RESOURCE_ATTRIBUTES: expected name=value pairs"],
    [{ OTEL_TRACES_EXPORTER: "zipkin" }, 'OTEL_TRACES_EXPORTER: expected otlp or none, found "zipkin"'],
    [
      { OTEL_TRACES_SAMPLER: "jaeger_remote" },
      "OTEL_TRACES_SAMPLER: expected one of always_on, always_off, traceidratio",
    ],
    [
      { OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "1.1" },
      'OTEL_TRACES_SAMPLER_ARG: expected a number 0–1, found "1.1"',
    ],
    [
      { OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "-0.1" },
      "OTEL_TRACES_SAMPLER_ARG: expected a number 0–1",
    ],
    [
      { OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "half" },
      "OTEL_TRACES_SAMPLER_ARG: expected a number 0–1",
    ],
  ])("refuses %j without repeating secrets", (environment, message) => {
    const { settings, issues } = read({ ...ENDPOINT, ...environment });
    expect(settings).toBeNull();
    expect(issues).toEqual([expect.stringContaining(message)]);
    expect(issues.join()).not.toContain("hush");
  });

  it("reports everything at once", () => {
    expect(
      read({
        ...ENDPOINT,
        OTEL_EXPORTER_OTLP_PROTOCOL: "grpc",
        OTEL_TRACES_SAMPLER: "x",
        OTEL_EXPORTER_OTLP_TIMEOUT: "x",
      }).issues,
    ).toHaveLength(3);
  });
});

describe("tracingProblem", () => {
  it("finds no problem in settings from the environment, nor in a URL alone", () => {
    expect([tracingProblem(DEFAULTS), tracingProblem({ url: "https://c/v1/traces" })]).toEqual([undefined, undefined]);
  });

  it.each<[Partial<TracingSettings>, string]>([
    [{ url: "c:4318" }, "tracing.url"],
    [{ timeoutMs: 1.5 }, "tracing.timeoutMs"],
    [{ timeoutMs: 0 }, "tracing.timeoutMs"],
    [{ sampler: "sometimes" as never }, "tracing.sampler"],
    [{ ratio: NaN }, "tracing.ratio"],
    [{ ca: Buffer.from("x") }, "tracing.ca is not a certificate in PEM form"],
    [{ compression: "br" as never }, "tracing.compression"],
    [{ headers: { "a b": "1" } }, "tracing.headers"],
    [{ headers: { host: "1" } }, "tracing.headers: host cannot be set here"],
    [{ headers: { a: "\r\n" } }, "tracing.headers: the value of a"],
  ])("names the wrong member of %j", (changes, message) => {
    expect(tracingProblem({ ...DEFAULTS, ...changes })).toContain(message);
  });
});

describe("readMetricsExport", () => {
  const read = (environment: Record<string, string>) => {
    const issues: string[] = [];
    return { settings: readMetricsExport(environment, issues), issues };
  };

  it.each([
    {},
    { OTEL_METRICS_EXPORTER: "none" },
    { OTEL_METRICS_EXPORTER: "otlp", OTEL_SDK_DISABLED: "true" },
    ENDPOINT,
  ])("is off with %j", (environment) => expect(read(environment)).toEqual({ settings: null, issues: [] }));

  it("has OpenTelemetry's defaults", () => {
    expect(read({ OTEL_METRICS_EXPORTER: "otlp" }).settings).toEqual({
      url: "http://localhost:4318/v1/metrics",
      headers: {},
      timeoutMs: 10_000,
      resource: RESOURCE,
      serviceName: "edge-gateway",
      intervalMs: 60_000,
      temporality: "cumulative",
    });
  });

  it("reads its own variables before those of all signals", () => {
    const { settings, issues } = read({
      OTEL_METRICS_EXPORTER: "otlp",
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://all:4318",
      OTEL_EXPORTER_OTLP_METRICS_HEADERS: "a=1",
      OTEL_EXPORTER_OTLP_HEADERS: "b=2",
      OTEL_EXPORTER_OTLP_TIMEOUT: "20000",
      OTEL_METRIC_EXPORT_INTERVAL: "5000",
      OTEL_METRIC_EXPORT_TIMEOUT: "7000",
      OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: "LowMemory",
    });
    expect(issues).toEqual([]);
    expect(settings).toMatchObject({
      url: "http://all:4318/v1/metrics",
      headers: { a: "1" },
      timeoutMs: 7_000,
      intervalMs: 5_000,
      temporality: "delta",
    });
  });

  it.each([
    ["OTEL_METRICS_EXPORTER", "prometheus", "expected otlp or none"],
    ["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc", "expected http/json"],
    ["OTEL_METRIC_EXPORT_INTERVAL", "0", "expected milliseconds"],
    ["OTEL_METRIC_EXPORT_TIMEOUT", "x", "expected milliseconds"],
    ["OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "sometimes", "expected one of cumulative, delta, lowmemory"],
    ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "collector:4318", "expected an http:// or https:// URL"],
  ])("refuses %s=%s", (name, text, message) => {
    const { settings, issues } = read({ OTEL_METRICS_EXPORTER: "otlp", [name]: text });
    expect(settings).toBeNull();
    expect(issues).toEqual([expect.stringContaining(`${name}: ${message}`)]);
  });
});

describe("readLogsExport", () => {
  const read = (environment: Record<string, string>) => {
    const issues: string[] = [];
    return { settings: readLogsExport(environment, issues), issues };
  };

  it.each([
    {},
    { OTEL_LOGS_EXPORTER: "none" },
    { OTEL_LOGS_EXPORTER: "otlp", OTEL_SDK_DISABLED: "true" },
    { OTEL_METRICS_EXPORTER: "otlp" },
    ENDPOINT,
  ])("is off with %j", (environment) => expect(read(environment)).toEqual({ settings: null, issues: [] }));

  it("has OpenTelemetry's defaults, and reads its own variables before those of all signals", () => {
    expect(read({ OTEL_LOGS_EXPORTER: "otlp" }).settings).toEqual({
      url: "http://localhost:4318/v1/logs",
      headers: {},
      timeoutMs: 10_000,
      resource: RESOURCE,
      serviceName: "edge-gateway",
    });
    const { settings } = read({
      OTEL_LOGS_EXPORTER: "otlp",
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://all:4318",
      OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: "http://logs:4318/otlp",
      OTEL_EXPORTER_OTLP_LOGS_HEADERS: "a=1",
      OTEL_EXPORTER_OTLP_HEADERS: "b=2",
      OTEL_EXPORTER_OTLP_LOGS_TIMEOUT: "2000",
    });
    expect(settings).toMatchObject({ url: "http://logs:4318/otlp", headers: { a: "1" }, timeoutMs: 2_000 });
  });

  it.each([
    ["OTEL_LOGS_EXPORTER", "console", "expected otlp or none"],
    ["OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/protobuf", "expected http/json"],
    ["OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "0", "expected milliseconds"],
    ["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "collector:4318", "expected an http:// or https:// URL"],
  ])("refuses %s=%s", (name, text, message) => {
    const { settings, issues } = read({ OTEL_LOGS_EXPORTER: "otlp", [name]: text });
    expect(settings).toBeNull();
    expect(issues).toEqual([expect.stringContaining(`${name}: ${message}`)]);
  });
});
