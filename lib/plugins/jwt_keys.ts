/**
 * Keys and signatures of JWTs: which key fits which algorithm (RFC 7518 §3, RFC 8037 §3.1), and what a JSON Web Key Set holds
 * (RFC 7517). Where keys come from, and what a token says, is left to `jwt.ts` and `jwks_source.ts`.
 */
import {
  constants,
  createHmac,
  createPublicKey,
  createSecretKey,
  timingSafeEqual,
  verify,
  type JsonWebKey,
  type KeyObject,
} from "node:crypto";

/** Algorithms by name; "none" is not among them. */
const ALGORITHMS = {
  HS256: { family: "hmac", hash: "sha256", bytes: 32 },
  HS384: { family: "hmac", hash: "sha384", bytes: 48 },
  HS512: { family: "hmac", hash: "sha512", bytes: 64 },
  RS256: { family: "rsa", hash: "sha256" },
  RS384: { family: "rsa", hash: "sha384" },
  RS512: { family: "rsa", hash: "sha512" },
  PS256: { family: "pss", hash: "sha256" },
  PS384: { family: "pss", hash: "sha384" },
  PS512: { family: "pss", hash: "sha512" },
  ES256: { family: "ec", hash: "sha256", curve: "prime256v1", curveName: "P-256", bytes: 64 },
  ES384: { family: "ec", hash: "sha384", curve: "secp384r1", curveName: "P-384", bytes: 96 },
  ES512: { family: "ec", hash: "sha512", curve: "secp521r1", curveName: "P-521", bytes: 132 },
  EdDSA: { family: "eddsa" },
} as const;

export type Algorithm = keyof typeof ALGORITHMS;

export const ALGORITHM_NAMES = Object.keys(ALGORITHMS) as Algorithm[];

export function isHmac(algorithm: Algorithm): boolean {
  return ALGORITHMS[algorithm].family === "hmac";
}

/** Completes "the key …"; undefined when it can verify signatures of this algorithm. */
export function unfitness(key: KeyObject, algorithm: Algorithm): string | undefined {
  const kind = ALGORITHMS[algorithm];
  const { asymmetricKeyType: type, asymmetricKeyDetails: details = {} } = key;
  switch (kind.family) {
    case "hmac":
      if (key.type !== "secret") return `is no secret, which ${algorithm} needs`;
      if (key.symmetricKeySize! >= kind.bytes) return undefined;
      // RFC 7518 §3.2.
      return `is too short for ${algorithm}, which needs at least ${kind.bytes} bytes: openssl rand -base64 ${kind.bytes}`;
    case "rsa":
    case "pss":
      if (type !== "rsa" && !(type === "rsa-pss" && kind.family === "pss")) return `is no RSA key, which ${algorithm} needs`;
      if (details.modulusLength! < MIN_RSA_BITS) return `has ${details.modulusLength} bits: RSA keys need at least ${MIN_RSA_BITS}`;
      if (type === "rsa-pss" && details.hashAlgorithm !== undefined && details.hashAlgorithm !== kind.hash) {
        return `is for ${details.hashAlgorithm}, which is not that of ${algorithm}`;
      }
      return undefined;
    case "ec":
      return type === "ec" && details.namedCurve === kind.curve ? undefined : `is not on the curve ${kind.curveName}, which ${algorithm} needs`;
    case "eddsa":
      return type === "ed25519" || type === "ed448" ? undefined : `is no Ed25519 or Ed448 key, which ${algorithm} needs`;
  }
}

/** RFC 7518 §3.3. */
const MIN_RSA_BITS = 2048;

/** Whether the signature is that of `signed`; the key fits the algorithm. Never throws. */
export function isSignedBy(key: KeyObject, algorithm: Algorithm, signed: string, signature: Buffer): boolean {
  const kind = ALGORITHMS[algorithm];
  if (kind.family === "hmac") {
    const right = createHmac(kind.hash, key).update(signed).digest();
    return signature.length === right.length && timingSafeEqual(signature, right);
  }
  const data = Buffer.from(signed, "latin1");
  try {
    switch (kind.family) {
      case "rsa":
        return verify(kind.hash, data, { key, padding: constants.RSA_PKCS1_PADDING }, signature);
      case "pss":
        return verify(kind.hash, data, { key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_DIGEST }, signature);
      case "ec":
        // Raw r and s, each as long as the curve (RFC 7518 §3.4).
        return signature.length === kind.bytes && verify(kind.hash, data, { key, dsaEncoding: "ieee-p1363" }, signature);
      case "eddsa":
        return verify(null, data, key, signature);
    }
  } catch {
    // What OpenSSL will not even look at is no signature.
    return false;
  }
}

