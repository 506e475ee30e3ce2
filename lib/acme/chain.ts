/**
 * Reads certificate chains from a directory or a file, and checks that they can be presented.
 */
import { X509Certificate, type KeyObject } from "node:crypto";
import { coversHost, pairProblem } from "../base/pem.ts";
import { elementsOf, EXPLICIT, objectIdentifier, OCTET_STRING, SEQUENCE } from "./asn1.ts";
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
  const [certificate] = elementsOf(leaf.raw);
  const parts = elementsOf(elementsOf(certificate!.content)[0]!.content);
  const serial = parts[1]!.content;
  const extensions = parts.find(({ tag }) => tag === (EXPLICIT | 3));
  if (extensions === undefined) return null;
  for (const { content } of elementsOf(elementsOf(extensions.content)[0]!.content)) {
    if (!content.subarray(0, AUTHORITY_KEY_IDENTIFIER.length).equals(AUTHORITY_KEY_IDENTIFIER)) continue;
    const value = elementsOf(content).find(({ tag }) => tag === OCTET_STRING);
    const names = value === undefined ? undefined : elementsOf(value.content)[0];
    const keyIdentifier =
      names?.tag === SEQUENCE ? elementsOf(names.content).find(({ tag }) => tag === 0x80) : undefined;
    if (keyIdentifier === undefined) return null;
    return `${keyIdentifier.content.toString("base64url")}.${serial.toString("base64url")}`;
  }
  return null;
}

const AUTHORITY_KEY_IDENTIFIER = objectIdentifier("2.5.29.35");
