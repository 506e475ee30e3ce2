import { createHmac, createPublicKey, verify } from "node:crypto";
import { describe, expect, it } from "vitest";
import { accountKey, macJws, signedJws } from "../../lib/acme/jws.ts";
import { keyFrom } from "../../lib/acme/signing_request.ts";
import { SERVER } from "../support/certs.ts";

const account = accountKey(keyFrom(Buffer.from(SERVER.key)));
const decoded = (text: string) => JSON.parse(String(Buffer.from(text, "base64url"))) as unknown;

describe("a signed request", () => {
  it("is a flattened JWS with ES256, whose signature has 64 octets", () => {
    const header = { nonce: "n", url: "https://ca.example/new-order", kid: "https://ca.example/account/1" };
    const jws = signedJws(header, { a: 1 }, account);
    expect(Object.keys(jws)).toEqual(["protected", "payload", "signature"]);
    expect(decoded(jws.protected)).toEqual({ alg: "ES256", ...header });
    expect(decoded(jws.payload)).toEqual({ a: 1 });
    const signature = Buffer.from(jws.signature, "base64url");
    expect(signature.length).toBe(64);
    const key = { key: createPublicKey(SERVER.cert), dsaEncoding: "ieee-p1363" } as const;
    expect(verify("sha256", Buffer.from(`${jws.protected}.${jws.payload}`), key, signature)).toBe(true);
  });

  it("has an empty payload as a POST-as-GET", () => {
    expect(signedJws({}, null, account).payload).toBe("");
  });

  it("has the public key alone", () => {
    expect(Object.keys(account.jwk)).toEqual(["crv", "kty", "x", "y"]);
  });

  it("of an external account is signed with HS256", () => {
    const jws = macJws({ kid: "kid-1", url: "https://ca.example/new-account" }, account.jwk, Buffer.from("secret"));
    expect(decoded(jws.protected)).toEqual({ alg: "HS256", kid: "kid-1", url: "https://ca.example/new-account" });
    const mac = createHmac("sha256", "secret").update(`${jws.protected}.${jws.payload}`).digest("base64url");
    expect(jws.signature).toBe(mac);
  });
});

describe("the thumbprint of an account's key", () => {
  it("is the one of RFC 7638 over the members that the key type requires", () => {
    // printf '{"crv":"P-256","kty":"EC","x":"…","y":"…"}' | openssl dgst -sha256 -binary | basenc --base64url
    expect(account.thumbprint).toBe("iFoArIt6jBtPTIUIeseqVDOfIWEAgnAqDhhNowPs0ts");
  });
});
