/** Clients with a key of their own: DPoP proofs (RFC 9449 §4.2), and tokens that are bound to the key. */
import { createHash, createHmac, generateKeyPairSync, sign, type KeyObject } from "node:crypto";

export const SECRET = "0123456789abcdef0123456789abcdef";

const encode = (value: unknown) =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

/** A token for `jwt` with this secret, whatever stands in it. */
export function token(claims: object): string {
  const text = `${encode({ alg: "HS256" })}.${encode({ exp: 4_102_444_800, sub: "ann", ...claims })}`;
  return `${text}.${createHmac("sha256", SECRET).update(text).digest("base64url")}`;
}

const KINDS = {
  ES256: () => generateKeyPairSync("ec", { namedCurve: "P-256" }),
  ES384: () => generateKeyPairSync("ec", { namedCurve: "P-384" }),
  EdDSA: () => generateKeyPairSync("ed25519"),
  Ed25519: () => generateKeyPairSync("ed25519"),
  RS256: () => generateKeyPairSync("rsa", { modulusLength: 2048 }),
  PS256: () => generateKeyPairSync("rsa", { modulusLength: 2048 }),
} as const;

type Jwk = Record<string, unknown>;

function signature(alg: string, key: KeyObject, text: string): Buffer {
  const bytes = Buffer.from(text);
  if (alg.startsWith("Ed")) return sign(null, bytes, key);
  const padding = alg.startsWith("PS") ? { padding: 6, saltLength: 32 } : {};
  return sign(`sha${alg.slice(2)}`, bytes, { key, dsaEncoding: "ieee-p1363", ...padding });
}

/** What of a proof is another than it should be. */
export interface Oddity {
  readonly header?: object;
  readonly claims?: object;
  readonly jwk?: object;
  /** Signs. */
  readonly by?: KeyObject;
}

let made = 0;

/** A client with a key. `now`: the time of its clock, in seconds since 1970. */
export function dpopClient(now: () => number = () => Math.floor(Date.now() / 1000), alg: keyof typeof KINDS = "ES256") {
  const { publicKey, privateKey } = KINDS[alg]();
  const jwk = publicKey.export({ format: "jwk" }) as Jwk;
  const members = Object.fromEntries(
    ["crv", "e", "kty", "n", "x", "y"].flatMap((name) => (jwk[name] === undefined ? [] : [[name, jwk[name]]])),
  );
  const jkt = createHash("sha256").update(JSON.stringify(members)).digest("base64url");
  return {
    privateKey,
    jwk,
    jkt,
    /** A token that is bound to the key. */
    token: (claims: object = {}) => token({ cnf: { jkt }, ...claims }),
    proof(method: string, url: string, accessToken: string, odd: Oddity = {}): string {
      const header = { typ: "dpop+jwt", alg, jwk: odd.jwk ?? jwk, ...odd.header };
      const ath = createHash("sha256").update(accessToken).digest("base64url");
      const claims = { htm: method, htu: url, iat: now(), jti: `proof-${++made}`, ath, ...odd.claims };
      const text = `${encode(header)}.${encode(claims)}`;
      return `${text}.${signature(alg, odd.by ?? privateKey, text).toString("base64url")}`;
    },
  };
}
