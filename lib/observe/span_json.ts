/**
 * Spells finished spans, and batches of them, as OTLP's JSON has them: ids in hexadecimal, 64-bit integers as strings, enums as numbers
 * (opentelemetry-proto, trace/v1; OTLP §"JSON Protobuf Encoding"). What a span says is `trace.ts`, sending is `otlp.ts`.
 *
 * Put together by hand where a request is over, so that what waits is text and holds nothing of the request.
 */
import { version } from "../base/version.ts";
import { quoted } from "./access_line.ts";


export interface FinishedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Null for the first span of a trace. */
  readonly parentId: string | null;
  /** Whether the parent is somebody else's span. */
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
  // Bits 0–7 are those of traceparent, then whether it is known that the parent is remote, and whether it is.
  const flags = span.parent === "remote" ? 0x301 : 0x101;
  return (
    `{"traceId":"${traceId}","spanId":"${spanId}"${parentId === null ? "" : `,"parentSpanId":"${parentId}"`}` +
    `${tracestate === null ? "" : `,"traceState":${quoted(tracestate)}`},"flags":${flags},"name":${quoted(span.name)},"kind":${KINDS[kind]}` +
    `,"startTimeUnixNano":"${nanoseconds(span.startMs)}","endTimeUnixNano":"${nanoseconds(Math.max(span.startMs, span.endMs))}"` +
    `,"attributes":[${attributes}],"status":${span.status === "error" ? '{"code":2}' : "{}"}}`
  );
}

/** Makes the body of an export request from the texts of its spans. */
export function batchWriter(resource: Readonly<Record<string, string>>): (spans: readonly string[]) => Buffer {
  const before =
    `{"resourceSpans":[{"resource":{"attributes":[${attributesText(Object.entries(resource).flatMap(([name, value]) => [keyOf(name), value]))}]},` +
    `"scopeSpans":[{"scope":{"name":"edge-gateway","version":${quoted(version)}},"spans":[`;
  return (spans) => Buffer.from(`${before}${spans.join(",")}],"schemaUrl":"${CONVENTIONS}"}]}]}`);
}

/** Which version of the semantic conventions the names of the attributes are of. */
const CONVENTIONS = "https://opentelemetry.io/schemas/1.27.0";

/** Takes keys, as `keyOf` gives them, and values in turn; a null value is left out. */
export function attributesText(attributes: readonly (string | number | null)[]): string {
  let text = "";
  for (let i = 0; i < attributes.length; i += 2) {
    const value = attributes[i + 1]!;
    if (value === null) continue;
    const key = text === "" ? (attributes[i] as string) : `,${attributes[i]}`;
    text += typeof value === "number" ? `${key}{"intValue":"${value}"}}` : `${key}{"stringValue":${quoted(value)}}}`;
  }
  return text;
}

/** The name of an attribute as it stands in the text: spelt once, for names are known beforehand. */
export function keyOf(name: string): string {
  return `{"key":${quoted(name)},"value":`;
}

/** As a number, the nanoseconds since 1970 would not be exact. */
function nanoseconds(ms: number): string {
  const whole = Math.floor(ms);
  return `${whole}${String(Math.floor((ms - whole) * 1e6)).padStart(6, "0")}`;
}
