/**
 * Says whether one of the certificates of a chain is revoked, by lists that a configuration names.
 *
 * OpenSSL could check them itself (`crl` of `tls.createSecureContext`). It would refuse everything once a list has
 * expired, whatever the configuration says; its verdict would hide others, as Node has the last one alone; and it would
 * stay in session tickets while lists expire. So OpenSSL verifies the chain, and each of its certificates is looked up
 * here.
 */
import { X509Certificate } from "node:crypto";
import { revocationListsIn, serialOf, type RevocationList } from "./crl.ts";
import { Der, TAG } from "./der.ts";
import { certificatesIn } from "./pem.ts";

/** By OpenSSL's names, and why. */
export interface Revoked {
  readonly code:
    | "CERT_REVOKED"
    | "UNABLE_TO_GET_CRL"
    | "CRL_NOT_YET_VALID"
    | "CRL_HAS_EXPIRED"
    | "CRL_SIGNATURE_FAILURE"
    | "UNABLE_TO_GET_ISSUER_CERT";
  /** Of the certificate that is refused: as `X509Certificate.subject`, in one line. */
  readonly subject: string;
}

export interface RevocationRules {
  /** A PEM file of lists. */
  readonly lists: Buffer;
  /** What an expired list does with the certificates that it does not have. */
  readonly expired: "refuse" | "allow";
}

/** More certificates than OpenSSL accepts in a chain (`X509_VERIFY_PARAM_set_depth`). */
const MAX_CHAIN = 100;

/**
 * Null: none is revoked. `chain`: what the other side has shown, its own certificate first; `ca`: PEM, those that it
 * was verified with. OpenSSL must have verified the chain. Each certificate needs a list of its issuer, also the last
 * one, which has signed itself. `wall`: in milliseconds since 1970.
 */
export function revokedIn(
  chain: readonly X509Certificate[],
  ca: Buffer | undefined,
  { lists, expired }: RevocationRules,
  wall: number,
): Revoked | null {
  // As OpenSSL does: trusted ones come first.
  const issuers = [...(ca === undefined ? [] : certificatesIn(ca)), ...chain];
  let certificate = chain[0]!;
  for (let depth = 0; depth < MAX_CHAIN; depth++) {
    const issuer = issuers.find((each) => hasIssued(each, certificate));
    const code =
      issuer === undefined
        ? "UNABLE_TO_GET_ISSUER_CERT"
        : lookUp(certificate, issuer, revocationListsIn(lists), expired, wall);
    if (code !== null) return { code, subject: certificate.subject.replaceAll("\n", ",") };
    if (issuer!.raw.equals(certificate.raw)) return null;
    certificate = issuer!;
  }
  return { code: "UNABLE_TO_GET_ISSUER_CERT", subject: certificate.subject.replaceAll("\n", ",") };
}

/** Names alone prove nothing: anybody can show a certificate with the name of an issuer. */
function hasIssued(issuer: X509Certificate, certificate: X509Certificate): boolean {
  try {
    return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
  } catch {
    // A key of a type that this Node does not know.
    return false;
  }
}

function lookUp(
  certificate: X509Certificate,
  issuer: X509Certificate,
  lists: readonly RevocationList[],
  expired: RevocationRules["expired"],
  wall: number,
): Revoked["code"] | null {
  const { serial, issuer: name } = namesIn(certificate);
  const ofName = lists.filter((list) => list.issuer.equals(name));
  if (ofName.length === 0) return "UNABLE_TO_GET_CRL";
  const signed = ofName.filter((list) => isSignedBy(list, issuer));
  if (signed.length === 0) return "CRL_SIGNATURE_FAILURE";
  const begun = signed.filter(({ thisUpdate }) => thisUpdate <= wall);
  if (begun.length === 0) return "CRL_NOT_YET_VALID";
  const newest = begun.reduce((one, other) => (other.thisUpdate >= one.thisUpdate ? other : one));
  if (newest.revoked.has(serial)) return "CERT_REVOKED";
  return newest.nextUpdate < wall && expired === "refuse" ? "CRL_HAS_EXPIRED" : null;
}

/** Signatures that were checked, by the certificate of the issuer. */
const checked = new WeakMap<RevocationList, Map<string, boolean>>();

function isSignedBy(list: RevocationList, issuer: X509Certificate): boolean {
  const known = checked.get(list) ?? new Map<string, boolean>();
  checked.set(list, known);
  const key = issuer.fingerprint256;
  const verdict = known.get(key) ?? list.isSignedBy(issuer.publicKey);
  known.set(key, verdict);
  return verdict;
}

/** RFC 5280 §4.1 */
function namesIn({ raw }: X509Certificate): { readonly serial: string; readonly issuer: Buffer } {
  const parts = new Der(raw).enter(TAG.sequence).enter(TAG.sequence);
  if (parts.has(TAG.context0)) parts.enter(TAG.context0);
  const serial = serialOf(parts.latin1(TAG.integer));
  parts.enter(TAG.sequence);
  return { serial, issuer: parts.whole(TAG.sequence) };
}

/** The chain of the other side, as far as Node knows it: up to a certificate that has signed itself. */
export function shownChain(shown: { readonly raw: Buffer; readonly issuerCertificate?: unknown }): X509Certificate[] {
  const chain: X509Certificate[] = [];
  type Shown = { readonly raw: Buffer; readonly issuerCertificate?: Shown };
  for (let next: Shown | undefined = shown as Shown; next?.raw !== undefined && chain.length < MAX_CHAIN;) {
    chain.push(new X509Certificate(next.raw));
    if (next.issuerCertificate === next) break;
    next = next.issuerCertificate;
  }
  return chain;
}
