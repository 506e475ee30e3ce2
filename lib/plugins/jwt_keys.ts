/**
 * Keys and signatures of JWTs: which key fits which algorithm (RFC 7518 §3, RFC 8037 §3.1), and JSON Web Key Sets (RFC
 * 7517).
 */
import {
  constants,
  createHmac,
  createPublicKey,
  createSecretKey,
  hash,
  sign,
  timingSafeEqual,
  verify,
  type JsonWebKey,
  type KeyObject,
} from "node:crypto";

/** Algorithms by name; "none" is not supported. */
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

/** Why the key cannot verify signatures of this algorithm, to complete "the key …"; undefined if it can. */
export function unfitness(key: KeyObject, algorithm: Algorithm): string | undefined {
  const kind = ALGORITHMS[algorithm];
  const { asymmetricKeyType: type, asymmetricKeyDetails: details = {} } = key;
  switch (kind.family) {
    case "hmac":
      if (key.type !== "secret") return `is no secret, which ${algorithm} needs`;
      if (key.symmetricKeySize! >= kind.bytes) return undefined;
      // RFC 7518 §3.2.
      return (
        `is too short for ${algorithm}, which needs at least ${kind.bytes} bytes: ` +
        `openssl rand -base64 ${kind.bytes}`
      );
    case "rsa":
    case "pss":
      if (type !== "rsa" && !(type === "rsa-pss" && kind.family === "pss"))
        return `is no RSA key, which ${algorithm} needs`;
      if (details.modulusLength! < MIN_RSA_BITS)
        return `has ${details.modulusLength} bits: RSA keys need at least ${MIN_RSA_BITS}`;
      if (type === "rsa-pss" && details.hashAlgorithm !== undefined && details.hashAlgorithm !== kind.hash) {
        return `is for ${details.hashAlgorithm}, which is not the hash of ${algorithm}`;
      }
      return undefined;
    case "ec":
      return type === "ec" && details.namedCurve === kind.curve
        ? undefined
        : `is not on the curve ${kind.curveName}, which ${algorithm} needs`;
    case "eddsa":
      return type === "ed25519" || type === "ed448"
        ? undefined
        : `is no Ed25519 or Ed448 key, which ${algorithm} needs`;
  }
}

/** RFC 7518 §3.3. */
const MIN_RSA_BITS = 2048;

/** Verifies the signature of `signed` with a key that fits the algorithm. Never throws. */
export function isSignedBy(key: KeyObject, algorithm: Algorithm, signed: string, signature: Buffer): boolean {
  const kind = ALGORITHMS[algorithm];
  if (kind.family === "hmac") {
    const right = createHmac(kind.hash, key).update(signed).digest();
    return signature.length === right.length && timingSafeEqual(signature, right);
  }
  if (kind.family === "ec" && signature.length !== kind.bytes) return false;
  try {
    return verify(
      kind.family === "eddsa" ? null : kind.hash,
      Buffer.from(signed, "latin1"),
      { key, ...PADDING[kind.family] },
      signature,
    );
  } catch {
    // OpenSSL throws for signatures of a wrong form.
    return false;
  }
}

const PADDING = {
  rsa: { padding: constants.RSA_PKCS1_PADDING },
  pss: { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_DIGEST },
  // Raw r and s, each as long as the curve (RFC 7518 §3.4).
  ec: { dsaEncoding: "ieee-p1363" },
  eddsa: {},
} as const;

/**
 * The algorithm of signatures by this private key: of those that fit it, the first in the table. Undefined: none fits.
 */
export function signingAlgorithm(key: KeyObject): Algorithm | undefined {
  return ALGORITHM_NAMES.find((name) => !isHmac(name) && unfitness(key, name) === undefined);
}

/** A signed JWT in compact form, by a private key that fits the algorithm, which is none of HMAC. */
export function signedJwt(claims: object, key: KeyObject, algorithm: Algorithm, id: string | undefined): string {
  const kind = ALGORITHMS[algorithm];
  if (kind.family === "hmac") throw new TypeError(`${algorithm} has no private key`);
  const signed = [{ alg: algorithm, typ: "JWT", kid: id }, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".");
  const digest = kind.family === "eddsa" ? null : kind.hash;
  const signature = sign(digest, Buffer.from(signed), { key, ...PADDING[kind.family] });
  return `${signed}.${signature.toString("base64url")}`;
}

interface NamedKey {
  readonly id: string | null;
  /** The accepted algorithms for which the key may be used. */
  readonly algorithms: readonly Algorithm[];
  readonly key: KeyObject;
}

/** Immutable: a changed set is a new array. */
export type KeySet = readonly NamedKey[];

