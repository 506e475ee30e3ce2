/**
 * Reads and checks the certificate, key and CA that the settings name, at start and when the files change.
 */
import { isDeepStrictEqual } from "node:util";
import { certificatesProblem, keyProblem, pairProblem, validityProblem } from "../base/pem.ts";
import type { Log } from "../base/log.ts";
import { readRegularFile } from "../base/regular_file.ts";
import { portProblems } from "../config/settings_rules.ts";
import type { Settings } from "../config/settings_types.ts";
import type { ConfigReader } from "../gateway/config_reader.ts";
import type { TlsFiles } from "../server/certificates.ts";
import { Failure } from "./failure.ts";
import { readNamedFile, refuse } from "./named_files.ts";

export type TlsSettings = Pick<Settings, "serverCertPath" | "serverKeyPath" | "caCertPath" | "clientAuth">;

/** What HTTPS starts with, and clashes of its port with others, for the state of `ConfigReader`. Throws a `Failure`. */
export function tlsFilesOf(settings: Settings, https: ConfigReader["https"], log: Log): TlsFiles {
  checkHttps(settings, https);
  return readTlsFiles(settings, log);
}

/**
 * Throws a `Failure` where settings are about TLS, and the configuration has no certificate; or of ports that clash.
 */
export function checkHttps(settings: Settings, https: ConfigReader["https"]): void {
  const asking = settings.httpPort === null ? "HTTP_PORT=off" : "CA_CERT_PATH";
  const problems = https === "closed" ? [asking + WITHOUT_CERTIFICATE] : portProblems(settings, true);
  if (problems.length > 0) throw Failure.ofUsage(problems);
}

const WITHOUT_CERTIFICATE =
  " needs a certificate, global.certificates, global.acme or SERVER_CERT_PATH and SERVER_KEY_PATH: " +
  "without one there is no HTTPS";

/** Throws a `Failure`; an expired certificate only causes a warning, since clients may accept it. */
export function readTlsFiles(settings: TlsSettings, log: Log): TlsFiles {
  const { serverCertPath, serverKeyPath, caCertPath } = settings;
  const ca = caCertPath === null ? null : readNamedFile(caCertPath, "CA_CERT_PATH", "CA certificate", readRegularFile);
  if (ca !== null) refuse(`${caCertPath} (CA_CERT_PATH)`, certificatesProblem(ca));
  const clients = { ca, requireClientCert: settings.clientAuth === "require" };
  if (serverCertPath === null || serverKeyPath === null) return { cert: null, key: null, ...clients };
  const cert = readNamedFile(serverCertPath, "SERVER_CERT_PATH", "server certificate", readRegularFile);
  const key = readNamedFile(serverKeyPath, "SERVER_KEY_PATH", "server key", readRegularFile);
  const certFile = `${serverCertPath} (SERVER_CERT_PATH)`;
  const keyFile = `${serverKeyPath} (SERVER_KEY_PATH)`;
  refuse(certFile, certificatesProblem(cert));
  refuse(keyFile, keyProblem(key));
  const pair = pairProblem(cert, key);
  if (pair === "mismatch") throw new Failure(`the key ${keyFile} does not belong to the certificate ${certFile}`, 2);
  if (pair !== undefined) throw new Failure(`the certificate ${certFile} cannot be used for TLS: ${pair.unusable}`, 2);
  const wrong = validityProblem(cert, Date.now());
  if (wrong !== undefined)
    log.warn(`the server certificate ${wrong.problem}`, { file: serverCertPath, date: wrong.date });
  return { cert, key, ...clients, path: serverCertPath };
}

/** The paths that are set. */
export function tlsPaths({ serverCertPath, serverKeyPath, caCertPath }: TlsSettings): readonly string[] {
  return [serverCertPath, serverKeyPath, caCertPath].flatMap((path) => path ?? []);
}

type TlsUser = { renewTls(files: TlsFiles): void };
/** The servers that use the server certificate, and the files that they started with. */
export interface TlsUsers {
  readonly gateway?: TlsUser;
  readonly admin?: TlsUser | null;
  readonly manager?: TlsUser | null;
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
      if (current === null || isDeepStrictEqual(files, current)) return;
      for (const user of [gateway, admin, manager]) user?.renewTls(files);
      renewed = files;
      log.info("server certificate, key and CA reloaded", { file: settings.serverCertPath });
    } catch (error) {
      log.error("new certificate files refused, the old files stay in use", { reason: (error as Error).message });
    }
  };
}
