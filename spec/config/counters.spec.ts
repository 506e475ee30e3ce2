import { describe, expect, it } from "vitest";
import { COUNTERS } from "../../lib/config/counters.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { maskedConfig } from "../../lib/config/masked.ts";
import { checked } from "../support/exercise.ts";
import { loadConfig } from "../support/schema.ts";

const SCHEMA = COUNTERS;
const SECRET = "hunter2";

const url = (text: unknown) => checked(SCHEMA, { store: "redis", url: text });
const load = (counters: unknown, environment: Record<string, string> = {}) =>
  loadConfig({ value: { services: [], global: { counters } } as never }, { kinds: builtinPlugins, environment });

describe("global.counters.url", () => {
  const none = { user: null, password: null, database: 0 };

  it.each([
    ["redis://localhost", { secure: false, host: "localhost", port: 6379, ...none }],
    ["redis://localhost/", { secure: false, host: "localhost", port: 6379, ...none }],
    ["redis://10.0.0.7:6380/15", { secure: false, host: "10.0.0.7", port: 6380, ...none, database: 15 }],
    ["rediss://Cache.example:6380", { secure: true, host: "cache.example", port: 6380, ...none }],
    ["REDISS://cache.example", { secure: true, host: "cache.example", port: 6379, ...none }],
    ["redis://[fd00::7]:7000", { secure: false, host: "fd00::7", port: 7000, ...none }],
    [
      "redis://:secret@localhost",
      { secure: false, host: "localhost", port: 6379, user: null, password: "secret", database: 0 },
    ],
    [
      "redis://gateway:p%40ss%2Fw%3A%20%C3%A4@localhost/1",
      { secure: false, host: "localhost", port: 6379, user: "gateway", password: "p@ss/w: ä", database: 1 },
    ],
    [
      "redis://gateway:a:b@localhost",
      { secure: false, host: "localhost", port: 6379, user: "gateway", password: "a:b", database: 0 },
    ],
  ])("%s is read", (text, parts) => {
    const { value, issues } = url(text);
    expect(issues).toEqual([]);
    expect(value!.url).toEqual(parts);
  });

  it.each([
    ["a number", 6379, "url: expected a redis:// or rediss:// URL or an array, found a number"],
    ["no URL", `localhost:6379?${SECRET}`, "url: expected a URL that starts with redis:// or rediss://"],
    ["another scheme", `http://a:${SECRET}@localhost`, "url: expected a URL that starts with redis:// or rediss://"],
    ["one slash", `redis:/${SECRET}@localhost`, "url: expected a URL that starts with redis:// or rediss://"],
    ["nothing behind the scheme", "redis://", "url: has no valid host: write a host name or an IP address behind ://"],
    ["no host", `redis://:${SECRET}@:6379`, /^url: (is not a URL|has no valid host)/],
    [
      "a host that is none",
      `redis://:${SECRET}@ho_st!`,
      "url: has no valid host: write a host name or an IP address behind ://",
    ],
    [
      "a port that is none",
      `redis://:${SECRET}@localhost:80a`,
      "url: is not a URL: write special characters of the password percent-encoded (%40 for @, " +
        "%2F for /), and a port 1–65535",
    ],
    ["port 0", `redis://:${SECRET}@localhost:0`, "url: has port 0: write a port 1–65535"],
    ["port 65536", `redis://:${SECRET}@localhost:65536`, /^url: is not a URL/],
    [
      "a password with a slash",
      `redis://:${SECRET}/x@localhost`,
      /^url: is not a URL: write special characters of the password percent-encoded/,
    ],
    ["a password with a #", `redis://:${SECRET}#x@localhost`, /^url: (is not a URL|has a query|has no valid host)/],
    [
      "a password with a single %",
      `redis://:${SECRET}%zz@localhost`,
      "url: has a % that starts no percent-encoded character: write %25 for %",
    ],
    [
      "a user without a password",
      `redis://${SECRET}@localhost`,
      "url: has a user and no password: write redis://user:password@host, " +
        "or redis://:password@host for the default user",
    ],
    ["a query", `redis://localhost?password=${SECRET}`, /^url: has a query or a fragment/],
    ["a path that is no number", `redis://:${SECRET}@localhost/zero`, /^url: has a path that is no database/],
    ["a negative database", "redis://localhost/-1", /^url: has a path that is no database/],
    ["two path segments", "redis://localhost/0/1", /^url: has a path that is no database/],
    ["a database that is too large", "redis://localhost/1000000", "url: has a database above 999999"],
    ["an empty list", [], "url: expected at least 1 item, found none"],
    ["a list of objects", [{ host: "localhost" }], "url[0]: expected a redis:// or rediss:// URL, found an object"],
    ["a Cluster with a database", ["redis://a/1"], "url[0]: names a database: a Cluster has database 0 only"],
    [
      "a Cluster with and without TLS",
      ["redis://a", "rediss://b"],
      "url[1]: differs from the first URL in its scheme: all servers of a Cluster use TLS, or none",
    ],
    [
      "a Cluster with two passwords",
      [`redis://:${SECRET}@a`, "redis://:other@b"],
      "url[1]: differs from the first URL in user or password, which all servers of a Cluster share",
    ],
    [
      "a Cluster that lists a server twice",
      ["redis://a", "redis://b", "redis://A:6379/"],
      "url[2]: is the same server as url[0]",
    ],
  ])("is refused, without its password in the message: %s", (_what, text, issue) => {
    const { issues } = url(text);
    expect(issues).toHaveLength(1);
    expect(issues[0]).toMatch(
      typeof issue === "string" ? new RegExp(`^${issue.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`) : issue,
    );
    expect(issues[0]).not.toContain(SECRET);
  });

  it("takes its password, or all of it, from references, whose values no message repeats", () => {
    const good = load({ store: "redis", url: "redis://gateway:${env:PASSWORD}@localhost" }, { PASSWORD: SECRET });
    expect(good.ok && good.config.global.counters!.url).toMatchObject({ user: "gateway", password: SECRET });
    const bad = load({ store: "redis", url: "${env:URL}" }, { URL: `http://a:${SECRET}@localhost` });
    expect(!bad.ok && bad.issues.map(({ message }) => message)).toEqual([
      "expected a URL that starts with redis:// or rediss://",
    ]);
    const missing = load({ store: "redis", url: "redis://:${env:PASSWORD}@localhost" });
    expect(!missing.ok && missing.issues.map(({ message }) => message)).toEqual([
      "${env:PASSWORD} cannot be resolved: the environment variable PASSWORD is not set",
    ]);
  });

  it.each([
    [`redis://gateway:${SECRET}@host:6379/0`, "redis://********@host:6379/0"],
    [`redis://:${SECRET}@host`, "redis://********@host"],
    [`rediss://:${SECRET}%40${SECRET}@host`, "rediss://********@host"],
    ["redis://gateway:${env:PASSWORD}@host", "redis://********${env:PASSWORD}@host"],
    ["redis://host:6379/3", "redis://host:6379/3"],
    ["${env:URL}", "${env:URL}"],
  ])("%s is shown as %s to users who may not see secrets", (written, shown) => {
    const result = load({ store: "redis", url: written }, { PASSWORD: SECRET, URL: `redis://:${SECRET}@host` });
    expect(result.ok && JSON.stringify(maskedConfig(result))).toContain(JSON.stringify(shown));
    expect(result.ok && JSON.stringify(maskedConfig(result))).not.toContain(SECRET);
    const list = load({ store: "redis", url: [written] }, { PASSWORD: SECRET, URL: `redis://:${SECRET}@host` });
    if (!/\/[03]$/.test(written))
      expect(list.ok && JSON.stringify(maskedConfig(list))).toContain(JSON.stringify([shown]));
  });
});

