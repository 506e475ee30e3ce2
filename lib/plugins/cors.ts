/**
 * The plugin kind `cors`: says which web pages of other origins may read what is answered here, as the Fetch standard has it (§3.2), and
 * answers their preflights (204) although the route does not list OPTIONS. It refuses nobody: that is what browsers do with what it says.
 *
 * It reads Origin, Access-Control-Request-Method, -Headers and -Private-Network. What it says stands in the place of what the upstream
 * says in Access-Control-… headers, on every reply that passes through it, refusals of other plugins included. Replies that depend on
 * the origin say so in Vary. WebSockets know no CORS: their opening passes as it is.
 */
import { TOKEN } from "../config/fields.ts";
import { array, boolean, integer, object, optional, string, withDefault, type Infer } from "../config/schema.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValue, tokens, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { originProblem, originTest } from "./cors_origins.ts";
import { definePlugin } from "./plugin.ts";

const ORIGIN = string({
  hint: 'an origin such as "https://app.example.com" or "https://*.example.com", or "*"',
  check: originProblem,
});
const HEADER_NAME = string({ pattern: TOKEN, hint: 'the name of a header, or "*"' });
const CORS_METHOD = string({ hint: 'an HTTP method in upper case, or "*"', check: methodProblem });

const schema = object(
  {
    allow_origins: array(ORIGIN, { min: 1, describe: "Origins of the pages that may read replies." }),
    allow_methods: withDefault(
      array(CORS_METHOD, { min: 1, describe: "Methods that such pages may use beside GET, HEAD and POST." }),
      ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
    ),
    allow_headers: optional(array(HEADER_NAME, { describe: "Request headers that they may set; default: those that they ask for." })),
    expose_headers: withDefault(array(HEADER_NAME, { describe: "Response headers that they may read beside the safelisted ones." }), []),
    allow_credentials: withDefault(boolean({ describe: "Whether requests may carry cookies and HTTP authentication, and be read then." }), false),
    allow_private_network: withDefault(boolean({ describe: "Whether pages of public networks may ask for what is in a private one." }), false),
    preflight_continue: withDefault(boolean({ describe: "Whether preflights go on to the upstream instead of being answered here." }), false),
    max_age: optional(integer({ min: 0, max: 86_400, describe: "How long browsers may remember the answer to a preflight, in seconds." })),
  },
  {
    describe: "Cross-origin resource sharing (CORS).",
    refine(value, report) {
      const { allowOrigins, allowCredentials } = value;
      if (allowOrigins.includes("*") && allowOrigins.length > 1) report('"*" is every origin: write it alone, or leave it out', "allow_origins");
      if (!allowCredentials) return;
      if (allowOrigins.includes("*")) report('"*" cannot stand with "allow_credentials": write the origins out', "allow_origins");
      // Fetch §3.2.4: with credentials the asterisk is a name like any other.
      const lists = { allow_methods: value.allowMethods, allow_headers: value.allowHeaders, expose_headers: value.exposeHeaders };
      for (const [field, list] of Object.entries(lists)) {
        if (list?.includes("*")) report('"*" means nothing with "allow_credentials": write the names out', field);
      }
    },
  },
);

function methodProblem(text: string): string | undefined {
  if (!TOKEN.test(text)) return "";
  return text === text.toUpperCase() ? undefined : `methods are case-sensitive, write "${text.toUpperCase()}"`;
}

export const cors = definePlugin({
  name: "cors",
  schema,
  takes: "preflights",
  create(config) {
    const onRequest = requestWords(config);
    const onPreflight = preflightWords(config);
    return (next) => (exchange) => {
      const preflight = isPreflight(exchange);
      const words = preflight ? onPreflight(exchange) : onRequest(exchange);
      if (preflight && !config.preflightContinue) return { status: 204, headers: saidOn([], words), body: null };
      const reply = next(exchange);
      return reply instanceof Promise ? reply.then((later) => said(later, words)) : said(reply, words);
    };
  },
});

type Config = Infer<typeof schema>;

/** What a reply says of CORS. */
interface Words {
  readonly headers: HeaderList;
  /** The request headers that this depends on, as they stand in Vary; "" when it depends on none. */
  readonly vary: string;
}

function isPreflight({ method, headers }: Exchange): boolean {
  return method === "OPTIONS" && headerValue(headers, "access-control-request-method") !== undefined && headerValue(headers, "origin") !== undefined;
}

