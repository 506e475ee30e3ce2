/**
 * Says whether one of the certificates of a chain is revoked, by lists that a configuration names.
 *
 * OpenSSL could check them itself (`crl` of `tls.createSecureContext`). It would refuse everything once a list has
 * expired, whatever the configuration says; its verdict would hide others, as Node has the last one alone; and it would
 * stay in session tickets while lists expire. So OpenSSL verifies the chain, and each of its certificates is looked up
 * here.
 */
import { hash, X509Certificate } from "node:crypto";
import tls from "node:tls";
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
    | "UNABLE_TO_GET_ISSUER_CERT"
    | "CERT_CHAIN_TOO_LONG";
  /** Of the certificate that is refused: as `X509Certificate.subject`, in one line. */
  readonly subject: string;
}

export interface RevocationRules {
  /** A PEM file of lists. */
  readonly lists: Buffer;
  /** What an expired list does with the certificates that it does not have. */
  readonly expired: "refuse" | "allow";
}

/** Chains have three or four. Each one that is shown costs time. */
const MAX_SHOWN = 10;
/** Signatures that are verified in one search. */
const MAX_VERIFIED = 20;

/**
 * Null: none is revoked. `chain`: what the other side has shown, its own certificate first; `ca`: PEM, those that it
 * was verified with, default: Node's. OpenSSL must have verified the chain. There may be several ways from it to a
 * certificate of `ca`, of which OpenSSL has gone one: on one of them each certificate must be in date, and needs a list
 * of its issuer that does not have it, also the last one, which has signed itself. `wall`: in milliseconds since 1970.
 */
export function revokedIn(
  chain: readonly X509Certificate[],
  ca: Buffer | undefined,
  rules: RevocationRules,
  wall: number,
): Revoked | null {
  if (chain.length > MAX_SHOWN) return { code: "CERT_CHAIN_TOO_LONG", subject: nameOf(chain[0]!) };
  const anchors = ca === undefined ? rootsOfNode() : certificatesIn(ca);
  return new Search(anchors, chain, rules, wall).refusalOf(chain[0]!, 0);
}

class Search {
  readonly #anchors: readonly X509Certificate[];
  readonly #issuers: readonly X509Certificate[];
  readonly #rules: RevocationRules;
  readonly #wall: number;
  #verified = 0;

  constructor(
    anchors: readonly X509Certificate[],
    shown: readonly X509Certificate[],
    rules: RevocationRules,
    wall: number,
  ) {
    this.#anchors = anchors;
    // As OpenSSL does: trusted ones come first.
    this.#issuers = [...anchors, ...shown];
    this.#rules = rules;
    this.#wall = wall;
  }

  /** Why no way leads from the certificate to an anchor; null: one does. */
  refusalOf(certificate: X509Certificate, depth: number): Revoked | null {
    let refusal: Revoked | null = null;
    for (const issuer of depth > MAX_SHOWN ? [] : this.#issuersOf(certificate)) {
      const code = lookUp(certificate, issuer, revocationListsIn(this.#rules.lists), this.#rules.expired, this.#wall);
      const isLast = issuer.raw.equals(certificate.raw);
      const found =
        code !== null
          ? { code, subject: nameOf(certificate) }
          : isLast
            ? this.#anchorRefusal(certificate)
            : this.refusalOf(issuer, depth + 1);
      if (found === null) return null;
      refusal ??= found;
    }
    return refusal ?? { code: "UNABLE_TO_GET_ISSUER_CERT", subject: nameOf(certificate) };
  }

  /** Anybody can sign a certificate with its own key. */
  #anchorRefusal(certificate: X509Certificate): Revoked | null {
    if (this.#anchors.some(({ raw }) => raw.equals(certificate.raw))) return null;
    return { code: "UNABLE_TO_GET_ISSUER_CERT", subject: nameOf(certificate) };
  }

  *#issuersOf(certificate: X509Certificate): Generator<X509Certificate> {
    const tried = new Set<string>();
    // By the clock of the system, by which OpenSSL has judged the chain.
    const now = Date.now();
    for (const issuer of this.#issuers) {
      if (this.#verified >= MAX_VERIFIED) return;
      if (tried.has(issuer.fingerprint256) || !mayHaveIssued(issuer, certificate, now)) continue;
      tried.add(issuer.fingerprint256);
      this.#verified++;
      if (hasSigned(issuer, certificate)) yield issuer;
    }
  }
}

/** Of certificates whose subject is empty, as those that have a URI alone, Node has none. */
function nameOf({ subject }: X509Certificate): string {
  return ((subject as string | undefined) ?? "").replaceAll("\n", ",");
}

let known: readonly X509Certificate[] | null = null;

/** Those that Node trusts; of those that NODE_EXTRA_CA_CERTS adds it tells from version 22.15 on. */
function rootsOfNode(): readonly X509Certificate[] {
  const { getCACertificates } = tls as { readonly getCACertificates?: () => readonly string[] };
  return (known ??= (getCACertificates?.() ?? tls.rootCertificates).map((root) => new X509Certificate(root)));
}

/** A CA in date whose name and key identifier are those of the issuer. */
function mayHaveIssued(issuer: X509Certificate, certificate: X509Certificate, now: number): boolean {
  // `checkIssued` costs least.
  if (!certificate.checkIssued(issuer)) return false;
  const isSelf = issuer.raw.equals(certificate.raw);
  return (isSelf || issuer.ca) && Date.parse(issuer.validFrom) <= now && now <= Date.parse(issuer.validTo);
}

/** Names alone prove nothing: anybody can show a certificate with the name of an issuer. */
function hasSigned(issuer: X509Certificate, certificate: X509Certificate): boolean {
  try {
    return certificate.verify(issuer.publicKey);
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

/** Signatures that were checked, by the key of the issuer: there may be any number of certificates for one. */
const checked = new WeakMap<RevocationList, Map<string, boolean>>();

function isSignedBy(list: RevocationList, issuer: X509Certificate): boolean {
  const known = checked.get(list) ?? new Map<string, boolean>();
  checked.set(list, known);
  const key = hash("sha256", issuer.publicKey.export({ type: "spki", format: "der" }), "base64");
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
  for (let next: Shown | undefined = shown as Shown; next?.raw !== undefined && chain.length <= MAX_SHOWN;) {
    chain.push(new X509Certificate(next.raw));
    if (next.issuerCertificate === next) break;
    next = next.issuerCertificate;
  }
  return chain;
}
