/**
 * The versions, ciphers and groups of TLS that a configuration allows, for `tls.createSecureContext`; and which names
 * of them this Node knows.
 */
import tls, { type SecureContextOptions } from "node:tls";
import { suggest } from "./suggest.ts";

export interface TlsRules {
  /** Default "1.2". */
  readonly minVersion?: "1.2" | "1.3";
  /** OpenSSL's names. Those of one version of TLS replace its defaults; the other version keeps its own. */
  readonly ciphers?: readonly string[] | undefined;
  /** For key exchange, the preferred one first. Default: Node's. */
  readonly groups?: readonly string[] | undefined;
}

/** For both versions; "TLS_" begins the names for TLS 1.3 alone. */
const DEFAULT_CIPHERS = tls.DEFAULT_CIPHERS.split(":");

/** From OpenSSL 3.5 on "/" stands between groups of which one is preferred; ":" lets the client's guess decide. */
const [MAJOR = 0, MINOR = 0] = process.versions.openssl.split(".").map(Number);
const HAS_RANKS = MAJOR > 3 || (MAJOR === 3 && MINOR >= 5);

/**
 * Servers offer no cipher without forward secrecy (RSA key exchange, RFC 9325 §4.1) that is not named. Clients keep
 * Node's defaults: what a server can do is not theirs to choose.
 */
export function contextRules(
  { minVersion = "1.2", ciphers = [], groups }: TlsRules,
  side: "server" | "client",
): SecureContextOptions {
  const of = (isNewest: boolean) => (name: string) => isForTls13(name) === isNewest;
  const older = ciphers.filter(of(false));
  const newest = ciphers.filter(of(true));
  const defaults = DEFAULT_CIPHERS.filter(of(false));
  const chosen = [
    ...(newest.length > 0 ? newest : DEFAULT_CIPHERS.filter(of(true))),
    ...(older.length > 0 ? older : side === "server" ? [...defaults, "!kRSA"] : defaults),
  ];
  return {
    minVersion: `TLSv${minVersion}`,
    ciphers: chosen.join(":"),
    ...(groups && { ecdhCurve: groups.join(HAS_RANKS ? "/" : ":") }),
  };
}

export function isForTls13(cipher: string): boolean {
  return cipher.startsWith("TLS_");
}

const UNKNOWN = `OpenSSL ${process.versions.openssl} of this Node, ${process.version}, does not know it`;

/** Why a cipher cannot be named; undefined: it can. */
export function cipherProblem(name: string): string | undefined {
  const known = tls.getCiphers().map((cipher) => cipher.toUpperCase());
  if (!known.includes(name)) {
    const near = suggest(
      name,
      known.filter((cipher) => !UNUSABLE.test(cipher)),
    );
    return UNKNOWN + hintOf(near);
  }
  if (!UNUSABLE.test(name)) return undefined;
  return "it needs keys that both sides know beforehand, proves nobody's identity, or encrypts nothing";
}

const UNUSABLE = /(?:^|-)(?:PSK|SRP|NULL|ADH|AECDH)(?:-|$)/;

/** Groups of TLS 1.3, with OpenSSL's names as IANA has them, and those of NIST as they are best known. */
const GROUPS = [
  ...["X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024"],
  ...["X25519", "P-256", "P-384", "P-521", "X448"],
  ...["ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"],
];
const OTHER_NAMES: Readonly<Record<string, string>> = {
  prime256v1: "P-256",
  secp256r1: "P-256",
  secp384r1: "P-384",
  secp521r1: "P-521",
};

/** Why a group cannot be named; undefined: it can. */
export function groupProblem(name: string): string | undefined {
  if (!GROUPS.includes(name)) {
    return UNKNOWN + hintOf(OTHER_NAMES[name] ?? suggest(name, GROUPS));
  }
  try {
    tls.createSecureContext({ ecdhCurve: name });
    return undefined;
  } catch {
    return UNKNOWN + (name.includes("MLKEM") ? "; OpenSSL 3.5 does, which Node 24 has" : "");
  }
}

function hintOf(near: string | undefined): string {
  return near === undefined ? "" : `; did you mean ${JSON.stringify(near)}?`;
}

/**
 * Why these names cannot be used together; undefined: they can. `at`: the field that is to change.
 */
export function rulesProblem(rules: TlsRules): { readonly at: "ciphers" | "groups"; readonly why: string } | undefined {
  const { minVersion = "1.2", ciphers = [], groups = [] } = rules;
  if (minVersion === "1.3" && ciphers.length > 0 && !ciphers.some(isForTls13))
    return { at: "ciphers", why: 'are for TLS 1.2 alone, and "min_version" is "1.3": name some that begin with TLS_' };
  for (const at of ["ciphers", "groups"] as const) {
    const twice = rules[at]?.find((name, i, all) => all.indexOf(name) !== i);
    if (twice !== undefined) return { at, why: `have ${JSON.stringify(twice)} twice` };
  }
  try {
    tls.createSecureContext(contextRules(rules, "server"));
    return undefined;
  } catch (error) {
    return {
      at: groups.length > 0 ? "groups" : "ciphers",
      why: `cannot be used together: ${(error as Error).message}`,
    };
  }
}

/**
 * The group that a handshake has used, by the name that a configuration has; null: not known. Node says it to clients
 * alone: a server knows it where its rules leave no choice.
 */
export function groupOf(socket: tls.TLSSocket, { groups = [] }: TlsRules, side: "server" | "client"): string | null {
  if (side === "client") {
    const { name, type, size } = (socket.getEphemeralKeyInfo() ?? {}) as Partial<Record<string, string | number>>;
    if (type === "DH") return `ffdhe${size}`;
    return typeof name === "string" ? (OTHER_NAMES[name] ?? name) : null;
  }
  if (groups.length !== 1) return null;
  const isEphemeral = socket.getProtocol() === "TLSv1.3" || socket.getCipher()?.name.startsWith("ECDHE-");
  return isEphemeral ? groups[0]! : null;
}
