/**
 * The schema of tests: what they become, and what is reported of wrong ones. `read_tests.spec.ts` is about all tests
 * together.
 */
import { describe, expect, expectTypeOf, it } from "vitest";
import { formatIssues } from "../../lib/config/load.ts";
import type { ConfigSource } from "../../lib/config/source.ts";
import type { Config, AnyConfigInput } from "../../lib/config/model.ts";
import { isMatches, type Matches } from "../../lib/config/expected.ts";
import { testsOf, type ConfigTest } from "../../lib/config/tests.ts";
import { configJsonSchema } from "../../lib/cli/schema.ts";
import { loadConfig } from "../support/schema.ts";

const SECRET = "hunter2-plain-key";
const readFile = (path: string) => (path === "/run/key" ? "from-file\n" : "");
const load = (source: ConfigSource) =>
  loadConfig(source, { kinds: [], environment: { KEY: "hush", URL: "no url", PATTERN: "(" }, readFile });

const services = [
  {
    name: "orders",
    base_path: "/orders",
    upstreams: [{ host: "h", port: 1 }],
    routes: [{ name: "one", path: "/{id}" }],
  },
] satisfies AnyConfigInput["services"];

/** The only test, which has to be valid. */
function valid(test: unknown): ConfigTest {
  const result = load({ value: { services, tests: [test] } });
  if (!result.ok) throw new Error(formatIssues(result.issues));
  return testsOf(result)[0]!;
}

/** The issues of the only test, without the path of the test itself. */
function issuesOf(test: unknown): string[] {
  const result = load({ value: { services, tests: [test] } });
  return result.ok
    ? []
    : formatIssues(result.issues)
        .split("\n")
        .map((line) =>
          line
            .replace(/^tests\[0\]\.?/, "")
            .replace(/ {2,}/, "  ")
            .trimStart(),
        );
}

const withRequest = (request: object, expected: object = { status: 200 }) => ({
  name: "a",
  request: { url: "/", ...request },
  expect: expected,
});
const withExpect = (expected: object) => withRequest({}, expected);

