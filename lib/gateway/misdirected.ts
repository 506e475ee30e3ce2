/**
 * Refuses requests over TLS that came by the connection of another host, where several certificates are configured (`global.certificates`).
 *
 * A client that sends its requests for b.example over the connection that it opened for a.example (connection coalescing, RFC 9113
 * §9.1.1) gets 421 unless the certificate for a.example is for b.example, too (RFC 9110 §7.4, §15.5.20). A new connection for b.example
 * never gets it. So these requests are served: those of clients that named no host in their handshake, and those for a host that no
 * certificate is for. A trusted proxy opens connections for itself (RFC 9110 §7.4: "unless the connection is from a trusted gateway").
 *
 * The certificate is the one that a handshake for a.example gets now: Node does not say which one a resumed session began with.
 */
import { X509Certificate } from "node:crypto";
import { coversHost } from "../base/pem.ts";
import { problem, type Reply } from "../http/reply.ts";
import { hostOf } from "../route/tree.ts";
import type { DefaultCertificate, HostCertificates, Pair } from "../server/certificates.ts";
import { tlsFactsBehind } from "../server/client_certificate.ts";
import type { Inbound } from "../server/receive.ts";

/** `defaultCertificate` returns null where no listener serves HTTPS. */
export function misdirected(certificates: HostCertificates, defaultCertificate: () => DefaultCertificate | null): (inbound: Inbound, authority: string) => Reply | null {
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
    return problem(call, "misdirected", { detail: DETAIL, why: `the connection was opened for ${servername}, the request is for ${host}` });
  };
}

const DETAIL = "The certificate of this connection is not for this host. Send the request on another connection.";
