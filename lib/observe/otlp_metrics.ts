/**
 * Writes metrics as OTLP in JSON (opentelemetry-proto, metrics/v1; OTLP §"JSON Protobuf Encoding").
 */
import { DURATION_BUCKETS } from "./metrics.ts";
import type { Family } from "./exposition.ts";
import { SERVER_BUCKETS, type Durations } from "./server_durations.ts";
import { attributesText } from "./span_json.ts";

/** A number, or the counts of a histogram and their sum. */
type Value = number | { readonly counts: readonly number[]; readonly sum: number };

/** A time series at one moment. */
export interface MetricPoint {
  readonly metric: Metric;
  /** As OTLP has them. */
  readonly attributes: string;
  readonly value: Value;
}

export interface Metric {
  readonly name: string;
  readonly unit: string;
  readonly description: string;
  readonly type: Family["type"];
  readonly bounds: readonly number[];
}

/** The series of `/metrics`, one by one, as they may be many; counts are copied, as requests go on being counted. */
export function* pointsOf(families: readonly Family[]): Generator<MetricPoint> {
  for (const family of families) {
    const metric: Metric = { ...named(family), description: family.help, type: family.type, bounds: DURATION_BUCKETS };
    for (const [labels, value] of family.samples) {
      const attributes = attributesText(labels);
      if (typeof value === "number") yield { metric, attributes, value };
      else yield { metric, attributes, value: { counts: [...value.counts], sum: value.sumMs / 1000 } };
    }
  }
}

const SERVER_DURATION: Metric = {
  name: "http.server.request.duration",
  unit: "s",
  description: "Duration of HTTP server requests.",
  type: "histogram",
  bounds: SERVER_BUCKETS,
};

/** `http.server.request.duration`, likewise. */
export function* durationPoints(series: ReadonlyMap<string, Durations>): Generator<MetricPoint> {
  for (const [key, { counts, sumMs }] of series) {
    const pairs = JSON.parse(key) as (string | number | boolean)[];
    const isOverflow = pairs[0] === "otel.metric.overflow";
    const attributes = isOverflow ? OVERFLOW : attributesText(pairs as (string | number)[]);
    yield { metric: SERVER_DURATION, attributes, value: { counts: [...counts], sum: sumMs / 1000 } };
  }
}

const OVERFLOW = '{"key":"otel.metric.overflow","value":{"boolValue":true}}';
const UNITS = new Map([
  ["seconds", "s"],
  ["bytes", "By"],
]);

/**
 * The name with dots, without unit and "total", which Prometheus and collectors add again:
 * `edge_gateway_http_received_bytes_total` is `edge_gateway.http.received` in By.
 */
function named({ name, type }: Family): Pick<Metric, "name" | "unit"> {
  const counted = type === "counter" ? name.replace(/_total$/, "") : name;
  const [, rest = counted, suffix = ""] = /^(.*)_(seconds|bytes)$/.exec(counted) ?? [];
  const own = "edge_gateway_";
  const dotted = (text: string) => text.replaceAll("_", ".");
  return {
    name: rest.startsWith(own) ? `edge_gateway.${dotted(rest.slice(own.length))}` : dotted(rest),
    // None: Prometheus would call a gauge of the unit "1" a ratio.
    unit: UNITS.get(suffix) ?? "",
  };
}

/** What a series has gained since it had `before`; all that it has if it has begun again, as after two reloads. */
export function gained(value: Value, before: Value): Value {
  if (typeof value === "number") return value < (before as number) ? value : value - (before as number);
  const { counts, sum } = before as Exclude<Value, number>;
  if (value.counts.some((count, i) => count < counts[i]!)) return value;
  return { counts: value.counts.map((count, i) => count - counts[i]!), sum: value.sum - sum };
}

/** From `startNs` to `ns`, in nanoseconds since 1970. */
export function pointText({ attributes, value, metric }: MetricPoint, startNs: string, ns: string): string {
  const start = metric.type === "gauge" ? "" : `"startTimeUnixNano":"${startNs}",`;
  const common = `{"attributes":[${attributes}],${start}"timeUnixNano":"${ns}",`;
  if (typeof value === "number") return `${common}"asDouble":${doubleText(value)}}`;
  const count = value.counts.reduce((sum, each) => sum + each, 0);
  const counts = value.counts.map((each) => `"${each}"`).join();
  const bounds = metric.bounds.join();
  return (
    `${common}"count":"${count}","sum":${doubleText(value.sum)},"bucketCounts":[${counts}],` +
    `"explicitBounds":[${bounds}]}`
  );
}

/** As JSON of protobuf has those that are no JSON. */
function doubleText(value: number): string {
  if (Number.isFinite(value)) return String(value);
  return Number.isNaN(value) ? '"NaN"' : `"${value < 0 ? "-" : ""}Infinity"`;
}

export function metricText(
  { name, unit, description, type }: Metric,
  points: readonly string[],
  temporality: "cumulative" | "delta",
): string {
  const kind = type === "counter" ? "sum" : type;
  const aggregation = kind === "gauge" ? "" : `,"aggregationTemporality":${temporality === "delta" ? 1 : 2}`;
  const monotonic = kind === "sum" ? ',"isMonotonic":true' : "";
  const texts = [name, unit, description].map((text) => JSON.stringify(text));
  return (
    `{"name":${texts[0]},"unit":${texts[1]},"description":${texts[2]},` +
    `"${kind}":{"dataPoints":[${points.join()}]${aggregation}${monotonic}}}`
  );
}
