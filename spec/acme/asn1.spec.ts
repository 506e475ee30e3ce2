import { createHash, generateKeyPairSync, X509Certificate } from "node:crypto";
import { describe, expect, it } from "vitest";
import { alpnCertificate } from "../../lib/acme/alpn_certificate.ts";
import { der, objectIdentifier, OCTET_STRING, time } from "../../lib/acme/asn1.ts";
import { Der, TAG } from "../../lib/base/der.ts";
import { keyFrom, newKey, pemOf, signingRequest } from "../../lib/acme/signing_request.ts";
import { SERVER } from "../support/certs.ts";

const hex = (bytes: Buffer) => bytes.toString("hex");

describe("DER", () => {
  // openssl asn1parse -genstr OCT:…
  it.each([
    [0, "0400"],
    [127, "047f"],
    [128, "048180"],
    [255, "0481ff"],
    [256, "04820100"],
    [65_536, "0483010000"],
  ])("a string of %d octets has its length before it", (length, head) => {
    const bytes = der(OCTET_STRING, Buffer.alloc(length));
    expect(hex(bytes.subarray(0, bytes.length - length))).toBe(head);
    const read = new Der(bytes);
    expect(read.content(TAG.octetString)).toEqual(Buffer.alloc(length));
    expect(read.has()).toBe(false);
  });

  // openssl asn1parse -genstr OID:…
  it.each([
    ["2.5.29.17", "0603551d11"],
    ["1.2.840.10045.4.3.2", "06082a8648ce3d040302"],
    ["1.3.6.1.5.5.7.1.31", "06082b0601050507011f"],
    ["1.2.840.113549.1.9.14", "06092a864886f70d01090e"],
  ])("the object identifier %s is %s", (dotted, bytes) => {
    expect(hex(objectIdentifier(dotted))).toBe(bytes);
  });

  it.each([
    ["2026-01-02T03:04:05.678Z", "170d3236303130323033303430355a"],
    ["2049-12-31T23:59:59Z", "170d3439313233313233353935395a"],
    ["2050-01-01T00:00:00Z", "180f32303530303130313030303030305a"],
  ])("the time %s has two digits for its year before 2050", (date, bytes) => {
    expect(hex(time(Date.parse(date)))).toBe(bytes);
  });
});

describe("a request for a certificate", () => {
  it("has the names, the addresses and the key, and is signed with it", () => {
    const key = keyFrom(Buffer.from(SERVER.key));
    const request = signingRequest(key, ["a.example", "192.0.2.1", "2001:db8::1"]);
    // All but the signature is the same each time: `openssl req -verify` has accepted it.
    const content = new Der(request).enter(TAG.sequence).content(TAG.sequence);
    expect(createHash("sha256").update(content).digest("hex")).toBe(REQUESTED_DIGEST);
  });

  it("is made with another key each time", () => {
    expect(pemOf(newKey())).not.toEqual(pemOf(newKey()));
  });

  it("takes no key of another kind", () => {
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-384" });
    expect(() => keyFrom(pemOf(privateKey))).toThrow("it is not an EC key on P-256");
  });
});

describe("a certificate for tls-alpn-01", () => {
  const now = Date.UTC(2026, 0, 2);

  it("is for the host alone, and has the digest of the key authorization as a critical extension", () => {
    const { cert } = alpnCertificate("a.example", "token.thumbprint", now);
    const certificate = new X509Certificate(cert);
    expect(certificate.subjectAltName).toBe("DNS:a.example");
    expect(certificate.verify(certificate.publicKey)).toBe(true);
    expect(Date.parse(certificate.validFrom)).toBeLessThan(now);
    expect(Date.parse(certificate.validTo)).toBeGreaterThan(now);
    const digest = createHash("sha256").update("token.thumbprint").digest("hex");
    // RFC 8737 §3: SEQUENCE { 1.3.6.1.5.5.7.1.31, TRUE, OCTET STRING { OCTET STRING of 32 octets } }
    expect(hex(certificate.raw)).toContain(`303106082b0601050507011f0101ff04220420${digest}`);
  });

  it("is for an address", () => {
    const { cert, key } = alpnCertificate("2001:db8::1", "token.thumbprint", now);
    const certificate = new X509Certificate(cert);
    expect(certificate.subjectAltName).toBe("IP Address:2001:DB8:0:0:0:0:0:1");
    expect(certificate.checkPrivateKey(keyFrom(key))).toBe(true);
  });
});

/** SHA-256 of what is signed. */
const REQUESTED_DIGEST = "6f740450ec0d2ed493f4d8986cf62f4d97342584c2f51734cdc44fb278e8a832";
