import { generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import { hashPassword } from "../../lib/base/password.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { failuresOf, runTests, type RunOptions } from "../../lib/proof/run_tests.ts";
import { createGateway, definePlugin, schema, type AnyPlugin } from "../../lib/index.ts";
import { hosted, oneService, running } from "../support/gateway.ts";
import { validFrom } from "../support/valid_config.ts";
import { turnsDuring } from "../support/turns.ts";

type TestInput = NonNullable<AnyConfigInput["tests"]>[number];
type Answers = NonNullable<TestInput["answers"]>;

const KEY = { name: "key_auth", config: { keys: [{ id: "web", key: "a-key-of-the-web" }] } };
const SECRET = "a-secret-of-32-bytes-for-the-spec";

const ISSUER = generateKeyPairSync("ec", { namedCurve: "P-256" });

/** A token of the issuer with these claims. */
function tokenWith(claims: object): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${part({ alg: "ES256", kid: "1" })}.${part({ exp: 4_000_000_000, ...claims })}`;
  const signature = sign("sha256", Buffer.from(signed), { key: ISSUER.privateKey, dsaEncoding: "ieee-p1363" });
  return `${signed}.${signature.toString("base64url")}`;
}

const bearer = { Authorization: `Bearer ${tokenWith({ sub: "ada" })}` };

/** A test of GET /a/x with these members, "t" by name. */
function test({
  request,
  ...members
}: Omit<Partial<TestInput>, "request"> & { readonly request?: Partial<TestInput["request"]> }): TestInput {
  return { name: "t", request: { url: "/a/x", ...request }, expect: { status: 200 }, ...members };
}

/** One service under /a with these plugins. */
function guardedBy(...plugins: readonly object[]): AnyConfigInput {
  return oneService(9, { plugins: plugins as never });
}

/** The results of one test: whether it has passed, and otherwise its differences. */
async function verdict(
  config: AnyConfigInput,
  tried: TestInput,
  own: readonly AnyPlugin[] = [],
  options: RunOptions = {},
): Promise<true | readonly string[]> {
  const { tests } = await runTests(validFrom({ ...config, tests: [tried] }, own), options);
  return tests[0]!.passed ? true : tests[0]!.differences;
}

describe("a test of a configuration", () => {
  const config = guardedBy(KEY);

  it("passes if all that it expects was found, and says both", async () => {
    const expected = {
      status: 401,
      code: "key_missing",
      service: "s",
      route: "/{rest*}",
      upstream_path: null,
      upstream_headers: { apiKey: null },
      caller: null,
      headers: { "WWW-Authenticate": { matches: "^Key" } },
    };
    const { tests } = validFrom(config);
    expect(tests).toEqual([]);
    const report = await runTests(
      validFrom({ ...config, tests: [test({ name: "orders need a key", expect: expected })] }),
    );
    expect(report).toEqual({
      passed: 1,
      failed: 0,
      tests: [
        {
          name: "orders need a key",
          passed: true,
          expected,
          found: { ...expected, headers: { "WWW-Authenticate": expect.stringMatching(/^Key/) as string } },
          differences: [],
          differing: [],
        },
      ],
    });
  });

  it("is sent to the route whose conditions on headers, query and cookies it fulfils", async () => {
    const match = { headers: { "X-Version": "2" }, query: { beta: true as const }, cookies: { c: null } };
    const matched = oneService(9, {
      routes: [
        { name: "rest", path: "/x" },
        { name: "beta", path: "/x", match },
      ],
    });
    const sent = (url: string, headers: Record<string, string>, route: string) =>
      verdict(matched, test({ request: { url, headers }, expect: { route } }));
    expect(await sent("/a/x?beta", { "x-version": "2" }, "beta")).toBe(true);
    expect(await sent("/a/x?beta", { "x-version": "2", Cookie: "c=1" }, "rest")).toBe(true);
    expect(await sent("/a/x", { "x-version": "2" }, "rest")).toBe(true);
  });

  it("a test that fails has the error code among its differences, unless it expects one itself", async () => {
    expect(await verdict(config, test({ expect: { status: 200 } }))).toEqual([
      "status: expected 200, found 401",
      "the error code is key_missing",
    ]);
    expect(await verdict(config, test({ expect: { code: null } }))).toEqual([
      'code: expected null, found "key_missing"',
    ]);
  });

  it.each<[string, TestInput["expect"], string]>([
    ["status", { status: 200 }, "status: expected 200, found 401"],
    ["status", { status: { matches: "^2" } }, "status: expected a match of ^2, found 401"],
    ["code", { code: "key_invalid" }, 'code: expected "key_invalid", found "key_missing"'],
    ["code", { code: null }, 'code: expected null, found "key_missing"'],
    ["service", { service: null }, 'service: expected null, found "s"'],
    ["route", { route: "root" }, 'route: expected "root", found "/{rest*}"'],
    ["upstream_path", { upstream_path: "/x" }, 'upstream_path: expected "/x", found null'],
    [
      "upstream_headers",
      { upstream_headers: { apiKey: null, Via: "x" } },
      'upstream_headers: expected {"apiKey":null,"Via":"x"}, found null',
    ],
    [
      "headers",
      { headers: { "WWW-Authenticate": null } },
      'headers.WWW-Authenticate: expected null, found "Key realm=\\"edge-gateway\\""',
    ],
    ["headers", { headers: { "X-None": "a" } }, 'headers.X-None: expected "a", found null'],
    ["headers", { headers: { "X-None": { matches: "" } } }, "headers.X-None: expected a match of , found null"],
    ["caller", { caller: "web" }, 'caller: expected "web", found null'],
  ])("that fails in %s says what was expected and what was found: %j", async (_member, wanted, difference) => {
    const { tests } = await runTests(validFrom({ ...config, tests: [test({ expect: wanted })] }));
    expect(tests[0]!.differences[0]).toBe(difference);
    expect(tests[0]!.differing).toEqual([difference.split(":")[0]]);
  });

  it("that fails in the body shows no more than 200 characters of each side", async () => {
    const body = "b".repeat(10_000);
    const found = await verdict(oneService(9), test({ upstream: { body }, expect: { body: "short" } }));
    expect(found).toEqual([`body: expected "short", found "${"b".repeat(199)}…`]);
  });

  it("that fails says why the gateway refused, as its log does", async () => {
    const jwt = { name: "jwt", config: { alg: "HS256", secret: SECRET, aud: "orders" } };
    const tried = test({ request: { as: { jwt: { sub: "ada", aud: "shop" } } } });
    expect(await verdict(guardedBy(jwt), tried)).toEqual([
      "status: expected 200, found 401",
      "the gateway logs: jwt: audience",
    ]);
  });

  it("does not show the value of a reference that is as expected", async () => {
    const echo = { name: "request_headers", config: { set: { "X-Token": "${env:TOKEN}" } } };
    const gateway = createGateway({
      config: { ...guardedBy(echo), tests: [test({ expect: { upstream_headers: { "X-Token": "${env:TOKEN}" } } })] },
      environment: { TOKEN: "the-token" },
    });
    onTestFinished(async () => void (await gateway.close(0)));
    const report = await gateway.test();
    expect(report.passed).toBe(1);
    expect(JSON.stringify(report)).not.toContain("the-token");
  });
});

