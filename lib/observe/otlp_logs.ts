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
    const own = Object.entries(fields).map(([name, value]) => [`edge_gateway.${name}`, value] as const);
    const attributes = { "edge_gateway.log": "program", ...Object.fromEntries(own) };
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

/** Of a line in JSON, or in another format, which has no attributes then. */
function accessRecord(line: string, now: number): string {
  if (!line.startsWith('{"time":'))
    return recordText({ wall: now, now, level: "info", body: line, attributes: { "edge_gateway.log": "access" } });
  const { time, trace_id: traceId, span_id: spanId, ...fields } = JSON.parse(line) as Record<string, unknown>;
  const { method, path, status, code } = fields as Readonly<Record<string, string | number | null>>;
  const isError = typeof status === "number" && status >= 500;
  return recordText({
    ...{ wall: Date.parse(String(time)), now, traceId, spanId },
    level: isError ? "error" : "info",
    body: [method, path, status, code].filter((part) => part !== null).join(" "),
    attributes: accessAttributes(fields, isError ? String(code ?? status) : null),
  });
}

/** Names of the semantic conventions for HTTP where there is one. */
function accessAttributes(fields: Attributes, error: string | null): Attributes {
  const { method, scheme, host, protocol, tls, ...others } = fields as Attributes & {
    readonly method: string | null;
    readonly scheme: "http" | "https";
    readonly host: string | null;
    readonly protocol: string;
    readonly tls: string | null;
  };
  const known = method === null ? null : (knownMethod(method) ?? "_OTHER");
  const [address, port] = hostAndPort(host, scheme);
  const version = protocol.slice("HTTP/".length);
  return {
    "edge_gateway.log": "access",
    "http.request.method": known,
    "http.request.method_original": known === "_OTHER" ? method : null,
    "url.scheme": scheme,
    "server.address": address,
    "server.port": port,
    "network.protocol.version": version === "2.0" ? "2" : version,
    "tls.protocol.name": tls === null ? null : "tls",
    "tls.protocol.version": tls === null ? null : tls.replace("TLSv", ""),
    "error.type": error,
    ...Object.fromEntries(
      Object.entries(others).map(([name, value]) => [CONVENTIONS.get(name) ?? `edge_gateway.${name}`, value]),
    ),
  };
}

const CONVENTIONS = new Map([
  ["client_ip", "client.address"],
  ["path", "url.path"],
  ["status", "http.response.status_code"],
  ["bytes_received", "http.request.body.size"],
  ["bytes_sent", "http.response.body.size"],
  ["user_agent", "user_agent.original"],
]);

interface LogRecord {
  /** When it was written, and when it is sent on; milliseconds since 1970. */
  readonly wall: number;
  readonly now: number;
  readonly level: keyof Log;
  readonly body: string;
  readonly traceId?: unknown;
  readonly spanId?: unknown;
  readonly attributes: Attributes;
}

function recordText({ wall, now, level, body, traceId, spanId, attributes }: LogRecord): string {
  return (
    `{"timeUnixNano":"${nanoseconds(wall)}","observedTimeUnixNano":"${nanoseconds(now)}",` +
    `"severityNumber":${SEVERITIES[level]},"severityText":"${level.toUpperCase()}",` +
    `"body":{"stringValue":${quoted(body)}},"attributes":[${membersText(attributes)}]` +
    (typeof traceId === "string" ? `,"traceId":"${traceId}"` : "") +
    (typeof spanId === "string" ? `,"spanId":"${spanId}"}` : "}")
  );
}

/** What is null or undefined is left out. */
function membersText(members: object, depth = 0): string {
  return Object.entries(members)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => `{"key":${quoted(name)},"value":${valueText(value, depth)}}`)
    .join(",");
}

/** An `AnyValue`. */
function valueText(value: unknown, depth: number): string {
  if (typeof value === "boolean") return `{"boolValue":${value}}`;
  if (typeof value === "number")
    return Number.isSafeInteger(value) ? `{"intValue":"${value}"}` : `{"doubleValue":${value}}`;
  if (typeof value !== "object" || value === null || depth > MAX_DEPTH)
    return `{"stringValue":${quoted(typeof value === "string" ? value : jsonText(value))}}`;
  if (!Array.isArray(value)) return `{"kvlistValue":{"values":[${membersText(value, depth + 1)}]}}`;
  const values = value.map((each: unknown) => (each === null ? "{}" : valueText(each, depth + 1)));
  return `{"arrayValue":{"values":[${values.join(",")}]}}`;
}

/** Objects below this depth are texts. */
const MAX_DEPTH = 4;
