/** Reads exports of metrics (OTLP/HTTP in JSON), and refuses whatever opentelemetry-proto does not define. */

export interface ReadMetric {
  readonly name: string;
  readonly unit: string;
  readonly description: string;
  readonly kind: "sum" | "gauge" | "histogram";
  /** 1: delta, 2: cumulative; null: of a gauge. */
  readonly temporality: number | null;
  readonly points: readonly ReadPoint[];
}

interface ReadPoint {
  readonly attributes: Readonly<Record<string, string | bigint | boolean>>;
  /** Nanoseconds since 1970; 0: none. */
  readonly start: bigint;
  readonly end: bigint;
  readonly value: number | { readonly counts: readonly number[]; readonly sum: number };
}

type Fields = Readonly<Record<string, unknown>>;

export function readMetrics(text: string): readonly ReadMetric[] {
  return scopesOf(text, "Metrics").flatMap((scope) => list(scope, "metrics").map(readMetric));
}

/** `scopeMetrics`, or `scopeLogs` with their `logRecords`. */
export function scopesOf(text: string, signal: "Metrics" | "Logs"): readonly Fields[] {
  const [ofResource, ofScope] = [`resource${signal}`, `scope${signal}`];
  return list(members(JSON.parse(text), [ofResource]), ofResource).flatMap((each) => {
    const all = members(each, ["resource", ofScope]);
    if (attributesOf(members(all["resource"], ["attributes"]))["service.name"] === undefined)
      throw new Error("no service.name");
    return list(all, ofScope).map((of) => {
      const scope = members(of, ["scope", signal === "Logs" ? "logRecords" : "metrics", "schemaUrl"]);
      members(scope["scope"], ["name", "version"]);
      return scope;
    });
  });
}

function readMetric(value: unknown): ReadMetric {
  const kinds = ["sum", "gauge", "histogram"] as const;
  const kind = kinds.find((each) => (value as Fields)[each] !== undefined)!;
  const metric = members(value, ["name", "unit", "description", kind]);
  const [name, unit, description] = [metric["name"], metric["unit"], metric["description"]].map(String) as [
    string,
    string,
    string,
  ];
  if (!/^[a-zA-Z][\w./-]{0,254}$/.test(name)) throw new Error(`no name of an instrument: ${name}`);
  const more = { sum: ["aggregationTemporality", "isMonotonic"], gauge: [], histogram: ["aggregationTemporality"] }[
    kind
  ];
  const data = members(metric[kind], ["dataPoints", ...more]);
  const temporality = kind === "gauge" ? null : (data["aggregationTemporality"] as number);
  if (temporality !== null && temporality !== 1 && temporality !== 2) throw new Error("no temporality");
  if (kind === "sum" && data["isMonotonic"] !== true) throw new Error("a counter that is not monotonic");
  return {
    name,
    unit,
    description,
    kind,
    temporality,
    points: list(data, "dataPoints").map((at) => readPoint(at, kind)),
  };
}

function readPoint(value: unknown, kind: ReadMetric["kind"]): ReadPoint {
  const times = kind === "gauge" ? ["timeUnixNano"] : ["startTimeUnixNano", "timeUnixNano"];
  const values = kind === "histogram" ? ["count", "sum", "bucketCounts", "explicitBounds"] : ["asDouble"];
  const point = members(value, ["attributes", ...times, ...values]);
  const common = {
    attributes: attributesOf(point),
    start: kind === "gauge" ? 0n : integer(point["startTimeUnixNano"]),
    end: integer(point["timeUnixNano"]),
  };
  if (kind !== "histogram") return { ...common, value: double(point["asDouble"]) };
  const counts = list(point, "bucketCounts").map((each) => Number(integer(each)));
  const bounds = list(point, "explicitBounds").map(double);
  if (counts.some((each) => each < 0)) throw new Error("a count below zero");
  if (counts.length !== bounds.length + 1) throw new Error("bounds and buckets do not fit");
  if (bounds.some((bound, i) => i > 0 && bound <= bounds[i - 1]!)) throw new Error("bounds out of order");
  if (Number(integer(point["count"])) !== counts.reduce((sum, each) => sum + each, 0)) throw new Error("another count");
  return { ...common, value: { counts, sum: double(point["sum"]) } };
}

function attributesOf(owner: Fields): ReadPoint["attributes"] {
  const pairs = list(owner, "attributes").map((each) => {
    const { key, value } = members(each, ["key", "value"]);
    const { stringValue, intValue, boolValue } = value as Fields;
    if (Object.keys(value as Fields).length !== 1) throw new Error("not one value");
    return [String(key), (stringValue ?? boolValue ?? integer(intValue)) as string | bigint | boolean] as const;
  });
  if (new Set(pairs.map(([key]) => key)).size !== pairs.length) throw new Error("an attribute twice");
  return Object.fromEntries(pairs);
}

export function list(owner: Fields, name: string): unknown[] {
  if (!Array.isArray(owner[name])) throw new Error(`no list: ${name}`);
  return owner[name];
}

export function members(value: unknown, names: readonly string[]): Fields {
  const found = Object.keys(value as Fields).sort();
  if (found.join() !== [...names].sort().join()) throw new Error(`${found.join()} in place of ${names.join()}`);
  return value as Fields;
}

/** 64-bit integers are texts in JSON of protobuf. */
export function integer(value: unknown): bigint {
  if (typeof value !== "string" || !/^-?\d+$/.test(value)) throw new Error(`no 64-bit integer: ${String(value)}`);
  return BigInt(value);
}

function double(value: unknown): number {
  if (typeof value === "number") return value;
  if (value !== "NaN" && value !== "Infinity" && value !== "-Infinity") throw new Error(`no double: ${String(value)}`);
  return Number(value);
}
