/** A trace collector that accepts OTLP/HTTP in JSON and refuses whatever the protocol does not allow. */
import type http from "node:http";
import { otlpReceiver, type Received } from "./otlp_receiver.ts";
import { eventually } from "./raw_client.ts";

export interface ReadSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | null;
  readonly traceState: string | null;
  readonly flags: number;
  readonly name: string;
  readonly kind: number;
  /** Nanoseconds since 1970. */
  readonly start: bigint;
  readonly end: bigint;
  readonly attributes: Readonly<Record<string, string | bigint>>;
  readonly failed: boolean;
}

export interface Export extends Received {
  readonly resource: Readonly<Record<string, string | bigint>>;
  readonly spans: readonly ReadSpan[];
}

export interface Collector {
  readonly port: number;
  /** Where traces are sent. */
  readonly url: string;
  readonly exports: Export[];
  /** All spans so far. */
  readonly spans: readonly ReadSpan[];
  /** Answers an export that has been read. Default: 200. */
  answer: (response: http.ServerResponse, nth: number) => void;
  /** Resolves with all spans when there are at least `count`. */
  until(count: number): Promise<readonly ReadSpan[]>;
}

/** Starts a collector until the test ends; over HTTPS if it has an identity. */
export async function collector(identity?: { readonly cert: string; readonly key: string }): Promise<Collector> {
  const exports: Export[] = [];
  const { port, origin, refused } = await otlpReceiver(
    (received) => void exports.push({ ...received, ...readExport(received.text) }),
    (response) => self.answer(response, exports.length - 1),
    identity,
  );
  const self: Collector = {
    port,
    url: `${origin}/v1/traces`,
    exports,
    get spans() {
      return exports.flatMap(({ spans }) => spans);
    },
    answer: (response) => void response.writeHead(200, { "Content-Type": "application/json" }).end("{}"),
    async until(count) {
      await eventually(
        () => self.spans.length >= count || refused() !== undefined,
        `${count} spans, not ${self.spans.length}`,
      );
      return self.spans;
    },
  };
  return self;
}

/** Throws for anything that opentelemetry-proto does not define, or that the gateway has no reason to send. */
export function readExport(text: string): Pick<Export, "resource" | "spans"> {
  const [root] = list(members(JSON.parse(text), ["resourceSpans"], []), "resourceSpans", 1);
  const resourceSpans = members(root, ["resource", "scopeSpans"], []);
  const resource = attributesOf(members(resourceSpans["resource"], ["attributes"], [])["attributes"]);
  if (typeof resource["service.name"] !== "string" || resource["service.name"] === "")
    throw new Error("no service.name");
  const scopeSpans = members(list(resourceSpans, "scopeSpans", 1)[0], ["scope", "spans", "schemaUrl"], []);
  const scope = members(scopeSpans["scope"], ["name", "version"], []);
  if (scope["name"] !== "edge-gateway" || !/^\d+\.\d+\.\d+/.test(String(scope["version"])))
    throw new Error("another scope");
  if (!/^https:\/\/opentelemetry\.io\/schemas\/\d+\.\d+\.\d+$/.test(String(scopeSpans["schemaUrl"])))
    throw new Error("no schema");
  return { resource, spans: list(scopeSpans, "spans").map(readSpan) };
}

const REQUIRED = [
  "traceId",
  "spanId",
  "flags",
  "name",
  "kind",
  "startTimeUnixNano",
  "endTimeUnixNano",
  "attributes",
  "status",
];

function readSpan(value: unknown): ReadSpan {
  const span = members(value, REQUIRED, ["parentSpanId", "traceState"]);
  const status = members(span["status"], [], ["code"]);
  if (status["code"] !== undefined && status["code"] !== 2)
    throw new Error("a status that is neither unset nor an error");
  const read: ReadSpan = {
    traceId: fitting(span["traceId"], /^(?!0{32})[0-9a-f]{32}$/),
    spanId: fitting(span["spanId"], /^(?!0{16})[0-9a-f]{16}$/),
    parentSpanId: span["parentSpanId"] === undefined ? null : fitting(span["parentSpanId"], /^(?!0{16})[0-9a-f]{16}$/),
    traceState:
      span["traceState"] === undefined ? null : fitting(span["traceState"], /^[\x21-\x7e][\x20-\x7e]{0,511}$/),
    flags: span["flags"] as number,
    name: fitting(span["name"], /^[\x20-\x7e]+$/),
    kind: span["kind"] as number,
    start: BigInt(fitting(span["startTimeUnixNano"], /^\d{19}$/)),
    end: BigInt(fitting(span["endTimeUnixNano"], /^\d{19}$/)),
    attributes: attributesOf(span["attributes"]),
    failed: status["code"] === 2,
  };
  if (![1, 2, 3].includes(read.kind)) throw new Error(`kind ${read.kind}`);
  if (![0x101, 0x301].includes(read.flags)) throw new Error(`flags ${read.flags}`);
  if (read.end < read.start) throw new Error("it ends before it begins");
  return read;
}

function attributesOf(value: unknown): Record<string, string | bigint> {
  if (!Array.isArray(value)) throw new Error("attributes are a list");
  const read: Record<string, string | bigint> = {};
  for (const each of value) {
    const { key, value: held } = members(each, ["key", "value"], []);
    const name = fitting(key, /^[a-z](?:[a-z0-9_.]*[a-z0-9])?$/);
    if (name in read) throw new Error(`two attributes ${name}`);
    const { stringValue, intValue } = members(held, [], ["stringValue", "intValue"]);
    if ((stringValue === undefined) === (intValue === undefined)) throw new Error(`${name} has not one value`);
    // 64-bit integers are strings in JSON, whose numbers cannot hold them.
    read[name] = intValue === undefined ? fitting(stringValue, /^/) : BigInt(fitting(intValue, /^-?\d+$/));
  }
  return read;
}

function members(value: unknown, required: readonly string[], optional: readonly string[]): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Error(`no object: ${JSON.stringify(value)}`);
  const found = value as Record<string, unknown>;
  for (const name of required) if (!(name in found)) throw new Error(`no ${name}`);
  for (const name of Object.keys(found))
    if (![...required, ...optional].includes(name)) throw new Error(`what is ${name}?`);
  return found;
}

function list(from: Record<string, unknown>, name: string, length?: number): unknown[] {
  const found = from[name];
  if (!Array.isArray(found) || found.length === 0 || (length !== undefined && found.length !== length))
    throw new Error(`${name} is no such list`);
  return found as unknown[];
}

function fitting(value: unknown, pattern: RegExp): string {
  if (typeof value !== "string" || !pattern.test(value))
    throw new Error(`${JSON.stringify(value)} does not fit ${pattern}`);
  return value;
}
