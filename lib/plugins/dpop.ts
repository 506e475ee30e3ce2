/**
 * Verifies DPoP proofs (RFC 9449 §4.3): short JWTs by which a client shows, for one request and one access token, that
 * it has the private key to which the token is bound.
 *
 * What is cheap is checked first. The signature comes last, so only the owner of the token's key can make the gateway
 * verify one: a proof with another key is refused by its thumbprint.
 */
import { hash, type JsonWebKey, type KeyObject } from "node:crypto";
import { isTime, splitJwt } from "../base/jwt.ts";
import type { MemoryPart } from "../base/shared_memory.ts";
import type { Exchange } from "../http/exchange.ts";
import { givenAuthority, givenPrefix } from "../http/given_origin.ts";
import { headerValues } from "../http/headers.ts";
import { isSignedBy, publicKeyOf, publicPart, thumbprint, unfitness, type Algorithm } from "./jwt_keys.ts";

/** Of the header `alg` (RFC 9449 §4.2: asymmetric, and not "none"). Ed25519 is the newer name (RFC 9864). */
const ALGORITHMS: Readonly<Record<string, Algorithm>> = {
  ES256: "ES256",
  ES384: "ES384",
  ES512: "ES512",
  EdDSA: "EdDSA",
  Ed25519: "EdDSA",
  PS256: "PS256",
  PS384: "PS384",
  PS512: "PS512",
  RS256: "RS256",
  RS384: "RS384",
  RS512: "RS512",
};

export const PROOF_ALGORITHMS = Object.keys(ALGORITHMS);

/** How long before and after its `iat` a proof is accepted, in milliseconds. */
export const PROOF_AGE_MS = 60_000;

/** In characters; with an RSA key of 4096 bits a proof has some 2,200. */
const MAX_PROOF = 4 * 1024;
const MAX_JTI_BYTES = 256;

/** Error code, and what the client is told. */
export const PROOF_REFUSALS = {
  "proof missing": ["token_invalid", "Send a DPoP proof with the access token."],
  "proof ambiguous": ["token_invalid", "There is more than one DPoP proof."],
  "proof malformed": ["token_invalid", "The DPoP proof is malformed."],
  "proof type": ["token_invalid", 'The DPoP proof has another typ than "dpop+jwt".'],
  "proof algorithm": ["token_invalid", "The DPoP proof is signed with an algorithm that is not accepted here."],
  "proof key": ["token_invalid", "The DPoP proof has no public key that fits its algorithm."],
  "proof htm": ["token_invalid", "The DPoP proof is for another method."],
  "proof htu": ["token_invalid", "The DPoP proof is for another URL."],
  "proof iat": ["token_invalid", "The DPoP proof is too old, or not valid yet. Check the clock, and make a new one."],
  "proof jti": ["token_invalid", "The DPoP proof has no jti of 1 to 256 bytes."],
  "proof ath": ["token_invalid", "The DPoP proof is for another access token."],
  "proof signature": ["token_invalid", "The signature of the DPoP proof is not right."],
} as const;

export type ProofRefusal = keyof typeof PROOF_REFUSALS;

export interface VerifiedProof {
  readonly jti: string;
}

interface ProofTools {
  /** In milliseconds since 1970. */
  readonly now: number;
  /** By thumbprint: importing a key of P-256 takes longer than verifying a signature (160 and 120 µs). */
  readonly keys: MemoryPart<KeyObject>;
}

/**
 * The proof of a request with this access token, which is bound to the key with the thumbprint `jkt`; or why there is
 * none. "binding": it is by another key.
 */
export function verifyProof(
  exchange: Exchange,
  token: string,
  jkt: string,
  { now, keys }: ProofTools,
): VerifiedProof | ProofRefusal | "binding" {
  const [text, second] = headerValues(exchange.headers, "dpop");
  if (text === undefined) return "proof missing";
  if (second !== undefined) return "proof ambiguous";
  const parts = splitJwt(text, MAX_PROOF);
  if (parts === null || parts.header.crit !== undefined) return "proof malformed";
  const { typ, alg, jwk } = parts.header;
  if (typ !== "dpop+jwt") return "proof type";
  const algorithm = typeof alg === "string" && Object.hasOwn(ALGORITHMS, alg) ? ALGORITHMS[alg]! : null;
  if (algorithm === null) return "proof algorithm";
  const publicJwk = isObject(jwk) && !PRIVATE_MEMBERS.some((name) => Object.hasOwn(jwk, name)) ? publicPart(jwk) : null;
  if (publicJwk === null) return "proof key";
  if (thumbprint(publicJwk) !== jkt) return "binding";
  const claims = parts.claims();
  if (claims === null) return "proof malformed";
  const { htm, htu, iat, jti, ath } = claims;
  if (htm !== exchange.method) return "proof htm";
  if (typeof htu !== "string" || !isUrlOf(htu, exchange)) return "proof htu";
  if (!isTime(iat) || Math.abs(now - iat * 1000) > PROOF_AGE_MS) return "proof iat";
  if (typeof jti !== "string" || jti === "" || Buffer.byteLength(jti) > MAX_JTI_BYTES) return "proof jti";
  if (ath !== hash("sha256", token, "base64url")) return "proof ath";
  const key = keys.get(jkt) ?? keyFor(publicJwk);
  if (key === null || unfitness(key, algorithm) !== undefined) return "proof key";
  if (!isSignedBy(key, algorithm, parts.signed, parts.signature)) return "proof signature";
  if (keys.get(jkt) === undefined) keys.set(jkt, key, BYTES_OF_KEY);
  return { jti };
}

/** RFC 7518 §6.2.2, §6.3.2, §6.4.1. */
const PRIVATE_MEMBERS = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/** An estimate: RSA keys of 4096 bits have the most. */
const BYTES_OF_KEY = 4_096;

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Large exponents would make each verification slow: those in use have 3 bytes. */
function keyFor(jwk: JsonWebKey): KeyObject | null {
  return jwk.e !== undefined && jwk.e.length > MAX_EXPONENT ? null : publicKeyOf(jwk);
}

/** In characters of base64url. */
const MAX_EXPONENT = 6;

/**
 * Whether a proof is for the URL that the client has used: by scheme, authority and path, without query and fragment
 * (RFC 9449 §4.3), in the normal form of RFC 3986 §6.2.2. A trusted proxy says which scheme, host and prefix that were.
 */
function isUrlOf(htu: string, exchange: Exchange): boolean {
  const path = exchange.target.replace(AROUND_PATH, "") || "/";
  const own = `${exchange.scheme}://${givenAuthority(exchange)}${givenPrefix(exchange)}${path}`;
  if (htu === own) return true;
  const normal = normalUrl(htu);
  return normal !== null && normal === normalUrl(own);
}

/** The origin of a target in absolute-form (RFC 9112 §3.2.2), and the query. */
const AROUND_PATH = /^[a-zA-Z]+:\/\/[^/?]*|\?.*$/g;

function normalUrl(text: string): string | null {
  if (!URL.canParse(text)) return null;
  const { protocol, host, pathname } = new URL(text);
  return `${protocol}//${host}${pathname.replace(/%[\da-f]{2}/gi, normalOctet)}`;
}

/** `%7e` is `~`, and `%c3` is `%C3` (RFC 3986 §6.2.2.1, §6.2.2.2). */
function normalOctet(encoded: string): string {
  const character = String.fromCharCode(Number.parseInt(encoded.slice(1), 16));
  return /[\w.~-]/.test(character) ? character : encoded.toUpperCase();
}
