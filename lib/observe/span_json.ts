/**
 * Writes finished spans as OTLP in JSON: ids in hexadecimal, 64-bit integers as strings, enums as numbers
 * (opentelemetry-proto, trace/v1; OTLP §"JSON Protobuf Encoding"). A span becomes text when it ends, so that a waiting
 * batch holds nothing of its request.
 */
import { jsonText } from "../base/log.ts";
import { version } from "../base/version.ts";
import { bodyWith } from "../client/delivery_queue.ts";
import { quoted } from "./access_line.ts";

export interface FinishedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Null for the first span of a trace. */
  readonly parentId: string | null;
  /** "remote": the parent is a span of the client. */
  readonly parent: "local" | "remote";
  readonly tracestate: string | null;
  readonly name: string;
  readonly kind: keyof typeof KINDS;
  /** Milliseconds since 1970, with their fraction. */
  readonly startMs: number;
  readonly endMs: number;
  /** By `attributesText`. */
  readonly attributes: string;
  readonly status: "unset" | "error";
}

const KINDS = { internal: 1, server: 2, client: 3 };

export function spanText(span: FinishedSpan): string {
  const { traceId, spanId, parentId, tracestate, kind, attributes } = span;
  // Bits 0–7 are the flags of traceparent; bit 8: it is known whether the parent is remote; bit 9: it is.
  const flags = span.parent === "remote" ? 0x301 : 0x101;
  return (
    `{"traceId":"${traceId}","spanId":"${spanId}"${parentId === null ? "" : `,"parentSpanId":"${parentId}"`}` +
    (`${tracestate === null ? "" : `,"traceState":${quoted(tracestate)}`},"flags":${flags},"name":` +
      `${quoted(span.name)},"kind":${KINDS[kind]}`) +
    (`,"startTimeUnixNano":"${nanoseconds(span.startMs)}","endTimeUnixNano":` +
      `"${nanoseconds(Math.max(span.startMs, span.endMs))}"`) +
    `,"attributes":[${attributes}],"status":${span.status === "error" ? '{"code":2}' : "{}"}}`
  );
}

export type Signal = "Spans" | "Metrics" | "Logs";
const LISTS = { Spans: "spans", Metrics: "metrics", Logs: "logRecords" };

/** Makes the body of an export request: "Spans" are in `resourceSpans`, `scopeSpans` and `spans`. */
export function scopeWriter(
  resource: Readonly<Record<string, string>>,
  signal: Signal,
): (texts: readonly string[]) => Buffer {
  const attributes = Object.entries(resource).flatMap(([name, value]) => [jsonText(name).slice(1, -1), value]);
  const before =
    `{"resource${signal}":[{"resource":{"attributes":[${attributesText(attributes)}]},` +
    `"scope${signal}":[{"scope":{"name":"edge-gateway","version":${quoted(version)}},"${LISTS[signal]}":[`;
  const after = `],"schemaUrl":"${CONVENTIONS}"}]}]}`;
  return (texts) => bodyWith(texts, [before, ",", after]);
}

/** The version of the semantic conventions that the attribute names follow. */
const CONVENTIONS = "https://opentelemetry.io/schemas/1.27.0";

/** Takes names, which hold nothing to escape, and values in turn; a null value is left out. */
export function attributesText(attributes: readonly (string | number | null)[]): string {
  let text = "";
  for (let i = 0; i < attributes.length; i += 2) {
    const value = attributes[i + 1]!;
    if (value === null) continue;
    text += `${text === "" ? "" : ","}{"key":"${attributes[i]}","value":`;
    text += typeof value === "number" ? `{"intValue":"${value}"}}` : `{"stringValue":${quoted(value)}}}`;
  }
  return text;
}

/** A number would not hold the nanoseconds since 1970 exactly. */
export function nanoseconds(ms: number): string {
  const whole = Math.floor(ms);
  return `${whole}${String(Math.floor((ms - whole) * 1e6)).padStart(6, "0")}`;
}