describe("the request of a test", () => {
  it(
    "has method, path, query, headers with several lines, and a body of text or JSON, " + "as the upstream gets them",
    async () => {
      const text = test({
        request: {
          method: "POST",
          url: "/a/b%20c?x=1&y=%2F",
          headers: { "X-One": "1", "X-Two": ["2", "3"], Connection: "X-One" },
          body: "hello",
        },
        expect: {
          upstream_path: "/b%20c?x=1&y=%2F",
          upstream_headers: {
            "X-One": null,
            "X-Two": ["2", "3"],
            "x-two": "2, 3",
            "Content-Length": "5",
            Via: "1.1 edge-gateway",
          },
        },
      });
      // A name may occur once in any case.
      delete (text.expect.upstream_headers as Record<string, unknown>)["x-two"];
      expect(await verdict(oneService(9), text)).toBe(true);
      const json = test({
        request: { method: "PUT", url: "/a/x", body: { a: [1, null] } },
        expect: { upstream_headers: { "Content-Length": "14" } },
      });
      expect(await verdict(oneService(9), json)).toBe(true);
    },
  );

  it("comes from 127.0.0.1 or client_ip, and its X-Forwarded-For counts only behind a trusted proxy", async () => {
    const acl = { name: "acl", config: { whitelist: ["203.0.113.9"] } };
    const from = (client_ip: string | undefined, headers = {}) =>
      test({ request: { ...(client_ip && { client_ip }), headers } });
    expect(await verdict(guardedBy(acl), from("203.0.113.9"))).toBe(true);
    expect(await verdict(guardedBy(acl), from(undefined))).toEqual([
      "status: expected 200, found 403",
      "the gateway logs: acl: not in the whitelist",
    ]);
    expect(await verdict(guardedBy(acl), from(undefined, { "X-Forwarded-For": "203.0.113.9" }))).toEqual([
      "status: expected 200, found 403",
      "the gateway logs: acl: not in the whitelist",
    ]);
    const trusting = { ...guardedBy(acl), global: { trusted_proxies: ["127.0.0.1"] } };
    expect(await verdict(trusting, from(undefined, { "X-Forwarded-For": "203.0.113.9" }))).toBe(true);
  });

  it("takes host and scheme from an absolute URL, and the host from Host where the url is a path", async () => {
    const byHost = oneService(9, { hosts: ["shop.example.com"] });
    const seen = { "X-Forwarded-Host": "shop.example.com:81", "X-Forwarded-Proto": "http", Host: "127.0.0.1:9" };
    expect(
      await verdict(
        byHost,
        test({
          request: { url: "http://shop.example.com:81/a/x", headers: { Host: "other" } },
          expect: { upstream_headers: seen },
        }),
      ),
    ).toBe(true);
    expect(
      await verdict(
        byHost,
        test({
          request: { url: "https://SHOP.example.com/a/x" },
          expect: { upstream_headers: { "X-Forwarded-Proto": "https", "X-Forwarded-Port": "443" } },
        }),
      ),
    ).toBe(true);
    expect(await verdict(byHost, test({ request: { headers: { Host: "shop.example.com" } } }))).toBe(true);
    expect(
      await verdict(
        byHost,
        test({ expect: { status: 404, code: "route_not_found", service: null, route: null, upstream_path: null } }),
      ),
    ).toBe(true);
    expect(
      await verdict(
        { services: [{ ...byHost.services[0]!, base_path: "/" }] },
        test({ request: { url: "http://shop.example.com?q=1" }, expect: { upstream_path: "/?q=1" } }),
      ),
    ).toBe(true);
  });

  it("keeps the client's Host where the service preserves it, and names the first upstream otherwise", async () => {
    const tried = (host: string) =>
      test({ request: { url: "http://shop.example.com/a/x" }, expect: { upstream_headers: { Host: host } } });
    expect(await verdict(oneService(9, { preserve_host: true }), tried("shop.example.com"))).toBe(true);
    expect(await verdict(oneService(80), tried("127.0.0.1"))).toBe(true);
  });

  it(
    "with as.jwt carries a token whose signature counts as valid: claims are checked as ever, " +
      "and exp is added where it is absent",
    async () => {
      const jwt = {
        name: "jwt",
        config: {
          alg: "HS256",
          secret: SECRET,
          iss: "https://id.example",
          claims: { role: "admin" },
          claims_to_headers: { sub: "X-User" },
        },
      };
      const as = (claims: Record<string, string | number>, expected: TestInput["expect"]) =>
        verdict(guardedBy(jwt), test({ request: { as: { jwt: claims } }, expect: expected }));
      const right = { sub: "ada", iss: "https://id.example", role: "admin" };
      expect(await as(right, { status: 200, caller: "ada", upstream_headers: { "X-User": "ada" } })).toBe(true);
      expect(await as({ ...right, role: "reader" }, { status: 401, code: "token_invalid", caller: null })).toBe(true);
      expect(await as({ ...right, iss: "https://other.example" }, { code: "token_invalid" })).toBe(true);
      expect(await as({ ...right, exp: 1_000_000_000 }, { code: "token_expired" })).toBe(true);
      expect(await as({ ...right, nbf: 4_000_000_000 }, { code: "token_invalid" })).toBe(true);
      expect(await verdict(guardedBy(jwt), test({ expect: { code: "token_missing" } }))).toBe(true);
    },
  );

  it("with as.jwt needs no keys of the issuer", async () => {
    const jwt = { name: "jwt", config: { alg: "ES256", jwks_uri: "http://127.0.0.1:1/keys" } };
    expect(
      await verdict(guardedBy(jwt), test({ request: { as: { jwt: { sub: "ada" } } }, expect: { caller: "ada" } })),
    ).toBe(true);
    expect(
      await verdict(guardedBy(jwt), test({ request: { headers: bearer }, expect: { code: "auth_unavailable" } })),
    ).toBe(true);
  });

  it("finds the caller that a plugin sets, also without a note for the log", async () => {
    const own = definePlugin({
      name: "tenant",
      schema: schema.object({}),
      create: () => (next) => (exchange) => next(exchange.with({ identity: "acme" })),
    });
    expect(await verdict(guardedBy({ name: "tenant" }), test({ expect: { caller: "acme" } }), [own])).toBe(true);
  });

  it("with certificate shows a verified client certificate over TLS, with subject and alternative names", async () => {
    const mtls = { name: "mtls", config: { allow: ["billing", "DNS:audit.example.com"] } };
    const shows = (subject: string, san: readonly string[], expected: TestInput["expect"]) =>
      verdict(guardedBy(mtls), test({ request: { certificate: { subject, san } }, expect: expected }));
    expect(
      await shows("CN=billing,O=Example", [], {
        status: 200,
        caller: "billing",
        upstream_headers: { "X-Forwarded-Proto": "https", "X-Client-Cert-Subject": "CN=billing,O=Example" },
      }),
    ).toBe(true);
    expect(
      await shows("O=Example", ["DNS:audit.example.com"], { status: 200, caller: { matches: "^[0-9a-f]{64}$" } }),
    ).toBe(true);
    expect(await shows("O=a\\,CN=billing", [], { status: 401, code: "client_certificate_invalid" })).toBe(true);
    expect(await verdict(guardedBy(mtls), test({ expect: { status: 401, code: "client_certificate_missing" } }))).toBe(
      true,
    );
  });

  it("sends a message of MCP as its clients do, of each method and revision", async () => {
    const guard = guardedBy({
      name: "mcp",
      config: { tools: ["search", "gr*"], resources: ["docs://*"], prompts: ["greet"] },
    });
    const sends = (mcp: object, headers: Record<string, string>, status: number, code: string | null = null) =>
      verdict(guard, test({ request: { mcp: mcp as never, headers }, expect: { status, code } }));
    const old = { "MCP-Protocol-Version": "2025-11-25" };
    expect([
      await sends({ method: "tools/call", name: "search" }, {}, 200),
      await sends({ method: "tools/call", name: "größe" }, {}, 200),
      await sends({ method: "tools/call", name: "search" }, old, 200),
      await sends({ method: "tools/call", name: "refund" }, {}, 400, "mcp_not_allowed"),
      await sends({ method: "tools/call", name: "search" }, { "Mcp-Name": "refund" }, 400, "mcp_header_mismatch"),
      await sends({ method: "resources/read", name: "docs://a" }, {}, 200),
      await sends({ method: "prompts/get", name: "greet" }, {}, 200),
      await sends({ method: "completion/complete", name: "greet" }, {}, 200),
      await sends({ method: "subscriptions/listen", name: "docs://a" }, {}, 200),
      await sends({ method: "subscriptions/listen", name: "x://a" }, {}, 400, "mcp_not_allowed"),
      await sends({ method: "tools/list" }, {}, 200),
      await sends({ method: "initialize" }, {}, 200),
      await sends({ method: "notifications/initialized" }, old, 200),
      await sends({ method: "tasks/get" }, {}, 404, "mcp_method_unknown"),
    ]).toEqual(new Array(14).fill(true));
  });

  it(
    "is sent `times` times, `every_ms` apart on a clock that nothing else moves; " + "the last one is compared",
    async () => {
      const limit = guardedBy({ name: "rate_limit", config: { limit_min: 3 } });
      expect(await verdict(limit, test({ request: { times: 3 } }))).toBe(true);
      expect(
        await verdict(
          limit,
          test({
            request: { times: 4 },
            expect: { status: 429, code: "rate_limited", upstream_path: null, headers: { "Retry-After": "60" } },
          }),
        ),
      ).toBe(true);
      expect(
        await verdict(
          limit,
          test({ request: { times: 4, every_ms: 19_999 }, expect: { status: 429, headers: { "Retry-After": "1" } } }),
        ),
      ).toBe(true);
      expect(await verdict(limit, test({ request: { times: 4, every_ms: 20_000 } }))).toBe(true);
    },
  );

  it.each<[string, Partial<TestInput["request"]>, TestInput["expect"]]>([
    [
      "a method that no route takes",
      { method: "POST" },
      { status: 405, code: "method_not_allowed", headers: { Allow: "GET, HEAD" } },
    ],
    ["an ambiguous path", { url: "/a/x%2Fy" }, { status: 400, code: "path_ambiguous", service: null }],
    ["a path that leaves its folder", { url: "/a/%2e%2e/x" }, { status: 400 }],
    ["a target that is too long", { url: `/a/${"x".repeat(20_000)}` }, { status: 414, code: "uri_too_long" }],
    [
      "headers that are too large",
      { headers: { "X-Long": "x".repeat(70_000) } },
      { status: 431, code: "headers_too_large" },
    ],
    ["an expectation that cannot be met", { headers: { Expect: "tea" } }, { status: 417, code: "expectation_failed" }],
    ["a body that is too large", { method: "POST", body: "12345" }, { status: 413, code: "body_too_large" }],
    ["a length that is not the body's", { headers: { "Content-Length": "9" } }, { status: 400, code: "bad_request" }],
  ])("is refused before any route for %s, as the gateway does", async (_what, request, expected) => {
    const config = oneService(
      9,
      { routes: [{ path: "/{rest*}", methods: ["GET"] }] },
      { limits: { max_body_bytes: 4 } },
    );
    expect(await verdict(config, test({ request: { ...request }, expect: expected }))).toBe(true);
  });
});

