/**
 * Reads certificate, key and CA as the settings name them, and says which of them is wrong before anything listens.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { Log } from "../base/log.ts";
import type { Settings } from "../config/settings.ts";
import type { TlsFiles } from "../server/listener.ts";
import { readNamedFile, StartError } from "./failure.ts";

/** Null when no certificate is set. Throws a `StartError`; a certificate out of its time is only warned of, as clients may not mind. */
export function readTlsFiles(settings: Settings, log: Log): TlsFiles | null {
  const { serverCertPath, serverKeyPath, caCertPath } = settings;
  if (serverCertPath === null || serverKeyPath === null) return null;
  const cert = readNamedFile(serverCertPath, "SERVER_CERT_PATH", "server certificate");
  const key = readNamedFile(serverKeyPath, "SERVER_KEY_PATH", "server key");
  const ca = caCertPath === null ? null : readNamedFile(caCertPath, "CA_CERT_PATH", "CA certificate");
  const certificate = parsed(() => new X509Certificate(cert), serverCertPath, "SERVER_CERT_PATH", "certificate");
  const privateKey = parsed(() => createPrivateKey(key), serverKeyPath, "SERVER_KEY_PATH", "private key");
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new StartError(`the key ${serverKeyPath} (SERVER_KEY_PATH) does not belong to the certificate ${serverCertPath} (SERVER_CERT_PATH)`, 2);
  }
  if (ca !== null) parsed(() => new X509Certificate(ca), caCertPath!, "CA_CERT_PATH", "certificate");
  try {
    createSecureContext({ cert, key, ...(ca === null ? {} : { ca }), minVersion: "TLSv1.2" });
  } catch (error) {
    // What single files do not show: a key too short for today's TLS, a broken certificate further down the chain.
    throw new StartError(`the certificate ${serverCertPath} (SERVER_CERT_PATH) cannot be used for TLS: ${(error as Error).message}`, 2);
  }
  const { validFrom, validTo } = certificate;
  if (Date.now() > Date.parse(validTo)) log.warn("the server certificate has expired", { file: serverCertPath, expired: validTo });
  if (Date.now() < Date.parse(validFrom)) log.warn("the server certificate is not valid yet", { file: serverCertPath, valid_from: validFrom });
  return { cert, key, ca, requireClientCert: settings.clientAuth === "require" };
}

function parsed<T>(parse: () => T, path: string, setting: string, what: string): T {
  try {
    return parse();
  } catch (error) {
    throw new StartError(`${path} (${setting}) is not a ${what} in PEM form: ${(error as Error).message}`, 2);
  }
}
