/**
 * Parts of the configuration schema that are used in several places: fields with defaults, and text formats.
 */
import { suggest } from "../base/suggest.ts";
import { METHODS } from "node:http";
import { isIP } from "node:net";
import { TOKEN } from "../base/http_grammar.ts";
import * as s from "./schema.ts";

export const DAY_MS = 86_400_000;

export function flag(describe: string, fallback: boolean) {
  return s.withDefault(s.boolean({ describe }), fallback);
}

/** The first literal is the default. */
export function choice<const T extends readonly [string, ...string[]]>(literals: T, describe: string) {
  return s.withDefault(s.oneOf(literals, { describe }), literals[0]);
}

export function boundedInteger(min: number, max: number, fallback: number, describe: string) {
  return s.withDefault(s.integer({ min, max, describe }), fallback);
}

export function share(min: number, fallback: number, describe: string) {
  return s.withDefault(s.number({ min, max: 1, describe }), fallback);
}

/** At most a day; `describe` has no full stop. */
export function milliseconds(min: number, fallback: number, describe: string) {
  return boundedInteger(min, DAY_MS, fallback, `${describe}, in milliseconds.`);
}

/**
 * The defaults of `HEALTH`, which is loaded where a service has several upstreams or says something of their health.
 */
export const NO_HEALTH = {
  enabled: false,
  path: "/",
  interval_ms: 5000,
  timeout_ms: 2000,
  healthy_threshold: 2,
  unhealthy_threshold: 3,
  expect_status: "200-399",
  addresses: "each" as const,
  passive: { max_failures: 5, window_ms: 10_000, eject_ms: 10_000, statuses: [], slow_start_ms: 0 },
};

/** Names appear in logs, metrics and on the terminal. */
export const NAME = s.string({
  references: "none",
  min: 1,
  max: 200,
  hint: "a name of 1–200 characters without control characters",
  check: (text) => (/\p{Cc}/u.test(text) ? "" : undefined),
});

/** Appears in `WWW-Authenticate: Key realm="…"`. */
export const GATEWAY_NAME = s.string({
  references: "none",
  min: 1,
  max: 200,
  pattern: /^[ !#-[\]-~]+$/,
  hint: "a name of printable ASCII characters without quotes and backslashes",
  describe: "Name of the gateway.",
});

export const BASE_PATH = pathSchema("Path prefix that selects the service.");
export const PATH = pathSchema(
  "Path below the service's base_path. {name} matches one segment, {name*} at the end the rest.",
);

export function pathSchema(describe: string) {
  const check = (text: string) => (text.startsWith("/") ? undefined : `write "/${text}"`);
  return s.string({ min: 1, hint: 'a path that starts with "/"', describe, check, references: "none" });
}

export const METHOD = s.string({
  references: "none",
  hint: "an HTTP method in upper case",
  check(text) {
    if (METHODS.includes(text) && text !== "CONNECT") return undefined;
    if (!TOKEN.test(text)) return "";
    if (text !== text.toUpperCase()) return `methods are case-sensitive, write "${text.toUpperCase()}"`;
    if (text === "CONNECT") return "CONNECT is not forwarded";
    const meant = suggest(text, METHODS);
    return (
      `the servers refuse this method: ` +
      `${meant === undefined ? `they know ${METHODS.join(", ")}` : `did you mean "${meant}"?`}`
    );
  },
});

/** The largest integer of a structured field (RFC 9651 §3.3.1), such as the limits in RateLimit-Policy. */
export const MAX_LIMIT = 999_999_999_999_999;
const limit = (span: string) =>
  s.optional(s.integer({ min: 1, max: MAX_LIMIT, describe: `Allowed requests in any ${span}.` }));
export const WINDOW_FIELDS = {
  limit_second: limit("second"),
  limit_min: limit("minute"),
  limit_hour: limit("hour"),
  limit_day: limit("24 hours"),
};
export type WindowLimits = s.ObjectOut<typeof WINDOW_FIELDS>;

/** From the shortest to the longest; `ms`: how long each is. */
export function windowsOf({ limitSecond, limitMin, limitHour, limitDay }: WindowLimits) {
  const window = (name: string, limit: number | undefined, ms: number) =>
    limit === undefined ? [] : [{ name, limit, ms }];
  return [
    ...window("second", limitSecond, 1_000),
    ...window("minute", limitMin, 60_000),
    ...window("hour", limitHour, 3_600_000),
    ...window("day", limitDay, 86_400_000),
  ];
}
export const NO_WINDOW = 'needs "limit_second", "limit_min", "limit_hour" or "limit_day"';

export const HOST_PATTERN = s.string({
  references: "none",
  lowerCase: true,
  hint: "a host name such as api.example.com or *.example.com",
  check(text) {
    const name = text.startsWith("*.") ? text.slice(2) : text;
    const problem = hostProblem(name);
    if (problem !== undefined) return problem;
    if (name.includes(":")) return "an IPv6 address cannot be matched";
    // No name is longer than 253 (RFC 1035 §2.3.4), and "*" stands for a character at least.
    if (name !== text && name.length > 251) return "no host name is that long";
    return name.endsWith(".") ? "write it without the dot at its end" : undefined;
  },
});

/** Undefined if the text is exactly a host name, IPv4 or IPv6 address; else a remedy. */
export function hostProblem(text: string): string | undefined {
  if (isIP(text) !== 0) return undefined;
  if (text.includes("://")) return 'write no scheme here; the scheme is the service\'s "protocol"';
  if (text.includes("/")) return "write no path here";
  if (text.startsWith("[")) return "write IPv6 addresses without brackets";
  if (/^[^:]*:\d*$/.test(text)) return "write no port here";
  if (/(^|\.)\d+$/.test(text)) return "this is no valid IPv4 address";
  if (/[^\u0000-\u007f]/.test(text)) return "write international names in their ASCII form (xn--…)";
  return HOST_NAME.test(text) ? undefined : "";
}

const HOST_NAME = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*\.?$/i;
