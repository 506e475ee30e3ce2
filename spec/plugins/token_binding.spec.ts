import { generateKeyPairSync, X509Certificate } from "node:crypto";
import { describe, expect, it } from "vitest";
import { Call } from "../../lib/http/exchange.ts";
import type { ClientCertificate } from "../../lib/http/client_certificate.ts";
import type { Middleware } from "../../lib/http/handler.ts";
import { headerValues } from "../../lib/http/headers.ts";
import { jwt } from "../../lib/plugins/jwt.ts";
import { publicPart, thumbprint } from "../../lib/plugins/jwt_keys.ts";
import { verifyProof } from "../../lib/plugins/dpop.ts";
import { SharedMemory } from "../../lib/base/shared_memory.ts";
import type { KeyObject } from "node:crypto";
import { manualClock } from "../support/clock.ts";
import { dpopClient, SECRET, token, type Oddity } from "../support/dpop.ts";
import { atOnce, checked, exercise, instance, madeUpExchange, madeUpTools, problemOf } from "../support/exercise.ts";

const URL_ASKED = "http://gateway.example/a/b";
type Parts = Parameters<typeof madeUpExchange>[0];

/** A jwt instance on a manual clock. `ask` sends it a request with these headers. */
function guard(config: object = { dpop: "accept" }, more: object = {}) {
  const clock = manualClock();
  const now = () => Math.floor(clock.wall() / 1000);
  const tools = madeUpTools({ clock, ...more });
  const middleware = instance(jwt, { alg: "HS256", secret: SECRET, ...config }, tools);
  const ask = (headers: string[], parts: Parts = {}) => {
    const exchange = madeUpExchange({ headers: ["Host", "gateway.example", ...headers], ...parts });
    const reply = atOnce(exercise(middleware, exchange).returned);
    const fault = exchange.call.notes.fault;
    return {
      reply,
      outcome: reply.status === 200 ? "passes" : `${reply.status} ${fault ?? String(problemOf(reply)["code"])}`,
      challenges: headerValues(reply.headers, "www-authenticate"),
    };
  };
  const client = dpopClient(now);
  const sent = (odd: Oddity = {}, accessToken = client.token(), url = URL_ASKED, method = "GET") => [
    ...["Authorization", `DPoP ${accessToken}`],
    ...["DPoP", client.proof(method, url, accessToken, odd)],
  ];
  return { clock, now, tools, ask, client, sent };
}

/** RFC 9449 §4.1, §6.1 and §7.1. */
const RFC = {
  token: "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU",
  jkt: "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I",
  forTokenRequest:
    "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6Ik" +
    "VDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCR" +
    "nMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JE" +
    "QSIsImNydiI6IlAtMjU2In19.eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIj" +
    "oiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2VuIiwia" +
    "WF0IjoxNTYyMjYyNjE2fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg" +
    "4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT3Lg",
  forResource:
    "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6Ik" +
    "VDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCR" +
    "nMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JE" +
    "QSIsImNydiI6IlAtMjU2In19.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIj" +
    "oiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0Z" +
    "WRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNF" +
    "c05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71E" +
    "OptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA",
};

