/**
 * Finds the certificate for the host name that a client asks for (SNI, RFC 6066 §3) among `global.certificates` and
 * those of `global.acme`.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { validityProblem } from "../base/pem.ts";
import type { Config } from "../config/model.ts";

/**
 * A certificate and its key, PEM. One object for each configured certificate, so it can serve as a map key for derived
 * objects.
 */
export interface Pair {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** In place of a `Pair`, where hosts with certificates of their own alone are served. */
export type NoPair = { readonly [K in keyof Pair]: null };

/** With the certificate for all names that none of `HostCertificates` is for. */
export type TlsFiles = (Pair | NoPair) & TlsRules;

interface TlsRules {
  /** CA certificates for client certificates; null: clients are not asked for one. */
  readonly ca: Buffer | null;
  /** Whether a handshake without a valid client certificate fails. */
  readonly requireClientCert: boolean;
  /** Where `cert` was read from, for the gateway's status. */
  readonly path?: string;
}

export interface HostCertificates {
  /**
   * The pair for exactly that name, else for the wildcard that covers it; undefined: use the listener's default pair.
   * Null: one is ordered for this host, and none is there yet: nobody is to be shown another one.
   */
  find(servername: string): Pair | null | undefined;
  /** Those of `global.acme`; absent: the configuration does not have it. */
  readonly issued?: IssuedPairs;
  /**
   * As `find`, for clients that name no host, by the address that they have connected to: clients put no address into
   * SNI (RFC 6066 §3). Of `global.acme` alone, whose certificates may be for addresses.
   */
  atAddress?(address: string): Pair | null | undefined;
}

/** What a thread serves of `global.acme`. */
export interface IssuedPairs {
  /** Undefined: there is none yet. */
  pairFor(host: string): Pair | undefined;
  /** Whether a challenge is open that handshakes answer (tls-alpn-01). */
  readonly isChallengedOverTls: boolean;
  /** For a handshake that offers acme-tls/1 alone; undefined: no challenge is open for this name. */
  challengePair(servername: string): Pair | undefined;
}

/** The certificate that HTTPS listeners present for all other names. */
export interface DefaultCertificate {
  /** Whether it is for this host, see `coversHost`. */
  covers(host: string): boolean;
}

interface Configured extends Pick<Config["global"], "certificates"> {
  /** Undefined: no certificate is ordered. */
  readonly acme?: { readonly hosts: readonly string[] } | undefined;
}

/**
 * A configured certificate that has expired or is not yet valid is used with a warning: some clients accept it.
 * `issued`: null without `acme`.
 */
export function hostCertificates(
  { certificates, acme }: Configured,
  issued: IssuedPairs | null,
  log: Log,
  clock: Clock,
): HostCertificates {
  const exact = new Map<string, Pair>();
  const wildcard = new Map<string, Pair>();
  for (const { hosts, cert, key } of certificates) {
    const pair: Pair = { cert: cert.content, key: key.content };
    for (const host of hosts) {
      if (host.startsWith("*.")) wildcard.set(host.slice(2), pair);
      else exact.set(host, pair);
    }
    const wrong = validityProblem(pair.cert, clock.wall());
    if (wrong !== undefined)
      log.warn(`the certificate for ${hosts.join(", ")} ${wrong.problem}`, { file: cert.path, date: wrong.date });
  }
  const find = (name: string) => {
    const found = exact.get(name);
    if (found !== undefined || wildcard.size === 0) return found;
    // *.example.com covers one label (RFC 9525 §6.3), so not a.b.example.com.
    const dot = name.indexOf(".");
    return dot <= 0 ? undefined : wildcard.get(name.slice(dot + 1));
  };
  if (acme === undefined || issued === null) return { find: (servername) => find(servername.toLowerCase()) };
  const ordered = new Set(acme.hosts);
  const issuedFor = (host: string) => (ordered.has(host) ? (issued.pairFor(host) ?? null) : undefined);
  return {
    issued,
    atAddress: issuedFor,
    find(servername) {
      const name = servername.toLowerCase();
      const found = issuedFor(name);
      return found === undefined ? find(name) : found;
    },
  };
}
