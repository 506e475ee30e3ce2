import { describe, expect, it } from "vitest";
import * as references from "../../lib/config/references.ts";
import { CONDITIONS } from "../../lib/config/conditions.ts";
import { nodeFrom } from "../../lib/config/json.ts";
import { INVALID, type CheckContext } from "../../lib/config/schema.ts";
import { isDropped } from "../../lib/server/request_head.ts";
import { checked } from "../support/exercise.ts";

const issues = (input: unknown) => checked(CONDITIONS, input).issues;

it(
  "conditions are exact values, patterns, null and true, by headers, query and cookies, " +
    "and each of the three is a record",
  () => {
    expect(checked(CONDITIONS, { headers: { "X-Version": "2", B: null } }).value).toEqual({
      headers: { "X-Version": "2", B: null },
      query: {},
      cookies: {},
    });
    expect(checked(CONDITIONS, { query: { "naïve name": true, b: "" }, cookies: { c: { matches: "^a" } } })).toEqual({
      value: { headers: {}, query: { "naïve name": true, b: "" }, cookies: { c: { matches: "^a" } } },
      issues: [],
    });
  },
);

it(
  "a long pattern of characters that no header can have is an error, " +
    "and found to be one within the time of a spec",
  () => {
    const pattern = Array.from({ length: 100 }, (_, i) => `\\u{1f6${String(i).padStart(2, "0")}}`).join("|");
    expect(issues({ headers: { A: { matches: pattern } } })).toEqual([
      expect.stringContaining("it matches no text that can stand here"),
    ]);
    expect(issues({ query: { a: { matches: pattern } } })).toEqual([]);
  },
);

const TEXT = "expected a text that a header can carry, without spaces at its ends, found a string";
const UNTRUSTED =
  'cannot be a condition: it counts only from proxies that "trusted_proxies" of "global" names, and there are none';
const PATTERN = "expected a regular expression without lookaround and back references";
const PLAIN =
  'expected a text that a header can carry, without spaces at its ends or {"matches": pattern} or null or true';
const REQUIRED = "is required (A regular expression that has to match somewhere in the text.)";
const NOTHING = "it matches no text that can stand here";
const REMOVED = "cannot be a condition: the gateway removes this header from every request";

it.each([
  [{}, ': needs at least one condition, such as "headers": { "X-Version": "2" }'],
  [{ headers: {}, cookies: {} }, ': needs at least one condition, such as "headers": { "X-Version": "2" }'],
  [{ header: { a: "1" } }, 'header: is not a known field; did you mean "headers"?'],
  [[], ": expected an object, found an array"],
  [{ scheme: "wss" }, 'scheme: expected "http" or "https", found "wss"'],
  [{ headers: { "A: b": "1" } }, 'headers: has a key that is not the name of a header: write "Name": "value"'],
  [{ headers: { "": "1" } }, 'headers: has a key that is not the name of a header: write "Name": "value"'],
  [{ headers: { A: "1", a: "2" } }, "headers.a: occurs twice, in different cases"],
  [{ headers: { A: "1\r\nB: 2" } }, `headers.A: ${TEXT}`],
  [{ headers: { A: " 1" } }, `headers.A: ${TEXT}`],
  [{ headers: { A: "日" } }, `headers.A: ${TEXT}`],
  [{ headers: { A: false } }, "headers.A: expected true, found false: write null if it must be absent"],
  [
    { headers: { A: 1 } },
    `headers.A: expected a text that a header can carry, without spaces at its ends or {"matches": ` +
      `pattern} or null or true or {"not": condition}, found a number`,
  ],
  [
    { headers: { A: { matches: "(" } } },
    'headers.A.matches: expected a regular expression without lookaround and back references, found "(": ' +
      "it is no regular expression: /(/u: Unterminated group",
  ],
  [
    { headers: { A: { matches: "a^b" } } },
    `headers.A.matches: ${PATTERN}, found "a^b": it matches no text that can stand here`,
  ],
  [
    { headers: { A: { matches: "^日$" } } },
    `headers.A.matches: ${PATTERN}, found "^日$": it matches no text that can stand here`,
  ],
  [
    { query: { a: { matches: "[^\\s\\S]" } } },
    `query.a.matches: ${PATTERN}, found "[^\\\\s\\\\S]": it matches no text that can stand here`,
  ],
  [
    { cookies: { a: { matches: "^a;b$" } } },
    `cookies.a.matches: ${PATTERN}, found "^a;b$": it matches no text that can stand here`,
  ],
  [{ headers: { A: { matches: "a", flags: "i" } } }, "headers.A.flags: is not a known field (known here: matches)"],
  [{ headers: { A: {} } }, `headers.A.matches: ${REQUIRED}`],
  [
    { headers: { A: { not: { not: "1" } } } },
    "headers.A.not.not: is not a known field (known here: matches)",
    `headers.A.not.matches: ${REQUIRED}`,
  ],
  [{ headers: { A: { not: "1", matches: "a" } } }, "headers.A.matches: is not a known field (known here: not)"],
  [{ headers: { A: { not: ["1"] } } }, `headers.A.not: ${PLAIN}, found an array`],
  [{ headers: { A: { not: false } } }, "headers.A.not: expected true, found false: write null if it must be absent"],
  [{ headers: { A: { not: " 1" } } }, `headers.A.not: ${TEXT}`],
  [{ headers: { A: { not: { matches: "a^b" } } } }, `headers.A.not.matches: ${PATTERN}, found "a^b": ${NOTHING}`],
  [{ cookies: { a: { not: { matches: "^a;b$" } } } }, `cookies.a.not.matches: ${PATTERN}, found "^a;b$": ${NOTHING}`],
  [
    { headers: { Host: { not: "a" } } },
    'headers.Host: cannot be a condition: write the host into the "hosts" of the service',
  ],
  [{ scheme: { not: "wss" } }, 'scheme.not: expected "http" or "https", found "wss"'],
  [{ scheme: { not: null } }, 'scheme.not: expected "http" or "https", found null'],
  [{ scheme: {} }, "scheme.not: is required (The scheme by which the client has asked.)"],
  [{ scheme: true }, 'scheme: expected "http" or "https" or {"not": condition}, found true'],
  [{ headers: { Host: "a" } }, 'headers.Host: cannot be a condition: write the host into the "hosts" of the service'],
  [
    { headers: { cookie: "a=1" } },
    'headers.cookie: contains all cookies in one line: write each of them under "cookies"',
  ],
  [
    { headers: { Connection: "close" } },
    "headers.Connection: cannot be a condition: it concerns one connection only, not the request",
  ],
  [{ headers: { TE: null } }, "headers.TE: cannot be a condition: it concerns one connection only, not the request"],
  [{ headers: { Proxy: true } }, `headers.Proxy: ${REMOVED}`],
  [{ headers: { "X-Client-Cert-Subject": "CN=a" } }, `headers["X-Client-Cert-Subject"]: ${REMOVED}`],
  [{ headers: { X_Forwarded_For: "a" } }, `headers.X_Forwarded_For: ${REMOVED}; the one with "-" can be one`],
  [{ headers: { "X-Forwarded-Proto": "https" } }, `headers["X-Forwarded-Proto"]: ${UNTRUSTED}`],
  [{ headers: { Forwarded: null } }, `headers.Forwarded: ${UNTRUSTED}`],
  [{ query: { "": "1" } }, 'query: has an empty key: write "name": "value"'],
  [
    { query: { a: "\udc00" } },
    'query.a: expected a text or {"matches": pattern} or null or true or {"not": condition}, ' +
      "found a string with half a surrogate pair",
  ],
  [{ cookies: { "a b": "1" } }, 'cookies: has a key that is not the name of a cookie: write "name": "value"'],
  [
    { cookies: { a: "1;2" } },
    'cookies.a: expected a text that a cookie can carry, without ";" and without spaces at its ends, found a string',
  ],
])("conditions %j are refused: %s", (input, ...expected) => {
  expect(issues(input)).toEqual(expected);
});