export interface NamedKey {
  readonly id: string | null;
  /** Algorithms for which the key may be used, of those that are accepted. */
  readonly algorithms: readonly Algorithm[];
  readonly key: KeyObject;
}

/** Keys that do not change; another set is another object. */
export class KeySet {
  readonly keys: readonly NamedKey[];

  constructor(keys: readonly NamedKey[]) {
    this.keys = keys;
  }

  /**
   * The keys that may have signed a token with this header: that of its `kid`, else those without a name; all, a few at most, when
   * it names none.
   */
  candidates(algorithm: Algorithm, id: string | null): readonly NamedKey[] {
    const fitting = this.keys.filter(({ algorithms }) => algorithms.includes(algorithm));
    if (id === null) return fitting.slice(0, MAX_TRIED);
    const named = fitting.filter((key) => key.id === id);
    return (named.length > 0 ? named : fitting.filter((key) => key.id === null)).slice(0, MAX_TRIED);
  }
}

/** Each costs as much as a whole verification. */
const MAX_TRIED = 8;

/** The only key there is: whatever `kid` a token names. */
export function soleKey(key: KeyObject, algorithms: readonly Algorithm[]): KeySet {
  return new KeySet([{ id: null, algorithms, key }]);
}

/** A public key as the secret is the classic mistake: then everybody who knows it can sign. */
export function secretKey(secret: string): KeyObject | string {
  if (/-----BEGIN |^\s*(ssh|ecdsa)-/.test(secret)) return "is a key pair's key or a certificate: give a random secret, or \"public_key\" and its algorithm";
  return createSecretKey(Buffer.from(secret));
}

/** A public key, or the key of a certificate, in PEM form; a string says what is wrong, without repeating any of it. */
export function publicKey(pem: string): KeyObject | string {
  if (/-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----/.test(pem)) return "is a private key: give the public one (openssl pkey -pubout)";
  try {
    return createPublicKey(pem);
  } catch {
    return "is not a public key in PEM form (-----BEGIN PUBLIC KEY-----)";
  }
}

/**
 * The keys of a JSON Web Key Set that can verify one of these algorithms; a string says why there are none. Keys for other uses, of
 * other kinds and with mistakes are passed over, as RFC 7517 §5 wants it.
 */
export function keysOf(text: string, algorithms: readonly Algorithm[]): readonly NamedKey[] | string {
  const entries = entriesOf(text);
  if (typeof entries === "string") return entries;
  if (entries.length > MAX_KEYS) return `holds more than ${MAX_KEYS} keys`;
  const keys = entries.flatMap((entry) => namedKey(entry, algorithms) ?? []);
  return keys.length > 0 ? keys : `holds no key that can verify ${algorithms.join(" or ")}`;
}

const MAX_KEYS = 100;

function entriesOf(text: string): readonly unknown[] | string {
  let set: unknown;
  try {
    set = JSON.parse(text);
  } catch {
    return "is not JSON";
  }
  const keys = typeof set === "object" && set !== null ? (set as { keys?: unknown }).keys : undefined;
  return Array.isArray(keys) ? (keys as unknown[]) : 'is not a JSON Web Key Set: it has no array "keys"';
}

function namedKey(entry: unknown, accepted: readonly Algorithm[]): NamedKey | null {
  if (typeof entry !== "object" || entry === null) return null;
  const { kid, use, key_ops: operations, alg, kty, ...parts } = entry as Record<string, unknown>;
  if (use !== undefined && use !== "sig") return null;
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes("verify"))) return null;
  // Symmetric keys ("oct") are secrets, which stand in no set that is handed out.
  const members = PUBLIC_MEMBERS[kty as string];
  if (members === undefined) return null;
  try {
    const jwk = { kty, ...Object.fromEntries(members.map((name) => [name, parts[name]])) } as JsonWebKey;
    const key = createPublicKey({ key: jwk, format: "jwk" });
    const algorithms = accepted.filter((name) => (alg === undefined || alg === name) && unfitness(key, name) === undefined);
    return algorithms.length === 0 ? null : { id: typeof kid === "string" ? kid : null, algorithms, key };
  } catch {
    return null;
  }
}

const PUBLIC_MEMBERS: Readonly<Record<string, readonly string[]>> = { RSA: ["n", "e"], EC: ["crv", "x", "y"], OKP: ["crv", "x"] };