/**
 * The keys that may have signed a token: keys with its `kid`, else keys without an id; without a `kid` all keys, up to
 * a limit.
 */
export function candidates(keys: KeySet, algorithm: Algorithm, id: string | null): readonly NamedKey[] {
  const fitting = keys.filter(({ algorithms }) => algorithms.includes(algorithm));
  if (id === null) return fitting.slice(0, MAX_TRIED);
  const named = fitting.filter((key) => key.id === id);
  return (named.length > 0 ? named : fitting.filter((key) => key.id === null)).slice(0, MAX_TRIED);
}

/** Each costs as much as a whole verification. */
const MAX_TRIED = 8;

/** A public key given as the secret is a classic mistake: anyone who knows the public key could sign. */
export function secretKey(secret: string): KeyObject | string {
  if (/-----BEGIN |^\s*(ssh|ecdsa)-/.test(secret))
    return 'is a key pair\'s key or a certificate: give a random secret, or "public_key" and its algorithm';
  return createSecretKey(Buffer.from(secret));
}

/**
 * Reads a public key, or the public key of a certificate, from PEM. Returns an error text if it is invalid, which never
 * quotes the PEM.
 */
export function publicKey(pem: string): KeyObject | string {
  if (/-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----/.test(pem))
    return "is a private key: give the public one (openssl pkey -pubout)";
  try {
    return createPublicKey(pem);
  } catch {
    return "is not a public key in PEM form (-----BEGIN PUBLIC KEY-----)";
  }
}

/**
 * The keys of a JSON Web Key Set that can verify one of these algorithms, or why there are none. Keys for other uses,
 * of unknown types and with mistakes are ignored (RFC 7517 §5).
 */
export function keysOf(text: string, algorithms: readonly Algorithm[]): KeySet | string {
  let set: { readonly keys?: unknown } | null;
  try {
    set = JSON.parse(text) as typeof set;
  } catch {
    return "is not JSON";
  }
  const entries = set?.keys;
  if (!Array.isArray(entries)) return 'is not a JSON Web Key Set: it has no array "keys"';
  if (entries.length > MAX_KEYS) return `contains more than ${MAX_KEYS} keys`;
  const keys = entries.flatMap((entry) => namedKey(entry, algorithms) ?? []);
  return keys.length > 0 ? keys : `contains no key that can verify ${algorithms.join(" or ")}`;
}

const MAX_KEYS = 100;

function namedKey(entry: unknown, accepted: readonly Algorithm[]): NamedKey | null {
  if (typeof entry !== "object" || entry === null) return null;
  const { kid, use, key_ops: operations, alg, kty, ...parts } = entry as Record<string, unknown>;
  if (isStated(use) && use !== "sig") return null;
  if (isStated(operations) && !(Array.isArray(operations) && operations.includes("verify"))) return null;
  const jwk = publicPart({ kty, ...parts });
  const key = jwk && publicKeyOf(jwk);
  if (key === null) return null;
  const algorithms = accepted.filter((name) => (!isStated(alg) || alg === name) && unfitness(key, name) === undefined);
  return algorithms.length === 0 ? null : { id: typeof kid === "string" ? kid : null, algorithms, key };
}

/** The members of a JSON Web Key that make its public key; null where one is missing. */
export function publicPart(jwk: Readonly<Record<string, unknown>>): JsonWebKey | null {
  const { kty } = jwk;
  // Symmetric keys ("oct") are secrets and do not belong in a public set.
  const members = typeof kty === "string" && Object.hasOwn(PUBLIC_MEMBERS, kty) ? PUBLIC_MEMBERS[kty]! : null;
  if (members === null || !members.every((name) => typeof jwk[name] === "string")) return null;
  return Object.fromEntries(members.map((name) => [name, jwk[name]]));
}

/** Null: it is no key. */
export function publicKeyOf(jwk: JsonWebKey): KeyObject | null {
  try {
    return createPublicKey({ key: jwk, format: "jwk" });
  } catch {
    return null;
  }
}

/** The SHA-256 thumbprint of a `publicPart` (RFC 7638). */
export function thumbprint(jwk: JsonWebKey): string {
  return hash("sha256", JSON.stringify(jwk), "base64url");
}

/** Some issuers write a member that they leave open as null, "" or []. */
function isStated(member: unknown): boolean {
  return member !== undefined && member !== null && member !== "" && !(Array.isArray(member) && member.length === 0);
}

/** In the order of thumbprints (RFC 7638 §3.2, RFC 8037 §2). */
const PUBLIC_MEMBERS: Readonly<Record<string, readonly string[]>> = {
  RSA: ["e", "kty", "n"],
  EC: ["crv", "kty", "x", "y"],
  OKP: ["crv", "kty", "x"],
};