describe("the examples of the standards", () => {
  const verified = (proof: string, parts: Parts, now = 1_562_262_618_000) =>
    verifyProof(madeUpExchange({ headers: ["DPoP", proof], ...parts }), RFC.token, RFC.jkt, {
      now,
      keys: new SharedMemory(100_000).part<KeyObject>(),
    });
  const resource = { scheme: "https", authority: "resource.example.org", target: "/protectedresource" } as const;

  it("the proof of RFC 9449 §7.1 is valid for its request, time and token, and that of §4.1 is not", () => {
    expect(verified(RFC.forResource, resource)).toEqual({ jti: "e1j3V_bKic8-LAEB" });
    expect(verified(RFC.forResource, resource, 1_562_262_679_000)).toBe("proof iat");
    expect(verified(RFC.forResource, { ...resource, method: "POST" })).toBe("proof htm");
    const forTokens = { scheme: "https", authority: "server.example.com", target: "/token", method: "POST" } as const;
    expect(verified(RFC.forTokenRequest, forTokens)).toBe("proof ath");
  });

  it("thumbprints are those of RFC 7638 §3.1 and RFC 8037 §A.3", () => {
    const rsa = {
      kty: "RSA",
      n:
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3" +
        "oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdA" +
        "ZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-" +
        "kEgU8awapJzKnqDKgw",
      e: "AQAB",
      alg: "RS256",
      kid: "2011-04-29",
    };
    expect(thumbprint(publicPart(rsa)!)).toBe("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    const okp = { kty: "OKP", crv: "Ed25519", x: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" };
    expect(thumbprint(publicPart(okp)!)).toBe("kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
  });

  it("a certificate and the confirmation of RFC 8705 §A fit", () => {
    const pem =
      "-----BEGIN CERTIFICATE-----\n" +
      "MIIBBjCBrAIBAjAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDARtdGxzMB4XDTE4MTAx\n" +
      "ODEyMzcwOVoXDTIyMDUwMjEyMzcwOVowDzENMAsGA1UEAwwEbXRsczBZMBMGByqG\n" +
      "SM49AgEGCCqGSM49AwEHA0IABNcnyxwqV6hY8QnhxxzFQ03C7HKW9OylMbnQZjjJ\n" +
      "/Au08/coZwxS7LfA4vOLS9WuneIXhbGGWvsDSb0tH6IxLm8wCgYIKoZIzj0EAwID\n" +
      "SQAwRgIhAP0RC1E+vwJD/D1AGHGzuri+hlV/PpQEKTWUVeORWz83AiEA5x2eXZOV\n" +
      "bUlJSGQgjwD5vaUaKlLR50Q2DmFfQj1L+SY=\n" +
      "-----END CERTIFICATE-----\n";
    const fingerprint = new X509Certificate(pem).fingerprint256.replaceAll(":", "").toLowerCase();
    const { ask } = guard({});
    const bound = token({ cnf: { "x5t#S256": "A4DtL2JmUMhAsvJj5tKyn64SqzmuXbMrJa0n761y5v0" } });
    const shown = { call: callWith({ fingerprint }) };
    expect(ask(["Authorization", `Bearer ${bound}`], shown).outcome).toBe("passes");
  });
});

function callWith(parts: Partial<ClientCertificate> | null): Call {
  const certificate: ClientCertificate | null = parts && {
    verified: true,
    reason: null,
    subject: "CN=ann",
    commonName: "ann",
    names: [],
    fingerprint: "00".repeat(32),
    keyUses: [],
    ...parts,
  };
  const own = { id: "request-1", remoteAddress: "192.0.2.1", trustedRemote: false, startedAt: 0, inform: () => {} };
  return new Call({ ...own, certificate: () => certificate });
}

describe("a token that is bound to a key", () => {
  it("passes once with each proof, and is refused as Bearer, also without dpop", () => {
    const { ask, sent, client } = guard();
    const headers = sent();
    expect(ask(headers).outcome).toBe("passes");
    expect(ask(headers).outcome).toBe("401 jwt: proof replay");
    expect(ask(sent()).outcome).toBe("passes");
    const asBearer = ["Authorization", `Bearer ${client.token()}`];
    expect(ask(asBearer).outcome).toBe("401 jwt: bearer");
    expect(guard({}).ask(asBearer).outcome).toBe("401 jwt: bearer");
    expect(ask([...asBearer, ...sent().slice(2)]).outcome).toBe("401 jwt: bearer");
    expect(guard({}).ask(headers).outcome).toBe("401 token_missing");
  });

  it.each(["ES256", "ES384", "EdDSA", "Ed25519", "RS256", "PS256"] as const)("passes with a proof by %s", (alg) => {
    const { ask, now } = guard();
    const client = dpopClient(now, alg);
    const headers = ["Authorization", `DPoP ${client.token()}`];
    for (let i = 0; i < 2; i++) {
      const proof = client.proof("GET", URL_ASKED, client.token());
      expect(ask([...headers, "DPoP", proof]).outcome).toBe("passes");
    }
  });

  it.each<[string, string, Oddity]>([
    ["another typ", "proof type", { header: { typ: "JWT" } }],
    ["no typ", "proof type", { header: { typ: undefined } }],
    ["no algorithm", "proof algorithm", { header: { alg: undefined } }],
    ['the algorithm "none"', "proof algorithm", { header: { alg: "none" } }],
    ["a symmetric algorithm", "proof algorithm", { header: { alg: "HS256" } }],
    ["the name of an inherited property as algorithm", "proof algorithm", { header: { alg: "constructor" } }],
    ["an algorithm that is not the key's", "proof key", { header: { alg: "ES384" } }],
    ["crit", "proof malformed", { header: { crit: ["x"] } }],
    ["no key", "proof key", { header: { jwk: undefined } }],
    ["a key that is a text", "proof key", { header: { jwk: "x" } }],
    ["a symmetric key", "proof key", { jwk: { kty: "oct", k: "AAAA" } }],
    ["a key of a type that is an inherited property", "proof key", { jwk: { kty: "constructor" } }],
    ["no htm", "proof htm", { claims: { htm: undefined } }],
    ["another method", "proof htm", { claims: { htm: "POST" } }],
    ["the method in lower case", "proof htm", { claims: { htm: "get" } }],
    ["no htu", "proof htu", { claims: { htu: undefined } }],
    ["another path", "proof htu", { claims: { htu: "http://gateway.example/a/c" } }],
    ["another scheme", "proof htu", { claims: { htu: "https://gateway.example/a/b" } }],
    ["another host", "proof htu", { claims: { htu: "http://gateway.example.net/a/b" } }],
    ["another port", "proof htu", { claims: { htu: "http://gateway.example:81/a/b" } }],
    ["a path alone", "proof htu", { claims: { htu: "/a/b" } }],
    ["no iat", "proof iat", { claims: { iat: undefined } }],
    ["iat as a text", "proof iat", { claims: { iat: "1767225600" } }],
    ["no jti", "proof jti", { claims: { jti: undefined } }],
    ["an empty jti", "proof jti", { claims: { jti: "" } }],
    ["a jti of 257 bytes", "proof jti", { claims: { jti: "é".repeat(128) + "x" } }],
    ["a jti that is a number", "proof jti", { claims: { jti: 7 } }],
    ["no ath", "proof ath", { claims: { ath: undefined } }],
    ["the ath of another token", "proof ath", { claims: { ath: "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo" } }],
    ["another signature", "proof signature", { by: generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey }],
    ["more than 4 KiB", "proof malformed", { claims: { more: "x".repeat(4_096) } }],
  ])("is refused with a proof that has %s: 401 invalid_dpop_proof", (_what, why, odd) => {
    const { ask, sent } = guard();
    const { outcome, challenges } = ask(sent(odd));
    expect(outcome).toBe(`401 jwt: ${why}`);
    const text = String.raw`"[^"\\]*(\\"[^"\\]*)*"`;
    const parameters = `error="invalid_dpop_proof", error_description=${text}, algs="ES256 .*RS512"`;
    expect(challenges[1]).toMatch(new RegExp(`^DPoP realm="edge-gateway", ${parameters}$`));
    expect(ask(sent()).outcome).toBe("passes");
  });

  it("is refused with a private key in the proof", () => {
    const { ask, sent, client } = guard();
    expect(ask(sent({ jwk: client.privateKey.export({ format: "jwk" }) as object })).outcome).toBe(
      "401 jwt: proof key",
    );
  });

  it("is refused with an RSA key whose exponent would make each verification slow", () => {
    const { ask, now } = guard();
    const { jwk, proof } = dpopClient(now, "RS256");
    const slow = { e: "AQABAQAB", kty: "RSA", n: jwk["n"] };
    const bound = token({ cnf: { jkt: thumbprint(slow as never) } });
    const headers = ["Authorization", `DPoP ${bound}`, "DPoP", proof("GET", URL_ASKED, bound, { jwk: slow })];
    expect(ask(headers).outcome).toBe("401 jwt: proof key");
  });

  it("is refused without a proof, with two, and with one that is no JWT", () => {
    const { ask, sent } = guard();
    const [name, value, ...proof] = sent();
    expect(ask([name!, value!]).outcome).toBe("401 jwt: proof missing");
    expect(ask([name!, value!, ...proof, ...proof]).outcome).toBe("401 jwt: proof ambiguous");
    for (const text of ["", "x", "a.b", "a.b.c", proof[1]!.slice(0, -4) + "____", proof[1] + "."])
      expect(ask([name!, value!, "DPoP", text]).outcome).toMatch(/^401 jwt: proof (malformed|signature)$/);
  });

  it("is refused with the proof of another key: that is an invalid token (RFC 9449 §7.1)", () => {
    const { ask, client, now } = guard();
    const other = dpopClient(now);
    const accessToken = client.token();
    const proof = other.proof("GET", URL_ASKED, accessToken);
    const { outcome, challenges } = ask(["Authorization", `DPoP ${accessToken}`, "DPoP", proof]);
    expect([outcome, challenges[1]]).toEqual(["401 jwt: binding", expect.stringContaining('error="invalid_token"')]);
  });

  it("the proof is for scheme, host and path of the URL, in any spelling, whatever the query", () => {
    const { ask, sent } = guard();
    const passes = (htu: string, parts: Parts = {}) => ask(sent({ claims: { htu } }), parts).outcome;
    expect(passes("HTTP://Gateway.Example:80/a/b")).toBe("passes");
    expect(passes("http://gateway.example/a/x/../b")).toBe("passes");
    expect(passes(`${URL_ASKED}?x=1#y`)).toBe("passes");
    expect(passes("http://gateway.example/~%C3%A9", { target: "/%7e%c3%a9" })).toBe("passes");
    expect(passes("http://gateway.example/a/b", { target: "/a%2Fb" })).toBe("401 jwt: proof htu");
    expect(passes(URL_ASKED, { target: "/a/b?z=2", query: "?z=2" })).toBe("passes");
    expect(passes("http://other.example/a/b", { target: "http://other.example/a/b", authority: "other.example" })).toBe(
      "passes",
    );
    expect(passes("https://gateway.example/", { target: "/", scheme: "https" })).toBe("passes");
    expect(passes("http://gateway.example/a/b/")).toBe("401 jwt: proof htu");
    expect(passes("http://user@gateway.example.evil/a/b")).toBe("401 jwt: proof htu");
  });

  it("the proof is for the URL that a trusted proxy names, and for no other's forwarding headers", () => {
    const forwarded = ["X-Forwarded-Host", "api.example", "X-Forwarded-Prefix", "/edge"];
    const { ask, sent } = guard();
    const outcome = (trustedRemote: boolean, htu: string) => {
      const own = { id: "request-1", remoteAddress: "192.0.2.1", startedAt: 0, inform: () => {} };
      const call = new Call({ ...own, trustedRemote });
      return ask([...sent({ claims: { htu } }), ...forwarded], { call, scheme: "https" }).outcome;
    };
    expect(outcome(true, "https://api.example/edge/a/b")).toBe("passes");
    expect(outcome(true, "https://gateway.example/a/b")).toBe("401 jwt: proof htu");
    expect(outcome(false, "https://api.example/edge/a/b")).toBe("401 jwt: proof htu");
    expect(outcome(false, "https://gateway.example/a/b")).toBe("passes");
  });

  it("a proof is accepted for 60 seconds before and after its iat, once in all that time", () => {
    const { ask, sent, client, now, clock } = guard();
    const at = (seconds: number) => sent({ claims: { iat: now() + seconds } });
    expect([at(60), at(-60)].map((headers) => ask(headers).outcome)).toEqual(["passes", "passes"]);
    for (const seconds of [61, -61, 60.5]) expect(ask(at(seconds)).outcome).toBe("401 jwt: proof iat");
    const early = at(60);
    expect(ask(early).outcome).toBe("passes");
    clock.advance(120_000);
    expect(ask(early).outcome).toBe("401 jwt: proof replay");
    clock.advance(1_000);
    expect(ask(early).outcome).toBe("401 jwt: proof iat");
    expect(client.jkt).toHaveLength(43);
  });

  it("only valid proofs are remembered, by key and jti together, for all routes", () => {
    const { ask, sent, client, now, tools } = guard();
    const claims = { jti: "j" };
    expect(ask(sent({ claims: { ...claims, htm: "POST" } })).outcome).toBe("401 jwt: proof htm");
    const other = dpopClient(now);
    const ofOther = other.proof("GET", URL_ASKED, other.token(), { claims });
    expect(ask(["Authorization", `DPoP ${other.token()}`, "DPoP", ofOther]).outcome).toBe("passes");
    expect(ask(sent({ claims })).outcome).toBe("passes");
    expect(ask(sent({ claims })).outcome).toBe("401 jwt: proof replay");
    const { scope } = tools;
    const config = { alg: "HS256", secret: SECRET, dpop: "accept" };
    const further = instance(jwt, config, { ...tools, scope: { ...scope, key: "further" } });
    const statusBy = (...chain: readonly Middleware[]) => {
      const both: Middleware = (next) => chain.reduceRight((inner, middleware) => middleware(inner), next);
      return atOnce(exercise(both, madeUpExchange({ headers: fresh })).returned).status;
    };
    const fresh = sent();
    expect(statusBy(instance(jwt, config, tools), further)).toBe(200);
    expect(statusBy(further)).toBe(401);
    expect(client.jkt).not.toBe(other.jkt);
  });

  it("one key may send 250,000 proofs in three minutes, and others who repeat them use up none", () => {
    const { ask, sent, tools, client, now } = guard();
    const used = tools.limiterBy(
      ({ local }, key) =>
        local.limiter(key, { windows: [{ name: "key", limit: 250_000, ms: 180_000 }], maxCallers: 10 }),
      "DPoP keys",
    );
    const headers = sent();
    for (let i = 0; i < 249_998; i++) used.decide(client.jkt);
    expect(ask(headers).outcome).toBe("passes");
    for (let i = 0; i < 3; i++) expect(ask(headers).outcome).toBe("401 jwt: proof replay");
    expect(ask(sent()).outcome).toBe("passes");
    const { outcome, reply } = ask(sent());
    expect([outcome, headerValues(reply.headers, "retry-after")]).toEqual(["429 jwt: proof flood", ["5"]]);
    const other = dpopClient(now);
    const proof = other.proof("GET", URL_ASKED, other.token());
    expect(ask(["Authorization", `DPoP ${other.token()}`, "DPoP", proof]).outcome).toBe("passes");
  });
});

describe("dpop", () => {
  it("unset, tokens without a key pass as Bearer, and no challenge names DPoP", () => {
    const { ask } = guard({});
    expect(ask(["Authorization", `Bearer ${token({})}`]).outcome).toBe("passes");
    expect(ask([]).challenges).toEqual(['Bearer realm="edge-gateway"']);
  });

  it('"accept": tokens without a key pass as Bearer, not as DPoP', () => {
    const { ask, client } = guard();
    const unbound = token({});
    expect(ask(["Authorization", `Bearer ${unbound}`]).outcome).toBe("passes");
    const proof = client.proof("GET", URL_ASKED, unbound);
    expect(ask(["Authorization", `DPoP ${unbound}`, "DPoP", proof]).outcome).toBe("401 jwt: unbound");
    const [bearer, dpop] = ask([]).challenges;
    expect([bearer, dpop]).toEqual([
      'Bearer realm="edge-gateway"',
      expect.stringMatching(/^DPoP realm="edge-gateway", algs="ES256 /),
    ]);
    expect(ask(["Authorization", "Bearer x"]).challenges).toEqual([
      expect.stringContaining('Bearer realm="edge-gateway", error="invalid_token"'),
      expect.not.stringContaining("error="),
    ]);
  });

  it('"require": tokens pass as DPoP alone', () => {
    const { ask, sent } = guard({ dpop: "require" });
    expect(ask(sent()).outcome).toBe("passes");
    const { outcome, challenges } = ask(["Authorization", `Bearer ${token({})}`]);
    expect([outcome, challenges]).toEqual([
      "401 token_missing",
      [expect.stringMatching(/^DPoP realm="edge-gateway", algs=/)],
    ]);
    const placed = guard({ dpop: "require", from: ["header", "cookie:t"] });
    expect(placed.ask(["Cookie", `t=${token({})}`]).outcome).toBe("401 jwt: bearer");
    expect(placed.ask(["Cookie", `t=${placed.client.token()}`]).outcome).toBe("401 jwt: bearer");
  });

  it("needs the header among the places of the token", () => {
    const config = { alg: "HS256", secret: SECRET, dpop: "accept", from: "cookie:t" };
    expect(checked(jwt.schema, config).issues).toEqual([expect.stringContaining('dpop: needs "header"')]);
    expect(checked(jwt.schema, { ...config, dpop: "yes" }).issues).toEqual([
      expect.stringMatching(/"accept".*"require"/),
    ]);
  });

  it("the header of proofs is none of the client's trailers, and logs leave it out", () => {
    const { value } = checked(jwt.schema, { alg: "HS256", secret: SECRET, dpop: "accept" });
    expect([jwt.ownHeaders!(value!), jwt.secretParameters!(value!)]).toEqual([["DPoP"], ["DPoP"]]);
  });

  it("a test with as.jwt needs no proof", () => {
    const { ask } = guard({ dpop: "require" }, { verifiedClaims: { sub: "ann", cnf: { jkt: "x" } } });
    expect(ask([]).outcome).toBe("passes");
  });
});

describe("a token that is bound to a certificate", () => {
  const own = "ab".repeat(32);
  const bound = token({ cnf: { "x5t#S256": Buffer.from(own, "hex").toString("base64url") } });
  const outcome = (certificate: Partial<ClientCertificate> | null) =>
    guard({}).ask(["Authorization", `Bearer ${bound}`], { call: callWith(certificate) }).outcome;

  it("passes with this certificate alone, verified as for mtls", () => {
    expect(outcome({ fingerprint: own })).toBe("passes");
    expect(outcome({ fingerprint: "cd".repeat(32) })).toBe("401 jwt: certificate");
    expect(outcome({ fingerprint: own, verified: false, reason: "CERT_HAS_EXPIRED" })).toBe("401 jwt: certificate");
    expect(outcome(null)).toBe("401 jwt: certificate");
  });

  it("and to a key needs both", () => {
    const { ask, client, sent } = guard();
    const both = client.token({ cnf: { jkt: client.jkt, "x5t#S256": Buffer.from(own, "hex").toString("base64url") } });
    expect(ask(sent({}, both), { call: callWith({ fingerprint: own }) }).outcome).toBe("passes");
    expect(ask(sent({}, both)).outcome).toBe("401 jwt: certificate");
    expect(ask(["Authorization", `Bearer ${both}`], { call: callWith({ fingerprint: own }) }).outcome).toBe(
      "401 jwt: bearer",
    );
  });
});

describe("other confirmations", () => {
  it.each<[unknown, string]>([
    [null, "passes"],
    [{}, "passes"],
    [{ kid: "x" }, "passes"],
    ["x", "401 jwt: confirmation"],
    [{ jkt: 7 }, "401 jwt: confirmation"],
    [{ jkt: null }, "401 jwt: confirmation"],
    [{ "x5t#S256": ["x"] }, "401 jwt: confirmation"],
    [[], "401 jwt: confirmation"],
  ])("a cnf of %j %s", (cnf, expected) => {
    expect(guard({}).ask(["Authorization", `Bearer ${token({ cnf })}`]).outcome).toBe(expected);
  });
});
