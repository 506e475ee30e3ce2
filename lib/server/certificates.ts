/**
 * Finds the certificate for the host name that a client asks for (SNI, RFC 6066 §3) among `global.certificates`.
 * Files and pairs are checked in `config/`; showing the certificate is `tls.ts`.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { validityProblem } from "../base/pem.ts";
import type { Config } from "../config/model.ts";

/** One object for each configured certificate: what is made of it can be kept under it. */
export interface Pair {
  readonly cert: Buffer;
  readonly key: Buffer;
}

export interface HostCertificates {
  /** The pair of that very name, else of the wildcard that covers it; undefined: the listener's default one. */
  find(servername: string): Pair | undefined;
}

/** Certificates out of their time are warned of, and used: clients may not mind. */
export function hostCertificates(configured: Config["global"]["certificates"], log: Log, clock: Clock): HostCertificates {
  const exact = new Map<string, Pair>();
  const wildcard = new Map<string, Pair>();
  for (const { hosts, cert, key } of configured) {
    const pair: Pair = { cert: cert.content, key: key.content };
    for (const host of hosts) {
      if (host.startsWith("*.")) wildcard.set(host.slice(2), pair);
      else exact.set(host, pair);
    }
    const wrong = validityProblem(pair.cert, clock.wall());
    if (wrong !== undefined) log.warn(`the certificate for ${hosts.join(", ")} ${wrong.problem}`, { file: cert.path, date: wrong.date });
  }
  return {
    find(servername) {
      const name = servername.toLowerCase();
      const found = exact.get(name);
      if (found !== undefined || wildcard.size === 0) return found;
      // *.example.com stands for one label, as clients read it (RFC 9525 §6.3): a.b.example.com has no certificate of it.
      const dot = name.indexOf(".");
      return dot <= 0 ? undefined : wildcard.get(name.slice(dot + 1));
    },
  };
}
