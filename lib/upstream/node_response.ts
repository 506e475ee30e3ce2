/**
 * What is refused of responses that Node's lenient parser accepts.
 */
import type { IncomingMessage } from "node:http";
import { connectionOptions, headerValues, MAX_CONNECTION_OPTIONS } from "../http/headers.ts";
import { TOO_MANY_OPTIONS, type ResponseHead } from "./heads.ts";

/** Node's own type has no status where the message is a request. */
export type NodeResponse = IncomingMessage & { readonly statusCode: number };

/** Why a response that Node could parse cannot be passed on; null if it can. */
export function invalidity(response: ResponseHead): string | null {
  const status = response.statusCode;
  // Node's parser accepts any version it knows, `HTTP/2.0` in a status line among them.
  if (response.httpVersion !== "1.1" && response.httpVersion !== "1.0")
    return `the upstream answered with HTTP/${response.httpVersion}`;
  // Node reports `101` without Upgrade as an ordinary response.
  if (status < 200) return `the upstream answered with status ${status}`;
  if (connectionOptions(headerValues(response.rawHeaders, "connection").join()) > MAX_CONNECTION_OPTIONS)
    return TOO_MANY_OPTIONS;
  const codings = headerValues(response.rawHeaders, "transfer-encoding");
  if (codings.length === 0) return null;
  // The client would get the coded body without the name of its coding (RFC 9112 §6.1).
  if (codings.length > 1 || codings[0]!.toLowerCase() !== "chunked")
    return "the upstream used a transfer coding other than chunked";
  if (response.httpVersion === "1.0") return "the upstream used a transfer coding with HTTP/1.0";
  return null;
}
