/**
 * Connects to the admin interface of another process, plain or over verified TLS, and explains to an operator why that fails.
 */
import http from "node:http";
import https from "node:https";
import { isIP } from "node:net";
import type { ErrorCode } from "../base/errors.ts";

export interface Backend {
  /** http: or https:; its path is put before every other. */
  readonly url: URL;
  /** CA certificates, PEM, that may have signed the certificate of an https: address; null: Node's own list. */
  readonly ca: Buffer | null;
}

/**
 * One connection for each request: the other end may close a kept one just as a request is sent, and a login cannot be sent twice. People
 * click too seldom for the cost to matter.
 */
export function createAgent({ url, ca }: Backend): http.Agent {
  if (url.protocol === "http:") return new http.Agent({ keepAlive: false, maxSockets: MAX_CONNECTIONS });
  // Always set, so that NODE_TLS_REJECT_UNAUTHORIZED cannot disable it.
  const options = { keepAlive: false, maxSockets: MAX_CONNECTIONS, rejectUnauthorized: true, minVersion: "TLSv1.2" } as const;
  return new https.Agent({ ...options, ...(ca === null ? {} : { ca }) });
}

/** Further requests wait, within their time. */
const MAX_CONNECTIONS = 256;

/** The options of `http.request` that say where to connect. */
export function addressOf({ url }: Backend): http.RequestOptions {
  const secure = url.protocol === "https:";
  const hostname = url.hostname.startsWith("[") ? url.hostname.slice(1, -1) : url.hostname;
  const port = url.port === "" ? (secure ? 443 : 80) : url.port;
  // An address is no server name (RFC 6066 §3).
  return { protocol: url.protocol, hostname, port, ...(secure && isIP(hostname) === 0 ? { servername: hostname } : {}) };
}

/** Why the admin interface did not answer. `message` is for the log; `detail`, for users who need not be logged in, holds no address. */
export class Failure extends Error {
  readonly code: ErrorCode;
  readonly detail: string;

  constructor(code: ErrorCode, detail: string, message = detail) {
    super(message);
    this.code = code;
    this.detail = detail;
  }
}

/** What an error of the connection, or of node's parser, means to an operator. */
export function failureOf({ code = "", message }: NodeJS.ErrnoException): Failure {
  if (code.startsWith("HPE_")) return new Failure("upstream_invalid", NO_HTTP, message);
  const known = REASONS[code];
  // A code of node or OpenSSL, never a text that the other end chose.
  const reason = known === undefined ? (/^[A-Z][A-Z0-9_]+$/.test(code) ? code : "the connection failed") : `${known} (${code})`;
  const kind = code === "ECONNRESET" ? "upstream_reset" : "upstream_connect_failed";
  return new Failure(kind, `The admin interface does not answer: ${reason}.`, message);
}

const NO_HTTP = "What answers at the admin interface's address speaks no HTTP; if it speaks HTTPS, MANAGER_BACKEND_API_URL has to begin with https://.";
/** Of an answer that no admin interface gives: the port for traffic instead of its own, a redirect, another server's page. */
export const NO_ADMIN =
  "What answers there is no admin interface: MANAGER_BACKEND_API_URL has to name that of a gateway (port 8081 unless ADMIN_PORT says otherwise), not its port for traffic, with https:// where it speaks HTTPS.";
export const UNKNOWN_NAME =
  "The gateway's admin interface does not know the name that MANAGER_BACKEND_API_URL has for it: add that to ADMIN_HOSTS of the gateway, or name an IP address.";
export const LEADS_BACK = "MANAGER_BACKEND_API_URL leads back to this management UI; it has to name the admin interface of a gateway.";

const UNVERIFIED = "its certificate is not signed by an authority that is trusted here; MANAGER_BACKEND_CA_PATH names one";

const REASONS: { readonly [code: string]: string | undefined } = {
  ECONNREFUSED: "nothing listens at its address; is the gateway running, with ADMIN_USER and a password set, and is MANAGER_BACKEND_API_URL right?",
  ECONNRESET: "the connection was closed without an answer; with ADMIN_TLS=true it speaks HTTPS",
  ETIMEDOUT: "its address cannot be reached",
  EHOSTUNREACH: "its address cannot be reached",
  ENETUNREACH: "its address cannot be reached",
  ENOTFOUND: "its name has no address",
  EAI_AGAIN: "its name cannot be looked up",
  EPROTO: "what answers there speaks no TLS",
  ERR_SSL_WRONG_VERSION_NUMBER: "what answers there speaks no TLS",
  ERR_SSL_PACKET_LENGTH_TOO_LONG: "what answers there speaks no TLS",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for other names than that in MANAGER_BACKEND_API_URL",
  CERT_HAS_EXPIRED: "its certificate has expired",
  INVALID_PURPOSE: "its certificate is not one for a server",
  DEPTH_ZERO_SELF_SIGNED_CERT: UNVERIFIED,
  SELF_SIGNED_CERT_IN_CHAIN: UNVERIFIED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNVERIFIED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNVERIFIED,
};
