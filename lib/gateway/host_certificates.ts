/**
 * Compiles `global.certificates`: which certificate a handshake gets, what is reported of each, and which requests are misdirected.
 */
import { factsOf } from "../base/pem.ts";
import type { Config } from "../config/model.ts";
import { hostCertificates } from "../server/certificates.ts";
import type { HttpsRedirect } from "./https_redirect.ts";
import { misdirected } from "./misdirected.ts";
import type { CompileTools } from "./plugin_instances.ts";

export function certificatesOf(configured: Config["global"]["certificates"], redirect: HttpsRedirect | null, { runtime, log, defaultCertificate = () => null }: CompileTools) {
  const certificates = hostCertificates(configured, log, runtime.clock);
  const refusal = misdirected(certificates, defaultCertificate);
  return {
    certificates,
    // The one is for plain HTTP, the other for TLS.
    early: redirect === null ? refusal : ((inbound, authority) => redirect(inbound, authority) ?? refusal(inbound, authority)) satisfies HttpsRedirect,
    shownCertificates: configured.map(({ hosts, cert }, i) => ({ where: `global.certificates[${i}]`, path: cert.path, hosts, ...factsOf(cert.content) })),
  };
}
