/**
 * What a request tells of its client's certificate.
 */

/** The content of a client certificate. */
export interface ClientCertificate {
  /** Whether it was verified against CA_CERT_PATH, and if not, why: "CERT_HAS_EXPIRED". */
  readonly verified: boolean;
  readonly reason: string | null;
  /** In the form of RFC 4514: "CN=alice,O=Example". */
  readonly subject: string;
  /** The most specific CN of the subject as it is, unescaped; null when there is none. */
  readonly commonName: string | null;
  /** Subject alternative names: "DNS:alice.example.com", "URI:spiffe://…", "IP:192.0.2.1", "email:…". */
  readonly names: readonly string[];
  /** SHA-256 of the certificate, 64 hex digits in lower case. */
  readonly fingerprint: string;
  /** Object identifiers of the extended key uses; empty when the certificate does not restrict them. */
  readonly keyUses: readonly string[];
  /** In DER, and behind it those that the client has sent with it; absent: not known, as in tests. */
  readonly chain?: () => readonly Buffer[];
}

export type CertificateReader = () => ClientCertificate | null;
