/**
 * Reads OpenTelemetry's environment variables: where traces, metrics and logs are sent, and which requests are traced.
 */
import { randomUUID } from "node:crypto";
import { TOKEN } from "../base/http_grammar.ts";
import { certificatesProblem } from "../base/pem.ts";
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { version } from "../base/version.ts";
import { asksForExport, asksForTraces } from "./settings_table.ts";
import type { ExportSettings, MetricsExport, TracesSampler, TracingSettings } from "./settings_types.ts";
import type { Environment } from "./start_settings.ts";

const COMPRESSIONS = ["none", "gzip"] as const;
const ROOT_SAMPLERS = ["always_on", "always_off", "traceidratio"] as const;
export const TRACES_SAMPLERS: readonly TracesSampler[] = [
  ...ROOT_SAMPLERS,
  ...ROOT_SAMPLERS.map((root) => `parentbased_${root}` as const),
];

type ReadFile = (path: string) => Buffer | string;
type Variable = readonly [name: string, text: string | undefined];

/**
 * Null if no endpoint is set, traces are switched off, or a setting is invalid, which adds one sentence per mistake to
 * `issues`.
 */
export function readTracing(
  environment: Environment,
  issues: string[],
  readFile: ReadFile = readRegularFile,
): TracingSettings | null {
  if (!asksForTraces(environment)) return null;
  const before = issues.length;
  const { variable, value, settings } = readExport("TRACES", environment, issues, readFile);
  const samplers = `one of ${TRACES_SAMPLERS.join(", ")}`;
  const sampler = value(variable("OTEL_TRACES_SAMPLER"), "parentbased_always_on", samplers, oneOf(TRACES_SAMPLERS));
  const ratio = sampler.endsWith("ratio") ? value(variable("OTEL_TRACES_SAMPLER_ARG"), 1, "a number 0–1", ratioOf) : 1;
  return issues.length > before ? null : { ...settings, sampler, ratio };
}

/** The same for metrics. */
export function readMetricsExport(
  environment: Environment,
  issues: string[],
  readFile: ReadFile = readRegularFile,
): MetricsExport | null {
  if (!asksForExport("METRICS", environment)) return null;
  const before = issues.length;
  const { variable, value, own, settings } = readExport("METRICS", environment, issues, readFile);
  const ms = `milliseconds, an integer 1–${MAX_TIMEOUT_MS}`;
  const intervalMs = value(variable("OTEL_METRIC_EXPORT_INTERVAL"), 60_000, ms, timeoutOf);
  const limitMs = value(variable("OTEL_METRIC_EXPORT_TIMEOUT"), 30_000, ms, timeoutOf);
  const preference = own("TEMPORALITY_PREFERENCE");
  const chosen = value([preference[0], preference[1]?.toLowerCase()], "cumulative", TEMPORALITY, oneOf(TEMPORALITIES));
  if (issues.length > before) return null;
  const temporality = chosen === "cumulative" ? "cumulative" : "delta";
  return { ...settings, timeoutMs: Math.min(settings.timeoutMs, limitMs), intervalMs, temporality };
}

/** The same for the lines of logs. */
export function readLogsExport(
  environment: Environment,
  issues: string[],
  readFile: ReadFile = readRegularFile,
): ExportSettings | null {
  if (!asksForExport("LOGS", environment)) return null;
  const before = issues.length;
  const { settings } = readExport("LOGS", environment, issues, readFile);
  return issues.length > before ? null : settings;
}

/** "lowmemory" is "delta" for all that the gateway counts. */
const TEMPORALITIES = ["cumulative", "delta", "lowmemory"] as const;
const TEMPORALITY = `one of ${TEMPORALITIES.join(", ")}`;

/** What all signals have. */
function readExport(
  signal: "TRACES" | "METRICS" | "LOGS",
  environment: Environment,
  issues: string[],
  readFile: ReadFile,
) {
  // OpenTelemetry's rules: an empty variable counts as unset, and only "true" is true.
  const variable = (name: string): Variable => [name, environment[name]?.trim() || undefined];
  const own = (what: string): Variable => variable(`OTEL_EXPORTER_OTLP_${signal}_${what}`);
  const forSignal = (what: string): Variable => {
    const named = own(what);
    return named[1] === undefined ? variable(`OTEL_EXPORTER_OTLP_${what}`) : named;
  };
  const value = <T>(
    [name, text]: Variable,
    fallback: T,
    expected: string,
    parse: (text: string) => T | null,
    isSecret = false,
  ): T => {
    const parsed = text === undefined ? fallback : parse(text);
    if (parsed === null)
      issues.push(`${name}: expected ${expected}${isSecret ? "" : `, found ${JSON.stringify(text)}`}`);
    return parsed ?? fallback;
  };
  const [endpoint, headersSet] = [forSignal("ENDPOINT"), forSignal("HEADERS")];
  value(variable(`OTEL_${signal}_EXPORTER`), "otlp", "otlp or none", oneOf(["otlp"]));
  value(forSignal("PROTOCOL"), "http/json", "http/json, the only supported protocol", oneOf(["http/json"]));
  const isBase = endpoint[0] === "OTEL_EXPORTER_OTLP_ENDPOINT";
  const path = `v1/${signal.toLowerCase()}`;
  // Traces are off without an endpoint.
  const fallback = `http://localhost:4318/${path}`;
  const url = value(endpoint, fallback, URL_EXPECTED, (text) => urlOf(text, isBase ? path : null), true);
  const headers = value(headersSet, {}, PAIRS_EXPECTED, pairsOf, true);
  issues.push(...headerProblems(headers).map((problem) => `${headersSet[0]}: ${problem}`));
  const timeoutMs = value(
    forSignal("TIMEOUT"),
    DEFAULT_TIMEOUT_MS,
    `milliseconds, an integer 1–${MAX_TIMEOUT_MS}`,
    timeoutOf,
  );
  const compression = value(forSignal("COMPRESSION"), "none", "gzip or none", oneOf(COMPRESSIONS));
  const ca = authoritiesIn(forSignal("CERTIFICATE"), readFile, issues);
  const attributes = value(variable("OTEL_RESOURCE_ATTRIBUTES"), {}, PAIRS_EXPECTED, pairsOf, true);
  const { "service.name": named, ...others } = attributes;
  const serviceName = variable("OTEL_SERVICE_NAME")[1] ?? named ?? "edge-gateway";
  const resource = { "service.version": version, "service.instance.id": INSTANCE, ...others };
  const further = { ...(ca && { ca }), ...(compression === "gzip" && { compression }) };
  return { variable, value, own, settings: { url, headers, timeoutMs, ...further, resource, serviceName } };
}

