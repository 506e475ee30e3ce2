/**
 * How upstreams are reached over TLS: what `service.tls` means to node, made once for each pool. Connecting is `pool.ts`'s and
 * `sessions.ts`'s.
 */
import { createHash } from "node:crypto";
import { isIP } from "node:net";
import tls, { type ConnectionOptions, type PeerCertificate } from "node:tls";
import type { Service } from "../config/model.ts";

export interface UpstreamTls {
  /** CA certificates, PEM; default: those of the system. */
  readonly ca?: Buffer;
  /** Client certificate chain and its key, PEM. */
  readonly cert?: Buffer;
  readonly key?: Buffer;
  /** Name that is asked for and verified; default: the upstream's host. */
  readonly servername?: string;
  readonly verify: boolean;
  /** The same for the same settings and contents of files, whatever the files are called. */
  readonly identity: string;
}

/** What `service.tls` says, with the contents of its files. */
export function upstreamTls(config: NonNullable<Service["tls"]>): UpstreamTls {
  const { ca, cert, key, servername, verify } = config;
  const hash = createHash("sha256");
  for (const part of [ca?.content, cert?.content, key?.content, servername, String(verify)]) {
    // Lengths between the parts: what moves from one to the next makes another identity.
    hash.update(part === undefined ? "-;" : `${part.length};`).update(part ?? "");
  }
  return {
    ...(ca === undefined ? {} : { ca: ca.content }),
    ...(cert === undefined ? {} : { cert: cert.content }),
    ...(key === undefined ? {} : { key: key.content }),
    ...(servername === undefined ? {} : { servername }),
    verify,
    identity: hash.digest("hex"),
  };
}

/** Options for `tls.connect` and `https.Agent`. Throws when certificate and key do not fit. */
export function tlsOptions(host: string, settings: UpstreamTls | undefined): ConnectionOptions {
  const { ca, cert, key } = settings ?? {};
  const name = withoutFinalDot(settings?.servername ?? host);
  return {
    // One context for all connections: reading the system's certificates takes milliseconds, and node's agent would make a key of all
    // the files for each request.
    secureContext: tls.createSecureContext({ ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) }),
    // An address cannot be asked for (RFC 6066 §3), but it can be verified.
    servername: isIP(name) === 0 ? name : "",
    checkServerIdentity: (_host: string, certificate: PeerCertificate) => tls.checkServerIdentity(name, certificate),
    // Said in any case: NODE_TLS_REJECT_UNAUTHORIZED must not decide it.
    rejectUnauthorized: settings?.verify ?? true,
  };
}

function withoutFinalDot(name: string): string {
  return name.endsWith(".") ? name.slice(0, -1) : name;
}
