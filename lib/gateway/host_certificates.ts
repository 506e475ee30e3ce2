/**
 * Compiles `global.certificates` and `global.acme`: which certificate a handshake gets, what is reported of each, and
 * which requests are misdirected.
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
import { coversHost, factsOf, type CertificateFacts } from "../base/pem.ts";
import type { Config } from "../config/model.ts";
import { problem } from "../http/reply.ts";
import { hostOf } from "../route/tree.ts";
import { hostCertificates, type DefaultCertificate, type HostCertificates, type Pair } from "../server/certificates.ts";
import { tlsFactsBehind } from "../server/client_certificate.ts";
import { IssuedCertificates } from "../server/issued_certificates.ts";
import { challengesOf } from "./acme_challenges.ts";
import type { CompileTools, EarlyAnswer } from "./compile_types.ts";
import type { Runtime } from "./runtime.ts";
import type { ShownCertificate } from "./status.ts";

export { acmeDestinations } from "../base/acme_servers.ts";
export { httpsWith, refuseUnkept } from "./https_port.ts";

type Configured = Pick<Config["global"], "certificates" | "acme">;

export function certificatesOf(
  configured: Configured,
  ownAnswers: EarlyAnswer | null,
  { runtime, log, defaultCertificate = () => null }: CompileTools,
) {
  const issued = configured.acme === undefined ? null : issuedIn(runtime);
  const certificates = hostCertificates(configured, issued, log, runtime.clock);
  const misdirection = misdirected(certificates, defaultCertificate);
  // Whoever is misdirected gets nothing else over TLS; challenges, and the redirect, are for plain HTTP.
  const answers = [issued === null ? [] : challengesOf(issued), misdirection, ownAnswers ?? []].flat();
  return {
    certificates,
    issued,
    early: answers.length === 1 ? misdirection : firstOf(answers),
    shownCertificates: configured.certificates.map(({ hosts, cert }, i) => ({
      where: `global.certificates[${i}]`,
      path: cert.path,
      hosts,
      ...factsOf(cert.content),
    })),
  };
}

function firstOf(answers: readonly EarlyAnswer[]): EarlyAnswer {
  return (inbound, authority) => {
    for (const answer of answers) {
      const reply = answer(inbound, authority);
      if (reply !== null) return reply;
    }
    return null;
  };
}

/** Of one gateway, whatever configuration is in force. */
export function issuedIn(runtime: Pick<Runtime, "common">): IssuedCertificates {
  return runtime.common("issued certificates", () => new IssuedCertificates());
}

/** Certificates are read once. */
const known = new WeakMap<Pair, CertificateFacts>();

/** As they are reported. */
export function shownIssued({ certificates }: IssuedCertificates): readonly ShownCertificate[] {
  return certificates.map((pair) => {
    const facts = known.get(pair) ?? factsOf(pair.cert);
    known.set(pair, facts);
    return { where: "global.acme", path: null, ...facts };
  });
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
    // Null: it had one when it opened the connection, and the next is not there yet.
    const isOwn = own === undefined ? others.covers(host) : own !== null && covers(own, host);
    if (own === asked || isOwn) return null;
    // No certificate is for this host.
    if (asked === undefined && !others.covers(host)) return null;
    return problem(call, "misdirected", {
      detail: DETAIL,
      why: `the connection was opened for ${servername}, the request is for ${host}`,
    });
  };
}

const DETAIL = "The certificate of this connection is not for this host. Send the request on another connection.";
