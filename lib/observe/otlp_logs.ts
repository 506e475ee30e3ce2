/**
 * Writes lines of the access log and of the program's log as OTLP in JSON (opentelemetry-proto, logs/v1; OTLP §"JSON
 * Protobuf Encoding"), and hands them to what sends them to a collector.
 */
import { jsonText, type Log } from "../base/log.ts";
import { quoted } from "./access_line.ts";
import type { OtlpExporter } from "./otlp.ts";
import { nanoseconds } from "./span_json.ts";
import { hostAndPort, knownMethod } from "./trace.ts";

type Attributes = Readonly<Record<string, unknown>>;

/** OpenTelemetry's numbers (Logs Data Model §"Field: SeverityNumber"). */
const SEVERITIES = { debug: 5, info: 9, warn: 13, error: 17 };

export class LogLines {
  readonly #wall: () => number;
  /** Null: the gateway is not there yet, and with it whether there is a proxy to the collector. */
  #exporter: OtlpExporter | null = null;
  /** Of the start. */
  readonly #early: string[] = [];

  /** `wall`: milliseconds since 1970. */
  constructor(wall: () => number = Date.now) {
    this.#wall = wall;
  }

  get lost(): number {
    return this.#exporter?.dropped ?? 0;
  }

  sendBy(exporter: OtlpExporter): void {
    this.#exporter = exporter;
    for (const text of this.#early.splice(0)) exporter.add(text);
  }

  /** Sends those that wait, within a second. More may come. */
  async drain(): Promise<void> {
    await this.#exporter?.drain();
  }

  /** Likewise, and no more come. */
  async close(): Promise<void> {
    await this.#exporter?.close();
  }

  /** Lines of the access log, each with its newline. */
  access(lines: string): void {
    for (let from = 0, end: number; (end = lines.indexOf("\n", from)) >= 0; from = end + 1) {
      if (this.#hasRoom()) this.#add(accessRecord(lines.slice(from, end), this.#wall()));
    }
  }

  /** A line of the program's log, in JSON. */
  readonly program = (line: string): void => {
    if (!this.#hasRoom()) return;
    const parsed = JSON.parse(line) as Attributes & { readonly level: keyof Log; readonly message: string };
    const { time, level, message: body, trace_id: traceId, span_id: spanId, ...fields } = parsed;
    const attributes = PROGRAM + attributesOf(fields, OWN);
    const wall = Date.parse(String(time));
    this.#add(recordText({ wall, now: this.#wall(), level, body, traceId, spanId, attributes }));
  };

  /** Where there is none, the line is counted, and its text need not be made. */
  #hasRoom(): boolean {
    if (this.#exporter?.isFull !== true) return true;
    this.#exporter.add("");
    return false;
  }

  #add(text: string): void {
    if (this.#exporter === null) this.#early.push(text);
    else this.#exporter.add(text);
  }
}

/**
 * Of a line in JSON, or in another format, which has no attributes then. One text is made, of pieces: lines are many.
 */
function accessRecord(line: string, now: number): string {
  if (!line.startsWith('{"time":'))
    return recordText({ wall: now, now, level: "info", body: line, attributes: ACCESS });
  const fields = JSON.parse(line) as AccessFields;
  const { time, trace_id: traceId, span_id: spanId, method, path, status, code } = fields;
  const isError = status !== null && status >= 500;
  const body = [method, path, status, code].filter((part) => part !== null).join(" ");
  const error = isError ? String(code ?? status) : null;
  const attributes = ACCESS + attributesOf(fields, ACCESS_NAMES) + derivedFrom(fields) + attribute("error.type", error);
  return recordText({
    wall: Date.parse(time),
    now,
    level: isError ? "error" : "info",
    body,
    traceId,
    spanId,
    attributes,
  });
}

interface AccessFields extends Attributes {
  readonly time: string;
  readonly method: string | null;
  readonly path: string | null;
  readonly status: number | null;
  readonly code: string | null;
  readonly scheme: "http" | "https";
  readonly host: string | null;
  readonly protocol: string;
  readonly tls: string | null;
}

/** Attributes of the semantic conventions that a line has in another form. */
function derivedFrom({ method, host, scheme, protocol, tls }: AccessFields): string {
  const known = method === null ? null : (knownMethod(method) ?? "_OTHER");
  const [address, port] = hostAndPort(host, scheme);
  const version = protocol.slice("HTTP/".length);
  return (
    attribute("http.request.method", known) +
    attribute("http.request.method_original", known === "_OTHER" ? method : null) +
    attribute("server.address", address) +
    attribute("server.port", port) +
    attribute("network.protocol.version", version === "2.0" ? "2" : version) +
    (tls === null
      ? ""
      : attribute("tls.protocol.name", "tls") + attribute("tls.protocol.version", tls.replace("TLSv", "")))
  );
}

/** Names of attributes by those of fields; null: the field is none, or `derivedFrom` has it. */
type Names = ReadonlyMap<string, string | null>;

const ACCESS_NAMES: Names = new Map([
  ...["time", "trace_id", "span_id", "method", "host", "protocol", "tls"].map((name) => [name, null] as const),
  ["tls_cipher", "tls.cipher"],
  ["tls_group", "tls.curve"],
  ["scheme", "url.scheme"],
  ["client_ip", "client.address"],
  ["path", "url.path"],
  ["status", "http.response.status_code"],
  ["bytes_received", "http.request.body.size"],
  ["bytes_sent", "http.response.body.size"],
  ["user_agent", "user_agent.original"],
]);
const OWN: Names = new Map();
/** Of all lines of a log. */
const [ACCESS, PROGRAM] = ["access", "program"].map((log) => attribute("edge_gateway.log", log)) as [string, string];

interface LogRecord {
  /** When it was written, and when it is sent on; milliseconds since 1970. */
  readonly wall: number;
  readonly now: number;
  readonly level: keyof Log;
  readonly body: string;
  readonly traceId?: unknown;
  readonly spanId?: unknown;
  /** As `attribute` writes them. */
  readonly attributes: string;
}

function recordText({ wall, now, level, body, traceId, spanId, attributes }: LogRecord): string {
  return (
    `{"timeUnixNano":"${nanoseconds(wall)}","observedTimeUnixNano":"${nanoseconds(now)}",` +
    `"severityNumber":${SEVERITIES[level]},"severityText":"${level.toUpperCase()}",` +
    `"body":{"stringValue":${quoted(body)}},"attributes":[${attributes.slice(1)}]` +
    (typeof traceId === "string" ? `,"traceId":"${traceId}"` : "") +
    (typeof spanId === "string" ? `,"spanId":"${spanId}"}` : "}")
  );
}

function attributesOf(fields: Attributes, names: Names): string {
  let text = "";
  for (const name of Object.keys(fields)) {
    const known = names.get(name);
    if (known !== null) text += attribute(known ?? `edge_gateway.${name}`, fields[name]);
  }
  return text;
}

/** With a comma before it; "" for what is null or undefined. */
function attribute(name: string, value: unknown, depth = 0): string {
  if (value === null || value === undefined) return "";
  return `,{"key":${quoted(name)},"value":${valueText(value, depth)}}`;
}

/** An `AnyValue`. */
function valueText(value: unknown, depth: number): string {
  if (typeof value === "boolean") return `{"boolValue":${value}}`;
  if (typeof value === "number")
    return Number.isSafeInteger(value) ? `{"intValue":"${value}"}` : `{"doubleValue":${value}}`;
  if (typeof value !== "object" || value === null || depth > MAX_DEPTH)
    return `{"stringValue":${quoted(typeof value === "string" ? value : jsonText(value))}}`;
  if (!Array.isArray(value)) {
    const members = Object.entries(value).map(([name, of]) => attribute(name, of, depth + 1));
    return `{"kvlistValue":{"values":[${members.join("").slice(1)}]}}`;
  }
  const values = value.map((each: unknown) => (each === null ? "{}" : valueText(each, depth + 1)));
  return `{"arrayValue":{"values":[${values.join(",")}]}}`;
}

/** Objects below this depth are texts. */
const MAX_DEPTH = 4;
