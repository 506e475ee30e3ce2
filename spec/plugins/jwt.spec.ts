import { createHmac, createSign, generateKeyPairSync, sign, type KeyObject } from "node:crypto";
import { gzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished } from "vitest";
import * as references from "../../lib/config/references.ts";
import { nodeFrom } from "../../lib/config/json.ts";
import { formatPath } from "../../lib/config/schema.ts";
import { SharedMemory } from "../../lib/base/shared_memory.ts";
import { Call } from "../../lib/http/exchange.ts";
import { headerValue, headerValues } from "../../lib/http/headers.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { jwt } from "../../lib/plugins/jwt.ts";
import { backend, gate, rawBackend } from "../journeys/harness.ts";
import { manualClock } from "../support/clock.ts";
import { atOnce, checked, exercise, instance, madeUpExchange, madeUpTools, problemOf } from "../support/exercise.ts";
import { closedPort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

const SECRET = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/** What `manualClock` begins with, in seconds. */
const NOW = Date.UTC(2026, 0, 1) / 1000;
const CLAIMS = { sub: "ann", exp: NOW + 3_600 };

const encode = (value: unknown) =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

/** A token with the right HMAC, whatever stands in it. */
function token(claims: unknown = CLAIMS, header: object = { alg: "HS256", typ: "JWT" }, secret = SECRET): string {
  const text = `${encode(header)}.${encode(claims)}`;
  return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
}

const bearer = (text: string) => ({ headers: ["Authorization", `Bearer ${text}`] });
const HS = { alg: "HS256", secret: SECRET };

function ask(config: object, parts: Parameters<typeof madeUpExchange>[0], tools = madeUpTools()) {
  const exchange = madeUpExchange(parts);
  const whole = "public_key" in config || "publicKey" in config ? config : { ...HS, ...config };
  const { returned, forwarded } = exercise(instance(jwt, whole, tools), exchange);
  const reply = atOnce(returned);
  return {
    status: reply.status,
    code: reply.status === 200 ? null : problemOf(reply)["code"],
    forwarded,
    reply,
    exchange,
  };
}

const outcome = (config: object, claims: object) => {
  const { code, exchange } = ask(config, bearer(token({ ...CLAIMS, ...claims })));
  return code === null ? "passes" : `${String(code)} ${exchange.call.notes.fault?.slice("jwt: ".length) ?? ""}`;
};

describe("the token", () => {
  const good = token();

  it.each([`Bearer ${good}`, `bearer ${good}`, `BEARER   ${good} `])(
    "the token is read from Authorization by default",
    (value) => {
      expect(ask({}, { headers: ["authorization", value] }).status).toBe(200);
    },
  );

  it.each<[string, string[]]>([
    ["none", []],
    ["an empty one", ["Authorization", ""]],
    ["Bearer alone", ["Authorization", "Bearer"]],
    ["Bearer and a space", ["Authorization", "Bearer  "]],
    ["another scheme", ["Authorization", `Basic ${good}`]],
    ["a cookie and a query that nobody asked for", ["Cookie", `token=${good}`]],
  ])(
    "the token is missing: 401 token_missing for %s, with a challenge without error (RFC 6750 §3)",
    (_what, headers) => {
      const { code, reply, exchange } = ask({}, { headers, query: `?token=${good}` });
      expect([reply.status, code]).toEqual([401, "token_missing"]);
      expect(headerValues(reply.headers, "www-authenticate")).toEqual(['Bearer realm="edge-gateway"']);
      expect(exchange.call.notes).toMatchObject({ code: "token_missing", identity: null, fault: null });
    },
  );

  it(
    "the token is read from a cookie or a query parameter if configured, " +
      "and from the first of several places that has one",
    () => {
      expect(ask({ from: "cookie:t" }, { headers: ["Cookie", "a=b; T=x", "Cookie", `t=${good}; c=d`] }).status).toBe(
        200,
      );
      expect(ask({ from: "query:t" }, { query: `?a&t=${good}` }).status).toBe(200);
      expect(ask({ from: "query:t" }, { query: `?%74=${good}` }).status).toBe(200);
      expect(ask({ from: "query:t" }, bearer(good)).code).toBe("token_missing");
      expect(ask({ from: ["header", "cookie:t"] }, { headers: ["Cookie", `t=${good}`] }).status).toBe(200);
      expect(
        ask({ from: ["cookie:t", "header"] }, { headers: ["Cookie", "t=wrong", "Authorization", `Bearer ${good}`] })
          .code,
      ).toBe("token_invalid");
    },
  );

  it(
    "the token is refused with 401 if there are two different ones, " + "of which the upstream could read the other",
    () => {
      const other = token({ ...CLAIMS, sub: "bob" });
      const two = { headers: ["Authorization", `Bearer ${good}`, "authorization", `Bearer ${other}`] };
      expect(ask({}, two).code).toBe("token_invalid");
      expect(ask({ from: "query:t" }, { query: `?t=${good}&t=${other}` }).code).toBe("token_invalid");
      expect(ask({ from: "cookie:t" }, { headers: ["Cookie", `t=${good}; t=${other}`] }).code).toBe("token_invalid");
    },
  );
});

describe("a token that passes", () => {
  it(
    "a token that passes makes its sub the caller and passes its claims on, " + "without another change of the request",
    () => {
      const { forwarded, exchange } = ask({}, bearer(token({ ...CLAIMS, plan: "paid" })));
      expect(forwarded).toMatchObject({ identity: "ann", claims: { sub: "ann", plan: "paid" } });
      expect(forwarded!.headers).toEqual(exchange.headers);
      expect(exchange.call.notes.identity).toBe("ann");
    },
  );

  it.each<readonly [string, unknown, readonly string[]]>([
    ["a list", ["gold", "beta", "gold"], ["gold", "beta"]],
    ["one text", "gold", ["gold"]],
    ["texts among others", ["gold", 7, null, "", { a: 1 }, ["deep"]], ["gold"]],
    ["a number", 7, []],
    ["an object", { gold: true }, []],
    ["null", null, []],
  ])(
    "a token that passes gives its caller the groups of the claim that groups_claim names: %s",
    (_title, groups, expected) => {
      const { forwarded } = ask({ groups_claim: "realm.groups" }, bearer(token({ ...CLAIMS, realm: { groups } })));
      expect(forwarded!.groups).toEqual(expected);
      expect(Object.isFrozen(forwarded!.groups)).toBe(true);
    },
  );

  it(
    "a token that passes has no groups without groups_claim or without the claim, " +
      "and then leaves none of another token",
    () => {
      const parts = { ...bearer(token({ ...CLAIMS, groups: ["gold"] })), groups: ["before"] };
      expect(ask({}, parts).forwarded!.groups).toEqual([]);
      expect(ask({ groups_claim: "roles" }, parts).forwarded!.groups).toEqual([]);
      expect(ask({ groups_claim: "constructor" }, parts).forwarded!.groups).toEqual([]);
    },
  );

  it("a token that passes replaces the previous caller, also if it has no sub", () => {
    const { forwarded } = ask({}, { ...bearer(token({ exp: NOW + 1 })), identity: "before", groups: ["before"] });
    expect(forwarded).toMatchObject({ identity: null, groups: [], claims: { exp: NOW + 1 } });
    expect(forwarded!.call.notes.identity).toBeNull();
  });

  it("a token is verified once, and again when it has expired", () => {
    const tools = madeUpTools();
    const middleware = instance(jwt, { ...HS, leeway_s: 0 }, tools);
    const parts = bearer(token({ ...CLAIMS, exp: NOW + 10 }));
    const first = exercise(middleware, madeUpExchange(parts)).forwarded;
    expect(exercise(middleware, madeUpExchange(parts)).forwarded!.claims).toBe(first!.claims);
    (tools.clock as ReturnType<typeof manualClock>).advance(10_000);
    expect(problemOf(atOnce(exercise(middleware, madeUpExchange(parts)).returned))["code"]).toBe("token_expired");
  });
});

describe("tokens that are remembered", () => {
  it(
    "tokens that are remembered share one limit in bytes with all instances, " +
      "and the least recently used ones are dropped first",
    () => {
      const verdicts = new SharedMemory(20_000);
      const [one, two] = [0, 1].map(() => instance(jwt, HS, madeUpTools({ verdicts })));
      const claimsOf = (middleware: typeof one, id: number) =>
        exercise(middleware!, madeUpExchange(bearer(token({ ...CLAIMS, id })))).forwarded!.claims;
      const [first, second] = [claimsOf(one, 0), claimsOf(one, 1)];
      expect(claimsOf(one, 1)).toBe(second);
      for (let id = 2; verdicts.used < 19_000; id++) claimsOf(two, id);
      for (let id = 100; id < 105; id++) claimsOf(two, id);
      expect(verdicts.used).toBeLessThanOrEqual(20_000);
      expect(claimsOf(one, 1)).toBe(second);
      expect(claimsOf(one, 0)).not.toBe(first);
    },
  );

  it("tokens that are remembered count by the memory that their claims take, not only by their length", () => {
    const used = (claims: object) => {
      const verdicts = new SharedMemory(1024 * 1024);
      const exchange = madeUpExchange(bearer(token({ ...CLAIMS, ...claims })));
      expect(atOnce(exercise(instance(jwt, HS, madeUpTools({ verdicts })), exchange).returned).status).toBe(200);
      return verdicts.used;
    };
    const plain = used({ a: "x".repeat(2_000) });
    const nested = used({ a: Array.from({ length: 666 }, () => []) });
    expect(nested).toBeGreaterThan(3 * plain);
    expect(used({ a: "x".repeat(4_096) })).toBe(0);
  });
});

describe("claims that other plugins see", () => {
  it("cannot be changed at any depth, since later requests with the same token see them too", () => {
    const { forwarded } = ask(
      {},
      bearer(
        token({
          ...CLAIMS,
          roles: ["a", { b: [1] }],
          deep: JSON.parse("[".repeat(1_000) + "]".repeat(1_000)) as unknown,
        }),
      ),
    );
    const claims = forwarded!.claims as { roles: [string, { b: number[] }]; deep: unknown };
    expect(() => claims.roles.push("admin")).toThrow(TypeError);
    expect(() => claims.roles[1].b.push(2)).toThrow(TypeError);
    expect(() => ((claims as { sub?: string }).sub = "root")).toThrow(TypeError);
    for (let at = claims.deep; Array.isArray(at); at = at[0]) expect(Object.isFrozen(at)).toBe(true);
  });
});

describe("typ, the type of the token", () => {
  const fault = (typ: unknown, config: object = {}) =>
    ask(config, bearer(token(CLAIMS, { alg: "HS256", ...(typ !== undefined && { typ }) }))).exchange.call.notes.fault;

  it.each(["at+jwt", "AT+JWT", "application/at+jwt", "JWT", "jwt", "application/jwt", undefined])(
    "typ is accepted as %s by default",
    (typ) => {
      expect(fault(typ)).toBeNull();
    },
  );

  it.each(["dpop+jwt", "logout+jwt", "secevent+jwt", "id_token", "text/jwt", "", "absent", null, 1, ["JWT"]])(
    "typ is refused as %j by default, with 401 token_invalid",
    (typ) => {
      expect(fault(typ)).toBe("jwt: type");
    },
  );

  it("typ is accepted and refused as configured", () => {
    expect([
      fault("at+jwt", { typ: "at+jwt" }),
      fault("application/at+jwt", { typ: "AT+jwt" }),
      fault("at+jwt", { typ: "application/at+jwt" }),
    ]).toEqual([null, null, null]);
    expect([fault("JWT", { typ: "at+jwt" }), fault(undefined, { typ: "at+jwt" })]).toEqual(["jwt: type", "jwt: type"]);
    expect([
      fault("logout+jwt", { typ: ["logout+jwt", "absent"] }),
      fault(undefined, { typ: ["logout+jwt", "absent"] }),
    ]).toEqual([null, null]);
    expect([fault(undefined, { typ: "absent" }), fault("JWT", { typ: "absent" })]).toEqual([null, "jwt: type"]);
  });
});

describe("claims_to_headers", () => {
  const config = {
    claims_to_headers: { sub: "X-User", "realm_access.roles": "X-Roles", "https://a.example/n": "X-Number" },
  };

  it("sends texts, numbers, lists with commas and nested claims to the upstream", () => {
    const claims = { ...CLAIMS, sub: "anné", realm_access: { roles: ["a", "b,c", "100%"] }, "https://a.example/n": 7 };
    const { headers } = ask(config, bearer(token(claims))).forwarded!;
    expect(headers.slice(2)).toEqual([
      "X-User",
      Buffer.from("anné").toString("latin1"),
      "X-Roles",
      "a,b%2Cc,100%25",
      "X-Number",
      "7",
    ]);
  });

  it("drops the client's headers of these names, also with an underscore, and also without the claim", () => {
    const forged = ["x-user", "root", "X_User", "root", "X-Roles", "admin", "x_roles", "admin", "X-Userx", "stays"];
    const { headers } = ask(config, { headers: [...forged, ...bearer(token()).headers] }).forwarded!;
    expect(headers).toEqual(["X-Userx", "stays", "Authorization", expect.any(String), "X-User", "ann"]);
  });

  it.each([{ sub: "a\r\nX-Admin: 1" }, { realm_access: { roles: [{}] } }, { realm_access: { roles: { a: 1 } } }])(
    "refuses a claim that no header can hold with 401: %j",
    (claims) => {
      expect(outcome(config, claims)).toBe("token_invalid unfit");
    },
  );
});

describe("401", () => {
  it.each<[string, string, object]>([
    ["an expired one", "token_expired expired", { exp: NOW - 60 }],
    ["one without exp", "token_invalid no exp", { exp: undefined }],
    ["a time that is none", "token_invalid malformed", { exp: "tomorrow" }],
    ["one for later", "token_invalid early", { nbf: NOW + 61 }],
    ["one from the future", "token_invalid early", { iat: NOW + 61 }],
  ])("refuses %s", (_what, expected, claims) => {
    expect(outcome({}, claims)).toBe(expected);
  });

  it("starts only after leeway_s, 60 by default", () => {
    expect(outcome({}, { exp: NOW - 59, nbf: NOW + 60, iat: NOW + 60 })).toBe("passes");
    expect(outcome({ leeway_s: 0 }, { exp: NOW })).toBe("token_expired expired");
    expect(outcome({ leeway_s: 0 }, { nbf: NOW + 1 })).toBe("token_invalid early");
  });

  it.each<[object, object, string]>([
    [{ iss: "a" }, { iss: "a" }, "passes"],
    [{ iss: ["b", "a"] }, { iss: "a" }, "passes"],
    [{ iss: "a" }, {}, "token_invalid issuer"],
    [{ iss: "a" }, { iss: ["a"] }, "token_invalid issuer"],
    [{ aud: "x" }, { aud: "x" }, "passes"],
    [{ aud: "x" }, { aud: ["y", "x"] }, "passes"],
    [{ aud: ["x", "z"] }, { aud: ["y", "z"] }, "passes"],
    [{ aud: ["x", "z"] }, { aud: "y" }, "token_invalid audience"],
    [{ aud: "x" }, {}, "token_invalid audience"],
    [{ require: ["exp", "jti"] }, {}, "token_invalid incomplete"],
    [{ require: ["jti"] }, { jti: "1" }, "passes"],
    [{ require: ["jti"] }, { jti: "1", exp: undefined }, "token_invalid no exp"],
    [{ require: ["jti"] }, { jti: null }, "token_invalid incomplete"],
    [{ require: [] }, { exp: undefined }, "token_invalid no exp"],
    [{ require: ["jti"], exp: "optional" }, { jti: "1", exp: undefined }, "passes"],
    [{ require: ["jti"], exp: "optional" }, { exp: undefined }, "token_invalid incomplete"],
    [{ exp: "optional" }, { exp: NOW - 61 }, "token_expired expired"],
    [{ exp: "optional" }, { exp: "soon" }, "token_invalid malformed"],
    [{ claims: { plan: "paid" } }, { plan: "paid" }, "passes"],
    [{ claims: { plan: "paid" } }, { plan: ["free", "paid"] }, "passes"],
    [{ claims: { plan: "paid" } }, { plan: "prepaid" }, "token_invalid claims"],
    [{ claims: { plan: "paid" } }, {}, "token_invalid claims"],
    [{ claims: { ok: true } }, { ok: "true" }, "token_invalid claims"],
    [{ claims: { level: 2, ok: true } }, { level: 2, ok: true }, "passes"],
    [{ claims: { roles: ["a", "b"] } }, { roles: ["b", "c", "a"] }, "passes"],
    [{ claims: { roles: ["a", "b"] } }, { roles: ["b"] }, "token_invalid claims"],
    [{ claims: { scope: ["read", "write"] } }, { scope: "write read" }, "passes"],
    [{ claims: { scope: "read" } }, { scope: "readonly" }, "token_invalid claims"],
    [{ claims: { "a.b": "c" } }, { a: { b: "c" } }, "passes"],
    [{ claims: { "a.b": "c" } }, { "a.b": "d", a: { b: "c" } }, "token_invalid claims"],
    [{ claims: { "a.constructor": "c" } }, { a: {} }, "token_invalid claims"],
  ])("configuration %j with claims %j leads to %s", (config, claims, expected) => {
    expect(outcome(config, claims)).toBe(expected);
  });

  const [head, body, mark] = token().split(".");
  it.each<[string, string, string]>([
    ["no dots", "abc", "malformed"],
    ["two parts", `${head}.${body}`, "malformed"],
    ["five parts, as an encrypted one has", `${head}.${body}.${mark}.a.b`, "malformed"],
    ["a header that is no object", `${encode("[]")}.${body}.${mark}`, "malformed"],
    ["a foreign character in base64url", `${head}.${body}.${mark}=`, "malformed"],
    ["more than 16 KiB", token({ ...CLAIMS, long: "x".repeat(16_384) }), "malformed"],
    ["claims that are no object", token([]), "malformed"],
    ["a kid that is no text", token(CLAIMS, { alg: "HS256", kid: 1 }), "malformed"],
    ["none", `${encode({ alg: "none" })}.${body}.`, "algorithm"],
    ["None with a signature", token(CLAIMS, { alg: "None" }), "algorithm"],
    ["an algorithm that is not configured", token(CLAIMS, { alg: "HS512" }), "algorithm"],
    ["no algorithm", token(CLAIMS, {}), "algorithm"],
    ["crit", token(CLAIMS, { alg: "HS256", crit: ["b64"], b64: false }), "critical"],
    ["another secret", token(CLAIMS, undefined, SECRET + "x"), "unknown key"],
    ["no signature", `${head}.${body}.`, "unknown key"],
    ["claims exchanged", `${head}.${encode({ ...CLAIMS, sub: "root" })}.${mark}`, "unknown key"],
  ])("refuses a token with %s", (_what, text, why) => {
    const { code, exchange, forwarded } = ask({}, bearer(text));
    expect([code, exchange.call.notes.fault]).toEqual(["token_invalid", `jwt: ${why}`]);
    expect(forwarded).toBeNull();
  });

  it("the 401 has the reason in WWW-Authenticate (RFC 6750 §3), and never the token", () => {
    const expired = token({ ...CLAIMS, exp: NOW - 100 });
    const { reply } = ask({}, bearer(expired), madeUpTools({ gatewayName: 'a "b"' }));
    expect(headerValues(reply.headers, "www-authenticate")).toEqual([
      'Bearer realm="a \\"b\\"", error="invalid_token", error_description="The access token has expired."',
    ]);
    expect(String(reply.body)).not.toContain(expired.slice(0, 20));
  });
});

const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
const pemOf = (key: KeyObject) => key.export({ type: "spki", format: "pem" }) as string;
const ec = (namedCurve: string) => generateKeyPairSync("ec", { namedCurve });
const p256 = ec("P-256");
const p384 = ec("P-384");
const ed25519 = generateKeyPairSync("ed25519");

function signedBy(privateKey: KeyObject, header: { alg: string; kid?: string }, claims: object = CLAIMS): string {
  const text = `${encode(header)}.${encode(claims)}`;
  const signature =
    header.alg === "EdDSA"
      ? sign(null, Buffer.from(text), privateKey)
      : header.alg.startsWith("ES")
        ? sign(`sha${header.alg.slice(2)}`, Buffer.from(text), { key: privateKey, dsaEncoding: "ieee-p1363" })
        : createSign(`sha${header.alg.slice(2)}`)
            .update(text)
            .sign(privateKey);
  return `${text}.${signature.toString("base64url")}`;
}

describe("public keys", () => {
  it.each<[string, { privateKey: KeyObject; publicKey: KeyObject }]>([
    ["RS256", rsa],
    ["RS512", rsa],
    ["ES256", p256],
    ["ES384", ec("P-384")],
    ["ES512", ec("P-521")],
    ["EdDSA", generateKeyPairSync("ed25519")],
    ["EdDSA", generateKeyPairSync("ed448")],
  ])("%s is verified with public_key, or publicKey", (alg, pair) => {
    const good = signedBy(pair.privateKey, { alg });
    const pem = pemOf(pair.publicKey);
    expect(ask({ alg, public_key: pem }, bearer(good)).status).toBe(200);
    expect(ask({ alg, publicKey: pem }, bearer(good)).status).toBe(200);
    const forged = good.slice(0, -8) + (good.endsWith("AAAAAAAA") ? "BBBBBBBB" : "AAAAAAAA");
    expect(ask({ alg, public_key: pem }, bearer(forged)).code).toBe("token_invalid");
  });

  it("public keys do not verify an HMAC made with the public key as the secret", () => {
    const pem = pemOf(rsa.publicKey);
    const forged = token(CLAIMS, { alg: "HS256" }, pem);
    expect(ask({ alg: "RS256", public_key: pem }, bearer(forged)).exchange.call.notes.fault).toBe("jwt: algorithm");
    expect(checked(jwt.schema, { algs: ["RS256", "HS256"], public_key: pem }).issues).toEqual([
      'algs: HS256 needs "secret": public keys are no secrets',
    ]);
  });

  it("public keys do not verify an ES256 signature in DER form", () => {
    const text = `${encode({ alg: "ES256" })}.${encode(CLAIMS)}`;
    const der = sign("sha256", Buffer.from(text), p256.privateKey).toString("base64url");
    expect(ask({ alg: "ES256", public_key: pemOf(p256.publicKey) }, bearer(`${text}.${der}`)).code).toBe(
      "token_invalid",
    );
  });
});

const jwk = (key: KeyObject, more: object = {}) => ({ ...key.export({ format: "jwk" }), ...more });

/** Checks a configuration that names files with contents. */
function issuesWith(config: object, content: string): string[] {
  const context = {
    issues: [],
    sources: { references, environment: {}, readFile: () => content, folder: "/etc" },
  } as Parameters<typeof jwt.schema.check>[2];
  jwt.schema.check(nodeFrom(config), [], context);
  return context.issues.map(({ at, message }) => `${formatPath(at)}: ${message}`);
}

describe("jwks_file", () => {
  const other = ec("P-256");
  const set = {
    keys: [
      { kty: "oct", k: "c2VjcmV0" },
      { kty: "new" },
      7,
      jwk(other.publicKey, { kid: "b", use: "enc" }),
      jwk(p256.publicKey, { kid: "a", alg: "ES256" }),
      jwk(other.publicKey, { kid: "c" }),
    ],
  };

  function status(header: { alg: string; kid?: string }, pair = p256, keys: unknown = set): number {
    const context = {
      issues: [],
      sources: { references, environment: {}, readFile: () => JSON.stringify(keys), folder: "/" },
    } as Parameters<typeof jwt.schema.check>[2];
    const config = jwt.schema.check(nodeFrom({ alg: header.alg, jwks_file: "keys.json" }), [], context);
    const middleware = jwt.create(config as Parameters<typeof jwt.create>[0], madeUpTools());
    return atOnce(exercise(middleware, madeUpExchange(bearer(signedBy(pair.privateKey, header)))).returned).status;
  }

  it("chooses the key by kid: any key for a token without kid, a nameless key for an unknown kid", () => {
    expect(status({ alg: "ES256", kid: "a" })).toBe(200);
    expect(status({ alg: "ES256" })).toBe(200);
    expect(status({ alg: "ES256", kid: "c" })).toBe(401);
    expect(status({ alg: "ES256", kid: "x" })).toBe(401);
    expect(status({ alg: "ES256", kid: "x" }, p256, { keys: [jwk(p256.publicKey)] })).toBe(200);
  });

  it("ignores keys for other uses", () => {
    expect(status({ alg: "ES256", kid: "b" }, other)).toBe(401);
    expect(status({ alg: "ES256", kid: "c" }, other)).toBe(200);
    expect(
      issuesWith(
        { alg: "ES256", jwks_file: "k" },
        JSON.stringify({ keys: [jwk(other.publicKey, { key_ops: ["sign"] })] }),
      ),
    ).toHaveLength(1);
  });

  it.each<[string, { privateKey: KeyObject; publicKey: KeyObject }]>([
    ["RS256", rsa],
    ["ES256", p256],
    ["ES384", p384],
    ["EdDSA", ed25519],
  ])("keys without alg verify %s only where their type is the one that it needs", (alg, pair) => {
    const unnamed = {
      keys: [rsa, p256, p384, ed25519, generateKeyPairSync("x25519")].map(({ publicKey }) => jwk(publicKey)),
    };
    expect(status({ alg }, pair, unnamed)).toBe(200);
    const others = { keys: unnamed.keys.filter((key) => JSON.stringify(key) !== JSON.stringify(jwk(pair.publicKey))) };
    expect(issuesWith({ alg, jwks_file: "k" }, JSON.stringify(others))).toEqual([
      `jwks_file: /etc/k contains no key that can verify ${alg}`,
    ]);
  });

  it.each([
    { key_ops: "verify" },
    { key_ops: ["sign"] },
    { use: "enc" },
    { use: 0 },
    { alg: "ES384" },
    { alg: ["ES256"] },
  ])("a key with %j verifies nothing", (more) => {
    expect(
      issuesWith({ alg: "ES256", jwks_file: "k" }, JSON.stringify({ keys: [jwk(p256.publicKey, more)] })),
    ).toHaveLength(1);
  });

  it.each(["use", "alg", "key_ops"].flatMap((name) => [null, "", []].map((value) => ({ [name]: value }))))(
    "a key with %j verifies as one without this member",
    (more) => expect(status({ alg: "ES256" }, p256, { keys: [jwk(p256.publicKey, more)] })).toBe(200),
  );

  it("must contain a key that fits", () => {
    expect(issuesWith({ alg: "ES256", jwks_file: "k" }, JSON.stringify(set))).toEqual([]);
    expect(issuesWith({ alg: "RS256", jwks_file: "k" }, JSON.stringify(set))).toEqual([
      "jwks_file: /etc/k contains no key that can verify RS256",
    ]);
    expect(issuesWith({ alg: "RS256", jwks_file: "k" }, "{")).toEqual(["jwks_file: /etc/k is not JSON"]);
    expect(issuesWith({ alg: "RS256", jwks_file: "k" }, "[]")).toEqual([
      'jwks_file: /etc/k is not a JSON Web Key Set: it has no array "keys"',
    ]);
  });
});

describe("jwks_uri", () => {
  const next = ec("P-256");
  const tokens = new Map<string, string>();
  /** The same one each time: what was believed before must not be, once its key has gone. */
  const tokenFor = (kid: string) => {
    const made =
      tokens.get(kid) ?? signedBy((kid === "next" ? next : p256).privateKey, { alg: "ES256", kid }, { sub: kid });
    tokens.set(kid, made);
    return made;
  };
  const published = (...kids: string[]) =>
    JSON.stringify({ keys: kids.map((kid) => jwk((kid === "next" ? next : p256).publicKey, { kid })) });

  /** An instance with an issuer on a port, and a clock by hand. */
  function asking(port: number, tools = madeUpTools()) {
    const clock = tools.clock as ReturnType<typeof manualClock>;
    let close = () => {};
    const keep: typeof tools.keep = (_name, _settings, make) => {
      const made = make();
      const others = close;
      close = () => {
        others();
        void made.close();
      };
      onTestFinished(close);
      return made;
    };
    const middleware = instance(
      jwt,
      { alg: "ES256", jwks_uri: `http://127.0.0.1:${port}/keys`, exp: "optional" },
      { ...tools, keep },
    );
    const request = (kid: string, call?: Call): Reply | Promise<Reply> => {
      const parts = bearer(kid.includes(".") ? kid : tokenFor(kid));
      return exercise(middleware, madeUpExchange(call === undefined ? parts : { ...parts, call })).returned;
    };
    return {
      request,
      status: async (kid: string) => (await request(kid)).status,
      clock,
      lines: tools.lines,
      close: () => close(),
    };
  }

  it.each<[string, object, string]>([
    ["an algorithm that is not configured", { alg: "RS256", kid: "a" }, "algorithm"],
    ["no algorithm", { kid: "a" }, "algorithm"],
    ["alg none", { alg: "none" }, "algorithm"],
    ["a type that is not accepted", { alg: "ES256", typ: "logout+jwt" }, "type"],
    ["crit", { alg: "ES256", crit: ["x"] }, "critical"],
    ["a kid that is no text", { alg: "ES256", kid: 7 }, "malformed"],
  ])("jwks_uri is not fetched for a token with %s, which is refused at once", async (_what, header, why) => {
    const issuer = await rawBackend((_request, response) => void response.end(published("a")));
    const { request } = asking(issuer.port);
    const call = madeUpExchange().call;
    expect(atOnce(request(token(CLAIMS, header), call)).status).toBe(401);
    expect(call.notes.fault).toBe(`jwt: ${why}`);
    expect(atOnce(request("no.token.", madeUpExchange().call)).status).toBe(401);
    expect(issuer.connections.total).toBe(0);
  });

  it("jwks_uri is fetched for the first token, which waits, and once for all that come meanwhile", async () => {
    const held = gate<() => void>();
    const issuer = await rawBackend((_request, response) => held.open(() => void response.end(published("a"))));
    const { status, request } = asking(issuer.port);
    expect(issuer.connections.total).toBe(0);
    const both = Promise.all([status("a"), status("a")]);
    (await held.opened)();
    expect(await both).toEqual([200, 200]);
    expect(atOnce(request("a")).status).toBe(200);
    expect(issuer.connections.total).toBe(1);
  });

  it("jwks_uri is read in gzip, too, from a server that compresses without being asked", async () => {
    let [coding, body] = ["gzip", gzipSync(published("a"))];
    const issuer = await backend(
      (_request, response) => void response.writeHead(200, { "Content-Encoding": coding }).end(body),
    );
    const { status, clock, lines } = asking(issuer.port);
    expect(await status("a")).toBe(200);
    for (const [bad, bytes] of [
      ["gzip", Buffer.from(published("a"))],
      ["gzip", gzipSync(published("a").padEnd(512 * 1024 + 1))],
      ["br", Buffer.from("x")],
    ] as const) {
      [coding, body] = [bad, bytes];
      clock.advance(60_000);
      expect(await status("next")).toBe(401);
    }
    expect(lines.map(({ fields }) => fields!["error"])).toEqual([
      expect.stringMatching(/^its answer in gzip cannot be read: /),
      expect.stringMatching(/^its answer in gzip cannot be read: /),
      "its answer has a coding that was not asked for",
    ]);
  });

  it("jwks_uri is fetched again for an unknown kid, but not more often than every ten seconds", async () => {
    let kids = ["a"];
    const issuer = await backend((_request, response) => void response.end(published(...kids)));
    const { status, request, clock } = asking(issuer.port);
    expect(await status("a")).toBe(200);
    kids = ["next"];
    expect(atOnce(request("next")).status).toBe(401);
    clock.advance(10_000);
    expect(await status("next")).toBe(200);
    expect(issuer.seen).toHaveLength(2);
    // What the old key signed is worth nothing any more, remembered or not.
    expect(atOnce(request("a")).status).toBe(401);
    clock.advance(10_000);
    expect(await status("a")).toBe(401);
    expect(issuer.seen).toHaveLength(3);
  });

  it("jwks_uri is fetched again in the background when the keys are ten minutes old", async () => {
    const issuer = await backend((_request, response) => void response.end(published("a")));
    const { status, request, clock } = asking(issuer.port);
    await status("a");
    clock.advance(599_999);
    expect(atOnce(request("a")).status).toBe(200);
    expect(issuer.seen).toHaveLength(1);
    clock.advance(1);
    expect(atOnce(request("a")).status).toBe(200);
    await eventually(() => issuer.seen.length === 2, "two requests at the issuer");
  });

  it("may be unreachable: old keys stay valid, it is asked less and less often, and that is logged", async () => {
    let answer: { status: number; body: string } = { status: 200, body: published("a") };
    const issuer = await backend((_request, response) => void response.writeHead(answer.status).end(answer.body));
    const { status, request, clock, lines } = asking(issuer.port);
    await status("a");
    for (const bad of [
      { status: 500, body: "" },
      { status: 200, body: "{}" },
      { status: 200, body: '{"keys":[]}' },
    ]) {
      answer = bad;
      const before = lines.length;
      clock.advance(600_000);
      expect(atOnce(request("a")).status).toBe(200);
      await eventually(() => lines.length > before, "a further log line");
    }
    expect(lines.map(({ level, message }) => `${level} ${message}`)).toEqual(
      Array(3).fill("warn jwt cannot fetch the keys of its issuer; it keeps using the cached keys"),
    );
    expect(lines.map(({ fields }) => fields!["error"])).toEqual([
      "it answered with status 500",
      'its answer is not a JSON Web Key Set: it has no array "keys"',
      "its answer contains no key that can verify ES256",
    ]);
    clock.advance(3_999);
    expect(atOnce(request("a")).status).toBe(200);
    answer = { status: 200, body: published("a", "next") };
    clock.advance(1);
    expect(await status("next")).toBe(200);
    expect(issuer.seen).toHaveLength(5);
  });

  it("gives 503 auth_unavailable without any answer so far, at once until the next fetch is due", async () => {
    const { request, clock, lines } = asking(await closedPort());
    const reply = await request("a");
    expect([reply.status, problemOf(reply)["code"], headerValue(reply.headers, "retry-after")]).toEqual([
      503,
      "auth_unavailable",
      "5",
    ]);
    expect(lines[0]!.message).toBe("jwt cannot fetch the keys of its issuer; it has none");
    expect(atOnce(request("a")).status).toBe(503);
    clock.advance(1_000);
    expect(request("a")).toBeInstanceOf(Promise);
  });

  it("a fetch is given up after five seconds", async () => {
    const begun = gate();
    const issuer = await rawBackend(() => begun.open());
    const { request, clock } = asking(issuer.port);
    const asked = request("a");
    await begun.opened;
    clock.advance(5_000);
    expect((await asked).status).toBe(503);
  });

  it("ends with its instance unless a request waits", async () => {
    const begun = gate();
    const issuer = await rawBackend(() => begun.open());
    const { request, close } = asking(issuer.port);
    const call = new Call({
      id: "c",
      remoteAddress: "192.0.2.1",
      trustedRemote: false,
      startedAt: 0,
      inform: () => {},
    });
    const asked = request("a", call);
    await begun.opened;
    close();
    expect(issuer.connections.open).toBe(1);
    call.abort();
    await asked;
    await eventually(() => issuer.connections.open === 0, "the connections to the issuer closing");
  });

  it("causes a warning for plain HTTP to other machines, with the host only", () => {
    const tools = madeUpTools();
    instance(jwt, { alg: "ES256", jwks_uri: "http://issuer.example/keys?token=x" }, tools);
    instance(jwt, { alg: "ES256", jwks_uri: "https://issuer.example/keys" }, tools);
    instance(jwt, { alg: "ES256", jwks_uri: "http://[::1]/keys" }, tools);
    expect(tools.lines.map(({ fields }) => fields!["host"])).toEqual(["issuer.example"]);
  });
});

describe("configuration", () => {
  const pem = pemOf(rsa.publicKey);

  it("jwt has defaults", () => {
    expect(checked(jwt.schema, HS).value).toMatchObject({
      leewayS: 60,
      exp: "required",
      require: [],
      typ: ["at+jwt", "JWT", "absent"],
      from: "header",
    });
  });

  const small = generateKeyPairSync("rsa", { modulusLength: 1024 });
  it.each<[string, object, RegExp]>([
    ["no algorithm", { secret: SECRET }, /needs either "alg" or "algs"/],
    ["alg and algs", { ...HS, algs: ["HS256"] }, /needs either "alg" or "algs"/],
    ["none", { alg: "none", secret: SECRET }, /alg: expected "HS256", /],
    ["no key", { alg: "HS256" }, /needs exactly one of "secret"/],
    ["two keys", { alg: "RS256", public_key: pem, jwks_uri: "https://a" }, /needs exactly one of "secret"/],
    [
      "public_key twice",
      { alg: "RS256", public_key: pem, publicKey: pem },
      /publicKey: is another name of "public_key"/,
    ],
    [
      "a short secret",
      { alg: "HS256", secret: "0123456789012345678901234567890" },
      /^secret: is too short for HS256, which needs at least 32 bytes/,
    ],
    [
      "a secret too short for one of several",
      { algs: ["HS256", "HS512"], secret: SECRET.slice(1) },
      /^secret: is too short for HS512/,
    ],
    ["a public key as the secret", { alg: "HS256", secret: pem }, /^secret: is a key pair's key or a certificate/],
    [
      "a public key as the secret, as SSH writes it",
      { alg: "HS256", secret: `ssh-ed25519 ${"A".repeat(68)} ann@host` },
      /^secret: is a key pair's key or a certificate/,
    ],
    [
      "one header for two claims",
      { ...HS, claims_to_headers: { sub: "X-User", email: "x-user" } },
      /^claims_to_headers\.email: is the header of sub already/,
    ],
    ["a secret for RS256", { alg: "RS256", secret: SECRET }, /alg: RS256 needs "public_key"/],
    ["HMAC keys from a URI", { alg: "HS256", jwks_uri: "https://a" }, /alg: HS256 needs "secret"/],
    [
      "a small RSA key",
      { alg: "RS256", public_key: pemOf(small.publicKey) },
      /^public_key: has 1024 bits: RSA keys need at least 2048/,
    ],
    ["an RSA key for ES256", { alg: "ES256", public_key: pem }, /^public_key: is not on the curve P-256/],
    ["another curve", { alg: "ES384", public_key: pemOf(p256.publicKey) }, /^public_key: is not on the curve P-384/],
    ["an EC key for RS256", { alg: "RS256", public_key: pemOf(p256.publicKey) }, /^public_key: is no RSA key/],
    ["an RSA key for EdDSA", { alg: "EdDSA", public_key: pem }, /^public_key: is no Ed25519/],
    [
      "a private key",
      { alg: "RS256", public_key: rsa.privateKey.export({ type: "pkcs8", format: "pem" }) },
      /^public_key: is a private key: give the public one \(openssl pkey -pubout\)$/,
    ],
    ["a key that is none", { alg: "RS256", public_key: "hello" }, /^public_key: is not a public key in PEM form/],
    ["a URI that is none", { alg: "RS256", jwks_uri: "ftp://a" }, /^jwks_uri: expected an http:\/\/ or https:\/\/ URL/],
    [
      "a URI with a password",
      { alg: "RS256", jwks_uri: "https://u:geheim@a/" },
      /^jwks_uri: is a URL with a user name or password: leave them out$/,
    ],
    ["exp that is required and optional", { ...HS, exp: "optional", require: ["exp"] }, /^exp: is in "require"/],
    ["exp that is neither", { ...HS, exp: "never" }, /^exp: expected "required" or "optional"/],
    ["no typ at all", { ...HS, typ: [] }, /^typ/],
    ["a typ that is no media type", { ...HS, typ: "a b" }, /^typ: expected/],
    ["another place", { ...HS, from: "header:x" }, /^from: expected/],
    [
      "a header the gateway sets",
      { ...HS, claims_to_headers: { sub: "X-Forwarded-For" } },
      /^claims_to_headers\.sub: .*the gateway sets this header itself/,
    ],
    ["framing", { ...HS, claims_to_headers: { sub: "Content-Length" } }, /^claims_to_headers\.sub/],
  ])("jwt reports %s as a configuration error", (_what, config, message) => {
    const { issues } = checked(jwt.schema, config);
    expect(issues).toHaveLength(1);
    expect(issues[0]!.replace(/^: /, "")).toMatch(message);
  });

  it("a message never shows a secret", () => {
    expect(checked(jwt.schema, { alg: "HS512", secret: "do not tell" }).issues.join()).not.toContain("do not tell");
  });
});
