/**
 * Reads the environment variables by which OpenTelemetry is set up everywhere, as far as they concern traces. Which traces are recorded,
 * and how they are sent, is `observe/`.
 */
import { readFileSync } from "node:fs";
import { certificatesProblem } from "../base/pem.ts";
import { whyUnreadable } from "./references.ts";

/** Where traces are sent, and which. */
export interface TracingSettings {
  /** URL that spans are sent to, http or https, path included: "http://collector:4318/v1/traces". */
  readonly url: string;
  /** Further headers, such as credentials for the collector. Default: none. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Longest wait for the answer to a batch, in milliseconds, 1–600000. Default 10000. */
  readonly timeoutMs?: number;
  /** CA certificates, PEM, by which an https:// collector is verified. Default: those of the system. */
  readonly ca?: Buffer;
  /** Whether batches are compressed (RFC 9110 §8.4.1.3). Default "none". */
  readonly compression?: Compression;
  /** What is said of the gateway beside `service.name`, such as `deployment.environment.name`. Default: nothing. */
  readonly resource?: Readonly<Record<string, string>>;
  /** Default "edge-gateway". */
  readonly serviceName?: string;
  /** Default "parentbased_always_on": as whoever sent the request does, and all that begin here. */
  readonly sampler?: TracesSampler;
  /** Share that the samplers with a ratio record, 0–1. Default 1. */
  readonly ratio?: number;
}

const COMPRESSIONS = ["none", "gzip"] as const;
export type Compression = (typeof COMPRESSIONS)[number];

export const TRACES_SAMPLERS = [
  "always_on",
  "always_off",
  "traceidratio",
  "parentbased_always_on",
  "parentbased_always_off",
  "parentbased_traceidratio",
] as const;
export type TracesSampler = (typeof TRACES_SAMPLERS)[number];

type Environment = Readonly<Record<string, string | undefined>>;

type ReadFile = (path: string) => Buffer | string;

/** Null where no endpoint is set, or traces are switched off, or something is wrong, which `issues` then has, a sentence each. */
export function readTracing(environment: Environment, issues: string[], readFile: ReadFile = readFileSync): TracingSettings | null {
  // As OpenTelemetry has it, an empty variable is none, and nothing but "true" is true.
  const read = (name: string): string | undefined => environment[name]?.trim() || undefined;
  if (read("OTEL_SDK_DISABLED")?.toLowerCase() === "true") return null;
  const given = (general: string): readonly [name: string, value: string | undefined] => {
    const own = general.replace("_OTLP_", "_OTLP_TRACES_");
    return read(own) === undefined ? [general, read(general)] : [own, read(own)];
  };
  const [endpointName, endpoint] = given("OTEL_EXPORTER_OTLP_ENDPOINT");
  if (endpoint === undefined) return null;
  const exporter = read("OTEL_TRACES_EXPORTER") ?? "otlp";
  if (exporter === "none") return null;
  const before = issues.length;
  const wrong = (name: string, expected: string) => void issues.push(`${name}: expected ${expected}`);
  if (exporter !== "otlp") wrong("OTEL_TRACES_EXPORTER", `otlp or none, found ${JSON.stringify(exporter)}`);
  const [protocolName, protocol = "http/json"] = given("OTEL_EXPORTER_OTLP_PROTOCOL");
  if (protocol !== "http/json") wrong(protocolName, `http/json, the one protocol that traces are sent by, found ${JSON.stringify(protocol)}`);
  const url = urlOf(endpoint, endpointName === "OTEL_EXPORTER_OTLP_ENDPOINT");
  // Said without the text, which may hold a password.
  if (url === null) wrong(endpointName, "an http:// or https:// URL without user name and password");
  const [headersName, headersText] = given("OTEL_EXPORTER_OTLP_HEADERS");
  const headers = pairsOf(headersText);
  if (headers === null) wrong(headersName, "name=value pairs, separated by commas, values percent-encoded");
  for (const [name, value] of Object.entries(headers ?? {})) {
    const problem = headerProblem(name, value);
    if (problem !== undefined) issues.push(`${headersName}: ${problem}`);
  }
  const [timeoutName, timeoutText] = given("OTEL_EXPORTER_OTLP_TIMEOUT");
  const timeoutMs = timeoutText === undefined ? undefined : wholeOf(timeoutText, 1, MOST_TIMEOUT_MS);
  if (timeoutMs === null) wrong(timeoutName, `milliseconds, an integer 1–${MOST_TIMEOUT_MS}, found ${JSON.stringify(timeoutText)}`);
  const [compressionName, compressionText = "none"] = given("OTEL_EXPORTER_OTLP_COMPRESSION");
  const compression = COMPRESSIONS.find((name) => name === compressionText);
  if (compression === undefined) wrong(compressionName, `gzip or none, found ${JSON.stringify(compressionText)}`);
  const [caName, caPath] = given("OTEL_EXPORTER_OTLP_CERTIFICATE");
  const ca = caPath === undefined ? undefined : authoritiesFrom(caPath, caName, readFile, issues);
  const attributes = pairsOf(read("OTEL_RESOURCE_ATTRIBUTES"));
  if (attributes === null) wrong("OTEL_RESOURCE_ATTRIBUTES", "name=value pairs, separated by commas, values percent-encoded");
  const samplerText = read("OTEL_TRACES_SAMPLER") ?? "parentbased_always_on";
  const sampler = TRACES_SAMPLERS.find((name) => name === samplerText);
  if (sampler === undefined) wrong("OTEL_TRACES_SAMPLER", `one of ${TRACES_SAMPLERS.join(", ")}, found ${JSON.stringify(samplerText)}`);
  const ratioText = sampler?.endsWith("ratio") === true ? (read("OTEL_TRACES_SAMPLER_ARG") ?? "1") : "1";
  const ratio = /^(\d+\.?\d*|\.\d+)(e-?\d+)?$/i.test(ratioText) ? Number(ratioText) : NaN;
  if (!(ratio <= 1)) wrong("OTEL_TRACES_SAMPLER_ARG", `a number 0–1, found ${JSON.stringify(ratioText)}`);
  if (issues.length > before) return null;
  const { "service.name": serviceName, ...resource } = attributes!;
  return {
    url: url!,
    headers: headers!,
    timeoutMs: timeoutMs ?? DEFAULT_TIMEOUT_MS,
    ...(ca !== undefined && { ca }),
    ...(compression === "gzip" && { compression }),
    resource,
    serviceName: read("OTEL_SERVICE_NAME") ?? serviceName ?? "edge-gateway",
    sampler: sampler!,
    ratio,
  };
}

