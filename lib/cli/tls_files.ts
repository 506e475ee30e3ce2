/**
 * Reads and checks the certificate, key and CA that the settings name, at start and when the files change.
 */
import { certificatesProblem, keyProblem, pairProblem, validityProblem } from "../base/pem.ts";
import type { Log } from "../base/log.ts";
import { readRegularFile } from "../base/regular_file.ts";
import type { Settings } from "../config/settings_types.ts";
import type { TlsFiles } from "../server/listener.ts";
import { Failure } from "./failure.ts";
import { readNamedFile, refuse } from "./named_files.ts";

export type TlsSettings = Pick<Settings, "serverCertPath" | "serverKeyPath" | "caCertPath" | "clientAuth">;

/**
 * Null if no certificate is set. Throws a `Failure`; an expired certificate only causes a warning, since clients may
 * accept it.
 */
export function readTlsFiles(settings: TlsSettings, log: Log): TlsFiles | null {
  const { serverCertPath, serverKeyPath, caCertPath } = settings;
  if (serverCertPath === null || serverKeyPath === null) return null;
  const cert = readNamedFile(serverCertPath, "SERVER_CERT_PATH", "server certificate", readRegularFile);
  const key = readNamedFile(serverKeyPath, "SERVER_KEY_PATH", "server key", readRegularFile);
  const ca = caCertPath === null ? null : readNamedFile(caCertPath, "CA_CERT_PATH", "CA certificate", readRegularFile);
  const certFile = `${serverCertPath} (SERVER_CERT_PATH)`;
  const keyFile = `${serverKeyPath} (SERVER_KEY_PATH)`;
  refuse(certFile, certificatesProblem(cert));
  refuse(keyFile, keyProblem(key));
  const pair = pairProblem(cert, key);
  if (pair === "mismatch") throw new Failure(`the key ${keyFile} does not belong to the certificate ${certFile}`, 2);
  if (pair !== undefined) throw new Failure(`the certificate ${certFile} cannot be used for TLS: ${pair.unusable}`, 2);
  if (ca !== null) refuse(`${caCertPath} (CA_CERT_PATH)`, certificatesProblem(ca));
  const wrong = validityProblem(cert, Date.now());
  if (wrong !== undefined)
    log.warn(`the server certificate ${wrong.problem}`, { file: serverCertPath, date: wrong.date });
  return { cert, key, ca, requireClientCert: settings.clientAuth === "require", path: serverCertPath };
}

/** The paths that are set. */
export function tlsPaths({ serverCertPath, serverKeyPath, caCertPath }: TlsSettings): readonly string[] {
  return [serverCertPath, serverKeyPath, caCertPath].flatMap((path) => path ?? []);
}

/** The servers that use the server certificate, and the files that they started with. */
export interface TlsUsers {
  readonly gateway?: { renewTls(files: TlsFiles): void };
  readonly admin?: { renewTls(files: TlsFiles): void } | null;
  readonly manager?: { renewTls(files: TlsFiles): void } | null;
  readonly tls: TlsFiles | null;
}

/**
 * Reloads the files once they have changed and match. Certificate and key are seldom replaced in one step: while
 * they do not match, or one of them is invalid, an error is logged and the old files stay in use.
 */
export function createTlsRenewal(settings: TlsSettings, log: Log): (users: TlsUsers) => void {
  let renewed: TlsFiles | null = null;
  return ({ gateway, admin, manager, tls }) => {
    try {
      const files = readTlsFiles(settings, log);
      const current = renewed ?? tls;
      if (files === null || current === null || sameFiles(files, current)) return;
      for (const user of [gateway, admin, manager]) user?.renewTls(files);
      renewed = files;
      log.info("server certificate, key and CA reloaded", { file: settings.serverCertPath });
    } catch (error) {
      log.error("new certificate files refused, the old files stay in use", { reason: (error as Error).message });
    }
  };
}

function sameFiles(a: TlsFiles, b: TlsFiles): boolean {
  const sameCa = a.ca === null || b.ca === null ? a.ca === b.ca : a.ca.equals(b.ca);
  return sameCa && a.cert.equals(b.cert) && a.key.equals(b.key);
}
