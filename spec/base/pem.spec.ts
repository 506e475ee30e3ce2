import { generateKeyPairSync } from "node:crypto";
import { describe, expect, it } from "vitest";
import { certificatesProblem, factsOf, keyProblem, validityProblem, pairProblem } from "../../lib/base/pem.ts";
import { CA, EXPIRED, SERVER, STRANGER } from "../support/certs.ts";
import { COMMON_NAME_ONLY } from "../support/more_certs.ts";

const bytes = (text: string) => Buffer.from(text);
const GARBAGE = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n";
const der = Buffer.from(SERVER.cert.replace(/-----.*-----/g, ""), "base64");

describe("certificatesProblem", () => {
  it.each([
    ["one certificate", SERVER.cert],
    ["a chain", SERVER.cert + CA.cert],
    ["text around it", `subject=x\n${SERVER.cert}\nend`],
    ["lines that end as on Windows", SERVER.cert.replaceAll("\n", "\r\n")],
  ])("accepts %s", (_what, text) => expect(certificatesProblem(bytes(text))).toBeUndefined());

  it.each([
    ["nothing", "", /^is not a certificate in PEM form: it has no line/],
    ["a key", SERVER.key, /it has no line -----BEGIN CERTIFICATE-----$/],
    ["garbage", GARBAGE, /^is not a certificate in PEM form: /],
    [
      "a chain that breaks",
      SERVER.cert + GARBAGE + CA.cert,
      /^is not a certificate in PEM form \(number 2 of 3 in it\): /,
    ],
    ["half a certificate, still being written", SERVER.cert.slice(0, 300), /^is not a certificate in PEM form: /],
  ])("refuses %s", (_what, text, said) => expect(certificatesProblem(bytes(text))).toMatch(said));

  it("refuses DER, which TLS would not accept", () => expect(certificatesProblem(der)).toMatch(/it has no line/));
});

describe("keyProblem", () => {
  it("accepts a private key", () => expect(keyProblem(bytes(SERVER.key))).toBeUndefined());

  it("refuses garbage and certificates without repeating them", () => {
    for (const text of ["", "hush", SERVER.cert]) {
      expect(keyProblem(bytes(text))).toMatch(/^is not a private key in PEM form: (?!.*hush)/);
    }
  });
});

describe("pairProblem", () => {
  it("finds nothing wrong with a chain and the key of its first certificate", () => {
    expect(pairProblem(bytes(SERVER.cert + CA.cert), bytes(SERVER.key))).toBeUndefined();
  });

  it("reports a key of another certificate", () => {
    expect(pairProblem(bytes(SERVER.cert), bytes(STRANGER.key))).toBe("mismatch");
    expect(pairProblem(bytes(CA.cert + SERVER.cert), bytes(SERVER.key))).toBe("mismatch");
  });
});

describe("validityProblem", () => {
  it("distinguishes a certificate that is not valid yet from a valid and from an expired certificate", () => {
    const cert = bytes(EXPIRED.cert);
    expect(validityProblem(cert, Date.UTC(2019, 11, 31))).toEqual({
      problem: "is not valid yet",
      date: "Jan  1 00:00:00 2020 GMT",
    });
    expect(validityProblem(cert, Date.UTC(2020, 6, 1))).toBeUndefined();
    expect(validityProblem(cert, Date.UTC(2021, 0, 2))).toEqual({
      problem: "has expired",
      date: "Jan  1 00:00:00 2021 GMT",
    });
  });
});

describe("factsOf", () => {
  it("returns the names, and the common name only if there are no names", () => {
    expect(factsOf(bytes(SERVER.cert))).toMatchObject({
      names: expect.arrayContaining(["localhost"]) as string[],
      commonName: null,
    });
    expect(factsOf(bytes(COMMON_NAME_ONLY.cert))).toMatchObject({ names: [], commonName: "till.internal" });
  });
});

describe("a key with a passphrase", () => {
  it.each(["pkcs8", "pkcs1"] as const)(
    "a key with a passphrase causes a problem in the form %s, with the remedy",
    (type) => {
      const { privateKey } = generateKeyPairSync("rsa", {
        modulusLength: 1024,
        publicKeyEncoding: { type: "spki", format: "pem" },
        privateKeyEncoding: { type, format: "pem", cipher: "aes-128-cbc", passphrase: "hush" },
      });
      expect(keyProblem(Buffer.from(privateKey))).toMatch(/is encrypted.*without a passphrase/);
    },
  );
});
