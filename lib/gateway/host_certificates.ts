/**
 * Compiles `global.certificates`: which certificate a handshake gets, what is reported of each, and which requests are
 * misdirected.
 *
 * A client that sends its requests for b.example over the connection that it opened for a.example (connection
 * coalescing, RFC 9113
 * §9.1.1) gets 421 unless the certificate for a.example is for b.example, too (RFC 9110 §7.4, §15.5.20). A new
 * connection for b.example never gets it. So these requests are served: those of clients that named no host in their
 * handshake, and those for a host that no certificate is for. A trusted proxy opens connections for itself (RFC 9110
 * §7.4: "unless the connection is from a trusted gateway").
 *
 * The certificate is the one that a handshake for a.example gets now: Node does not say which one a resumed session
 * began with.
 */
import { X509Certificate } from "node:crypto";
import { coversHost, factsOf } from "../base/pem.ts";
import type { Config } from "../config/model.ts";
import { problem } from "../http/reply.ts";
import { hostOf } from "../route/tree.ts";
import { hostCertificates, type DefaultCertificate, type HostCertificates, type Pair } from "../server/certificates.ts";
import { tlsFactsBehind } from "../server/client_certificate.ts";
import type { CompileTools, EarlyAnswer } from "./compile_types.ts";

export { httpsWith, refuseUnkept } from "./https_port.ts";

export function certificatesOf(
  configured: Config["global"]["certificates"],
  redirect: EarlyAnswer | null,
  { runtime, log, defaultCertificate = () => null }: CompileTools,
) {
  const certificates = hostCertificates(configured, log, runtime.clock);
  const refusal = misdirected(certificates, defaultCertificate);
  return {
    certificates,
    // The one is for plain HTTP, the other for TLS.
    early:
      redirect === null
        ? refusal
        : (((inbound, authority) => redirect(inbound, authority) ?? refusal(inbound, authority)) satisfies EarlyAnswer),
    shownCertificates: configured.map(({ hosts, cert }, i) => ({
      where: `global.certificates[${i}]`,
      path: cert.path,
      hosts,
      ...factsOf(cert.content),
    })),
  };
}

/** `defaultCertificate` returns null where no listener serves HTTPS. */
function misdirected(certificates: HostCertificates, defaultCertificate: () => DefaultCertificate | null): EarlyAnswer {
  const parsed = new WeakMap<Pair, X509Certificate>();
  const covers = (pair: Pair, host: string) => {
    if (!parsed.has(pair)) parsed.set(pair, new X509Certificate(pair.cert));
    return coversHost(parsed.get(pair)!, host);
  };
  return ({ call }, authority) => {
    const others = defaultCertificate();
    if (others === null || call.trustedRemote) return null;
    const servername = tlsFactsBehind(call.certificate)?.servername ?? "";
    if (servername === "") return null;
    const host = hostOf(authority);
    const own = certificates.find(servername);
    const asked = certificates.find(host);
    if (own === asked || (own === undefined ? others.covers(host) : covers(own, host))) return null;
    // No certificate is for this host.
    if (asked === undefined && !others.covers(host)) return null;
    return problem(call, "misdirected", {
      detail: DETAIL,
      why: `the connection was opened for ${servername}, the request is for ${host}`,
    });
  };
}

const DETAIL = "The certificate of this connection is not for this host. Send the request on another connection.";
