/**
 * The schema of `global.counters`: the Redis or Valkey server that keeps the counts of rate limits, and its URL.
 */
import { boundedInteger } from "./fields.ts";
import type { FeatureFields } from "./feature_fields.ts";
import { serverUrl, type ServerUrl } from "./server_url.ts";
import * as s from "./whole_schema.ts";
import { CLIENT_TLS } from "./tls_fields.ts";

/** The parts of `redis://user:password@host:6379/0`; without a user, AUTH is sent for the user "default". */
export interface RedisUrl extends ServerUrl {
  readonly database: number;
}

const DEFAULT_PORT = 6379;
const MAX_DATABASE = 999_999;

const REDIS_URL = serverUrl<RedisUrl>({
  schemes: ["redis", "rediss"],
  ports: [DEFAULT_PORT, DEFAULT_PORT],
  describe: "redis://user:password@host:port/database of the server; rediss:// for TLS.",
  passwordOnly: ", or redis://:password@host for the default user",
  complete(url, path) {
    const database = /^(?:\/(\d*))?$/.exec(path)?.[1];
    if (database === undefined && path !== "")
      return "has a path that is no database: write the database as a number, as in redis://localhost:6379/0";
    if (Number(database ?? 0) > MAX_DATABASE) return `has a database above ${MAX_DATABASE}`;
    return { ...url, database: Number(database ?? 0) };
  },
});

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
