/**
 * What a gateway knows of the certificate of its HTTPS listeners.
 */
import { X509Certificate } from "node:crypto";
import { coversHost, factsOf } from "../base/pem.ts";
import type { TlsFiles } from "../server/certificates.ts";
import type { HttpsFacts } from "../gateway/status.ts";

export function httpsFacts({ cert, ca, path }: TlsFiles): HttpsFacts {
  const where = path === undefined ? "listen" : "SERVER_CERT_PATH";
  const parsed = cert && new X509Certificate(cert);
  return {
    certificate: cert && { where, path: path ?? null, ...factsOf(cert) },
    asksForCertificates: ca !== null,
    covers: (host) => parsed !== null && coversHost(parsed, host),
  };
}
