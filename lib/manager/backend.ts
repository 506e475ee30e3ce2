/**
 * Connections to the admin interface, plain or over verified TLS, and what a failure to get one means in a sentence.
 * What is sent over them is `proxy.ts`.
 */
import { X509Certificate } from "node:crypto";
import http from "node:http";
import https from "node:https";
import { isIP } from "node:net";
import type { Duplex } from "node:stream";
import tls from "node:tls";
import type { ErrorCode } from "../base/errors.ts";

export interface Backend {
  /** http: or https:; a path is put before every other. */
  readonly url: URL;
  readonly trust: Trust;
}

/** How the certificate of an https: address is judged. */
export type Trust =
  | {
      readonly kind: "authorities";
      /** CA certificates, PEM; null: Node's own list. */
      readonly ca: Buffer | null;
    }
  | {
      /**
       * It has to be this very certificate, whatever names and authorities stand in it: the admin interface of this process is spoken to
       * by its address, and its certificate is for the names that others know it by.
       */
      readonly kind: "pinned";
      /** PEM, of which the first counts; asked for each connection, for it may be renewed. */
      readonly certificate: () => Buffer;
    };

/**
 * A connection for each request: one kept too long would be closed by the other end just as a request goes out, and a login cannot be
 * sent twice. What that costs is nothing beside a person's clicks.
 */
export function createAgent({ url, trust }: Backend): http.Agent {
  if (url.protocol === "http:") return new http.Agent({ keepAlive: false, maxSockets: MOST_CONNECTIONS });
  // Said in any case: NODE_TLS_REJECT_UNAUTHORIZED must not decide it.
  const options = { keepAlive: false, maxSockets: MOST_CONNECTIONS, rejectUnauthorized: true, minVersion: "TLSv1.2" } as const;
  if (trust.kind === "authorities") return new https.Agent({ ...options, ...(trust.ca === null ? {} : { ca: trust.ca }) });
  return new PinnedAgent(options, trust.certificate);
}

/** Hands a connection out only once it has shown the one certificate: not a byte of a request goes to another. */
class PinnedAgent extends https.Agent {
  readonly #certificate: () => Buffer;

  constructor(options: https.AgentOptions, certificate: () => Buffer) {
    super(options);
    this.#certificate = certificate;
  }

  override createConnection(options: https.RequestOptions, done?: (error: Error | null, stream: Duplex) => void): null {
    // Authorities and names are not asked; the comparison below takes their place.
    const socket = tls.connect({ ...(options as tls.ConnectionOptions), rejectUnauthorized: false });
    const fail = (error: Error) => done?.(error, socket);
    socket.once("error", fail);
    socket.once("secureConnect", () => {
      socket.off("error", fail);
      const shown = socket.getPeerX509Certificate();
      if (shown?.fingerprint256 === new X509Certificate(this.#certificate()).fingerprint256) return done?.(null, socket);
      socket.destroy();
      fail(Object.assign(new Error("it shows another certificate than this process's own"), { code: "CERT_NOT_OWN" }));
    });
    return null;
  }
}

/** Requests beyond wait within their time. */
const MOST_CONNECTIONS = 256;

/** Of `http.request`: what says where to, without method, path and headers. */
export function addressOf({ url }: Backend): http.RequestOptions {
  const secure = url.protocol === "https:";
  const hostname = url.hostname.startsWith("[") ? url.hostname.slice(1, -1) : url.hostname;
  const port = url.port === "" ? (secure ? 443 : 80) : url.port;
  // An address is no server name (RFC 6066 §3).
  return { protocol: url.protocol, hostname, port, ...(secure && isIP(hostname) === 0 ? { servername: hostname } : {}) };
}

export interface Failure {
  readonly code: ErrorCode;
  /** For whoever sees the page, logged in or not: no address. */
  readonly detail: string;
}

/** What an error of the connection, or of node's parser, says to an operator. */
export function failureOf({ code = "" }: NodeJS.ErrnoException): Failure {
  if (code.startsWith("HPE_")) return { code: "upstream_invalid", detail: NO_HTTP };
  const known = REASONS[code];
  // Codes are words of node's and OpenSSL's, not of whoever answered.
  const reason = known === undefined ? (/^[A-Z][A-Z0-9_]+$/.test(code) ? code : "the connection failed") : `${known} (${code})`;
  return { code: code === "ECONNRESET" ? "upstream_reset" : "upstream_connect_failed", detail: `The admin interface does not answer: ${reason}.` };
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
  CERT_NOT_OWN: "something else answers at its address",
  DEPTH_ZERO_SELF_SIGNED_CERT: UNVERIFIED,
  SELF_SIGNED_CERT_IN_CHAIN: UNVERIFIED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNVERIFIED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNVERIFIED,
};
