/**
 * The table of all errors that a client can get: code, status, title, whose fault it is, and whether a retry can help.
 */

export interface ErrorKind {
  /** HTTP status, RFC 9110 §15 (RFC 6585 for 429 and 431). */
  readonly status: number;
  /** The `title` of the problem document: the same sentence for every occurrence (RFC 9457 §3.1.3). */
  readonly title: string;
  /** The party that must act: the sender of the request, the upstream, or the gateway itself. */
  readonly side: "client" | "upstream" | "gateway";
  /** Whether the same request, sent again later, may succeed. */
  readonly retryable: boolean;
}

const by =
  (side: ErrorKind["side"], retries: boolean) =>
  (status: number, title: string, retryable = retries): ErrorKind => ({ status, title, side, retryable });
const client = by("client", false);
const upstream = by("upstream", true);
const gateway = by("gateway", true);

export const ERRORS = Object.freeze({
  bad_request: client(400, "The request is malformed"),
  request_invalid: client(400, "The request does not have the required form"),
  login_failed: client(400, "The login was not completed", true),
  mcp_invalid: client(400, "The message is not one that every reader of MCP understands alike"),
  mcp_header_mismatch: client(400, "The headers of MCP do not say what the message says"),
  mcp_revision_unsupported: client(400, "The revision of MCP is not served here"),
  mcp_not_allowed: client(400, "The caller may not use this tool, prompt or resource"),
  path_ambiguous: client(400, "The request path could be read in two ways"),
  unauthenticated: client(401, "Authentication is required"),
  key_missing: client(401, "An API key is required"),
  key_invalid: client(401, "The API key is not valid"),
  key_expired: client(401, "The API key has expired"),
  credentials_missing: client(401, "A user name and password are required"),
  credentials_invalid: client(401, "The user name or password is not valid"),
  token_missing: client(401, "An access token is required"),
  token_invalid: client(401, "The access token is not valid"),
  token_expired: client(401, "The access token has expired"),
  session_required: client(401, "A login is required"),
  client_certificate_missing: client(401, "A client certificate is required"),
  client_certificate_invalid: client(401, "The client certificate is not accepted"),
  identity_required: client(401, "The caller must be identified"),
  forbidden: client(403, "The request is not allowed"),
  bot_detected: client(403, "Automated clients are not allowed"),
  route_not_found: client(404, "No route matches the request"),
  mcp_method_unknown: client(404, "The method of MCP is not served here"),
  mcp_session_unknown: client(404, "There is no such session of MCP"),
  method_not_allowed: client(405, "The route does not accept this method"),
  request_timeout: client(408, "The request took too long to arrive", true),
  conflict: client(409, "The request conflicts with the present state"),
  precondition_failed: client(412, "The state is another one than the request expects"),
  body_too_large: client(413, "The request body is too large"),
  uri_too_long: client(414, "The request target is too long"),
  unsupported_media_type: client(415, "The request body has a type or an encoding that is not accepted"),
  expectation_failed: client(417, "The expectation cannot be met"),
  misdirected: client(421, "The request reached a server that does not serve this host"),
  configuration_refused: client(422, "The configuration is not valid"),
  precondition_required: client(428, "The request must say which state it expects"),
  rate_limited: client(429, "Too many requests", true),
  quota_exceeded: client(429, "The quota is used up", true),
  concurrency_limited: client(429, "Too many requests in progress", true),
  headers_too_large: client(431, "The request header fields are too large"),
  internal: gateway(500, "The gateway failed to handle the request", false),
  upstream_connect_failed: upstream(502, "The upstream could not be reached"),
  upstream_reset: upstream(502, "The upstream closed the connection"),
  upstream_invalid: upstream(502, "The upstream sent an invalid response"),
  upstream_unavailable: upstream(503, "No upstream is available"),
  source_unreachable: gateway(503, "The source of the configuration does not answer"),
  audit_unavailable: gateway(503, "The audit log cannot be written"),
  auth_unavailable: gateway(503, "The authorization of the request could not be checked"),
  limiter_unavailable: gateway(503, "The rate limit of the request could not be checked"),
  upstream_saturated: upstream(503, "All connections to the upstream are in use"),
  circuit_open: upstream(503, "The service is failing and is given time to recover"),
  overloaded: gateway(503, "The gateway is overloaded"),
  upstream_timeout: upstream(504, "The upstream took too long to answer"),
} satisfies Record<string, ErrorKind>);

export type ErrorCode = keyof typeof ERRORS;

/** A thrown value as text; plugins may throw anything, even values without a text. Never throws. */
export function messageOf(thrown: unknown, form: "message" | "stack" = "message"): string {
  try {
    return thrown instanceof Error
      ? String((form === "stack" ? thrown.stack : null) ?? thrown.message)
      : String(thrown);
  } catch {
    return "a value that has no text was thrown";
  }
}

/**
 * Why there is no connection. When several addresses were tried, Node's own error has no message; that of OpenSSL is
 * for its developers (`803C…:error:0A00045C:SSL routines:…:1601:SSL alert number 116` and a line break), and its reason
 * says the same.
 */
export function connectFailure(error: Error & { readonly library?: string; readonly reason?: string }): string {
  if (error.library === "SSL routines" && error.reason !== undefined) return `TLS: ${error.reason}`;
  if (error.message !== "" || !(error instanceof AggregateError)) return error.message;
  return (error.errors as Error[]).map(connectFailure).join(", ");
}

/** An error with its code in the table. `message` is for the log, never for the client. */
export class Fault extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "Fault";
    this.code = code;
  }
}

/**
 * For an access that Node's permission model forbids: what is missing, and the flag that allows it. Undefined for all
 * other errors.
 */
export function missingPermission(error: unknown): string | undefined {
  const {
    code,
    permission = "",
    resource = "PATH",
  } = error as NodeJS.ErrnoException & { readonly permission?: string; readonly resource?: string };
  const flags: Readonly<Record<string, string>> = {
    FileSystemRead: `--allow-fs-read=${resource}`,
    FileSystemWrite: `--allow-fs-write=${resource}`,
    WorkerThreads: "--allow-worker",
    Net: "--allow-net",
  };
  const remedy =
    `start node with ${flags[permission] ?? "the flag for it"}, ` +
    `or with all flags that edge-gateway audit --permission prints`;
  return code === "ERR_ACCESS_DENIED"
    ? `Node's permission model forbids it: ${remedy}${missingPermission.since}`
    : undefined;
}
/** What else is to be said once rights have been given up. */
missingPermission.since = "";

/**
 * A callback that does nothing. As a listener for errors that are handled elsewhere: without one they end the process.
 */
export function ignore(): void {}
