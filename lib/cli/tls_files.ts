/**
 * Reads certificate, key and CA as the settings name them, and says which of them is wrong before anything uses them.
 * When to read them anew is `renewal.ts`.
 */
import { certificatesProblem, keyProblem, validityProblem, pairProblem } from "../base/pem.ts";
import type { Log } from "../base/log.ts";
import type { Settings } from "../config/settings.ts";
import type { TlsFiles } from "../server/tls.ts";
import { readNamedFile, StartError } from "./failure.ts";

export type TlsSettings = Pick<Settings, "serverCertPath" | "serverKeyPath" | "caCertPath" | "clientAuth">;

/** Null when no certificate is set. Throws a `StartError`; a certificate out of its time is only warned of, as clients may not mind. */
export function readTlsFiles(settings: TlsSettings, log: Log): TlsFiles | null {
  const { serverCertPath, serverKeyPath, caCertPath } = settings;
  if (serverCertPath === null || serverKeyPath === null) return null;
  const cert = readNamedFile(serverCertPath, "SERVER_CERT_PATH", "server certificate");
  const key = readNamedFile(serverKeyPath, "SERVER_KEY_PATH", "server key");
  const ca = caCertPath === null ? null : readNamedFile(caCertPath, "CA_CERT_PATH", "CA certificate");
  refuse(`${serverCertPath} (SERVER_CERT_PATH)`, certificatesProblem(cert));
  refuse(`${serverKeyPath} (SERVER_KEY_PATH)`, keyProblem(key));
  const pair = pairProblem(cert, key);
  if (pair === "mismatch") {
    throw new StartError(`the key ${serverKeyPath} (SERVER_KEY_PATH) does not belong to the certificate ${serverCertPath} (SERVER_CERT_PATH)`, 2);
  }
  if (pair !== undefined) throw new StartError(`the certificate ${serverCertPath} (SERVER_CERT_PATH) cannot be used for TLS: ${pair.unusable}`, 2);
  if (ca !== null) refuse(`${caCertPath} (CA_CERT_PATH)`, certificatesProblem(ca));
  const wrong = validityProblem(cert, Date.now());
  if (wrong !== undefined) log.warn(`the server certificate ${wrong.problem}`, { file: serverCertPath, date: wrong.date });
  return { cert, key, ca, requireClientCert: settings.clientAuth === "require", path: serverCertPath };
}

/** CA certificates by which another server's one is verified. */
export function readAuthorities(path: string, setting: string, what: string): Buffer {
  const content = readNamedFile(path, setting, what);
  refuse(`${path} (${setting})`, certificatesProblem(content));
  return content;
}

/** Those of the settings' files that there are. */
export function tlsPaths({ serverCertPath, serverKeyPath, caCertPath }: TlsSettings): readonly string[] {
  return [serverCertPath, serverKeyPath, caCertPath].flatMap((path) => path ?? []);
}

function refuse(file: string, problem: string | undefined): void {
  if (problem !== undefined) throw new StartError(`${file} ${problem}`, 2);
}
