/**
 * Decides with each configuration whether the HTTPS port is open, and refuses those that another state of it would
 * need.
 */
import { placeInText } from "../config/places.ts";
import type { ValidConfig } from "./compile_types.ts";
import { ConfigError } from "./config_error.ts";
import type { Https } from "./features.ts";

/**
 * Whether the HTTPS port is open with this configuration. `https`: see `ConfigReader.https`. Throws a `ConfigError` if
 * that is not how a gateway which runs was started, or if the configuration leads clients to a port that is closed.
 */
export function httpsWith({ config, source }: Pick<ValidConfig, "config" | "source">, https: Https): Https {
  const { certificates, httpsRedirect: redirect } = config.global;
  if (https === true) return https;
  const next = certificates.length > 0 ? "open" : "closed";
  const refuse = (field: string, message: string) => {
    const at = ["global", field];
    throw new ConfigError([{ at, message, position: placeInText(source, at) }], source.file);
  };
  if (https !== false && https !== next) refuse("certificates", RESTART);
  if (next === "closed" && redirect !== undefined) refuse("https_redirect", NEEDS_HTTPS);
  return next;
}

const RESTART = "open and close the HTTPS port, and that takes a restart of the gateway";
const NEEDS_HTTPS = "needs an HTTPS listener: add global.certificates, or set SERVER_CERT_PATH";
