/**
 * Verifies the signature of a signed token (RFC 7515). Only the caller decides about algorithms and keys: the token
 * does not influence how it is verified, and `crit` is refused (RFC 8725).
 */
import { splitJwt, type JwtClaims } from "../base/jwt.ts";
import { MAX_TOKEN } from "./access_token.ts";
import { candidates, isSignedBy, type Algorithm, type KeySet } from "./jwt_keys.ts";

export const NO_KEYS = "the issuer's keys could not be fetched";

type SignatureRefusal = "malformed" | "critical" | "algorithm" | "type" | "signature" | "unknown key" | typeof NO_KEYS;

/**
 * The claims of a token whose signature is valid, or why it is refused. Its header is checked before keys are needed
 * (`keys` is null before the first fetch): a token that is refused in any case causes no fetch.
 */
export function signedClaims(
  token: string,
  algorithms: readonly Algorithm[],
  isAcceptedType: (typ: unknown) => boolean,
  keys: KeySet | null,
): JwtClaims | SignatureRefusal {
  const parts = splitJwt(token, MAX_TOKEN);
  if (parts === null) return "malformed";
  const { header, signed, signature } = parts;
  if (header.crit !== undefined) return "critical";
  const name = algorithms.find((each) => each === header.alg);
  if (name === undefined) return "algorithm";
  if (!isAcceptedType(header.typ)) return "type";
  if (header.kid !== undefined && typeof header.kid !== "string") return "malformed";
  if (keys === null) return NO_KEYS;
  const id = header.kid ?? null;
  const tried = candidates(keys, name, id);
  if (!tried.some(({ key }) => isSignedBy(key, name, signed, signature))) {
    // A token that names a known key is invalid. For an unknown key, the issuer may have published a new one.
    return tried.some((key) => key.id !== null && key.id === id) ? "signature" : "unknown key";
  }
  return parts.claims() ?? "malformed";
}

/** Media types in any case, with or without "application/" (RFC 7515 §4.1.9). */
export function typeCheck(accepted: readonly string[]): (typ: unknown) => boolean {
  const types = new Set(accepted.filter((each) => each !== "absent").map(mediaType));
  const mayBeAbsent = accepted.includes("absent");
  return (typ) => (typ === undefined ? mayBeAbsent : typeof typ === "string" && types.has(mediaType(typ)));
}

function mediaType(text: string): string {
  const lower = text.toLowerCase();
  return lower.includes("/") ? lower : `application/${lower}`;
}