describe("what stands in for other servers in a test", () => {
  it("the upstream answers 200 without headers and body, or as `upstream` says", async () => {
    expect(
      await verdict(
        oneService(9),
        test({ expect: { status: 200, body: null, headers: { "Content-Type": null, Via: "1.1 edge-gateway" } } }),
      ),
    ).toBe(true);
    const upstream = {
      status: 418,
      headers: { "X-Tea": "green", Connection: "X-Hop", "X-Hop": "1", "Set-Cookie": ["a=1", "b=2"] },
      body: { tea: ["green"] },
    };
    const expected = {
      status: 418,
      code: null,
      headers: { "X-Tea": "green", "X-Hop": null, "Set-Cookie": ["a=1", "b=2"] },
      body: { tea: ["green"] },
    };
    expect(await verdict(oneService(9), test({ upstream, expect: expected }))).toBe(true);
    expect(
      await verdict(oneService(9), test({ upstream: { body: "hello" }, expect: { body: { matches: "^hel+o$" } } })),
    ).toBe(true);
    expect(
      await verdict(
        oneService(9),
        test({ upstream: { body: "hello" }, request: { method: "HEAD" }, expect: { body: null } }),
      ),
    ).toBe(true);
    expect(await verdict(oneService(9), test({ upstream: { body: "no JSON" }, expect: { body: [1] } }))).toEqual([
      'body: expected [1], found "no JSON"',
    ]);
  });

  it("a service whose upstreams all have the weight 0 answers 503, as it would", async () => {
    const config = oneService(9, { upstreams: [{ host: "127.0.0.1", port: 9, weight: 0 }] });
    expect(
      await verdict(config, test({ expect: { status: 503, code: "upstream_unavailable", upstream_path: null } })),
    ).toBe(true);
  });

  it("a request that could not be written to the upstream gets 500, as it would", async () => {
    const breaks = definePlugin({
      name: "breaks",
      schema: schema.object({}),
      create: () => (next) => (exchange) => next(exchange.with({ headers: ["X-Two", "1\r\nX-Smuggled: 2"] })),
    });
    expect(
      await verdict(
        guardedBy({ name: "breaks" }),
        test({ expect: { status: 500, code: "internal", upstream_path: null } }),
        [breaks],
      ),
    ).toBe(true);
  });

  it("a request body is checked against its schema before it reaches the upstream", async () => {
    const validation = { name: "request_validation", config: { body: { type: "object", required: ["id"] } } };
    const posted = (body: object, expected: TestInput["expect"]) =>
      verdict(
        guardedBy(validation),
        test({
          request: { method: "POST", headers: { "Content-Type": "application/json" }, body: body as never },
          expect: expected,
        }),
      );
    expect(await posted({ id: 1 }, { status: 200, upstream_path: "/x" })).toBe(true);
    expect(await posted({ no: 1 }, { status: 400, upstream_path: null })).toBe(true);
  });

  it("forward_auth gets the answer of its exact URL; without one, its server cannot be reached", async () => {
    const asks = { name: "forward_auth", config: { url: "http://127.0.0.1:1/check", response_headers: ["X-User"] } };
    const answered = (answers: Answers, expected: TestInput["expect"]) =>
      verdict(guardedBy(asks), test({ answers, expect: expected }));
    expect(
      await answered([{ url: "http://127.0.0.1:1/check", status: 204, headers: { "X-User": "ada" } }], {
        status: 200,
        upstream_headers: { "X-User": "ada" },
      }),
    ).toBe(true);
    expect(
      await answered([{ url: "http://127.0.0.1:1/check", status: 403, body: "no" }], {
        status: 403,
        body: "no",
        upstream_path: null,
      }),
    ).toBe(true);
    expect(
      await answered([{ url: "http://127.0.0.1:1/other", status: 204 }], { status: 503, code: "auth_unavailable" }),
    ).toBe(true);
    expect(await answered([], { status: 200 })).toEqual([
      "status: expected 200, found 503",
      "the gateway logs: forward_auth: the test has no answer of http://127.0.0.1:1/check",
    ]);
    const lenient = { ...asks, config: { ...asks.config, on_error: "allow" } };
    expect(await verdict(guardedBy(lenient), test({}))).toBe(true);
  });

  it("jwt gets its issuer's keys from an answer, and verifies a token with them", async () => {
    const url = "https://id.example/keys";
    const jwt = { name: "jwt", config: { alg: "ES256", jwks_uri: url } };
    const jwks = { keys: [{ ...ISSUER.publicKey.export({ format: "jwk" }), kid: "1" }] };
    const tried = (answers: Answers, expected: TestInput["expect"]) =>
      verdict(guardedBy(jwt), test({ request: { headers: bearer }, answers, expect: expected }));
    expect(await tried([{ url, body: jwks as never }], { status: 200, caller: "ada" })).toBe(true);
    expect(await tried([{ url, status: 500 }], { status: 503, code: "auth_unavailable" })).toBe(true);
  });

  it(
    "a cache answers within a test from what the test itself stored, " + "and each test begins with an empty one",
    async () => {
      const config = guardedBy({ name: "response_cache" });
      const upstream = { headers: { "Cache-Control": "max-age=60" }, body: "stored" };
      expect(
        await verdict(
          config,
          test({
            request: { times: 2, every_ms: 10_000 },
            upstream,
            expect: { body: "stored", upstream_path: null, headers: { Age: "10" } },
          }),
        ),
      ).toBe(true);
      expect(
        await verdict(
          config,
          test({ request: { times: 2, every_ms: 60_000 }, upstream, expect: { body: "stored", upstream_path: "/x" } }),
        ),
      ).toBe(true);
      const { tests } = await runTests(
        validFrom({
          ...config,
          tests: ["one", "two"].map((name) => test({ name, upstream, expect: { upstream_path: "/x" } })),
        }),
      );
      expect(tests.map(({ passed }) => passed)).toEqual([true, true]);
    },
  );

  it("nothing is dialled, and nothing of the running gateway is used up or filled", async () => {
    let connections = 0;
    const server = createServer((_request, response) => void response.end("{}")).on(
      "connection",
      () => void connections++,
    );
    const port = await hosted({ close: () => Promise.resolve("drained") }, server);
    const url = `http://127.0.0.1:${port}/`;
    const plugins = [
      { name: "rate_limit", config: { limit_min: 1 } },
      { name: "response_cache" },
      { name: "http_log", config: { http_endpoint: url, flush_ms: 1 } },
      { name: "forward_auth", config: { url, on_error: "allow" } },
      { name: "jwt", config: { alg: "ES256", jwks_uri: url } },
    ];
    const cached = { headers: { "Cache-Control": "max-age=60" }, body: "of the test" };
    const tried = [
      test({ name: "as", request: { as: { jwt: { sub: "ada" } }, times: 2, every_ms: 60_000 }, upstream: cached }),
      test({ name: "token", request: { headers: bearer }, expect: { status: 503 } }),
    ];
    const config = {
      ...oneService(port, { plugins: plugins.slice(0, 4) as never, health: { enabled: false } }),
      tests: [],
    };
    const { gateway } = await running({ ...config, tests: [] });
    const loaded = validFrom({ ...oneService(port, { plugins: plugins as never }), tests: tried });
    expect(await runTests(loaded)).toMatchObject({ passed: 2 });
    await gateway.reload({
      ...config,
      tests: [test({ request: { times: 1 }, upstream: cached, expect: { status: 200, body: "of the test" } })],
    });
    expect(gateway.lastTests!.report.passed).toBe(1);
    expect(connections).toBe(0);
    // The limit of one a minute is untouched, and the cache is empty.
    const reply = await gateway.inject({ url: "/a/x" });
    expect([reply.status, reply.text()]).toEqual([200, "{}"]);
    expect(connections).toBeGreaterThan(0);
  });

  it("the admin interface, metrics and faults of the running gateway show nothing of tests", async () => {
    const broken = definePlugin({
      name: "broken",
      schema: schema.object({}),
      create: () => () => () => {
        throw new Error("it is broken");
      },
    });
    const { gateway } = await running(
      { ...guardedBy({ name: "broken" }), tests: [test({ expect: { status: 500, code: "internal" } })] },
      { plugins: [broken] },
    );
    expect(gateway.status).toMatchObject({ pluginFaults: [], tests: { passed: 1, failed: 0 } });
    expect(gateway.metrics()).not.toMatch(/edge_gateway_requests_total\{.*\} [1-9]/);
  });
});

