/**
 * The plugin kind `cors`: lets web pages of other origins read replies (Fetch Standard §3.2), and answers preflights
 * (204) even if the route does not list OPTIONS. It refuses no request: browsers enforce CORS.
 *
 * Its Access-Control-… headers replace the upstream's, also on refusals of later plugins. Replies that depend on the
 * origin have a Vary header. CORS does not cover WebSockets: their handshakes are not changed.
 */
import { TOKEN, TOKEN_CHARACTERS } from "../base/http_grammar.ts";
import { array, boolean, integer, object, optional, string, withDefault, type Infer } from "../config/schema.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValue, tokens, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import type { Plugin } from "./plugin.ts";

const CORS_ORIGIN = string({
  hint: 'an origin such as "https://app.example.com" or "https://*.example.com", or "*"',
  check: originProblem,
});
const HEADER_NAME = string({ references: "none", pattern: TOKEN, hint: 'the name of a header, or "*"' });
const CORS_METHOD = string({ references: "none", hint: 'an HTTP method in upper case, or "*"', check: methodProblem });

const schema = object(
  {
    allow_origins: array(CORS_ORIGIN, { min: 1, describe: "Origins of the pages that may read replies." }),
    allow_methods: withDefault(
      array(CORS_METHOD, { min: 1, describe: "Methods that these pages may use besides GET, HEAD and POST." }),
      ["GET", "HEAD", "QUERY", "POST", "PUT", "PATCH", "DELETE"],
    ),
    allow_headers: optional(
      array(HEADER_NAME, { describe: "Request headers that these pages may set; default: all that they request." }),
    ),
    expose_headers: withDefault(
      array(HEADER_NAME, { describe: "Response headers that these pages may read besides the safelisted ones." }),
      [],
    ),
    allow_credentials: withDefault(
      boolean({ describe: "Whether requests may carry cookies and HTTP authentication." }),
      false,
    ),
    allow_private_network: withDefault(
      boolean({ describe: "Whether pages of public networks may send requests to a private network." }),
      false,
    ),
    preflight_continue: withDefault(
      boolean({
        describe: "Whether preflights are forwarded to the upstream instead of being answered by the gateway.",
      }),
      false,
    ),
    max_age: optional(
      integer({ min: 0, max: 86_400, describe: "How long browsers may cache the answer to a preflight, in seconds." }),
    ),
  },
  {
    describe: "Cross-origin resource sharing (CORS).",
    refine(value, report) {
      const { allowOrigins, allowCredentials } = value;
      if (allowOrigins.includes("*") && allowOrigins.length > 1)
        report('"*" is every origin: write it alone, or leave it out', "allow_origins");
      if (!allowCredentials) return;
      if (allowOrigins.includes("*"))
        report('"*" cannot be used with "allow_credentials": list the origins', "allow_origins");
      // Fetch §3.2.4: with credentials the asterisk is not a wildcard.
      const lists = {
        allow_methods: value.allowMethods,
        allow_headers: value.allowHeaders,
        expose_headers: value.exposeHeaders,
      };
      for (const [field, list] of Object.entries(lists)) {
        if (list?.includes("*")) report('"*" is not a wildcard with "allow_credentials": list the names', field);
      }
    },
  },
);

type Config = Infer<typeof schema>;

export const cors: Plugin<typeof schema> = {
  name: "cors",
  schema,
  takes: "preflights",
  create(config) {
    const { allowOrigins, allowHeaders, exposeHeaders, allowPrivateNetwork, preflightContinue } = config;
    // A refusal depends on the origin too: a cache must not give it to an allowed origin.
    const vary = allowOrigins.includes("*") ? [] : ["Origin"];
    const asked = [
      ...(allowHeaders === undefined ? ["Access-Control-Request-Headers"] : []),
      ...(allowPrivateNetwork ? ["Access-Control-Request-Private-Network"] : []),
    ];
    const varyOfRequests = vary.join(", ");
    const varyOfPreflights = [...vary, ...asked].join(", ");
    const headersFor = permission(
      config,
      exposeHeaders.length === 0 ? [] : ["Access-Control-Expose-Headers", exposeHeaders.join(", ")],
    );
    const headersForPreflight = preflightHeaders(config);
    return (next) => (exchange) => {
      const isPreflight = isPreflightRequest(exchange);
      const added = isPreflight ? headersForPreflight(exchange) : headersFor(exchange);
      const dependsOn = isPreflight ? varyOfPreflights : varyOfRequests;
      if (isPreflight && !preflightContinue) return { status: 204, headers: merged([], added, dependsOn), body: null };
      const reply = next(exchange);
      return reply instanceof Promise
        ? reply.then((later) => withCors(later, added, dependsOn))
        : withCors(reply, added, dependsOn);
    };
  },
};

function isPreflightRequest({ method, headers }: Exchange): boolean {
  return (
    method === "OPTIONS" &&
    headerValue(headers, "access-control-request-method") !== undefined &&
    headerValue(headers, "origin") !== undefined
  );
}