describe("a test", () => {
  it("needs a name, a URL and one expected member; everything else has a default", () => {
    expect(valid({ name: "a", request: { url: "/" }, expect: { status: 200 } })).toEqual({
      name: "a",
      request: {
        method: "GET",
        url: "/",
        headers: {},
        clientIp: "127.0.0.1",
        as: {},
        certificate: null,
        times: 1,
        everyMs: 0,
      },
      upstream: { status: 200, headers: {} },
      answers: [],
      expect: { status: 200 },
      expected: { status: 200 },
      at: ["tests", 0],
      position: null,
      file: undefined,
    });
  });

  it("gives the code every field in its own spelling, and the expectations also as they are written", () => {
    const written = {
      status: { matches: "^4" },
      code: "key_missing",
      service: "orders",
      route: null,
      upstream_path: "/7?x=1",
      upstream_headers: { apiKey: null, Via: ["a", "b"] },
      headers: { "WWW-Authenticate": { matches: "^Key" } },
      body: { items: [1, "x", null, true] },
      caller: { matches: "ada" },
    };
    const test = valid({
      name: "orders need a key",
      request: {
        method: "POST",
        url: "http://api.example.com/orders/7?x=1",
        headers: { "X-User": "ada", Cookie: ["a=1", "b=2"] },
        body: { deep: [{ er: null }] },
        client_ip: "2001:db8::9",
        as: { jwt: { sub: "ada", roles: ["a"], exp: 5 } },
        certificate: { subject: "CN=billing", san: ["DNS:billing.example.com", "URI:spiffe://a/b"] },
        times: 4,
        every_ms: 250,
      },
      upstream: { status: 503, headers: { "Retry-After": "1" }, body: "busy" },
      answers: [
        { url: "http://127.0.0.1:4000/check" },
        { url: "https://auth.example.com/check?a=1", status: 204, headers: { "X-A": ["1"] }, body: [] },
      ],
      expect: written,
    });
    expect(test.request).toEqual({
      method: "POST",
      url: "http://api.example.com/orders/7?x=1",
      headers: { "X-User": "ada", Cookie: ["a=1", "b=2"] },
      body: { deep: [{ er: null }] },
      clientIp: "2001:db8::9",
      as: { jwt: { sub: "ada", roles: ["a"], exp: 5 } },
      certificate: { subject: "CN=billing", san: ["DNS:billing.example.com", "URI:spiffe://a/b"] },
      times: 4,
      everyMs: 250,
    });
    expect(test.upstream).toEqual({ status: 503, headers: { "Retry-After": "1" }, body: "busy" });
    expect(test.answers).toEqual([
      { url: "http://127.0.0.1:4000/check", status: 200, headers: {} },
      { url: "https://auth.example.com/check?a=1", status: 204, headers: { "X-A": ["1"] }, body: [] },
    ]);
    const { upstream_path: upstreamPath, upstream_headers: upstreamHeaders, ...same } = written;
    expect(test.expect).toEqual({ ...same, upstreamPath, upstreamHeaders });
    expect(test.expected).toEqual(written);
  });

  it("gets references resolved in its texts, also within JSON, while the written expectations keep them", () => {
    const test = valid({
      name: "a",
      request: {
        url: "/?key=${env:KEY}",
        headers: { apiKey: "${env:KEY}" },
        body: { a: ["${file:/run/key}"] },
        as: { jwt: { sub: "${env:KEY}" } },
      },
      expect: { upstream_headers: { apiKey: "${env:KEY}" }, body: { matches: "${env:KEY}" } },
    });
    expect(test.request).toMatchObject({
      url: "/?key=hush",
      headers: { apiKey: "hush" },
      body: { a: ["from-file"] },
      as: { jwt: { sub: "hush" } },
    });
    expect(test.expect).toEqual({ upstreamHeaders: { apiKey: "hush" }, body: { matches: "hush" } });
    expect(test.expected).toEqual({ upstream_headers: { apiKey: "${env:KEY}" }, body: { matches: "${env:KEY}" } });
  });

  it("knows its line and column", () => {
    const result = load({
      text: '{"services": [],\n "tests": [\n  {"name": "a", "request": {"url": "/"}, "expect": {"service": null}}]}',
      file: "/etc/gw.json",
    });
    expect(result.ok && result.tests[0]).toMatchObject({ at: ["tests", 0], position: { line: 3, column: 3 } });
  });

  it.each<[string, unknown, boolean]>([
    ["a pattern", { matches: "^a" }, true],
    ["null", null, false],
    ["a text", "matches", false],
    ["a list", ["a"], false],
    ["JSON with a further member", { matches: "^a", b: 1 }, false],
    ["JSON whose member is not a text", { matches: 1 }, false],
  ])("takes a body for a pattern only if `matches` is its only member and a text: %s", (_what, body, pattern) => {
    expect(isMatches(valid(withExpect({ body })).expect.body)).toBe(pattern);
    expect(valid(withExpect({ body })).expect.body).toEqual(body);
  });

  it("tells apart an expected body that is empty, absent or not compared", () => {
    expect(valid(withExpect({ body: "" })).expect).toEqual({ body: "" });
    expect(valid(withExpect({ body: null })).expect).toEqual({ body: null });
    expect(valid(withExpect({ caller: null })).expect).toEqual({ caller: null });
  });

  it("has types for its values", () => {
    expectTypeOf<ConfigTest["request"]["headers"]>().toEqualTypeOf<
      Readonly<Record<string, string | readonly string[]>>
    >();
    expectTypeOf<ConfigTest["expect"]["status"]>().toEqualTypeOf<number | Matches | undefined>();
    expectTypeOf<ConfigTest["expect"]["caller"]>().toEqualTypeOf<string | Matches | null | undefined>();
    expectTypeOf<keyof Config>().toEqualTypeOf<"global" | "services" | "serial" | "expiresAt">();
    const input = {
      services,
      tests: [{ name: "a", request: { url: "/", certificate: { subject: "CN=a" } }, expect: { body: [1] } }],
      test_files: ["a.json"],
    } satisfies AnyConfigInput;
    expect(input.tests).toHaveLength(1);
  });
});

