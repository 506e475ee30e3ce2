/**
 * Connects to the admin interface of another process, plain or over verified TLS, and explains to an operator why that
 * fails.
 */
import type { Agent, RequestOptions } from "node:http";
import { isIP } from "node:net";
import { Egress } from "../base/egress.ts";
import { destinationOf } from "../base/url_destination.ts";
import { agentOf } from "../base/egress_clients.ts";
import type { ErrorCode } from "../base/errors.ts";

export interface Backend {
  /** http: or https:; its path is the prefix of every request path. */
  readonly url: URL;
  /** CA certificates (PEM) that verify an https: address; null: Node's own list. */
  readonly ca: Buffer | null;
}

/**
 * The connection options of all requests. One connection per request: the other end may close an idle connection just
 * as a request is sent, and a login cannot be repeated. The request rate of a UI, one a second from each visible page,
 * is too low for the cost to matter.
 */
export function connectionTo({ url, ca }: Backend): RequestOptions & { readonly agent: Agent } {
  const isSecure = url.protocol === "https:";
  const to = destinationOf(url, "manager");
  // Always set, so that NODE_TLS_REJECT_UNAUTHORIZED cannot disable it.
  const tls = { rejectUnauthorized: true, minVersion: "TLSv1.2", ...(ca !== null && { ca }) } as const;
  const agent = agentOf(new Egress([to]), "manager", isSecure ? "https:" : "http:", {
    keepAlive: false,
    maxSockets: MAX_CONNECTIONS,
    ...(isSecure && tls),
  });
  // An IP address is not a valid server name (RFC 6066 §3).
  return {
    agent,
    protocol: url.protocol,
    hostname: to.host,
    port: to.port,
    ...(isSecure && isIP(to.host) === 0 && { servername: to.host }),
  };
}

/** Further requests wait until their deadline. */
const MAX_CONNECTIONS = 256;

/**
 * Why the admin interface did not answer. `message` is for the log; `detail` is for users, who need not be logged in,
 * and contains no address.
 */
export class BackendFailure extends Error {
  readonly code: ErrorCode;
  readonly detail: string;

  constructor(code: ErrorCode, detail: string, message = detail) {
    super(message);
    this.code = code;
    this.detail = detail;
  }
}

/** Explains an error of the connection or of Node's parser to an operator. */
export function failureOf({ code = "", message }: NodeJS.ErrnoException): BackendFailure {
  if (code.startsWith("HPE_")) return new BackendFailure("upstream_invalid", NO_HTTP, message);
  const known = REASONS[code];
  // Only codes of Node or OpenSSL are shown, never a text from the other end.
  const reason =
    known === undefined ? (/^[A-Z][A-Z0-9_]+$/.test(code) ? code : "the connection failed") : `${known} (${code})`;
  const kind = code === "ECONNRESET" ? "upstream_reset" : "upstream_connect_failed";
  return new BackendFailure(kind, `The admin interface does not answer: ${reason}.`, message);
}

const NO_HTTP =
  "The server at the address of the admin interface does not speak HTTP; if it speaks HTTPS, " +
  "MANAGER_BACKEND_API_URL must start with https://.";
/** For a reply that no admin interface sends: from the port for traffic, a redirect, the page of another server. */
export const NO_ADMIN =
  "The server at MANAGER_BACKEND_API_URL is not an admin interface, or one of an older version: " +
  ("it must be the URL of a gateway's admin interface (port 8081 unless ADMIN_PORT differs), " +
    "not its port for traffic, with https:// if it speaks HTTPS.");
export const UNKNOWN_NAME =
  "The gateway's admin interface does not accept the host name in MANAGER_BACKEND_API_URL: " +
  "add it to ADMIN_HOSTS of the gateway, or use an IP address.";
export const LEADS_BACK =
  "MANAGER_BACKEND_API_URL points to this management UI; it must be the URL of the admin interface of a gateway.";

const UNVERIFIED =
  "its certificate is not signed by a trusted authority; set its CA certificate with MANAGER_BACKEND_CA_PATH";

const REASONS: { readonly [code: string]: string | undefined } = {
  ECONNREFUSED:
    "nothing listens at its address; is the gateway running, with ADMIN_USER and a password set, " +
    "and is MANAGER_BACKEND_API_URL right?",
  ECONNRESET: "the connection was closed without an answer; with ADMIN_TLS=true it speaks HTTPS",
  ETIMEDOUT: "its address cannot be reached",
  EHOSTUNREACH: "its address cannot be reached",
  ENETUNREACH: "its address cannot be reached",
  ENOTFOUND: "its name has no address",
  EAI_AGAIN: "its name cannot be looked up",
  EPROTO: "the server there does not speak TLS",
  ERR_SSL_WRONG_VERSION_NUMBER: "the server there does not speak TLS",
  ERR_SSL_PACKET_LENGTH_TOO_LONG: "the server there does not speak TLS",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is not valid for the host name in MANAGER_BACKEND_API_URL",
  CERT_HAS_EXPIRED: "its certificate has expired",
  INVALID_PURPOSE: "its certificate is not a server certificate",
  DEPTH_ZERO_SELF_SIGNED_CERT: UNVERIFIED,
  SELF_SIGNED_CERT_IN_CHAIN: UNVERIFIED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNVERIFIED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNVERIFIED,
};
