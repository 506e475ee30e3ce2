/**
 * Checks the PEM files that TLS needs: certificates, and the private key that belongs to them. No message repeats the
 * content.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { createSecureContext } from "node:tls";

/** Completes "the file …": undefined when it contains valid certificates. */
export function certificatesProblem(content: Buffer): string | undefined {
  const blocks = content.toString("latin1").match(CERTIFICATE);
  if (blocks === null) return "is not a certificate in PEM form: it has no line -----BEGIN CERTIFICATE-----";
  for (let i = 0; i < blocks.length; i++) {
    try {
      new X509Certificate(blocks[i]!);
    } catch (error) {
      const which = blocks.length === 1 ? "" : ` (number ${i + 1} of ${blocks.length} in it)`;
      return `is not a certificate in PEM form${which}: ${(error as Error).message}`;
    }
  }
  return undefined;
}

const CERTIFICATE =
  /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[^]*?(?:-----END (?:X509 |TRUSTED )?CERTIFICATE-----|$)/g;

const parsed = new WeakMap<Buffer, readonly X509Certificate[]>();

/** Those of a valid file. */
export function certificatesIn(content: Buffer): readonly X509Certificate[] {
  let found = parsed.get(content);
  if (found === undefined) {
    found = (content.toString("latin1").match(CERTIFICATE) ?? []).map((block) => new X509Certificate(block));
    parsed.set(content, found);
  }
  return found;
}

/** Completes "the file …": undefined when it contains a private key without a passphrase. */
export function keyProblem(content: Buffer): string | undefined {
  if (ENCRYPTED.test(content.toString("latin1"))) {
    return "is encrypted: store it without a passphrase (openssl pkey -in FILE -out NEW)";
  }
  try {
    createPrivateKey(content);
    return undefined;
  } catch (error) {
    return `is not a private key in PEM form: ${(error as Error).message}`;
  }
}

/** PKCS #8 names it in its first line, older forms in a header of their own. */
const ENCRYPTED = /-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED/m;

/** Whether a valid certificate chain and a valid key can be used together. */
export function pairProblem(cert: Buffer, key: Buffer): "mismatch" | { readonly unusable: string } | undefined {
  if (!new X509Certificate(cert).checkPrivateKey(createPrivateKey(key))) return "mismatch";
  try {
    createSecureContext({ cert, key, minVersion: "TLSv1.2" });
    return undefined;
  } catch (error) {
    // Only detected when used together: a key too short for current TLS, an obsolete signature algorithm.
    return { unusable: (error as Error).message };
  }
}

/**
 * Whether the first certificate is valid now; `wall` in milliseconds since 1970, `date` as "Jan  1 00:00:00 2021 GMT".
 */
export function validityProblem(
  cert: Buffer,
  wall: number,
): { readonly problem: string; readonly date: string } | undefined {
  const { validFrom, validTo } = new X509Certificate(cert);
  if (wall > Date.parse(validTo)) return { problem: "has expired", date: validTo };
  if (wall < Date.parse(validFrom)) return { problem: "is not valid yet", date: validFrom };
  return undefined;
}

export interface CertificateFacts {
  /** Its host names and addresses, as written: "*.example.com", "192.0.2.1"; other kinds of names are left out. */
  readonly names: readonly string[];
  /** The subject's common name if there are no such names: some clients still use it, browsers do not (RFC 9525 §2). */
  readonly commonName: string | null;
  /** End of its validity, in milliseconds since 1970. */
  readonly notAfter: number;
}

/** The displayed data of the first certificate. */
export function factsOf(cert: Buffer): CertificateFacts {
  const { subject, subjectAltName, validTo } = new X509Certificate(cert);
  const found = alternativeNames(subjectAltName ?? "").filter(({ type }) => type === "DNS" || type === "IP");
  const commonName = found.length > 0 ? null : (/^CN=(.*)$/m.exec(subject)?.[1] ?? null);
  return { names: found.map(({ name }) => name), commonName, notAfter: Date.parse(validTo) };
}

/** Whether the certificate is for this host (RFC 9525 §6): a name, or an address with or without brackets. */
export function coversHost(certificate: X509Certificate, host: string): boolean {
  const address = host.replace(/^\[|\]$/g, "");
  return (
    (isIP(address) === 0 ? certificate.checkHost(host, { partialWildcards: false }) : certificate.checkIP(address)) !==
    undefined
  );
}

/**
 * Reads subject alternative names as Node writes them: joined with ", ", and quoted as JSON strings where that could be
 * misread. The type is "DNS", "IP", "URI", "email", …
 */
export function alternativeNames(text: string): { readonly type: string; readonly name: string }[] {
  const names: { type: string; name: string }[] = [];
  for (const [, type, quoted, plain] of text.matchAll(NAME)) {
    names.push({
      type: type === "IP Address" ? "IP" : type!,
      name: quoted === undefined ? plain! : (JSON.parse(quoted) as string),
    });
  }
  return names;
}

const NAME = /([^:,"]+):(?:("(?:[^"\\]|\\.)*")|([^,"]*))(?:, |$)/gy;