describe("a wrong test is reported with the field, what was found and what to do", () => {
  it.each<[string, unknown, string[]]>([
    ["not an object", SECRET, ["expected an object, found a string"]],
    [
      "empty",
      {},
      [
        "name  is required (a name of 1–200 characters without control characters)",
        "request  is required (The request.)",
        "expect  is required (What is expected; at least one member.)",
      ],
    ],
    [
      "an unknown field",
      { ...withExpect({ status: 200 }), exepct: {} },
      ['exepct  is not a known field; did you mean "expect"?'],
    ],
    [
      "an unknown field of the request",
      withRequest({ ulr: "/" }),
      ['request.ulr  is not a known field; did you mean "url"?'],
    ],
    [
      "an unknown field of expect",
      withExpect({ statsu: 200 }),
      ['expect.statsu  is not a known field; did you mean "status"?'],
    ],
    [
      "an unknown credential",
      withRequest({ as: { jtw: {} } }),
      ['request.as.jtw  is not a known field; did you mean "jwt"?'],
    ],
    [
      "an empty name",
      { ...withRequest({}), name: "" },
      ['name  expected a name of 1–200 characters without control characters, found ""'],
    ],
    [
      "a name with a line break",
      { ...withRequest({}), name: "a\nb" },
      ['name  expected a name of 1–200 characters without control characters, found "a\\nb"'],
    ],
    [
      "no URL",
      { name: "a", request: {}, expect: { status: 1 } },
      [
        "request.url  is required (Path with query, or an http(s) URL.)",
        "expect.status  expected an integer 100–599, found 1",
      ],
    ],
    ["nothing expected", withExpect({}), ['expect  needs at least one member, such as "status": 200']],
    [
      "a method in lower case",
      withRequest({ method: "get" }),
      ['request.method  expected an HTTP method in upper case, found "get": methods are case-sensitive, write "GET"'],
    ],
    [
      "CONNECT",
      withRequest({ method: "CONNECT" }),
      ['request.method  expected an HTTP method in upper case, found "CONNECT": CONNECT is not forwarded'],
    ],
    [
      "an address that is none",
      withRequest({ client_ip: "10.0.0.256" }),
      ['request.client_ip  expected an IP address, found "10.0.0.256"'],
    ],
    [
      "a range in the place of an address",
      withRequest({ client_ip: "10.0.0.0/8" }),
      ['request.client_ip  expected an IP address, found "10.0.0.0/8"'],
    ],
    [
      "an address with a zone",
      withRequest({ client_ip: "fe80::1%eth0" }),
      ['request.client_ip  expected an IP address, found "fe80::1%eth0": leave the zone out'],
    ],
    ["0 requests", withRequest({ times: 0 }), ["request.times  expected an integer 1–10000, found 0"]],
    ["too many requests", withRequest({ times: 10_001 }), ["request.times  expected an integer 1–10000, found 10001"]],
    [
      "a message of MCP and a body",
      withRequest({ mcp: { method: "tools/call" }, body: {} }),
      ['request.mcp  is a body of its own: leave "body" out'],
    ],
    [
      "half a millisecond",
      withRequest({ every_ms: 0.5 }),
      ["request.every_ms  expected an integer 0–86400000, found 0.5"],
    ],
    [
      "time that runs back",
      withRequest({ every_ms: -1 }),
      ["request.every_ms  expected an integer 0–86400000, found -1"],
    ],
    [
      "claims that are a token",
      withRequest({ as: { jwt: SECRET } }),
      ["request.as.jwt  expected an object, found a string"],
    ],
    [
      "a certificate without a subject",
      withRequest({ certificate: { san: [] } }),
      ['request.certificate.subject  is required (Subject in the form of RFC 4514, such as "CN=billing,O=Example".)'],
    ],
    [
      "a name of a certificate without its type",
      withRequest({ certificate: { subject: "CN=a", san: ["a.example"] } }),
      [
        "request.certificate.san[0]  expected a name with its type (DNS, URI, IP or email) " +
          'such as "DNS:billing.example.com", found "a.example"',
      ],
    ],
    [
      "a header with an empty list",
      withRequest({ headers: { A: [] } }),
      ["request.headers.A  expected at least 1 item, found none"],
    ],
    [
      "a header that is a number",
      withRequest({ headers: { A: 20_261_122 } }),
      ["request.headers.A  expected a text that a header can carry or an array, found a number"],
    ],
    [
      "a header with a line break",
      withRequest({ headers: { A: `${SECRET}\n` } }),
      ["request.headers.A  expected a text that a header can carry, found a string"],
    ],
    [
      "a header beyond Latin-1",
      withRequest({ headers: { A: ["ok", "€"] } }),
      ["request.headers.A[1]  expected a text that a header can carry, found a string"],
    ],
    [
      "a header twice",
      withRequest({ headers: { "X-A": "1", "x-a": "2" } }),
      ['request.headers["x-a"]  occurs twice, in different cases'],
    ],
    [
      "a whole header line as a name",
      withRequest({ headers: { [`A: ${SECRET}`]: "" } }),
      ['request.headers  has a key that is not the name of a header: write "Name": "value"'],
    ],
    [
      "headers that are a list",
      withRequest({ headers: ["A", "b"] }),
      ["request.headers  expected an object, found an array"],
    ],
    [
      "an absent header in a request",
      withRequest({ headers: { A: null } }),
      ["request.headers.A  expected a text that a header can carry or an array, found null"],
    ],
    [
      "the name of an expected header",
      withExpect({ headers: { "A B": "" } }),
      ['expect.headers  has a key that is not the name of a header: write "Name": "value"'],
    ],
    [
      "the name of a header for the upstream",
      withExpect({ upstream_headers: { "": "" } }),
      ['expect.upstream_headers  has a key that is not the name of a header: write "Name": "value"'],
    ],
    [
      "the name of a header of an answer",
      { ...withRequest({}), answers: [{ url: "http://a/", headers: { é: "" } }] },
      ['answers[0].headers  has a key that is not the name of a header: write "Name": "value"'],
    ],
    [
      "a status of an upstream that is not final",
      { ...withRequest({}), upstream: { status: 100 } },
      ["upstream.status  expected an integer 200–599, found 100"],
    ],
    [
      "a status that is a text",
      withExpect({ status: "200" }),
      ['expect.status  expected an integer 100–599 or {"matches": pattern}, found "200"'],
    ],
    [
      "no status at all",
      withExpect({ status: null }),
      ['expect.status  expected an integer 100–599 or {"matches": pattern}, found null'],
    ],
    [
      "a caller that is a number",
      withExpect({ caller: 20_261_122 }),
      ['expect.caller  expected a string or {"matches": pattern} or null, found a number'],
    ],
    [
      "a pattern that is none",
      withExpect({ status: { matches: "(" } }),
      [
        "expect.status.matches  expected a regular expression without lookaround and back references, " +
          'found "(": it is no regular expression: /(/u: Unterminated group',
      ],
    ],
    [
      "a pattern that looks around",
      withExpect({ body: { matches: "(?=a)" } }),
      [expect.stringMatching(/^expect\.body\.matches  expected a regular expression without lookaround .*: it /)],
    ],
    [
      "a pattern that refers back",
      withExpect({ headers: { A: { matches: "(a)\\1" } } }),
      [
        expect.stringMatching(
          /^expect\.headers\.A\.matches  expected a regular expression without lookaround and back references, .*: it /,
        ),
      ],
    ],
    [
      "a pattern that needs too many states",
      withExpect({ caller: { matches: "(a{1000}){1000}" } }),
      [expect.stringMatching(/^expect\.caller\.matches  .*: it /)],
    ],
    [
      "a pattern that a reference stands for",
      withExpect({ caller: { matches: "${env:PATTERN}" } }),
      [
        "expect.caller.matches  expected a regular expression without lookaround and back references, " +
          'found "${env:PATTERN}": the value of the reference does not fit',
      ],
    ],
    [
      "a pattern under another name",
      withExpect({ caller: { match: "a" } }),
      [
        'expect.caller.match  is not a known field; did you mean "matches"?',
        "expect.caller.matches  is required (A regular expression that has to match somewhere in the text.)",
      ],
    ],
    [
      "the same answer twice, spelt differently",
      { ...withRequest({}), answers: [{ url: "http://A.test" }, { url: "http://a.test:80/" }] },
      ["answers[1].url  is the same URL as that of answers[0]"],
    ],
    [
      "the same answer twice",
      { ...withRequest({}), answers: [{ url: `http://a/${SECRET}` }, { url: `http://a/${SECRET}` }] },
      ["answers[1].url  is the same URL as that of answers[0]"],
    ],
    [
      "a body that JSON cannot express",
      withRequest({ body: { a: [undefined] } }),
      ["request.body.a[0]  expected a JSON value, found undefined"],
    ],
    [
      "a reference that cannot be resolved",
      withRequest({ headers: { apiKey: "${env:NOPE}" } }),
      ["request.headers.apiKey  ${env:NOPE} cannot be resolved: the environment variable NOPE is not set"],
    ],
    [
      "a reference within JSON that cannot be resolved",
      withRequest({ body: [{ a: "${env:NOPE}" }] }),
      ["request.body[0].a  ${env:NOPE} cannot be resolved: the environment variable NOPE is not set"],
    ],
  ])("%s", (_what, test, issues) => {
    expect(issuesOf(test).sort()).toEqual([...issues].sort());
    expect(issuesOf(test).join("\n")).not.toMatch(/hunter2|20261122/);
  });

  const URL_WANTED =
    'a path such as "/items?x=1", or an http:// or https:// URL, in printable ASCII, ' +
    'without "#", user name and password';

  it.each([
    "",
    "orders",
    "ftp://a/",
    "http://",
    "http:/a",
    "http:///a",
    "/a b",
    "/é",
    "/a#b",
    "http://a/#b",
    `http://ada:${SECRET}@a/`,
    "//\n",
    "http://a b/",
    "http://[::1/",
    "${env:URL}",
  ])("refuses %j as the URL of a request, and does not repeat it", (url) =>
    expect(issuesOf(withRequest({ url }))).toEqual([
      url.startsWith("$")
        ? `request.url  expected ${URL_WANTED}, found a string: the value of the reference does not fit`
        : `request.url  expected ${URL_WANTED}, found a string`,
    ]),
  );

  it.each([
    "/",
    "//",
    "/a%2Fb/../c;d?e=$x&f",
    "/a|b\\c",
    "http://api.example.com",
    "HTTPS://[::1]:8443/a?b",
    '/?a="b"',
  ])("takes %j as the URL of a request", (url) => {
    expect(valid(withRequest({ url })).request.url).toBe(url);
  });

  it.each(["/check", "ftp://a/", "http:///a", "http://a/ b", `http://ada:${SECRET}@a/`])(
    "refuses %j as the URL of an answer, and does not repeat it",
    (url) => {
      const wanted = 'an http:// or https:// URL, in printable ASCII, without "#", user name and password';
      expect(issuesOf({ ...withRequest({}), answers: [{ url }] })).toEqual([
        `answers[0].url  expected ${wanted}, found a string`,
      ]);
    },
  );

  const BROKEN =
    "request.body  is a text that is not JSON, although Content-Type says so: write JSON here, " +
    "or expect a refusal (code, or a status 400–499)";

  it.each<[string, object, object, boolean]>([
    ["a text that is not JSON", { "Content-Type": "application/json" }, { status: 200 }, false],
    [
      "in another case, with a parameter",
      { "content-TYPE": "Application/JSON; charset=utf-8" },
      { status: 200 },
      false,
    ],
    ["a type that ends in +json", { "Content-Type": ["application/merge-patch+json"] }, { code: null }, false],
    ["where a failure of the upstream is expected", { "Content-Type": "application/json" }, { status: 502 }, false],
    ["where a code is expected", { "Content-Type": "application/json" }, { code: "request_invalid" }, true],
    ["where a status of 400–499 is expected", { "Content-Type": "application/json" }, { status: 422 }, true],
    [
      "where a pattern leaves the status open",
      { "Content-Type": "application/json" },
      { status: { matches: "^4" } },
      true,
    ],
    ["where the type is another one", { "Content-Type": "text/plain" }, { status: 200 }, true],
    ["where there is no type", {}, { status: 200 }, true],
  ])(
    "a body that lies about its type is accepted only where a refusal is expected: %s",
    (_what, headers, expected, isValid) => {
      expect(issuesOf(withRequest({ headers, body: `{"a": ${SECRET}}` }, expected))).toEqual(isValid ? [] : [BROKEN]);
    },
  );

  it("accepts a text that is JSON, and JSON itself", () => {
    for (const body of ['{"a": 1}', { a: 1 }, null, 5])
      expect(issuesOf(withRequest({ headers: { "Content-Type": "application/json" }, body }))).toEqual([]);
  });

  it("at its line and column, together with all other errors of the configuration, in the order of the text", () => {
    const text = `{
  "tests": [
    { "name": "a", "request": { "url": "orders" }, "expect": {} }
  ],
  "services": [{ "name": "s", "base_path": "orders", "upstreams": [{ "host": "h", "port": 1 }], "routes": [] }],
  "test_file": []
}`;
    const result = load({ text, file: "/etc/gw.json" });
    expect(!result.ok && formatIssues(result.issues, "gw.json").split("\n")).toEqual([
      `gw.json:3:40  tests[0].request.url   expected ${URL_WANTED}, found a string`,
      'gw.json:3:62  tests[0].expect        needs at least one member, such as "status": 200',
      'gw.json:5:44  services[0].base_path  expected a path that starts with "/", found "orders": write "/orders"',
      'gw.json:6:3   test_file              is not a known field; did you mean "test_files"?',
    ]);
  });
});

