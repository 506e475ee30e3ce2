import { createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import { signJwt, verifyJwt } from "../../lib/base/jwt.ts";
import { random } from "../support/random.ts";

const SECRET = "0123456789abcdef0123456789abcdef";
const NOW = Date.UTC(2026, 0, 1);
const EXPECTED = { now: NOW, issuer: "us", audience: "them" };
const CLAIMS = { sub: "ann", iss: "us", aud: "them", exp: NOW / 1000 + 60 };

const encode = (value: unknown) =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

/** A token with a right signature, whatever stands in it. */
function signed(header: unknown, claims: unknown, hash = "sha256"): string {
  const text = `${encode(header)}.${encode(claims)}`;
  return `${text}.${createHmac(hash, SECRET).update(text).digest("base64url")}`;
}

const reason = (token: string, changes: Partial<typeof EXPECTED> = {}) => {
  const verdict = verifyJwt(token, SECRET, { ...EXPECTED, ...changes });
  return verdict.ok ? "ok" : verdict.reason;
};

describe("a JWT", () => {
  it("a JWT passes if it was signed with the same secret", () => {
    expect(verifyJwt(signJwt(CLAIMS, SECRET), SECRET, EXPECTED)).toEqual({ ok: true, claims: CLAIMS });
    expect(verifyJwt(signJwt(CLAIMS, SECRET), Buffer.from(SECRET), EXPECTED).ok).toBe(true);
  });

  it(
    "a JWT has the signature that RFC 7515 §A.1 shows; " + "that example is only refused for its lack of an audience",
    () => {
      const key = Buffer.from(
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow",
        "base64url",
      );
      const token =
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9" +
        ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ" +
        ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
      expect(verifyJwt(token, key, { now: 1_300_819_379_000, issuer: "joe", audience: "x" })).toEqual({
        ok: false,
        reason: "audience",
      });
    },
  );

  it("a JWT fails when signed with another secret", () => {
    expect(verifyJwt(signJwt(CLAIMS, SECRET + "x"), SECRET, EXPECTED)).toEqual({ ok: false, reason: "signature" });
  });

  it.each([
    ["none", { alg: "none" }],
    ["None", { alg: "None", typ: "JWT" }],
    ["HS512", { alg: "HS512", typ: "JWT" }],
    ["RS256", { alg: "RS256", typ: "JWT" }],
    ["hs256 in lower case", { alg: "hs256" }],
    ["no algorithm", { typ: "JWT" }],
    ["another typ", { alg: "HS256", typ: "at+jwt" }],
    ["crit", { alg: "HS256", typ: "JWT", crit: ["exp"] }],
    ["a key of its own", { alg: "HS256", jwk: { kty: "oct", k: "AAAA" } }],
  ])("a JWT fails if its header says %s, correctly signed or not", (_, header) => {
    expect(reason(signed(header, CLAIMS))).toBe("algorithm");
    expect(reason(signed(header, CLAIMS, "sha512"))).toBe("algorithm");
    expect(reason(`${encode(header)}.${encode(CLAIMS)}.`)).toBe("algorithm");
  });

  it("a JWT fails without a signature, though the header names HS256", () => {
    expect(reason(signJwt(CLAIMS, SECRET).replace(/[^.]+$/, ""))).toBe("signature");
  });

  it.each([
    ["nothing", ""],
    ["two parts", "a.b"],
    ["four parts", signed({ alg: "HS256" }, CLAIMS) + ".x"],
    ["padding", signJwt(CLAIMS, SECRET) + "="],
    ["a blank in front", " " + signJwt(CLAIMS, SECRET)],
    ["a header that is no object", signed("[]", CLAIMS)],
    ["a header that is no JSON", signed("{", CLAIMS)],
    ["claims that are no object", signed({ alg: "HS256" }, "7")],
    ["claims that are no JSON", signed({ alg: "HS256" }, "{")],
    ["no exp", signJwt({ ...CLAIMS, exp: undefined }, SECRET)],
    ["an exp that is no number", signJwt({ ...CLAIMS, exp: "9999999999" }, SECRET)],
    ["an nbf that is no number", signJwt({ ...CLAIMS, nbf: "0" }, SECRET)],
    ["more than 4096 characters", signJwt({ ...CLAIMS, sub: "x".repeat(4000) }, SECRET)],
  ])("a JWT fails as malformed with %s", (_, token) => {
    expect(reason(token)).toBe("malformed");
  });

  it("a JWT fails from the second of its exp on", () => {
    const token = signJwt(CLAIMS, SECRET);
    expect(reason(token, { now: NOW + 59_999 })).toBe("ok");
    expect(reason(token, { now: NOW + 60_000 })).toBe("expired");
  });

  it("a JWT fails before its nbf", () => {
    const token = signJwt({ ...CLAIMS, nbf: NOW / 1000 + 5 }, SECRET);
    expect(reason(token, { now: NOW + 4999 })).toBe("not_yet");
    expect(reason(token, { now: NOW + 5000 })).toBe("ok");
  });

  it("a JWT fails if issuer or audience differ; a list of audiences must contain the configured audience", () => {
    expect(reason(signJwt({ ...CLAIMS, iss: "others" }, SECRET))).toBe("issuer");
    expect(reason(signJwt({ ...CLAIMS, iss: undefined }, SECRET))).toBe("issuer");
    expect(reason(signJwt({ ...CLAIMS, aud: "others" }, SECRET))).toBe("audience");
    expect(reason(signJwt({ ...CLAIMS, aud: ["others"] }, SECRET))).toBe("audience");
    expect(reason(signJwt({ ...CLAIMS, aud: ["others", "them"] }, SECRET))).toBe("ok");
  });

  it("a JWT fails after any change of one character (2,000 tries)", () => {
    const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.= ";
    const token = signJwt(CLAIMS, SECRET);
    const { int, pick } = random(7);
    for (let i = 0; i < 2000; i++) {
      const at = int(0, token.length - 1);
      const changed = token.slice(0, at) + pick([...alphabet]) + token.slice(at + 1);
      if (changed !== token) expect(reason(changed), changed).not.toBe("ok");
    }
  });
});