it("a condition may be what does not hold, and of a secret name its text is masked where it is displayed", () => {
  const input = {
    headers: { A: { not: "1" }, "X-Api-Key": { not: "s3cret" }, not: { not: "1" } },
    query: { b: { not: null }, not: "1" },
    cookies: { c: { not: { matches: "^a" } } },
    scheme: { not: "https" },
  };
  expect(checked(CONDITIONS, input)).toEqual({ value: input, issues: [] });
  const context: CheckContext = {
    issues: [],
    sources: { references, environment: {}, readFile: () => "", folder: "" },
    secrets: [],
  };
  CONDITIONS.check(nodeFrom(input), [], context);
  expect(context.secrets).toEqual([{ at: ["headers", "X-Api-Key", "not"], text: "s3cret", masked: "********" }]);
});

it("a condition is a pattern of any text that can stand in its place", () => {
  const patterns = ["", "^a b$", "^\t?[^\\x20-\\x7e]$", "^a, b$"].map((source) => ({ matches: source }));
  for (const pattern of [...patterns, { matches: "^a;b$" }])
    expect(issues({ headers: { A: pattern }, query: { a: pattern } })).toEqual([]);
  for (const pattern of patterns) expect(issues({ cookies: { a: pattern } })).toEqual([]);
  for (const source of ["^日$", "^\\u{1f600}$", "\n"])
    expect(issues({ query: { a: { matches: source } } })).toEqual([]);
});

it("query parameters and cookies are compared with case: two names that differ in case are two names", () => {
  expect(issues({ query: { a: "1", A: "2" }, cookies: { a: "1", A: "2" } })).toEqual([]);
});

describe("headers with an underscore", () => {
  function under(underscore_headers: string, name: string) {
    const input = { headers: { [name]: "1" } };
    const root = nodeFrom({ global: { underscore_headers, trusted_proxies: ["10.0.0.1"] } });
    const context: CheckContext = {
      issues: [],
      sources: { references, environment: {}, readFile: () => "", folder: "" },
      root,
    };
    return CONDITIONS.check(nodeFrom(input), [], context) === INVALID ? "refused" : "valid";
  }

  it.each([
    ...[
      "X-Version",
      "x_version",
      "Proxy",
      "proxy",
      "X-Client-Cert-Serial",
      "X_Client-Cert-Serial",
      "X_Forwarded-Proto",
      "x_real_ip",
    ],
    ...[
      "X-Request-Id",
      "X-Forwarded-For",
      "Content_Length",
      "Content-Length",
      "Transfer_Encoding",
      "_",
      "Authorization",
    ],
  ])("the header %s can be a condition exactly if requests keep it on arrival", (name) => {
    for (const underscores of ["drop", "allow"] as const) {
      expect(under(underscores, name)).toBe(isDropped(name, underscores) ? "refused" : "valid");
    }
  });
});
