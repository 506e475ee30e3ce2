/**
 * What `service.tls` means to Node, made once for each pool.
 */
import { createHash } from "node:crypto";
import { isIP } from "node:net";
import tls, { type ConnectionOptions, type PeerCertificate } from "node:tls";
import type { Service } from "../config/model.ts";

export interface UpstreamTls {
  /** CA certificates, PEM. Default: those of the system. */
  readonly ca?: Buffer | undefined;
  /** Client certificate chain and its key, PEM. */
  readonly cert?: Buffer | undefined;
  readonly key?: Buffer | undefined;
  /** The name sent as SNI and verified. Default: the upstream's host. */
  readonly servername?: string | undefined;
  readonly verify: boolean;
  /** The same for the same settings and contents of files, whatever the files are called. */
  readonly identity: string;
}

export function upstreamTls({ ca, cert, key, servername, verify }: NonNullable<Service["tls"]>): UpstreamTls {
  const hash = createHash("sha256");
  for (const part of [ca?.content, cert?.content, key?.content, servername, String(verify)]) {
    // With the lengths, bytes that move from one part to the next make another identity.
    hash.update(part === undefined ? "-;" : `${part.length};`).update(part ?? "");
  }
  return { ca: ca?.content, cert: cert?.content, key: key?.content, servername, verify, identity: hash.digest("hex") };
}

/** Options for `tls.connect`. Throws when certificate and key do not fit. */
export function tlsOptions(host: string, { ca, cert, key, servername = host, verify }: Partial<UpstreamTls> = {}): ConnectionOptions {
  const name = servername.endsWith(".") ? servername.slice(0, -1) : servername;
  return {
    // One context for all connections: reading the system's certificates takes milliseconds.
    secureContext: tls.createSecureContext({ ca, cert, key }),
    // SNI cannot carry an address (RFC 6066 §3), but a certificate can.
    servername: isIP(name) === 0 ? name : "",
    checkServerIdentity: (_host: string, certificate: PeerCertificate) => tls.checkServerIdentity(name, certificate),
    // Set in any case: NODE_TLS_REJECT_UNAUTHORIZED must not decide it.
    rejectUnauthorized: verify ?? true,
  };
}