describe("the JSON Schema of the configuration", () => {
  const document = JSON.parse(JSON.stringify(configJsonSchema([])));

  it("has the tests and their files, which may be left out", () => {
    expect(document.properties.tests).toMatchObject({
      type: "array",
      items: { $ref: "#/$defs/Test" },
      maxItems: 10_000,
    });
    const pinned = { type: "object", required: ["path", "sha256"] };
    const items = { anyOf: [{ anyOf: [{ minLength: 1 }, expect.anything()] }, pinned] };
    expect(document.properties.test_files).toMatchObject({ type: "array", items });
    expect(document.required).toEqual(["services"]);
  });

  it("requires of a test what loading requires, and allows null and patterns where they may stand", () => {
    const { Test } = document.$defs;
    expect(Test.required).toEqual(["name", "request", "expect"]);
    expect(Test.properties.request.required).toEqual(["url"]);
    const { status, caller, body } = Test.properties.expect.properties;
    const pattern = expect.objectContaining({ type: "object", required: ["matches"] });
    expect(status.anyOf).toEqual([{ type: "integer", minimum: 100, maximum: 599 }, pattern]);
    expect(caller.anyOf).toEqual([{ type: "string" }, pattern, { type: "null" }]);
    expect(body).toEqual({ description: "Body of the reply." });
  });
});
