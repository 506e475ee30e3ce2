/**
 * Reads certificate chains from a directory or a file, and checks that they can be presented.
 */
import { X509Certificate, type KeyObject } from "node:crypto";
import { Der, TAG } from "../base/der.ts";
import { coversHost, pairProblem } from "../base/pem.ts";
import { EXPLICIT } from "./asn1.ts";
import { pemOf } from "./signing_request.ts";

export interface CertificateChain {
  /** PEM, nothing but certificates, that of the hosts first. */
  readonly pem: Buffer;
  readonly leaf: X509Certificate;
  /** Milliseconds since 1970. */
  readonly notBefore: number;
  readonly notAfter: number;
}

/** Each is issued by the next one, which this checks. Throws an `Error` in words. */
export function chainOf(text: string): CertificateChain {
  const blocks = text.match(CERTIFICATE) ?? [];
  const begun = text.split("-----BEGIN CERTIFICATE-----").length - 1;
  if (begun === 0) throw new Error("it has no certificate");
  if (begun > blocks.length) throw new Error("it has a certificate that cannot be read");
  if (blocks.length > MAX_CERTIFICATES) throw new Error(`its chain has more than ${MAX_CERTIFICATES} certificates`);
  const certificates = blocks.map(certificateOf);
  const leaf = certificates[0]!;
  certificates.slice(1).forEach((issuer, i) => {
    const certificate = certificates[i]!;
    if (!certificate.checkIssued(issuer) || !certificate.verify(issuer.publicKey))
      throw new Error(`number ${i + 1} of its chain is not issued by the next one`);
  });
  return {
    pem: Buffer.from(blocks.map((block) => `${block}\n`).join("")),
    leaf,
    notBefore: Date.parse(leaf.validFrom),
    notAfter: Date.parse(leaf.validTo),
  };
}

function certificateOf(block: string): X509Certificate {
  try {
    return new X509Certificate(block);
  } catch {
    throw new Error("it has a certificate that cannot be read");
  }
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]{1,65536}-----END CERTIFICATE-----/g;
/** Chains of public directories have up to four. */
const MAX_CERTIFICATES = 10;

/** Completes "the certificate …": why it cannot be presented for these hosts; undefined: it can. */
export function chainProblem(
  { leaf, pem }: CertificateChain,
  key: KeyObject,
  hosts: readonly string[],
): string | undefined {
  const problem = pairProblem(pem, pemOf(key));
  if (problem === "mismatch") return "is not for the key that it was ordered with";
  if (problem !== undefined) return `cannot be used: ${problem.unusable}`;
  const missing = hosts.filter((host) => !coversHost(leaf, host));
  return missing.length === 0 ? undefined : `is not for ${missing.join(", ")}`;
}

/**
 * By which renewal information is asked, and an order names the certificate that it replaces (RFC 9773 §4.1); null: it
 * has no identifier of its issuer's key.
 */
export function renewalId(leaf: X509Certificate): string | null {
  const parts = new Der(leaf.raw).enter(TAG.sequence).enter(TAG.sequence);
  if (parts.has(TAG.context0)) parts.skip(TAG.context0);
  const serial = parts.content(TAG.integer);
  while (parts.has() && !parts.has(EXTENSIONS)) parts.whole();
  const extensions = parts.has() ? parts.enter(EXTENSIONS).enter(TAG.sequence) : null;
  while (extensions?.has()) {
    const extension = extensions.enter(TAG.sequence);
    if (extension.oid() !== AUTHORITY_KEY_IDENTIFIER) continue;
    if (extension.has(TAG.boolean)) extension.skip(TAG.boolean);
    const names = new Der(extension.content(TAG.octetString)).enter(TAG.sequence);
    // Its first member, where it is there.
    if (!names.has(KEY_IDENTIFIER)) return null;
    return `${names.content(KEY_IDENTIFIER).toString("base64url")}.${serial.toString("base64url")}`;
  }
  return null;
}

/** RFC 5280 §4.1: [3] around the extensions. */
const EXTENSIONS = EXPLICIT | 3;
const AUTHORITY_KEY_IDENTIFIER = "2.5.29.35";
/** RFC 5280 §4.2.1.1: [0] in place of the tag of an OCTET STRING. */
const KEY_IDENTIFIER = 0x80;