/** Who asked, and whether it may: the words for every kind of reply begin with that. */
function originWords(config: Config, rest: HeaderList): (origin: string | undefined) => Words {
  const always: Words = { headers: ["Access-Control-Allow-Origin", "*", ...rest], vary: "" };
  // Also without an Origin: a cache may have asked for somebody else, and the answer is the same for everybody.
  if (config.allowOrigins.includes("*")) return () => always;
  const isAllowed = originTest(config.allowOrigins);
  const tail = config.allowCredentials ? ["Access-Control-Allow-Credentials", "true", ...rest] : rest;
  return (origin) => {
    if (origin === undefined || !isAllowed(origin)) return UNSAID;
    return { headers: ["Access-Control-Allow-Origin", origin, ...tail], vary: "Origin" };
  };
}

/** It depends on the origin also where nothing is said: the next one that asks a cache may be an allowed one. */
const UNSAID: Words = { headers: [], vary: "Origin" };

function requestWords(config: Config): (exchange: Exchange) => Words {
  const { exposeHeaders } = config;
  const words = originWords(config, exposeHeaders.length === 0 ? [] : ["Access-Control-Expose-Headers", exposeHeaders.join(", ")]);
  return ({ headers }) => words(headerValue(headers, "origin"));
}

function preflightWords(config: Config): (exchange: Exchange) => Words {
  const { allowMethods, allowHeaders, allowPrivateNetwork, maxAge } = config;
  const fixed = ["Access-Control-Allow-Methods", allowMethods.join(", ")];
  if (maxAge !== undefined) fixed.push("Access-Control-Max-Age", String(maxAge));
  if (allowHeaders !== undefined && allowHeaders.length > 0) fixed.push("Access-Control-Allow-Headers", allowHeaders.join(", "));
  const words = originWords(config, fixed);
  const further = [...(allowHeaders === undefined ? [ASKED_HEADERS] : []), ...(allowPrivateNetwork ? [ASKED_NETWORK] : [])];
  const vary = (first: string) => [...(first === "" ? [] : [first]), ...further].join(", ");
  const varies = { allowed: vary(config.allowOrigins.includes("*") ? "" : "Origin"), other: vary("Origin") };
  return ({ headers }) => {
    const { headers: granted } = words(headerValue(headers, "origin"));
    if (granted.length === 0) return { headers: granted, vary: varies.other };
    const all = [...granted];
    const asked = allowHeaders === undefined ? headerValue(headers, "access-control-request-headers") : undefined;
    if (asked !== undefined && NAMES.test(asked)) all.push("Access-Control-Allow-Headers", asked);
    if (allowPrivateNetwork && headerValue(headers, "access-control-request-private-network") === "true") {
      all.push("Access-Control-Allow-Private-Network", "true");
    }
    return { headers: all, vary: varies.allowed };
  };
}

const ASKED_HEADERS = "Access-Control-Request-Headers";
const ASKED_NETWORK = "Access-Control-Request-Private-Network";
/** Field names with commas between them. */
const NAMES = /^[!#$%&'*+.^_`|~0-9A-Za-z, -]+$/;

function said(reply: Reply, words: Words): Reply {
  return reply.status === 101 ? reply : { ...reply, headers: saidOn(reply.headers, words) };
}

/** The headers with our words in the place of whatever they said of CORS. */
function saidOn(given: HeaderList, { headers, vary }: Words): HeaderList {
  const list: string[] = [];
  for (let i = 0; i < given.length; i += 2) {
    const name = given[i]!;
    if (!isCorsHeader(name)) list.push(name, given[i + 1]!);
  }
  list.push(...headers);
  const missing = vary === "" || headerValue(given, "vary") === undefined ? vary : missingIn(tokens(given, "vary"), vary);
  if (missing !== "") list.push("Vary", missing);
  return list;
}

/** The shortest is Access-Control-Max-Age. */
function isCorsHeader(name: string): boolean {
  return name.length >= 22 && name.charCodeAt(14) === 0x2d && name.slice(0, 15).toLowerCase() === "access-control-";
}

function missingIn(known: readonly string[], vary: string): string {
  if (known.includes("*")) return "";
  return vary.split(", ").filter((name) => !known.includes(name.toLowerCase())).join(", ");
}
