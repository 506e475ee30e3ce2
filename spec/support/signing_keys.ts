/** Key pairs for signatures, made anew for each run, and what must not be accepted in their place. */
import { createHash, createPublicKey, generateKeyPairSync, sign, type KeyObject } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

const pkcs8 = (key: KeyObject) => key.export({ type: "pkcs8", format: "pem" }) as string;
const spki = (key: KeyObject) => key.export({ type: "spki", format: "pem" }) as string;

export interface SigningKeys {
  readonly privateKey: string;
  readonly publicKey: string;
}

export function signingKeys(): SigningKeys {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  return { privateKey: pkcs8(privateKey), publicKey: spki(publicKey) };
}

/** Writes the signature of a file beside it, and returns the file. */
export function signed(file: string, { privateKey }: SigningKeys): string {
  writeFileSync(`${file}.sig`, sign(null, readFileSync(file), privateKey).toString("base64"));
  return file;
}

/** A file as a configuration names it that binds its content. */
export function pinned(path: string): { readonly path: string; readonly sha256: string } {
  return { path, sha256: createHash("sha256").update(readFileSync(path)).digest("hex") };
}

/** See `PublicKey.fingerprint`. */
export function fingerprintOf({ publicKey }: SigningKeys): string {
  return createHash("sha256")
    .update(createPublicKey(publicKey).export({ type: "spki", format: "der" }))
    .digest("hex");
}

const elliptic = generateKeyPairSync("ec", { namedCurve: "P-256" });
/** A key pair of another kind. */
export const ELLIPTIC: SigningKeys = { privateKey: pkcs8(elliptic.privateKey), publicKey: spki(elliptic.publicKey) };

export const ENCRYPTED_KEY = generateKeyPairSync("ed25519").privateKey.export({
  type: "pkcs8",
  format: "pem",
  cipher: "aes-256-cbc",
  passphrase: "a passphrase",
}) as string;
