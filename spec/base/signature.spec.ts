import { createHash, createPublicKey } from "node:crypto";
import { describe, expect, it } from "vitest";
import { readPublicKeys, signatureOf, verifySignature } from "../../lib/base/signature.ts";
import { SERVER } from "../support/certs.ts";
import { ELLIPTIC, ENCRYPTED_KEY, signingKeys } from "../support/signing_keys.ts";

const [own, other] = [signingKeys(), signingKeys()];
const content = Buffer.from('{ "services": [] }\n');
const sign = (bytes: Buffer, { privateKey } = own) =>
  signatureOf(bytes, Buffer.from(privateKey)) as { readonly signature: string };
const { signature } = sign(content);
const fingerprintOf = (pem: string) =>
  createHash("sha256")
    .update(createPublicKey(pem).export({ type: "spki", format: "der" }))
    .digest("hex");

describe("verifySignature", () => {
  it.each([
    ["as it was made", signature, own.publicKey],
    ["with a line break at the end", `${signature}\n`, own.publicKey],
    ["with a line break of Windows at the end", `${signature}\r\n`, own.publicKey],
    ["by the second of two public keys", signature, other.publicKey + own.publicKey],
    ["by a public key with text around it", signature, `# since 2026\n${own.publicKey}# the end\n`],
    ["by a public key with line breaks of Windows", signature, own.publicKey.replaceAll("\n", "\r\n")],
  ])("accepts a signature %s, and names the key that signed", (_what, text, keys) => {
    expect(verifySignature(content, text, keys)).toMatchObject({
      signer: { fingerprint: fingerprintOf(own.publicKey) },
    });
  });

  it("accepts the signature of an empty file", () => {
    const empty = Buffer.alloc(0);
    expect(verifySignature(empty, sign(empty).signature, own.publicKey).problem).toBeUndefined();
  });

  it("refuses every change of one byte of the content", () => {
    for (let at = 0; at < content.length; at++) {
      const changed = Buffer.from(content);
      changed[at]! ^= 1;
      expect(verifySignature(changed, signature, own.publicKey)).toMatchObject({
        file: "content",
        problem: expect.stringMatching(/^is not signed by the public key: /),
      });
    }
  });

  it("refuses every change of one character of the signature", () => {
    for (let at = 0; at < signature.length; at++) {
      const changed = signature.slice(0, at) + (signature[at] === "A" ? "B" : "A") + signature.slice(at + 1);
      expect(verifySignature(content, changed, own.publicKey).problem).toBeDefined();
    }
  });

  it.each([
    [
      "of another file",
      content,
      sign(Buffer.from("another")).signature,
      own.publicKey,
      "content",
      /^is not signed by the public key: /,
    ],
    [
      "by a key that is not in the file of public keys",
      content,
      sign(content, other).signature,
      own.publicKey,
      "content",
      /^is not signed by the public key: /,
    ],
    [
      "by an old key after it was removed",
      content,
      signature,
      other.publicKey + signingKeys().publicKey,
      "content",
      /^is not signed by any of the 2 public keys: /,
    ],
    ["that is empty", content, "", own.publicKey, "signature", /must be the base64 of 64 bytes in one line/],
    [
      "in two lines",
      content,
      `${signature.slice(0, 76)}\n${signature.slice(76)}`,
      own.publicKey,
      "signature",
      /in one line \(base64 -w0\)$/,
    ],
    ["with two line breaks at its end", content, `${signature}\n\n`, own.publicKey, "signature", /in one line/],
    ["with a space before it", content, ` ${signature}`, own.publicKey, "signature", /in one line/],
    ["that is too short", content, signature.slice(4), own.publicKey, "signature", /64 bytes/],
    ["that is too long", content, `AAAA${signature}`, own.publicKey, "signature", /64 bytes/],
    ["in hexadecimal", content, Buffer.from(signature, "base64").toString("hex"), own.publicKey, "signature", /base64/],
    ["in base64url", content, Buffer.alloc(64, 255).toString("base64url"), own.publicKey, "signature", /base64/],
    [
      "whose last character has bits that mean nothing",
      content,
      signature.replace(/.==$/, "B=="),
      own.publicKey,
      "signature",
      /base64/,
    ],
  ] as const)("refuses a signature %s, and says which file is wrong", (_what, bytes, text, keys, file, problem) => {
    expect(verifySignature(bytes, text, keys)).toEqual({ file, problem: expect.stringMatching(problem) });
  });

  it("reports wrong keys before it looks at the signature", () => {
    expect(verifySignature(content, "", "")).toMatchObject({ file: "keys" });
  });
});

describe("readPublicKeys", () => {
  it("reads all keys of a file in their order", () => {
    expect(readPublicKeys(`${own.publicKey}\n${other.publicKey}`).keys.map(({ fingerprint }) => fingerprint)).toEqual(
      [own, other].map(({ publicKey }) => fingerprintOf(publicKey)),
    );
  });

  it.each([
    ["an empty file", "", /^is not a public key in PEM form: it has no line -----BEGIN PUBLIC KEY-----$/],
    ["a file of something else", "ssh-ed25519 AAAA x", /it has no line/],
    [
      "a private key",
      own.privateKey,
      /^has a private key where public keys belong: make one with openssl pkey -in PRIVATE -pubout$/,
    ],
    ["an encrypted private key", ENCRYPTED_KEY, /^has a private key where/],
    [
      "a private key behind a public key",
      own.publicKey + own.privateKey,
      /^has a private key .* \(number 2 of 2 in it\)$/,
    ],
    ["a certificate", SERVER.cert, /^has a CERTIFICATE where a PUBLIC KEY belongs/],
    [
      "a key of another kind",
      ELLIPTIC.publicKey,
      /^has a key of kind ec, not ed25519: make one with openssl genpkey -algorithm ed25519$/,
    ],
    [
      "a key of another kind behind a right one",
      own.publicKey + ELLIPTIC.publicKey,
      /^has a key of kind ec, .* \(number 2 of 2 in it\)$/,
    ],
    ["half a key", own.publicKey.slice(0, 60), /^has a public key that cannot be read: /],
    [
      "half a key before a whole one",
      own.publicKey.slice(0, 60) + other.publicKey,
      /^has a public key that cannot be read: .*number 1 of 2/,
    ],
  ])("refuses %s, and repeats nothing of it", (_what, pem, problem) => {
    const read = readPublicKeys(pem);
    expect(read).toEqual({ keys: expect.anything(), problem: expect.stringMatching(problem) });
    for (const line of pem.split("\n").filter((each) => each.length > 20 && !each.startsWith("-")))
      expect(read.problem).not.toContain(line);
  });
});

describe("signatureOf", () => {
  it("signs with the private key in one line of base64 without a line break, the same at each time", () => {
    expect(signature).toMatch(/^[A-Za-z0-9+/]{86}==$/);
    expect(sign(content)).toEqual({ signature });
  });

  it.each([
    ["a public key", own.publicKey, /^has a public key; signing needs the private key$/],
    ["an encrypted key", ENCRYPTED_KEY, /^is encrypted: store it without a passphrase/],
    ["a key of another kind", ELLIPTIC.privateKey, /^has a key of kind ec, not ed25519/],
    ["a file of something else", "none", /^is not a private key in PEM form: /],
    ["an empty file", "", /^is not a private key in PEM form: /],
  ])("refuses %s", (_what, pem, problem) => {
    expect(signatureOf(content, Buffer.from(pem))).toEqual({ problem: expect.stringMatching(problem) });
  });
});
