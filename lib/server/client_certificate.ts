/**
 * Reads what a TLS connection says of itself: its version, and the certificate that the client has shown, once a connection and when first asked for.
 * Whether it is good enough is for plugins to say; that a handshake fails without one is `tls.ts`.
 */
import type { X509Certificate } from "node:crypto";
import type { TLSSocket } from "node:tls";
import { alternativeNames } from "../base/pem.ts";
import type { ClientCertificate } from "../http/exchange.ts";

export type CertificateReader = () => ClientCertificate | null;

export interface TlsFacts {
  /** "TLSv1.3"; null when the connection is gone. */
  readonly version: string | null;
  readonly certificate: CertificateReader;
}

/** Requests on one connection share them. */
const known = new WeakMap<object, TlsFacts>();

/**
 * For a TLS connection of any server, also of a host's own. `authorized` alone says nothing: node says it of every resumed TLS 1.3
 * session, also of one whose client has shown no certificate. A certificate that was shown is in the session's ticket.
 */
export function tlsFactsOf(socket: TLSSocket): TlsFacts {
  let facts = known.get(socket);
  if (facts === undefined) {
    facts = { version: versionOf(socket), certificate: readOnce(socket) };
    known.set(socket, facts);
  }
  return facts;
}

function versionOf(socket: TLSSocket): string | null {
  try {
    return socket.getProtocol();
  } catch {
    return null; // as below
  }
}

export function noCertificate(): null {
  return null;
}

function readOnce(socket: TLSSocket): CertificateReader {
  let found: ClientCertificate | null | undefined;
  return () => {
    if (found !== undefined) return found;
    try {
      const shown = socket.getPeerX509Certificate();
      found = shown === undefined ? null : clientCertificate(shown, socket.authorized ? null : String(socket.authorizationError ?? "UNVERIFIED"));
    } catch {
      found = null; // the socket of an HTTP/2 session throws at every touch once it is gone
    }
    return found;
  };
}

/** `reason` is why it is not verified, in OpenSSL's words: "CERT_HAS_EXPIRED"; null when it is. */
export function clientCertificate(shown: X509Certificate, reason: string | null): ClientCertificate {
  return {
    verified: reason === null,
    reason,
    subject: subjectOf(shown),
    commonName: commonNameOf(shown),
    names: alternativeNames(shown.subjectAltName ?? "").map(({ type, name }) => `${type}:${name}`),
    fingerprint: shown.fingerprint256.replaceAll(":", "").toLowerCase(),
    keyUses: shown.keyUsage ?? [],
  };
}

/**
 * node gives one line for each part, escaped as RFC 4514 wants it, the most general first, and several attributes in one part
 * with " + " between: "C=DE\nCN=a + UID=b" is "CN=a+UID=b,C=DE". Nothing unescaped in a value looks like either.
 */
function subjectOf({ subject }: X509Certificate): string {
  // undefined at run time where it is empty: all names are alternative ones then.
  return (subject ?? "").split("\n").reverse().join(",").replaceAll(" + ", "+");
}

/** The last is the most specific one. */
function commonNameOf(shown: X509Certificate): string | null {
  const subject = shown.toLegacyObject().subject as { readonly CN?: string | string[] } | undefined;
  const name = [subject?.CN ?? []].flat().at(-1);
  return name === undefined || name === "" ? null : name;
}
