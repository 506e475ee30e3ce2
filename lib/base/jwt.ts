/**
 * Splits compact JWTs (RFC 7519, RFC 7515), and signs and verifies the tokens that this program issues, with HS256.
 */
import { createHmac, timingSafeEqual } from "node:crypto";

export type JwtClaims = Readonly<Record<string, unknown>>;

/**
 * `now` in milliseconds since 1970; `issuer` is the required `iss`, `audience` the required `aud` or a member of it.
 */
export interface JwtExpected {
  readonly now: number;
  readonly issuer: string;
  readonly audience: string;
}

export type JwtRefusal = "malformed" | "algorithm" | "signature" | "expired" | "not_yet" | "issuer" | "audience";

export type JwtVerdict =
  { readonly ok: true; readonly claims: JwtClaims } | { readonly ok: false; readonly reason: JwtRefusal };

export function signJwt(claims: JwtClaims, secret: string | Uint8Array): string {
  const signed = `${HEADER}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}`;
  return `${signed}.${signature(signed, secret).toString("base64url")}`;
}

/** A well-formed token that is not verified yet. */
export interface JwtParts {
  readonly header: Readonly<Record<string, unknown>>;
  /** The signed part. */
  readonly signed: string;
  readonly signature: Buffer;
  /** The claims, or null when they are not an object: to be called once the signature is verified. */
  readonly claims: () => JwtClaims | null;
}

/** Null when the text is not a compact JWS, or longer than `maxLength` characters. Never throws. */
export function splitJwt(token: string, maxLength: number): JwtParts | null {
  if (token.length > maxLength) return null;
  const first = token.indexOf(".");
  const last = token.lastIndexOf(".");
  if (first < 0 || last === first) return null;
  const header = objectOf(token.slice(0, first));
  const signature = bytesOf(token.slice(last + 1));
  const body = token.slice(first + 1, last);
  if (header === null || signature === null || body.includes(".")) return null;
  return { header, signed: token.slice(0, last), signature, claims: () => objectOf(body) };
}

/**
 * Claims are read only once the signature is verified. `exp` (seconds since 1970) is required, `nbf` respected. Never
 * throws.
 */
export function verifyJwt(token: string, secret: string | Uint8Array, expected: JwtExpected): JwtVerdict {
  const parts = splitJwt(token, MAX_LENGTH);
  if (parts === null) return refuse("malformed");
  if (!plainHs256(parts.header)) return refuse("algorithm");
  const right = signature(parts.signed, secret);
  if (parts.signature.length !== right.length || !timingSafeEqual(parts.signature, right)) return refuse("signature");

  const claims = parts.claims();
  if (claims === null || !isTime(claims.exp) || (claims.nbf !== undefined && !isTime(claims.nbf)))
    return refuse("malformed");
  if (expected.now >= claims.exp * 1000) return refuse("expired");
  if (claims.nbf !== undefined && expected.now < claims.nbf * 1000) return refuse("not_yet");
  if (claims.iss !== expected.issuer) return refuse("issuer");
  const holds = Array.isArray(claims.aud) ? claims.aud.includes(expected.audience) : claims.aud === expected.audience;
  return holds ? { ok: true, claims } : refuse("audience");
}

/** In characters; tokens of this program have about 300. */
export const MAX_LENGTH = 4096;

const HEADER = Buffer.from('{"alg":"HS256","typ":"JWT"}').toString("base64url");

const refuse = (reason: JwtRefusal): JwtVerdict => ({ ok: false, reason });

/**
 * Only one algorithm is accepted, whatever the header says. Members that ask for more (`crit`, `jwk`, `jku`, …) are
 * refused instead of being ignored (RFC 8725 §3.1, §3.10).
 */
function plainHs256(header: JwtParts["header"]): boolean {
  for (const name in header) if (name !== "alg" && name !== "typ") return false;
  return header.alg === "HS256" && (header.typ === undefined || header.typ === "JWT");
}

function signature(signed: string, secret: string | Uint8Array): Buffer {
  return createHmac("sha256", secret).update(signed).digest();
}

function objectOf(part: string): Record<string, unknown> | null {
  const bytes = bytesOf(part);
  if (bytes === null) return null;
  try {
    const value: unknown = JSON.parse(bytes.toString("utf8"));
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

/** Strict base64url: Node skips foreign characters and stray bits, so the bytes must encode back to the same text. */
function bytesOf(part: string): Buffer | null {
  const bytes = Buffer.from(part, "base64url");
  return bytes.toString("base64url") === part ? bytes : null;
}

/** A number of seconds since 1970. */
export function isTime(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}
