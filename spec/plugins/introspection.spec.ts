import { createPublicKey, generateKeyPairSync, verify, type KeyObject } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { SharedMemory } from "../../lib/base/shared_memory.ts";
import { suggest } from "../../lib/base/suggest.ts";
import * as references from "../../lib/config/references.ts";
import { nodeFrom } from "../../lib/config/json.ts";
import { formatPath, INVALID } from "../../lib/config/schema.ts";
import { Call } from "../../lib/http/exchange.ts";
import { headerValue, headerValues } from "../../lib/http/headers.ts";
import { introspection } from "../../lib/plugins/introspection.ts";
import type { Tools } from "../../lib/plugins/plugin.ts";
import { backend, gate, rawBackend } from "../journeys/harness.ts";
import { manualClock } from "../support/clock.ts";
import { atOnce, checked, exercise, instance, madeUpExchange, madeUpTools, problemOf } from "../support/exercise.ts";
import { closedPort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

/** What `manualClock` begins with, in seconds. */
const NOW = Date.UTC(2026, 0, 1) / 1000;
const CLIENT = { client_id: "gateway", client_secret: "hunter2" };
const ACTIVE = { active: true, sub: "ann" };
const BEARER = { headers: ["Authorization", "Bearer t"] };

/** Tools with a manual clock whose kept things are closed when the test ends. */
function tools(parts: Partial<Tools> = {}) {
  const clock = manualClock();
  const keep: Tools["keep"] = (_name, _settings, make) => {
    const made = make();
    onTestFinished(() => void made.close());
    return made;
  };
  return { ...madeUpTools({ keep, clock, ...parts }), clock };
}

type Answer = object | ((request: IncomingMessage, response: ServerResponse, body: Buffer) => void);

/** An authorization server, and a plugin that asks it. */
async function asking(answer: Answer, config: object = {}, own = tools()) {
  const server = await backend(
    typeof answer === "function"
      ? (answer as never)
      : (_request, response) => void response.end(JSON.stringify(answer)),
  );
  const url = `http://127.0.0.1:${server.port}/introspect`;
  const middleware = instance(introspection, { url, ...("client_key" in config ? {} : CLIENT), ...config }, own);
  const ask = (token: string | null = "t0ken", parts: Parameters<typeof madeUpExchange>[0] = {}) =>
    asked(middleware, { headers: token === null ? [] : ["Authorization", `Bearer ${token}`], ...parts });
  return { server, url, tools: own, middleware, ask };
}

async function asked(middleware: ReturnType<typeof instance>, parts: Parameters<typeof madeUpExchange>[0]) {
  const exchange = madeUpExchange(parts);
  let forwarded = null as ReturnType<typeof exercise>["forwarded"];
  const { returned } = exercise(middleware, exchange, (inner) => {
    forwarded = inner;
    return { status: 200, headers: [], body: null };
  });
  const reply = await returned;
  const code = reply.status === 200 ? "passes" : String(problemOf(reply)["code"]);
  return { reply, code, forwarded, exchange, fault: exchange.call.notes.fault };
}

const call = () =>
  new Call({ id: "request-1", remoteAddress: "192.0.2.1", trustedRemote: false, startedAt: 0, inform: () => {} });

/** An answer that waits for the gate. */
const held =
  (answered: { readonly opened: Promise<void> }, claims: object = ACTIVE): Answer =>
  (_request, response) =>
    void answered.opened.then(() => response.end(JSON.stringify(claims)));

describe("the question", () => {
  it(
    "the question is a POST of the token as a form, authenticated with name and secret in form " +
      "encoding (RFC 6749 §2.3.1)",
    async () => {
      const { server, ask } = await asking(ACTIVE, { client_id: "the gateway:1", client_secret: "a+b%ä" });
      await ask("a+b/c=&d");
      const [seen] = server.seen;
      expect([seen!.method, seen!.url, headerValue(seen!.headers, "content-type")]).toEqual([
        "POST",
        "/introspect",
        "application/x-www-form-urlencoded",
      ]);
      expect(headerValue(seen!.headers, "accept")).toBe("application/json");
      expect([...new URLSearchParams(seen!.body.toString())]).toEqual([
        ["token", "a+b/c=&d"],
        ["token_type_hint", "access_token"],
      ]);
      const [scheme, pair] = headerValue(seen!.headers, "authorization")!.split(" ");
      expect([scheme, Buffer.from(pair!, "base64").toString()]).toEqual(["Basic", "the+gateway%3A1:a%2Bb%25%C3%A4"]);
    },
  );

  it.each<[string, () => KeyObject, string, (key: KeyObject) => Parameters<typeof verify>[2]]>([
    ["RS256", () => generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey, "sha256", (key) => key],
    [
      "ES256",
      () => generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey,
      "sha256",
      (key) => ({ key, dsaEncoding: "ieee-p1363" }),
    ],
    [
      "ES384",
      () => generateKeyPairSync("ec", { namedCurve: "P-384" }).privateKey,
      "sha384",
      (key) => ({ key, dsaEncoding: "ieee-p1363" }),
    ],
    ["EdDSA", () => generateKeyPairSync("ed25519").privateKey, "", (key) => key],
  ])(
    "client_key signs an assertion with %s for each question (RFC 7523 §3), which is for the URL or assertion_audience",
    async (alg, make, digest, verifier) => {
      const key = make();
      const pem = String(key.export({ type: "pkcs8", format: "pem" }));
      const { server, url, own, ask } = await withKey(pem, { client_key_id: "k1" });
      await ask("one");
      await ask("two");
      const forms = server.seen.map(({ body }) => new URLSearchParams(body.toString()));
      const assertions = forms.map((form) => form.get("client_assertion")!);
      expect(forms[0]!.get("client_assertion_type")).toBe("urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
      expect(headerValue(server.seen[0]!.headers, "authorization")).toBeUndefined();
      const [header, claims, signature] = assertions[0]!.split(".").map((part) => Buffer.from(part, "base64url"));
      expect(JSON.parse(String(header))).toEqual({ alg, typ: "JWT", kid: "k1" });
      const { jti, ...rest } = JSON.parse(String(claims)) as Record<string, unknown>;
      expect(rest).toEqual({ iss: "gateway", sub: "gateway", aud: url, iat: NOW, exp: NOW + 60 });
      const signed = Buffer.from(assertions[0]!.slice(0, assertions[0]!.lastIndexOf(".")));
      expect(verify(digest || null, signed, verifier(createPublicKey(key)), signature!)).toBe(true);
      expect(JSON.parse(Buffer.from(assertions[1]!.split(".")[1]!, "base64url").toString())).not.toMatchObject({ jti });
      own.clock.advance(1_000);
      const other = await withKey(pem, { assertion_audience: "https://issuer.example" });
      await other.ask("one");
      const form = new URLSearchParams(other.server.seen[0]!.body.toString());
      const parts = form
        .get("client_assertion")!
        .split(".")
        .map((part) => Buffer.from(part, "base64url").toString());
      expect([JSON.parse(parts[0]!), JSON.parse(parts[1]!)]).toEqual([
        { alg, typ: "JWT" },
        expect.objectContaining({ aud: "https://issuer.example" }),
      ]);
    },
  );

  it(
    "the question is not asked for no token, for two different ones, " + "or one that no server can have issued",
    async () => {
      const { server, ask } = await asking(ACTIVE, { token_from: ["header", "query:t"] });
      expect((await ask(null)).code).toBe("token_missing");
      expect((await ask(null, { headers: ["Authorization", "Basic YTpi"] })).code).toBe("token_missing");
      expect((await ask(null, { query: "?t=a&t=b" })).fault).toBe("introspection: ambiguous");
      for (const token of ["a\x80", "a\tb", "x".repeat(16 * 1024 + 1)])
        expect((await ask(token)).fault, token).toBe("introspection: malformed");
      expect(server.seen).toEqual([]);
      expect((await ask("x".repeat(16 * 1024))).code).toBe("passes");
      expect((await ask(null, { query: "?t=a" })).code).toBe("passes");
    },
  );

  it("the question is sent again when the server had closed the kept connection", async () => {
    const { server, ask } = await asking((request: IncomingMessage, response: ServerResponse) => {
      if (server.seen.length === 2) return void request.socket.destroy();
      response.end(JSON.stringify(ACTIVE));
    });
    expect((await ask("one")).code).toBe("passes");
    expect((await ask("two")).code).toBe("passes");
    expect(server.seen).toHaveLength(3);
  });
});

/** A plugin that authenticates with a key. */
async function withKey(pem: string, config: object) {
  const server = await backend((_request, response) => void response.end(JSON.stringify(ACTIVE)));
  const url = `http://127.0.0.1:${server.port}/introspect`;
  const { value, issues } = checkedWithFile({ url, client_id: "gateway", client_key: "key.pem", ...config }, pem);
  expect(issues).toEqual([]);
  const own = tools();
  const middleware = introspection.create(value!, own);
  return {
    server,
    url,
    own,
    ask: (token: string) => asked(middleware, { headers: ["Authorization", `Bearer ${token}`] }),
  };
}

/** The configuration, where every file has this content. */
function checkedWithFile(config: object, content: string) {
  const context = {
    issues: [],
    sources: { references, suggest, environment: {}, readFile: () => content, folder: "/" },
  } as unknown as Parameters<typeof introspection.schema.check>[2];
  const value = introspection.schema.check(nodeFrom(config), [], context);
  return {
    value: value === INVALID ? null : value,
    issues: context.issues.map(({ at, message }) => `${formatPath(at)}: ${message}`),
  };
}

describe("an active token", () => {
  it("an active token gives its caller the groups of the member that groups_claim names", async () => {
    const { ask } = await asking({ ...ACTIVE, groups: ["gold", "beta"] }, { groups_claim: "groups" });
    expect((await ask()).forwarded!.groups).toEqual(["gold", "beta"]);
  });

  it(
    "an active token makes its sub the caller and passes the answer on as claims, " +
      "without another change of the request",
    async () => {
      const { ask } = await asking({ ...ACTIVE, username: "Ann", client_id: "app", plan: "paid" });
      const { forwarded, exchange } = await ask();
      expect(forwarded).toMatchObject({ identity: "ann", claims: { active: true, sub: "ann", plan: "paid" } });
      expect(forwarded!.headers).toEqual(exchange.headers);
      expect(exchange.call.notes.identity).toBe("ann");
      expect(() => Object.assign(forwarded!.claims!, { sub: "bob" })).toThrow();
    },
  );

  it.each<[object, string | null]>([
    [{ sub: "s", username: "u", client_id: "c" }, "s"],
    [{ username: "u", client_id: "c" }, "u"],
    [{ sub: "", username: null, client_id: "c" }, "c"],
    [{ sub: 7 }, null],
    [{}, null],
  ])("the caller is sub, else username, else client_id, else nobody: %j", async (claims, identity) => {
    const { ask } = await asking({ active: true, ...claims });
    const { forwarded, exchange } = await ask("t", { identity: "before" });
    expect(forwarded!.identity).toBe(identity);
    expect(exchange.call.personal || exchange.call.notes.identity !== null).toBe(true);
  });

  it(
    "claims_to_headers replaces the client's headers of these names, " + "and refuses claims that no header can carry",
    async () => {
      const config = { claims_to_headers: { sub: "X-User", "realm.roles": "X-Roles", plan: "X-Plan" } };
      const { ask } = await asking({ ...ACTIVE, realm: { roles: ["a", "b,c"] } }, config);
      const { forwarded } = await ask("t", {
        headers: ["Authorization", "Bearer t", "x_user", "root", "X-Plan", "root"],
      });
      expect(forwarded!.headers).toEqual(["Authorization", "Bearer t", "X-User", "ann", "X-Roles", "a,b%2Cc"]);
      for (const plan of [{ a: 1 }, "a\nb"])
        expect((await (await asking({ ...ACTIVE, plan }, config)).ask()).fault).toBe("introspection: unfit");
    },
  );

  it.each<[object, object, string]>([
    [{ iss: "https://id.example" }, { iss: "https://id.example" }, "passes"],
    [{ iss: "https://id.example" }, {}, "introspection: claims"],
    [{ aud: "shop" }, { aud: ["bank", "shop"] }, "passes"],
    [{ aud: "shop" }, { aud: ["bank"] }, "introspection: claims"],
    [{ roles: ["a", "b"] }, { roles: ["b", "c", "a"] }, "passes"],
  ])("claims %j are required of the answer %j: %s", async (claims, answer, expected) => {
    const { code, fault, reply } = await (await asking({ ...ACTIVE, ...answer }, { claims })).ask();
    expect(code === "passes" ? code : fault).toBe(expected);
    if (code !== "passes") expect([reply.status, code]).toEqual([401, "token_invalid"]);
  });
});

describe("scopes", () => {
  it.each<[unknown, boolean]>([
    ["read write", true],
    ["write  admin read", true],
    [["read", "write"], true],
    ["read", false],
    ["readwrite", false],
    [undefined, false],
    [null, false],
    [7, false],
  ])("scopes are required all of them; the answer has the scope %j: %j", async (scope, isEnough) => {
    const { ask } = await asking({ ...ACTIVE, scope }, { scopes: ["read", "write"] });
    expect((await ask()).reply.status).toBe(isEnough ? 200 : 403);
  });

  it("a missing scope is answered with 403 and names those that are required (RFC 6750 §3.1)", async () => {
    const { reply, code, fault } = await (await asking(ACTIVE, { scopes: ["read", "write"] })).ask();
    expect([reply.status, code, fault]).toEqual([403, "forbidden", "introspection: scope"]);
    expect(headerValues(reply.headers, "www-authenticate")).toEqual([
      'Bearer realm="edge-gateway", error="insufficient_scope", scope="read write", ' +
        'error_description="The access token lacks a scope that is required here."',
    ]);
  });
});

describe("a refused token", () => {
  it(
    "a token that is not active gets 401 token_invalid with a challenge; " +
      "no token gets one without error (RFC 6750 §3)",
    async () => {
      const { ask } = await asking({ active: false });
      const refused = await ask();
      expect([refused.reply.status, refused.code, refused.fault, refused.forwarded]).toEqual([
        401,
        "token_invalid",
        "introspection: inactive",
        null,
      ]);
      expect(headerValues(refused.reply.headers, "www-authenticate")).toEqual([
        'Bearer realm="edge-gateway", error="invalid_token", error_description="The access token is not active."',
      ]);
      const none = await ask(null);
      expect([none.reply.status, none.code, headerValues(none.reply.headers, "www-authenticate")]).toEqual([
        401,
        "token_missing",
        ['Bearer realm="edge-gateway"'],
      ]);
    },
  );

  it.each<[object, string]>([
    [{ exp: NOW + 1 }, "passes"],
    [{ exp: NOW }, "introspection: expired"],
    [{ exp: NOW - 4, leeway_s: 5 }, "passes"],
    [{ exp: NOW - 5, leeway_s: 5 }, "introspection: expired"],
    [{ nbf: NOW }, "passes"],
    [{ nbf: NOW + 0.5 }, "introspection: early"],
    [{ nbf: NOW + 5, leeway_s: 5 }, "passes"],
    [{ nbf: NOW + 6, leeway_s: 5 }, "introspection: early"],
    [{ exp: null, nbf: null }, "passes"],
  ])(
    "a token that the server calls active is refused outside of its own times: %j %s",
    async ({ leeway_s, ...times }: { leeway_s?: number }, expected) => {
      const { code, fault } = await (
        await asking({ ...ACTIVE, ...times }, leeway_s === undefined ? {} : { leeway_s })
      ).ask();
      expect(code === "passes" ? code : `${code} ${fault!}`).toBe(
        code === "passes" ? expected : `token_invalid ${expected}`,
      );
    },
  );
});

describe("answers that are remembered", () => {
  it("an active token is asked about once in cache_s, and passes at once meanwhile", async () => {
    const { server, ask, middleware, tools: own } = await asking(ACTIVE, { cache_s: 30 });
    await ask();
    own.clock.advance(29_999);
    const again = exercise(middleware, madeUpExchange({ headers: ["Authorization", "Bearer t0ken"] }));
    expect([atOnce(again.returned).status, again.forwarded!.identity, server.seen.length]).toEqual([200, "ann", 1]);
    await ask("another");
    expect(server.seen).toHaveLength(2);
    own.clock.advance(1);
    await ask();
    expect(server.seen).toHaveLength(3);
  });

  it(
    "an active token is asked about again when its exp is reached, before cache_s is over; " +
      "leeway_s does not change that",
    async () => {
      for (const leeway_s of [0, 20]) {
        const { server, ask, tools: own } = await asking({ ...ACTIVE, exp: NOW + 10 }, { leeway_s });
        await ask();
        own.clock.advance(9_999);
        await ask();
        expect(server.seen).toHaveLength(1);
        own.clock.advance(1);
        expect((await ask()).code).toBe(leeway_s === 0 ? "token_invalid" : "passes");
        expect(server.seen).toHaveLength(2);
      }
    },
  );

  it.each<[string, object, object]>([
    ["inactive", { active: false }, {}],
    ["without a required claim", ACTIVE, { claims: { aud: "shop" } }],
    ["without a required scope", ACTIVE, { scopes: ["read"] }],
  ])("a token that is refused as %s is asked about once in negative_cache_s", async (_what, answer, config) => {
    const { server, ask, tools: own } = await asking(answer, { negative_cache_s: 5, ...config });
    const first = await ask();
    own.clock.advance(4_999);
    const second = await ask();
    expect([second.reply.status, second.fault, server.seen.length]).toEqual([first.reply.status, first.fault, 1]);
    own.clock.advance(1);
    await ask();
    expect(server.seen).toHaveLength(2);
  });

  it("cache_s 0, negative_cache_s 0 and a token that is not valid yet are asked about each time", async () => {
    for (const [answer, config] of [
      [ACTIVE, { cache_s: 0 }],
      [{ active: false }, { negative_cache_s: 0 }],
      [{ ...ACTIVE, nbf: NOW + 1 }, {}],
    ] as const) {
      const verdicts = new SharedMemory(100_000);
      const { server, ask } = await asking(answer, config, tools({ verdicts }));
      for (let i = 0; i < 2; i++) await ask();
      expect([server.seen.length, verdicts.used]).toEqual([2, 0]);
    }
  });

  it("failures are not remembered", async () => {
    let isBroken = true;
    const { server, ask } = await asking(
      (_request: IncomingMessage, response: ServerResponse) =>
        void response.writeHead(isBroken ? 500 : 200).end(JSON.stringify(ACTIVE)),
    );
    expect((await ask()).code).toBe("auth_unavailable");
    isBroken = false;
    expect((await ask()).code).toBe("passes");
    expect(server.seen).toHaveLength(2);
  });

  it("answers take a bounded memory, which holds no token", async () => {
    const verdicts = new SharedMemory(10_000);
    const { ask } = await asking({ ...ACTIVE, list: Array.from({ length: 20 }, String) }, {}, tools({ verdicts }));
    const keys: string[] = [];
    const add = verdicts.add.bind(verdicts);
    verdicts.add = (item) => {
      keys.push(item.key);
      add(item);
    };
    for (let i = 0; i < 20; i++) await ask(`s3cret-${i}`);
    expect(verdicts.used).toBeGreaterThan(5_000);
    expect(verdicts.used).toBeLessThanOrEqual(10_000);
    expect(keys).toHaveLength(20);
    for (const key of keys) expect(key).toMatch(/^[\w-]{43}$/);
  });
});

describe("requests with one token at the same time", () => {
  it("requests with one token at the same time ask once, and all get the answer", async () => {
    const answered = gate();
    const { server, ask } = await asking(held(answered));
    const all = ["a", "a", "a", "b"].map((token) => ask(token));
    await eventually(() => server.seen.length === 2, "both questions");
    answered.open();
    expect((await Promise.all(all)).map(({ code }) => code)).toEqual(["passes", "passes", "passes", "passes"]);
    expect(server.seen).toHaveLength(2);
  });

  it(
    "a client that disconnects ends neither the question nor the wait of the " + "others, and is not forwarded",
    async () => {
      for (const on_error of ["deny", "allow"]) {
        const answered = gate();
        const { server, ask } = await asking(held(answered), { on_error });
        const gone = call();
        const [first, second] = [ask("a", { call: gone }), ask("a")];
        await eventually(() => server.seen.length === 1, "the question");
        gone.abort();
        expect((await first).forwarded).toBeNull();
        answered.open();
        expect((await second).code).toBe("passes");
        expect((await ask("a")).code).toBe("passes");
        expect(server.seen).toHaveLength(1);
      }
    },
  );
});

describe("a question that nobody waits for any more", () => {
  it("a question that nobody waits for any more is given up, and asked again for the next request", async () => {
    const [begun, answered] = [gate(), gate()];
    let questions = 0;
    const server = await rawBackend((_request, response) =>
      ++questions === 1 ? begun.open() : void answered.opened.then(() => response.end(JSON.stringify(ACTIVE))),
    );
    const middleware = instance(introspection, { url: `http://127.0.0.1:${server.port}/`, ...CLIENT }, tools());
    const ask = (own = call()) => asked(middleware, { ...BEARER, call: own });
    const calls = [call(), call()];
    const given = calls.map((each) => ask(each));
    await begun.opened;
    calls[0]!.abort();
    expect((await given[0]!).forwarded).toBeNull();
    expect(server.connections.open).toBe(1);
    calls[1]!.abort();
    const next = ask();
    expect((await given[1]!).forwarded).toBeNull();
    await eventually(
      () => questions === 2 && server.connections.open === 1,
      "the first question ending and the second",
    );
    // The end of the first question leaves the second one to be shared.
    const last = ask();
    answered.open();
    expect([(await next).code, (await last).code, questions]).toEqual(["passes", "passes", 2]);
  });
});

describe("no answer about the token", () => {
  const broken: [string, Answer, string][] = [
    [
      "another status",
      (_request: IncomingMessage, response: ServerResponse) => void response.writeHead(401).end(JSON.stringify(ACTIVE)),
      "it answered with status 401",
    ],
    [
      "another status of success",
      (_request: IncomingMessage, response: ServerResponse) => void response.writeHead(201).end(JSON.stringify(ACTIVE)),
      "it answered with status 201",
    ],
    [
      "a redirect",
      (_request: IncomingMessage, response: ServerResponse) => void response.writeHead(302, { Location: "/" }).end(),
      "it answered with status 302",
    ],
    [
      "no JSON",
      (_request: IncomingMessage, response: ServerResponse) => void response.end("<html>"),
      "its answer is not JSON",
    ],
    ["nothing", (_request: IncomingMessage, response: ServerResponse) => void response.end(), "its answer is not JSON"],
    ["a list", [true], 'its answer has no "active" that is true or false'],
    [
      "null",
      (_request: IncomingMessage, response: ServerResponse) => void response.end("null"),
      'its answer has no "active" that is true or false',
    ],
    ["no active", { sub: "ann" }, 'its answer has no "active" that is true or false'],
    ["active as a text", { active: "true" }, 'its answer has no "active" that is true or false'],
    ["an exp that is no number", { ...ACTIVE, exp: "soon" }, '"exp" of its answer is not a number of seconds'],
    ["a nbf that is no number", { ...ACTIVE, nbf: [1] }, '"nbf" of its answer is not a number of seconds'],
    ["too much", { ...ACTIVE, more: "x".repeat(64 * 1024) }, "the answer has more than 65536 bytes"],
  ];

  it.each(broken)("%s is 503 auth_unavailable, with the reason in the log only", async (_what, answer, why) => {
    const { reply, code, fault, forwarded } = await (await asking(answer)).ask();
    expect([reply.status, code, forwarded, headerValue(reply.headers, "retry-after"), fault]).toEqual([
      503,
      "auth_unavailable",
      null,
      "1",
      `introspection: ${why}`,
    ]);
    expect(problemOf(reply)["detail"]).toBe("The access token could not be checked. Try again shortly.");
    expect(String(reply.body)).not.toContain(why);
  });

  it.each(broken)(
    "%s admits the request with on_error allow, as nobody and without the client's own headers of claims",
    async (_what, answer) => {
      const { forwarded, exchange } = await (
        await asking(answer, { on_error: "allow", claims_to_headers: { sub: "X-User" } })
      ).ask("t", { headers: ["Authorization", "Bearer t", "X-User", "root"], identity: "before" });
      expect(forwarded).toMatchObject({ identity: "before", claims: null, headers: ["Authorization", "Bearer t"] });
      expect(exchange.call.personal).toBe(true);
    },
  );

  it(
    "a server out of reach is 503 auth_unavailable; with on_error allow how many requests pass is " +
      "logged at most once a second",
    async () => {
      const url = `http://127.0.0.1:${await closedPort()}/`;
      expect((await asked(instance(introspection, { url, ...CLIENT }, tools()), BEARER)).fault).toMatch(
        /^introspection: connect ECONNREFUSED/,
      );
      const own = tools();
      const lenient = instance(introspection, { url, ...CLIENT, on_error: "allow" }, own);
      for (let i = 0; i < 3; i++) expect((await asked(lenient, BEARER)).code).toBe("passes");
      own.clock.advance(1_000);
      await asked(lenient, BEARER);
      expect(own.lines.map(({ level, fields }) => [level, fields!["requests"]])).toEqual([
        ["warn", 1],
        ["warn", 3],
      ]);
      expect(JSON.stringify(own.lines)).not.toContain("hunter2");
    },
  );

  it("with on_error allow a request without a token, or with an inactive one, is refused all the same", async () => {
    const { ask } = await asking({ active: false }, { on_error: "allow" });
    expect([(await ask(null)).code, (await ask()).code]).toEqual(["token_missing", "token_invalid"]);
  });

  it(
    "an inactive token is refused with on_error allow, " + "however long this process was blocked while it asked",
    async () => {
      const { ask, tools: own } = await asking({ active: false }, { on_error: "allow" });
      const waiting = ask();
      own.clock.stall(60_000);
      expect((await waiting).code).toBe("token_invalid");
    },
  );

  it.each([400, 408, 413, 414, 422, 429, 431])(
    "a question that the server refuses with %i, which a client can bring about, admits nobody with on_error allow",
    async (status) => {
      const { ask } = await asking(
        (_request: unknown, response: ServerResponse) => void response.writeHead(status).end(),
        {
          on_error: "allow",
        },
      );
      expect((await ask()).code).toBe("auth_unavailable");
    },
  );

  it("an answer is given up after timeout_ms", async () => {
    const begun = gate();
    const silent = await rawBackend(() => begun.open());
    const own = tools();
    const waiting = asked(
      instance(introspection, { url: `http://127.0.0.1:${silent.port}/`, ...CLIENT, timeout_ms: 200 }, own),
      BEARER,
    );
    await begun.opened;
    own.clock.advance(200);
    expect((await waiting).fault).toBe("introspection: no answer within 200 ms");
  });
});

describe("in a test of a configuration", () => {
  it("claims of as.jwt stand for the answer of the server, whatever token the request has", () => {
    const verdict = (claims: object, config: object = {}) => {
      const middleware = instance(
        introspection,
        { url: "http://127.0.0.1:1/", ...CLIENT, ...config },
        tools({ verifiedClaims: claims as never }),
      );
      const { returned, forwarded } = exercise(middleware, madeUpExchange());
      return `${atOnce(returned).status} ${String(forwarded?.identity)}`;
    };
    expect(verdict({ sub: "ann" })).toBe("200 ann");
    expect(verdict({ active: false, sub: "ann" })).toBe("401 undefined");
    expect(verdict({ sub: "ann", exp: NOW })).toBe("401 undefined");
    expect(verdict({ sub: "ann" }, { scopes: ["read"] })).toBe("403 undefined");
  });
});

describe("configuration", () => {
  const GOOD = { url: "http://a/", ...CLIENT };
  const KEY = String(generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));

  it("introspection has defaults for every field but url and the client's credentials", () => {
    expect(checked(introspection.schema, GOOD).value).toEqual({
      ...{
        url: "http://a/",
        clientId: "gateway",
        clientSecret: "hunter2",
        tokenFrom: "header",
        scopes: [],
        leewayS: 0,
      },
      ...{ cacheS: 60, negativeCacheS: 10, timeoutMs: 1_000, onError: "deny" },
    });
  });

  it.each<[string, object, RegExp]>([
    ["no url", { url: undefined }, /^url: is required/],
    ["a path alone", { url: "/introspect" }, /^url: expected an http/],
    [
      "a password in the url",
      { url: "http://u:geheim@a/" },
      /^url: is a URL with a user name or password: leave them out$/,
    ],
    ["no client_id", { client_id: undefined }, /^client_id: is required/],
    ["an empty client_id", { client_id: "" }, /^client_id: expected a non-empty string/],
    ["no credentials", { client_secret: undefined }, /^: needs either "client_secret" or "client_key"$/],
    ["an empty secret", { client_secret: "" }, /^client_secret: expected a non-empty string/],
    ["both credentials", { client_key: "k.pem" }, /^: needs either "client_secret" or "client_key"$/],
    ["a key's id without a key", { client_key_id: "k" }, /^client_key_id: is for "client_key"$/],
    ["an audience without a key", { assertion_audience: "a" }, /^assertion_audience: is for "client_key"$/],
    ["another place of tokens", { token_from: "body" }, /^token_from: .*"header", "cookie:<name>" or "query:<name>"/],
    ["no place of tokens", { token_from: [] }, /^token_from: /],
    [
      "two scopes in one text",
      { scopes: ["read write"] },
      /^scopes\[0\]: expected one scope, without spaces and quotes/,
    ],
    ["an empty scope", { scopes: [""] }, /^scopes\[0\]: expected one scope/],
    [
      "two claims for one header",
      { claims_to_headers: { sub: "X-A", aud: "x-a" } },
      /^claims_to_headers\.aud: is the header of sub already/,
    ],
    ["a header that the gateway sets", { claims_to_headers: { sub: "Host" } }, /the gateway sets this header itself/],
    ["a negative cache_s", { cache_s: -1 }, /^cache_s: expected an integer 0–86400/],
    ["a cache_s of two days", { cache_s: 172_800 }, /^cache_s: expected an integer 0–86400/],
    ["a fraction", { negative_cache_s: 0.5 }, /^negative_cache_s: expected an integer 0–86400/],
    ["no time at all", { timeout_ms: 0 }, /^timeout_ms: expected an integer 1–600000/],
    ["tls for plain HTTP", { tls: {} }, /^tls: applies to https:\/\/ URLs; this one starts with http:\/\/$/],
    ["another on_error", { on_error: "permit" }, /^on_error: expected "deny" or "allow"/],
    ["a slip", { cache_ms: 1 }, /^cache_ms: .*did you mean "cache_s"/],
  ])("introspection reports %s as a configuration error", (_what, config, message) => {
    const given = Object.fromEntries(Object.entries({ ...GOOD, ...config }).filter(([, value]) => value !== undefined));
    const { issues } = checkedWithFile(given, KEY);
    expect(issues).toHaveLength(1);
    expect(issues[0]).toMatch(message);
    expect(issues[0]).not.toMatch(/hunter2|geheim/);
  });

  it.each<[string, string, RegExp]>([
    ["garbage", "garbage", /^client_key: \/key\.pem: is not a private key in PEM form/],
    [
      "a public key",
      String(createPublicKey(KEY).export({ type: "spki", format: "pem" })),
      /^client_key: \/key\.pem: is not a private key in PEM form/,
    ],
    [
      "a key with a passphrase",
      String(
        generateKeyPairSync("ed25519").privateKey.export({
          type: "pkcs8",
          format: "pem",
          cipher: "aes-256-cbc",
          passphrase: "p",
        }),
      ),
      /^client_key: \/key\.pem: is encrypted/,
    ],
    [
      "an RSA key of 1024 bits",
      String(generateKeyPairSync("rsa", { modulusLength: 1024 }).privateKey.export({ type: "pkcs8", format: "pem" })),
      /^client_key: \/key\.pem: is a key that cannot sign assertions: use RSA with at least 2048 bits/,
    ],
    [
      "a key for key agreement",
      String(generateKeyPairSync("x25519").privateKey.export({ type: "pkcs8", format: "pem" })),
      /^client_key: \/key\.pem: is a key that cannot sign assertions/,
    ],
  ])("introspection reports %s as client_key as a configuration error", (_what, pem, message) => {
    const { issues } = checkedWithFile({ url: "http://a/", client_id: "gateway", client_key: "key.pem" }, pem);
    expect(issues).toHaveLength(1);
    expect(issues[0]).toMatch(message);
  });
});
