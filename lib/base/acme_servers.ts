/**
 * The servers that certificates are ordered from (ACME, `global.acme`).
 */
import type { Destination } from "./egress.ts";
import { destinationOf } from "./url_destination.ts";

/** What the list of destinations says of them. */
export const ACME_SERVER = "acme";
const HTTPS_PORT = 443;

/** Those that a configuration lets the keeper of certificates ask: the directory's, and `hostsAllowed`. */
export function acmeDestinations({
  directory,
  hostsAllowed,
}: {
  readonly directory: string;
  readonly hostsAllowed: readonly string[];
}): readonly Destination[] {
  const own = destinationOf(new URL(directory), ACME_SERVER);
  const ports = own.port === HTTPS_PORT ? [HTTPS_PORT] : [own.port, HTTPS_PORT];
  return [own.host, ...hostsAllowed].flatMap((host) => ports.map((port) => ({ host, port, why: ACME_SERVER })));
}