describe("global.counters", () => {
  it("has defaults for everything but store and url", () => {
    const { value } = url("redis://localhost");
    expect(value).toMatchObject({ store: "redis", timeoutMs: 50, onError: "local", prefix: "edge-gateway:" });
    expect(value!.tls).toBeUndefined();
  });

  it.each([
    [{}, [expect.stringMatching(/^store: is required/), expect.stringMatching(/^url: is required/)]],
    [{ store: "memory", url: "redis://a" }, ['store: expected "redis", found "memory"']],
    [{ store: "redis", url: "redis://a", timeout_ms: 0 }, ["timeout_ms: expected an integer 1–60000, found 0"]],
    [{ store: "redis", url: "redis://a", timeout_ms: "50" }, ['timeout_ms: expected an integer 1–60000, found "50"']],
    [
      { store: "redis", url: "redis://a", on_error: "lokal" },
      ['on_error: expected "local", "allow" or "deny", found "lokal": did you mean "local"?'],
    ],
    [
      { store: "redis", url: "redis://a", prefix: "a b" },
      ['prefix: expected at most 100 printable ASCII characters without spaces and braces, found "a b"'],
    ],
    [
      { store: "redis", url: "redis://a", prefix: "{a}" },
      ['prefix: expected at most 100 printable ASCII characters without spaces and braces, found "{a}"'],
    ],
    [
      { store: "redis", url: "redis://a", prefix: "a".repeat(101) },
      [expect.stringMatching(/^prefix: expected at most 100 printable/)],
    ],
    [{ store: "redis", url: "redis://a", tls: {} }, ["tls: applies to rediss:// URLs; this one starts with redis://"]],
    [
      { store: "redis", url: ["redis://a"], tls: {} },
      ["tls: applies to rediss:// URLs; this one starts with redis://"],
    ],
    [
      { store: "redis", url: "rediss://a", tls: { ca: "none.pem" } },
      [expect.stringMatching(/^tls\.ca: .*none\.pem: is not a certificate in PEM form/)],
    ],
    [
      { store: "redis", url: "rediss://a", tls: { verify: false } },
      [expect.stringMatching(/^tls\.verify: is not a known field/)],
    ],
    [
      { store: "redis", url: "redis://a", timeout: 50 },
      [expect.stringMatching(/^timeout: is not a known field; did you mean "timeout_ms"\?/)],
    ],
  ])("%j is refused with its places and remedies", (input, issues) => {
    expect(checked(SCHEMA, input).issues).toEqual(issues);
  });

  it("an empty prefix is allowed", () => {
    expect(checked(SCHEMA, { store: "redis", url: "redis://a", prefix: "" }).issues).toEqual([]);
  });
});

describe("counters of rate_limit", () => {
  const issues = (counters: unknown) => {
    const result = loadConfig(
      {
        value: {
          services: [],
          global: { plugins: [{ name: "rate_limit", config: { limit_min: 1, counters } }] },
        } as never,
      },
      { kinds: builtinPlugins, environment: {} },
    );
    return result.ok ? [] : result.issues.map(({ message }) => message);
  };

  it('may be "memory" and nothing else', () => {
    expect(issues("memory")).toEqual([]);
    expect(issues("redis")).toEqual(['expected "memory", found "redis"']);
    expect(issues(null)).toEqual([expect.stringMatching(/^expected "memory", found null/)]);
  });
});