/** The headers for the origin of a request: none if it is not allowed, else the permission and `rest`. */
function permission({ allowOrigins, allowCredentials }: Config, rest: HeaderList): (exchange: Exchange) => HeaderList {
  const always = ["Access-Control-Allow-Origin", "*", ...rest];
  // Also without an Origin: a cache may give the reply to other clients, and the header is the same for all.
  if (allowOrigins.includes("*")) return () => always;
  const isAllowed = originTest(allowOrigins);
  const tail = allowCredentials ? ["Access-Control-Allow-Credentials", "true", ...rest] : rest;
  return ({ headers }) => {
    const origin = headerValue(headers, "origin");
    return origin === undefined || !isAllowed(origin) ? [] : ["Access-Control-Allow-Origin", origin, ...tail];
  };
}

function preflightHeaders(config: Config): (exchange: Exchange) => HeaderList {
  const { allowMethods, allowHeaders, allowPrivateNetwork, maxAge } = config;
  const fixed = ["Access-Control-Allow-Methods", allowMethods.join(", ")];
  if (maxAge !== undefined) fixed.push("Access-Control-Max-Age", String(maxAge));
  if (allowHeaders !== undefined && allowHeaders.length > 0)
    fixed.push("Access-Control-Allow-Headers", allowHeaders.join(", "));
  const headersFor = permission(config, fixed);
  return (exchange) => {
    const all = [...headersFor(exchange)];
    if (all.length === 0) return all;
    const names =
      allowHeaders === undefined ? headerValue(exchange.headers, "access-control-request-headers") : undefined;
    if (names !== undefined && NAMES.test(names)) all.push("Access-Control-Allow-Headers", names);
    if (allowPrivateNetwork && headerValue(exchange.headers, "access-control-request-private-network") === "true")
      all.push("Access-Control-Allow-Private-Network", "true");
    return all;
  };
}

/** Field names with commas between them. */
const NAMES = new RegExp(`^[, ${TOKEN_CHARACTERS}]+$`);

function withCors(reply: Reply, added: HeaderList, vary: string): Reply {
  return reply.status === 101 ? reply : { ...reply, headers: merged(reply.headers, added, vary) };
}

/**
 * Replaces the Access-Control headers of the upstream. `vary`: the request headers that the reply depends on; "" if it
 * depends on none.
 */
function merged(given: HeaderList, added: HeaderList, vary: string): HeaderList {
  const list: string[] = [];
  for (let i = 0; i < given.length; i += 2) if (!isCorsHeader(given[i]!)) list.push(given[i]!, given[i + 1]!);
  list.push(...added);
  const known = vary === "" || headerValue(given, "vary") === undefined ? [] : tokens(given, "vary");
  const missing =
    known.length === 0
      ? vary
      : vary
          .split(", ")
          .filter((name) => !known.includes(name.toLowerCase()))
          .join(", ");
  if (missing !== "" && !known.includes("*")) list.push("Vary", missing);
  return list;
}

/** The shortest is Access-Control-Max-Age. */
function isCorsHeader(name: string): boolean {
  return name.length >= 22 && name.charCodeAt(14) === 0x2d && name.slice(0, 15).toLowerCase() === "access-control-";
}

/**
 * Whether pages of an origin, as the Origin header has it, are allowed. `entries` are valid and contain no "*" alone.
 */
export function originTest(entries: readonly string[]): (origin: string) => boolean {
  const exact = new Set(entries.filter((entry) => !entry.includes("*")));
  const wildcards = entries
    .filter((entry) => entry.includes("*"))
    .map((entry) => entry.split("*") as [scheme: string, suffix: string]);
  return (origin) => {
    if (exact.has(origin)) return true;
    for (const [scheme, suffix] of wildcards) {
      // Only valid origins: "https://evil.example/.example.com" has the same ending.
      if (
        origin.startsWith(scheme) &&
        origin.endsWith(suffix) &&
        HOST_PART.test(origin.slice(scheme.length, -suffix.length))
      )
        return true;
    }
    return false;
  };
}

const HOST_PART = /^[a-z0-9._-]+$/;

/**
 * Undefined for `*`, for an origin (RFC 6454 §6.1), and for an origin with `*.` before its host; else an error text.
 */
export function originProblem(text: string): string | undefined {
  if (text === "*") return undefined;
  if (text === "null") return "null is the origin of any page that hides its own: allow * or none of them";
  if (text !== text.toLowerCase()) return `browsers write it in lower case, "${text.toLowerCase()}"`;
  const match = ORIGIN.exec(text);
  if (match === null) return /[^\x00-\x7f]/.test(text) ? "browsers write names beyond ASCII in their xn-- form" : "";
  const { scheme, port, rest } = match.groups as { scheme: string; port?: string; rest: string };
  if (rest !== "") return `an origin has no path: write "${text.slice(0, text.length - rest.length)}"`;
  if (port === undefined) return undefined;
  if (Number(port) > 65_535 || port.startsWith("0")) return "a port is a number from 1 to 65535";
  const isDefault = (scheme === "http" && port === "80") || (scheme === "https" && port === "443");
  return isDefault ? `browsers leave out the default port: write "${text.slice(0, text.lastIndexOf(":"))}"` : undefined;
}

const ORIGIN = new RegExp(
  String.raw`^(?<scheme>[a-z][a-z0-9+.-]*):\/\/(?:(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|` +
    String.raw`\[[0-9a-f:.]+\])(?::(?<port>[0-9]{1,5}))?(?<rest>(?:\/.*)?)$`,
);

function methodProblem(text: string): string | undefined {
  if (!TOKEN.test(text)) return "";
  return text === text.toUpperCase() ? undefined : `methods are case-sensitive, write "${text.toUpperCase()}"`;
}
