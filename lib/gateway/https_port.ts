/**
 * Decides with each configuration whether the HTTPS port is open, and refuses those that need another state of it, or
 * certificates that nobody would keep.
 */
import { placeInText } from "../config/places.ts";
import type { ValidConfig } from "./compile_types.ts";
import { ConfigError } from "./config_error.ts";
import type { AcmeMeans, Https } from "./features.ts";

type Checked = Pick<ValidConfig, "config" | "source">;

/**
 * Whether the HTTPS port is open with this configuration. `https`: see `ConfigReader.https`. Throws a `ConfigError` if
 * that is not how a gateway which runs was started, or if the configuration leads clients to a port that is closed.
 */
export function httpsWith(valid: Checked, https: Https): Https {
  const { certificates, acme, httpsRedirect: redirect } = valid.config.global;
  if (https === true) return https;
  const next = certificates.length > 0 || acme !== undefined ? "open" : "closed";
  if (https !== false && https !== next) {
    if (acme !== undefined && certificates.length === 0) throw refusal(valid, `opens${RESTART}`, "acme");
    throw refusal(valid, `open and close${RESTART}`, "certificates");
  }
  if (next === "closed" && redirect !== undefined) throw refusal(valid, NEEDS_HTTPS, "https_redirect");
  return next;
}

const RESTART = " the HTTPS port, and that takes a restart of the gateway";
const NEEDS_HTTPS = "needs an HTTPS listener: add global.certificates or global.acme, or set SERVER_CERT_PATH";

/** Throws a `ConfigError` where certificates of `global.acme` cannot be kept. `means`: see `ConfigurationOptions`. */
export function refuseUnkept(valid: Checked, means: AcmeMeans | undefined): void {
  const { acme } = valid.config.global;
  if (acme === undefined || means === "checked") return;
  if (means === undefined) throw refusal(valid, NO_PROGRAM, "acme");
  if (!means.stateDir) throw refusal(valid, NO_STATE_DIR, "acme");
  const problem = means.stateProblem?.();
  if (problem !== undefined) throw refusal(valid, `${UNUSABLE}${problem}`, "acme");
  if (acme.challenge === "http-01" && !means.plainPort) throw refusal(valid, NO_PLAIN_PORT, "acme", "challenge");
}

const NO_PROGRAM =
  "is for the program edge-gateway, which keeps certificates in STATE_DIR: " +
  "give a gateway that is embedded the certificate of another ACME client";
const NO_STATE_DIR =
  "needs STATE_DIR (--state-dir), a folder where the account and the certificates outlive the program";
const UNUSABLE = "keeps its certificates in STATE_DIR (--state-dir): ";
const NO_PLAIN_PORT =
  'is "http-01", which is answered on the plain port, and HTTP_PORT is off: ' +
  'open it (https_redirect keeps it for redirects alone), or set "tls-alpn-01"';

function refusal({ source }: Checked, message: string, ...under: readonly string[]): ConfigError {
  const at = ["global", ...under];
  return new ConfigError([{ at, message, position: placeInText(source, at) }], source.file);
}
