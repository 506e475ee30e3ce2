/**
 * Signs the requests to a directory (RFC 8555 §6.2): JSON Web Signatures (RFC 7515) with the key of an account, ES256.
 */
import { createHash, createHmac, createPublicKey, sign, type KeyObject } from "node:crypto";

/** The public key of an account (RFC 7517). The order of its members is that of RFC 7638. */
export interface AccountJwk {
  readonly crv: string;
  readonly kty: string;
  readonly x: string;
  readonly y: string;
}

export interface AccountKey {
  readonly key: KeyObject;
  readonly jwk: AccountJwk;
  /** RFC 7638. */
  readonly thumbprint: string;
}

/** `key` is a private EC key on P-256. */
export function accountKey(key: KeyObject): AccountKey {
  const { crv, kty, x, y } = createPublicKey(key).export({ format: "jwk" });
  const jwk: AccountJwk = { crv: crv!, kty: kty!, x: x!, y: y! };
  return { key, jwk, thumbprint: createHash("sha256").update(JSON.stringify(jwk)).digest("base64url") };
}

/** Flattened JSON (RFC 7515 §7.2.2). */
export interface Jws {
  readonly protected: string;
  readonly payload: string;
  readonly signature: string;
}

/** `payload` null: that of a POST-as-GET (RFC 8555 §6.3). */
export function signedJws(header: object, payload: object | null, { key }: AccountKey): Jws {
  return jwsOf({ alg: "ES256", ...header }, payload, (bytes) =>
    sign("sha256", bytes, { key, dsaEncoding: "ieee-p1363" }),
  );
}

/** With HS256, for the binding to an external account (RFC 8555 §7.3.4). */
export function macJws(header: object, payload: object, hmacKey: Buffer): Jws {
  return jwsOf({ alg: "HS256", ...header }, payload, (bytes) => createHmac("sha256", hmacKey).update(bytes).digest());
}

function jwsOf(header: object, payload: object | null, signatureOf: (bytes: Buffer) => Buffer): Jws {
  const head = encoded(header);
  const body = payload === null ? "" : encoded(payload);
  const signature = signatureOf(Buffer.from(`${head}.${body}`)).toString("base64url");
  return { protected: head, payload: body, signature };
}

function encoded(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}
