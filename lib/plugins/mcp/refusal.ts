/**
 * Replies of the plugin kind `mcp` that refuse a request: errors of JSON-RPC 2.0 (§5.1) with the statuses that MCP
 * demands.
 *
 * A client of several revisions takes a 400 without a known error for a server of an old one, so each refusal has a
 * body of JSON-RPC, whatever `errors` of the configuration says.
 */
import { ERRORS, type ErrorCode } from "../../base/errors.ts";
import type { Call } from "../../http/exchange.ts";
import type { HeaderList } from "../../http/headers.ts";
import type { Reply } from "../../http/reply.ts";

/** Codes of JSON-RPC 2.0 §5.1, and of MCP 2026-07-28 ("Error Codes"). */
export const PARSE_ERROR = -32700;
export const INVALID_REQUEST = -32600;
export const METHOD_NOT_FOUND = -32601;
export const INVALID_PARAMS = -32602;
const INTERNAL_ERROR = -32603;
export const HEADER_MISMATCH = -32020;
export const UNSUPPORTED_REVISION = -32022;

export interface McpRefusal {
  /** Of the gateway, for logs and metrics; it decides the status. */
  readonly code: ErrorCode;
  readonly rpc: number;
  /** For the client. */
  readonly message: string;
  /** `error.data`. */
  readonly data?: object;
  /** The member of the plugin's `config` that has decided. */
  readonly rule?: string;
  readonly headers?: HeaderList;
}

export const UNASKED: McpRefusal = {
  code: "auth_unavailable",
  rpc: INTERNAL_ERROR,
  message: "whose session it is cannot be found out at the moment",
};

/** `id`: of the request, as JSON; null where it could not be read. */
export function refusedMessage(
  call: Call,
  { code, rpc, message, data, rule, headers }: McpRefusal,
  id: string | null,
): Reply {
  call.fail(code, `mcp: ${message}`, rule ?? null);
  const error = JSON.stringify({ code: rpc, message, ...(data !== undefined && { data }) });
  const body = Buffer.from(`{"jsonrpc":"2.0",${id === null ? "" : `"id":${id},`}"error":${error}}`);
  return {
    status: ERRORS[code].status,
    headers: ["Content-Type", "application/json", "Content-Length", String(body.length), ...(headers ?? [])],
    body,
  };
}
