/**
 * Ed25519 signatures over files, as `openssl pkeyutl -sign -rawin` makes them, written as base64 in one line (RFC 8032,
 * RFC 4648 §4).
 */
import { createHash, createPrivateKey, createPublicKey, sign, verify, type KeyObject } from "node:crypto";
import { keyProblem } from "./pem.ts";

/**
 * A problem completes "the file …", and names which of the three files it is in. No problem repeats the content of a
 * key.
 */
export type Verification =
  | { readonly problem: string; readonly file: "content" | "signature" | "keys" }
  | { readonly problem?: undefined; readonly signer: PublicKey };

export interface PublicKey {
  readonly key: KeyObject;
  /** SHA-256 of the key in DER form, in hexadecimal: `openssl pkey -pubin -in FILE -outform DER | sha256sum`. */
  readonly fingerprint: string;
}

/**
 * Whether one of the keys has signed these bytes. `signatureText` is the content of the `.sig` file; one line break at
 * its end is allowed. `publicKeysPem` has one public key or more, so that a new key can be added before the old one is
 * removed.
 */
export function verifySignature(bytes: Uint8Array, signatureText: string, publicKeysPem: string): Verification {
  const { keys, problem } = readPublicKeys(publicKeysPem);
  if (problem !== undefined) return { file: "keys", problem };
  const line = signatureText.replace(/\r?\n$/, "");
  const signature = Buffer.from(line, "base64");
  // Compared with its own encoding, since Node skips characters that are not base64.
  if (signature.length !== SIGNATURE_BYTES || signature.toString("base64") !== line) {
    return {
      file: "signature",
      problem:
        `is not an Ed25519 signature: it must be the base64 of ${SIGNATURE_BYTES} bytes ` + `in one line (base64 -w0)`,
    };
  }
  const signer = keys.find(({ key }) => verify(null, bytes, key, signature));
  if (signer !== undefined) return { signer };
  const by = keys.length === 1 ? "by the public key" : `by any of the ${keys.length} public keys`;
  return {
    file: "content",
    problem:
      `is not signed ${by}: it was changed after signing, another key signed it, ` +
      `or the signature belongs to another file`,
  };
}

const SIGNATURE_BYTES = 64;

/** All public keys of a PEM file, in their order. Text between them is ignored. */
export function readPublicKeys(pem: string): { readonly keys: readonly PublicKey[]; readonly problem?: string } {
  const blocks = [...pem.matchAll(BLOCK)];
  const keys: PublicKey[] = [];
  for (const [block, label] of blocks) {
    const which = blocks.length === 1 ? "" : ` (number ${keys.length + 1} of ${blocks.length} in it)`;
    const refused = (what: string) => ({ keys: [], problem: `${what}${which}` });
    if (label!.endsWith("PRIVATE KEY"))
      return refused("has a private key where public keys belong: make one with openssl pkey -in PRIVATE -pubout");
    if (label !== "PUBLIC KEY")
      return refused(`has a ${label} where a PUBLIC KEY belongs: make one with openssl pkey -in PRIVATE -pubout`);
    let key: KeyObject;
    try {
      key = createPublicKey(block);
    } catch (error) {
      return refused(`has a public key that cannot be read: ${(error as Error).message}`);
    }
    const wrong = kindProblem(key);
    if (wrong !== undefined) return refused(wrong);
    keys.push({
      key,
      fingerprint: createHash("sha256")
        .update(key.export({ type: "spki", format: "der" }))
        .digest("hex"),
    });
  }
  return blocks.length === 0
    ? { keys, problem: "is not a public key in PEM form: it has no line -----BEGIN PUBLIC KEY-----" }
    : { keys };
}

/** A block that is cut off ends at the next one. */
const BLOCK = /-----BEGIN ([A-Z0-9 ]+)-----[^]*?(?:-----END \1-----|(?=-----BEGIN )|$)/g;

/** The signature as one line without a line break, or a problem that completes "the key file …". */
export function signatureOf(
  bytes: Uint8Array,
  privateKeyPem: Buffer,
): { readonly signature: string; readonly problem?: undefined } | { readonly problem: string } {
  if (/-----BEGIN PUBLIC KEY-----/.test(privateKeyPem.toString("latin1")))
    return { problem: "has a public key; signing needs the private key" };
  const unreadable = keyProblem(privateKeyPem);
  if (unreadable !== undefined) return { problem: unreadable };
  const key = createPrivateKey(privateKeyPem);
  const problem = kindProblem(key);
  return problem === undefined ? { signature: sign(null, bytes, key).toString("base64") } : { problem };
}

function kindProblem({ asymmetricKeyType: kind }: KeyObject): string | undefined {
  return kind === "ed25519"
    ? undefined
    : `has a key of kind ${kind}, not ed25519: make one with openssl genpkey -algorithm ed25519`;
}
