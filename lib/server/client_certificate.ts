/**
 * Reads the facts of a client's TLS connection: its version, the host name of the handshake, and the certificate that
 * the client has presented.
 */
import type { X509Certificate } from "node:crypto";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { alternativeNames } from "../base/pem.ts";
import type { CertificateReader, ClientCertificate } from "../http/client_certificate.ts";
import { notedGroup } from "./handshakes.ts";
import { isEncrypted, connectionWithoutTls, type ConnectionFacts } from "./inbound.ts";

export interface TlsFacts {
  /** "TLSv1.3"; null when the connection has closed. */
  readonly version: string | null;
  /** By OpenSSL's name: "TLS_AES_256_GCM_SHA384". */
  readonly cipher: string | null;
  /** For key exchange; null: it is not known. */
  readonly group: string | null;
  /** Reads the certificate when it is first called. */
  readonly certificate: CertificateReader;
  /**
   * The host that the client has named in its handshake (SNI, RFC 6066 §3); "" when it has named none, and in a resumed
   * TLS 1.2 session.
   */
  readonly servername: string;
}

/** Shared by all requests of a connection. */
const known = new WeakMap<object, TlsFacts>();
/** By their certificate readers. */
const behind = new WeakMap<CertificateReader, TlsFacts>();

/** For a TLS connection of any server, also of a host's own. */
export function tlsFactsOf(socket: TLSSocket): TlsFacts {
  let facts = known.get(socket);
  if (facts === undefined) {
    let found: ClientCertificate | null | undefined;
    const version = ifOpen(() => socket.getProtocol());
    const servername = ifOpen(() => socket.servername) || "";
    facts = {
      version,
      cipher: ifOpen(() => socket.getCipher()?.name ?? null),
      group: ifOpen(() => notedGroup(socket)),
      servername,
      certificate: () => (found === undefined ? (found = ifOpen(() => read(socket))) : found),
    };
    known.set(socket, facts);
    behind.set(facts.certificate, facts);
  }
  return facts;
}

/** The facts about a connection, with TLS or without it. */
export function connectionOf(socket: Socket): ConnectionFacts {
  if (!isEncrypted(socket)) return connectionWithoutTls(socket);
  const { certificate, version: tlsVersion, cipher: tlsCipher, group: tlsGroup } = tlsFactsOf(socket);
  return { remoteAddress: socket.remoteAddress, encrypted: true, certificate, tlsVersion, tlsCipher, tlsGroup };
}

/**
 * Of the connection whose client certificate `reader` reads; undefined without TLS, and for requests without a
 * connection.
 */
export function tlsFactsBehind(reader: CertificateReader): TlsFacts | undefined {
  return behind.get(reader);
}

/** Null for a closed connection: the socket of an HTTP/2 session throws at every use then. */
function ifOpen<T>(get: () => T): T | null {
  try {
    return get();
  } catch {
    return null;
  }
}

/**
 * `socket.authorized` alone proves nothing: node sets it for every resumed TLS 1.3 session, also of a client that has
 * presented no certificate.
 * A certificate that was presented is in the session's ticket.
 */
function read(socket: TLSSocket): ClientCertificate | null {
  const shown = shownCertificate(socket);
  if (shown === undefined) return null;
  return clientCertificate(shown, socket.authorized ? null : String(socket.authorizationError ?? "UNVERIFIED"));
}

/** On the socket itself: see `noteGroup`. */
const SHOWN = Symbol("the certificate that the client has shown");

/** Undefined: none. It is read once: Node tells the issuer to the first reader of a connection alone. */
export function shownCertificate(socket: TLSSocket): X509Certificate | undefined {
  const noted = socket as { [SHOWN]?: X509Certificate | undefined };
  return (noted[SHOWN] ??= socket.getPeerX509Certificate());
}

/** `reason` is why it is not verified, as a code of OpenSSL: "CERT_HAS_EXPIRED"; null when it is. */
export function clientCertificate(shown: X509Certificate, reason: string | null): ClientCertificate {
  return {
    verified: reason === null,
    reason,
    subject: subjectOf(shown),
    commonName: commonNameOf(shown),
    names: alternativeNames(shown.subjectAltName ?? "").map(({ type, name }) => `${type}:${name}`),
    fingerprint: shown.fingerprint256.replaceAll(":", "").toLowerCase(),
    keyUses: shown.keyUsage ?? [],
    chain: () => chainOf(shown),
  };
}

/** As in the handshake; of a resumed session the first alone is known. Without the CA itself. */
function chainOf(shown: X509Certificate): readonly Buffer[] {
  const chain = [shown.raw];
  let next = shown.issuerCertificate;
  while (next !== undefined && chain.length < MAX_CHAIN) {
    if (!next.checkIssued(next)) chain.push(next.raw);
    next = next.issuerCertificate;
  }
  return chain;
}

/** OpenSSL verifies no longer ones (`X509_VERIFY_PARAM_set_depth`). */
const MAX_CHAIN = 100;

/**
 * Node gives one line for each part, escaped as in RFC 4514, the most general first, and joins several attributes of
 * one part with " + ":
 * "C=DE\nCN=a + UID=b" is "CN=a+UID=b,C=DE". In a value both separators are escaped.
 */
function subjectOf({ subject }: X509Certificate): string {
  // Undefined at run time if it is empty: all names are alternative ones then.
  return (subject ?? "").split("\n").reverse().join(",").replaceAll(" + ", "+");
}

/** The last one, which is the most specific. */
function commonNameOf(shown: X509Certificate): string | null {
  const subject = shown.toLegacyObject().subject as { readonly CN?: string | string[] } | undefined;
  return [subject?.CN ?? []].flat().at(-1) || null;
}
