/**
 * The schema of `global.counters`: the Redis or Valkey server that keeps the counts of rate limits, and its URL.
 */
import { hostProblem, boundedInteger } from "./fields.ts";
import type { FeatureFields } from "./feature_fields.ts";
import { maskLiterals } from "./references.ts";
import * as s from "./whole_schema.ts";
import { CLIENT_TLS } from "./tls_fields.ts";

/** The parts of `redis://user:password@host:6379/0`. */
export interface RedisUrl {
  /** Whether it is a rediss:// URL. */
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
  /** Null: AUTH is sent with the password alone, for the user "default". */
  readonly user: string | null;
  /** Null: no AUTH. */
  readonly password: string | null;
  readonly database: number;
}

const DEFAULT_PORT = 6379;
const MAX_DATABASE = 999_999;

const URL_TEXT = s.string({
  hint: "a redis:// or rediss:// URL",
  describe: "redis://user:password@host:port/database of the server; rediss:// for TLS.",
  secret: maskUrl,
  references: "address",
});

/** No message repeats the text, which may contain a password. */
const REDIS_URL: s.Schema<RedisUrl, string> = {
  ...URL_TEXT,
  check(node, at, context) {
    const text = URL_TEXT.check(node, at, context);
    const url = text === s.INVALID ? s.INVALID : parseUrl(text);
    // A random text in place of a value, see `Placeholders`.
    if (typeof url === "string" && context.sources.placeholders?.isAt(at)) return s.INVALID;
    return typeof url === "string" ? s.report(context, at, node, url) : url;
  },
};

/** The parts of a URL, or why it is refused. */
function parseUrl(text: string): RedisUrl | string {
  if (!/^rediss?:\/\//i.test(text)) return "expected a URL that starts with redis:// or rediss://";
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null)
    return (
      "is not a URL: write special characters of the password percent-encoded (%40 for @, " +
      "%2F for /), and a port 1–65535"
    );
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  if (host === "" || hostProblem(host) !== undefined)
    return "has no valid host: write a host name or an IP address behind ://";
  if (url.search !== "" || url.hash !== "")
    return "has a query or a fragment: write special characters of the password percent-encoded (%3F for ?, %23 for #)";
  const database = /^(?:\/(\d*))?$/.exec(url.pathname)?.[1];
  if (database === undefined && url.pathname !== "")
    return "has a path that is no database: write the database as a number, as in redis://localhost:6379/0";
  if (Number(database ?? 0) > MAX_DATABASE) return `has a database above ${MAX_DATABASE}`;
  if (url.port === "0") return "has port 0: write a port 1–65535";
  const [user, password] = [decoded(url.username), decoded(url.password)];
  if (user === undefined || password === undefined)
    return "has a % that starts no percent-encoded character: write %25 for %";
  if (user !== "" && password === "")
    return (
      "has a user and no password: write redis://user:password@host, " +
      "or redis://:password@host for the default user"
    );
  return {
    secure: url.protocol === "rediss:",
    host: host.toLowerCase(),
    port: url.port === "" ? DEFAULT_PORT : Number(url.port),
    user: user === "" ? null : user,
    password: password === "" ? null : password,
    database: Number(database ?? 0),
  };
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** The URL as written, references included, with user and password masked: `redis://********@host:6379/0`. */
function maskUrl(written: string): string {
  const scheme = /^rediss?:\/\//i.exec(written)?.[0] ?? "";
  const rest = written.slice(scheme.length);
  const end = rest.lastIndexOf("@");
  if (end === -1) return scheme === "" ? maskLiterals(rest) : written;
  return scheme + maskLiterals(rest.slice(0, end)) + rest.slice(end);
}

export const COUNTERS = s.object(
  {
    store: s.oneOf(["redis"], { describe: "Redis 6 or later, or Valkey." }),
    url: s.anyOf([REDIS_URL, s.array(REDIS_URL, { min: 1 })], {
      describe: "The server; for a Cluster an array of some of its servers.",
    }),
    tls: s.optional(CLIENT_TLS),
    timeout_ms: boundedInteger(1, 60_000, 50, "Longest wait for a decision, in milliseconds."),
    on_error: s.withDefault(
      s.oneOf(["local", "allow", "deny"], {
        describe: "Without an answer: count in memory, admit, or refuse with 503.",
      }),
      "local",
    ),
    prefix: s.withDefault(
      s.string({
        references: "none",
        max: 100,
        pattern: /^[!-z|~]*$/,
        hint: "at most 100 printable ASCII characters without spaces and braces",
        describe: "Start of all keys.",
      }),
      "edge-gateway:",
    ),
  },
  {
    describe: "Keeps the counts of rate limits in Redis or Valkey, so that several gateways share them.",
    refine({ url, tls: settings }, report) {
      const urls: readonly RedisUrl[] = [url].flat();
      const [first] = urls;
      if (settings !== undefined && !first!.secure)
        report("applies to rediss:// URLs; this one starts with redis://", "tls");
      if (!Array.isArray(url)) return;
      urls.forEach((each, i) => {
        if (each.database !== 0) report("names a database: a Cluster has database 0 only", "url", i);
        if (each.secure !== first!.secure)
          report("differs from the first URL in its scheme: all servers of a Cluster use TLS, or none", "url", i);
        if (each.user !== first!.user || each.password !== first!.password)
          report("differs from the first URL in user or password, which all servers of a Cluster share", "url", i);
        const same = urls.findIndex(({ host, port }) => host === each.host && port === each.port);
        if (same < i) report(`is the same server as url[${same}]`, "url", i);
      });
    },
  },
);

export const fields: FeatureFields = { schemas: { counters: COUNTERS } };
