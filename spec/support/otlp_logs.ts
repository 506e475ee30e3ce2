/** Reads exports of logs (OTLP/HTTP in JSON), and refuses whatever opentelemetry-proto does not define. */
import { integer, list, members, scopesOf } from "./otlp_metrics.ts";

export interface ReadLine {
  /** Nanoseconds since 1970. */
  readonly time: bigint;
  readonly observed: bigint;
  readonly severity: number;
  readonly severityText: string;
  readonly body: string;
  readonly attributes: Readonly<Record<string, unknown>>;
  /** Undefined: none. */
  readonly traceId: string | undefined;
  readonly spanId: string | undefined;
}

const ALWAYS = ["timeUnixNano", "observedTimeUnixNano", "severityNumber", "severityText", "body", "attributes"];

export function readLogs(text: string): readonly ReadLine[] {
  return scopesOf(text, "Logs").flatMap((scope) => list(scope, "logRecords").map(readRecord));
}

function readRecord(value: unknown): ReadLine {
  const { traceId, spanId } = value as Readonly<Record<string, unknown>>;
  const record = members(value, [
    ...ALWAYS,
    ...(traceId === undefined ? [] : ["traceId"]),
    ...(spanId === undefined ? [] : ["spanId"]),
  ]);
  const severity = record["severityNumber"];
  if (typeof severity !== "number" || severity < 1 || severity > 24) throw new Error("no severity");
  const body = anyValue(record["body"]);
  if (typeof body !== "string") throw new Error("no body");
  if (spanId !== undefined && traceId === undefined) throw new Error("a span without its trace");
  return {
    time: integer(record["timeUnixNano"]),
    observed: integer(record["observedTimeUnixNano"]),
    ...{ severity, body },
    severityText: String(record["severityText"]),
    attributes: pairs(record["attributes"]),
    traceId: id(traceId, 32),
    spanId: id(spanId, 16),
  };
}

function id(value: unknown, length: number): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== "string" || value.length !== length || !/^[0-9a-f]+$/.test(value) || /^0+$/.test(value))
    throw new Error(`no id: ${String(value)}`);
  return value;
}

function pairs(value: unknown): Readonly<Record<string, unknown>> {
  if (!Array.isArray(value)) throw new Error("no list of attributes");
  const read = value.map((each) => {
    const { key, value: of } = members(each, ["key", "value"]);
    if (typeof key !== "string" || key === "") throw new Error("no key");
    return [key, anyValue(of)] as const;
  });
  if (new Set(read.map(([key]) => key)).size !== read.length) throw new Error("an attribute twice");
  return Object.fromEntries(read);
}

/** `{}` is null. */
function anyValue(value: unknown): unknown {
  const [[kind, of] = ["", null], ...others] = Object.entries(value as object) as [string, unknown][];
  if (others.length > 0) throw new Error("more than one value");
  if (kind === "") return null;
  if (kind === "stringValue" && typeof of === "string") return of;
  if (kind === "boolValue" && typeof of === "boolean") return of;
  if (kind === "doubleValue" && typeof of === "number") return of;
  if (kind === "intValue") return integer(of);
  if (kind === "kvlistValue") return pairs(members(of, ["values"])["values"]);
  if (kind === "arrayValue") return list(members(of, ["values"]), "values").map(anyValue);
  throw new Error(`no value: ${JSON.stringify(value)}`);
}