const closed = (stream: Readable) => (stream.closed ? undefined : once(stream, "close"));

describe("a plugin that is at fault in a test", () => {
  const bad = definePlugin({
    name: "bad",
    schema: schema.object({ how: schema.string() }),
    create({ how }) {
      if (how === "create") throw new Error("it cannot be created");
      if (how === "handler") return () => undefined as never;
      return (next) => async (exchange) => {
        if (how === "throw") throw new Error("it is broken");
        if (how === "hang") return new Promise(() => {});
        const reply = await next(exchange);
        return how === "hold" ? new Promise(() => {}) : how === "nothing" ? (undefined as never) : reply;
      };
    },
  });
  const config = (...ways: readonly string[]): AnyConfigInput => ({
    services: ways.map((how) => ({
      name: how,
      base_path: `/${how}`,
      upstreams: [{ host: "127.0.0.1", port: 9 }],
      routes: [{ path: "/" }],
      plugins: [{ name: "bad", config: { how } }],
    })),
    tests: ways.map((how) => ({ name: how, request: { url: `/${how}` }, expect: { status: 200 } })),
  });

  it.each([
    ["throw", ["status: expected 200, found 500", "the gateway logs: it is broken"]],
    [
      "nothing",
      [
        "status: expected 200, found 500",
        "the gateway logs: a plugin returned no Reply: it gives back what next(exchange) does, or a Reply of its own",
      ],
    ],
    ["create", ['plugin bad of service "create" cannot be created: it cannot be created']],
    [
      "handler",
      [
        'plugin bad of service "handler" cannot be created: what "create" returns has to give a handler: (next) ' +
          "=> (exchange) => next(exchange)",
      ],
    ],
    ["hang", ["no reply within 0.03 s: plugin bad did not answer (timers of plugins stand still in a test)"]],
    ["hold", ["no reply within 0.03 s: a plugin did not return the upstream's reply"]],
  ])("fails its test, and the other tests go on: %s", async (how, differences) => {
    const { tests } = await runTests(validFrom(config("fine", how, "well"), [bad]), { maxTestMs: 30 });
    expect(tests.map(({ passed }) => passed)).toEqual([true, false, true]);
    expect(tests[1]!.differences).toEqual(differences);
  });

  it("fails the tests that have not begun when the time of all is over", async () => {
    const ways = Array.from({ length: 10 }, (_, i) => `hang${i}`);
    const hanging = config(...ways);
    for (const { plugins } of hanging.services) (plugins![0] as { config: object }).config = { how: "hang" };
    const { tests, failed } = await runTests(validFrom(hanging, [bad]), { maxTestMs: 10_000, maxTotalMs: 30 });
    expect(failed).toBe(10);
    expect(tests.slice(8).map(({ differences }) => differences)).toEqual(
      Array(2).fill(["not run: all tests together may take 0.03 s"]),
    );
    expect(tests[0]!.differences[0]).toMatch(/^no reply, and all tests together may take 0.03 s: plugin bad/);
    expect(tests.map(({ late }) => late)).toEqual(Array(10).fill(true));
    expect(failuresOf(validFrom(hanging, [bad]).tests, { passed: 0, failed, tests })[9]!.message).toBe(
      '"hang9" ran out of time: not run: all tests together may take 0.03 s',
    );
  });

  it.each<[string, () => Readable]>([
    [
      "a stream of pieces that are ready at once",
      () =>
        new Readable({
          read() {
            this.push(Buffer.alloc(2 ** 16));
          },
        }),
    ],
    [
      "a generator without end",
      () =>
        Readable.from(
          (function* () {
            for (;;) yield Buffer.alloc(2 ** 20);
          })(),
        ),
    ],
  ])("fails its test if its reply has more than 32 MiB, and the stream is destroyed: %s", async (_what, make) => {
    const streams: Readable[] = [];
    const own = definePlugin({
      name: "endless",
      schema: schema.object({}),
      create: () => () => () => ({ status: 200, headers: [], body: streams[streams.push(make()) - 1]! }),
    });
    expect(await verdict(guardedBy({ name: "endless" }), test({}), [own])).toEqual(["the reply has more than 32 MiB"]);
    await Promise.all(streams.map(closed));
  });

  it(
    "fails its test if its reply does not end, even with the shortest pieces, " + "and the stream is destroyed",
    async () => {
      const streams: Readable[] = [];
      const bodies = [
        () => new Readable({ read() {} }),
        () =>
          Readable.from(
            (function* () {
              for (;;) yield Buffer.alloc(1);
            })(),
          ),
      ];
      for (const make of bodies) {
        const own = definePlugin({
          name: "silent",
          schema: schema.object({}),
          create: () => () => () => ({ status: 200, headers: [], body: streams[streams.push(make()) - 1]! }),
        });
        const found = await verdict(guardedBy({ name: "silent" }), test({}), [own], { maxTestMs: 30 });
        expect((found as string[])[0]).toMatch(/^no reply within 0.03 s/);
      }
      await Promise.all(streams.map(closed));
    },
  );

  it(
    "fails its test with the number of the request that was under way, " + "if the last one was not reached in time",
    async () => {
      const found = await verdict(
        oneService(9),
        test({ request: { times: 10_000 }, upstream: { body: "b".repeat(1e6) } }),
        [],
        { maxTestMs: 30 },
      );
      expect((found as string[])[0]).toMatch(/^no reply within 0.03 s: request \d+ of 10000 was under way$/);
    },
  );

  it("does not outlive a run that is stopped", async () => {
    const stop = new AbortController();
    const run = runTests(validFrom(config("hang"), [bad]), { maxTestMs: 60_000, signal: stop.signal });
    await new Promise(setImmediate);
    stop.abort();
    expect((await run).tests[0]!.differences).toEqual(["not run: the run was stopped"]);
  });
});