/** Undefined when such settings can be used; else what is wrong with them. For those that were not read from the environment. */
export function tracingProblem({ url, headers = {}, timeoutMs = 1, ca, compression, sampler, ratio = 1 }: TracingSettings): string | undefined {
  if (urlOf(url, false) === null) return "tracing.url is no http:// or https:// URL without user name and password";
  if (!Number.isInteger(timeoutMs) || timeoutMs < 1 || timeoutMs > MOST_TIMEOUT_MS) return `tracing.timeoutMs is no integer 1–${MOST_TIMEOUT_MS}`;
  const wrongCa = ca === undefined ? undefined : certificatesProblem(ca);
  if (wrongCa !== undefined) return `tracing.ca ${wrongCa}`;
  if (compression !== undefined && !COMPRESSIONS.includes(compression)) return `tracing.compression is none of ${COMPRESSIONS.join(", ")}`;
  if (sampler !== undefined && !TRACES_SAMPLERS.includes(sampler)) return `tracing.sampler is none of ${TRACES_SAMPLERS.join(", ")}`;
  if (!(ratio >= 0 && ratio <= 1)) return "tracing.ratio is no number 0–1";
  for (const [name, value] of Object.entries(headers)) {
    const problem = headerProblem(name, value);
    if (problem !== undefined) return `tracing.headers: ${problem}`;
  }
  return undefined;
}

export const DEFAULT_TIMEOUT_MS = 10_000;
const MOST_TIMEOUT_MS = 600_000;

function authoritiesFrom(path: string, variable: string, readFile: ReadFile, issues: string[]): Buffer | undefined {
  try {
    const content = Buffer.from(readFile(path));
    const wrong = certificatesProblem(content);
    if (wrong === undefined) return content;
    issues.push(`${variable}: ${path} ${wrong}`);
  } catch (error) {
    issues.push(`${variable}: cannot read ${path}: ${whyUnreadable(error)}`);
  }
  return undefined;
}

/** `isBase`: the path for traces is to be added (http://collector:4318 stands for http://collector:4318/v1/traces). */
function urlOf(text: string, isBase: boolean): string | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== "" || url.password !== "") return null;
  if (isBase) url.pathname += url.pathname.endsWith("/") ? "v1/traces" : "/v1/traces";
  return url.href;
}

/** `a=1,b=%2C`; null where it is something else. */
function pairsOf(text: string | undefined): Record<string, string> | null {
  const pairs: [string, string][] = [];
  for (const part of (text ?? "").split(",")) {
    if (part.trim() === "") continue;
    const equals = part.indexOf("=");
    const [name, value] = [decoded(part.slice(0, equals).trim()), decoded(part.slice(equals + 1).trim())];
    if (equals < 0 || name === null || name === "" || value === null) return null;
    pairs.push([name, value]);
  }
  return Object.fromEntries(pairs);
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/** Never says a value, nor what is no name: in "Authorization: Basic c2VjcmV0=" the secret stands before the "=". */
function headerProblem(name: string, value: string): string | undefined {
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) return "one of the names before a = is not the name of a header";
  if (FRAMING.test(name)) return `${name} cannot be set here`;
  return /^[\t\x20-\x7e]*$/.test(value) ? undefined : `the value of ${name} is no text that a header can carry`;
}

const FRAMING = /^(content-type|content-length|content-encoding|host|connection|transfer-encoding|expect|te|upgrade|trailer)$/i;

function wholeOf(text: string, least: number, most: number): number | null {
  return /^\d{1,9}$/.test(text) && Number(text) >= least && Number(text) <= most ? Number(text) : null;
}