/** Checks settings that an embedder passes; undefined if they are valid. */
export function tracingProblem(settings: TracingSettings): string | undefined {
  const { url, headers = {}, timeoutMs = 1, ca, compression = "none", sampler = "always_on", ratio = 1 } = settings;
  if (urlOf(url, null) === null) return `tracing.url: expected ${URL_EXPECTED}`;
  if (timeoutOf(String(timeoutMs)) === null) return `tracing.timeoutMs: expected an integer 1–${MAX_TIMEOUT_MS}`;
  const wrongCa = ca && certificatesProblem(ca);
  if (wrongCa !== undefined) return `tracing.ca ${wrongCa}`;
  if (!COMPRESSIONS.includes(compression)) return `tracing.compression: expected one of ${COMPRESSIONS.join(", ")}`;
  if (!TRACES_SAMPLERS.includes(sampler)) return `tracing.sampler: expected one of ${TRACES_SAMPLERS.join(", ")}`;
  if (!(ratio >= 0 && ratio <= 1)) return "tracing.ratio: expected a number 0–1";
  return headerProblems(headers).map((problem) => `tracing.headers: ${problem}`)[0];
}

/** Of this process: sums of two gateways must not be taken for those of one. Workers are passed it. */
const INSTANCE = randomUUID();
export const DEFAULT_TIMEOUT_MS = 10_000;
const MAX_TIMEOUT_MS = 600_000;
const URL_EXPECTED = "an http:// or https:// URL without user name and password";
const PAIRS_EXPECTED = "name=value pairs, separated by commas, values percent-encoded";

function oneOf<const T extends string>(words: readonly T[]): (text: string) => T | null {
  return (text) => words.find((word) => word === text) ?? null;
}

function timeoutOf(text: string): number | null {
  return /^\d{1,9}$/.test(text) && Number(text) >= 1 && Number(text) <= MAX_TIMEOUT_MS ? Number(text) : null;
}

function ratioOf(text: string): number | null {
  return /^(\d+\.?\d*|\.\d+)(e-?\d+)?$/i.test(text) && Number(text) <= 1 ? Number(text) : null;
}

function authoritiesIn([variable, path]: Variable, readFile: ReadFile, issues: string[]): Buffer | undefined {
  if (path === undefined) return undefined;
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

/** `path`: is appended (http://collector:4318 becomes http://collector:4318/v1/traces); null: the URL is whole. */
function urlOf(text: string, path: string | null): string | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== "" || url.password !== "") return null;
  if (path !== null) url.pathname += url.pathname.endsWith("/") ? path : `/${path}`;
  return url.href;
}

/** `a=1,b=%2C`; null if the text is anything else. */
function pairsOf(text: string): Record<string, string> | null {
  const pairs: [string, string][] = [];
  for (const part of text.split(",")) {
    if (part.trim() === "") continue;
    const equals = part.indexOf("=");
    try {
      const [name, value] = [part.slice(0, equals), part.slice(equals + 1)].map((half) =>
        decodeURIComponent(half.trim()),
      );
      if (equals < 0 || !name) return null;
      pairs.push([name, value!]);
    } catch {
      return null;
    }
  }
  return Object.fromEntries(pairs);
}

/**
 * Messages repeat neither values nor invalid names: in "Authorization: Basic c2VjcmV0=" the secret is before the "=".
 */
function headerProblems(headers: Readonly<Record<string, string>>): string[] {
  return Object.entries(headers).flatMap(([name, value]) => {
    if (!TOKEN.test(name)) return "one of the names before a = is not the name of a header";
    if (FRAMING.test(name)) return `${name} cannot be set here`;
    return /^[\t\x20-\x7e]*$/.test(value) ? [] : `the value of ${name} is not text that a header can carry`;
  });
}

const FRAMING =
  /^(content-type|content-length|content-encoding|host|connection|transfer-encoding|expect|te|upgrade|trailer)$/i;