describe("the time of a test", () => {
  /**
   * Answers after 20 turns of the event loop with a timer, so that a run with a limit of 5 ms has looked at the time.
   */
  const slow = definePlugin({
    name: "slow",
    schema: schema.object({}),
    create: () => (next) => async (exchange) => {
      for (let i = 0; i < 20; i++) await new Promise((resolve) => setTimeout(resolve, 1));
      return next(exchange);
    },
  });

  it("does not pass while other programs have the processors", async () => {
    const usage = () => ({ busy: 0, idle: 0 });
    expect(await verdict(guardedBy({ name: "slow" }), test({}), [slow], { maxTestMs: 5, maxTotalMs: 5, usage })).toBe(
      true,
    );
  });

  it(
    "passes while the thread computes, shared with the tests that are under way at once, " +
      "and while it waits for the test",
    async () => {
      for (const kind of ["busy", "idle"] as const) {
        let at = 0;
        const usage = () => ({ busy: 0, idle: 0, [kind]: (at += 8) });
        expect(await verdict(guardedBy({ name: "slow" }), test({}), [slow], { maxTestMs: 5, usage })).toEqual([
          "no reply within 0.005 s: plugin slow did not answer (timers of plugins stand still in a test)",
        ]);
      }
      let at = 0;
      const four = ["1", "2", "3", "4"].map((name) => test({ name }));
      const { passed } = await runTests(validFrom({ ...guardedBy({ name: "slow" }), tests: four }, [slow]), {
        maxTestMs: 100,
        usage: () => ({ busy: (at += 4), idle: 0 }),
      });
      expect(passed).toBe(4);
    },
  );

  it("does not pass while a password is hashed, and each password is hashed once for all tests", async () => {
    const stored = await hashPassword("s3cret");
    const hashed: string[] = [];
    const verify = async (given: string) => {
      hashed.push(given);
      for (let i = 0; i < 20; i++) await new Promise((resolve) => setTimeout(resolve, 1));
      return given === "s3cret";
    };
    const basic = (password: string) => ({
      Authorization: `Basic ${Buffer.from(`ada:${password}`).toString("base64")}`,
    });
    const tests = Array.from({ length: 100 }, (_, i) => {
      const password = i % 2 === 0 ? "s3cret" : "guess";
      return test({
        name: `t${i}`,
        request: { url: "/a/x", headers: basic(password) },
        expect: { status: i % 2 === 0 ? 200 : 401 },
      });
    });
    let at = 0;
    const config = {
      ...guardedBy({ name: "basic_auth", config: { users: [{ username: "ada", password: stored }] } }),
      tests,
    };
    expect(
      await runTests(validFrom(config), {
        maxTestMs: 5,
        maxTotalMs: 50,
        usage: () => ({ busy: 0, idle: (at += 4) }),
        verify,
      }),
    ).toMatchObject({ passed: 100, failed: 0 });
    expect(hashed.sort()).toEqual(["guess", "s3cret"]);
  });
});

describe("a run of tests", () => {
  it("keeps the order of the configuration, and takes only the tests whose names contain a text", async () => {
    const loaded = validFrom({ ...oneService(9), tests: ["b one", "a two", "c one"].map((name) => test({ name })) });
    expect((await runTests(loaded)).tests.map(({ name }) => name)).toEqual(["b one", "a two", "c one"]);
    expect((await runTests(loaded, { only: "one" })).tests.map(({ name }) => name)).toEqual(["b one", "c one"]);
    expect(await runTests(loaded, { only: "none" })).toEqual({ passed: 0, failed: 0, tests: [] });
  });

  it("lets the event loop turn between tests that take long together", async () => {
    const spins = definePlugin({
      name: "spins",
      schema: schema.object({}),
      create: () => (next) => (exchange) => {
        const end = performance.now() + 11;
        while (performance.now() < end);
        return next(exchange);
      },
    });
    const loaded = validFrom(
      { ...guardedBy({ name: "spins" }), tests: ["1", "2", "3", "4"].map((name) => test({ name })) },
      [spins],
    );
    expect(await turnsDuring(() => runTests(loaded))).toBeGreaterThanOrEqual(3);
  });

  it("lets the event loop turn while a pattern is searched in a long text", async () => {
    const slow = test({ upstream: { body: "x".repeat(100_000) }, expect: { body: { matches: "(x+x+)+y" } } });
    const turns = await turnsDuring(async () => expect(await verdict(oneService(9), slow)).not.toBe(true));
    expect(turns).toBeGreaterThanOrEqual(3);
  });

  it("many at once make no warning of Node", async () => {
    const warnings: Error[] = [];
    const note = (warning: Error) => void warnings.push(warning);
    process.on("warning", note);
    onTestFinished(() => void process.off("warning", note));
    const { gateway } = await running({ ...oneService(9), tests: [test({})] });
    await Promise.all(Array.from({ length: 20 }, () => gateway.test()));
    await new Promise(setImmediate);
    expect(warnings).toEqual([]);
  });

  it("reports the first 100 failed tests as issues, and the number of the others", async () => {
    const loaded = validFrom({
      ...oneService(9),
      tests: Array.from({ length: 103 }, (_, i) => test({ name: `t${i}`, expect: { status: 404 } })),
    });
    const issues = failuresOf(loaded.tests, await runTests(loaded));
    expect(issues).toHaveLength(101);
    expect(issues.at(-1)).toEqual({
      at: ["tests"],
      position: null,
      message: "3 more tests failed: edge-gateway test lists all",
    });
  });

  it("reports each failed test as an issue at its place", async () => {
    const loaded = validFrom({
      ...guardedBy(KEY),
      tests: [
        test({ name: "fine", expect: { status: 401 } }),
        test({ name: "orders need a key", expect: { status: 200, code: null } }),
      ],
    });
    expect(failuresOf(loaded.tests, await runTests(loaded))).toEqual([
      {
        at: ["tests", 1],
        position: null,
        message:
          '"orders need a key" failed: status: expected 200, found 401; code: expected null, found "key_missing"',
      },
    ]);
  });
});
