/**
 * Reads the body of a request that has to be JSON, or reports why it cannot be read.
 */
import { Fault, type ErrorCode } from "../base/errors.ts";
import { headerValue } from "../http/headers.ts";
import { readBody } from "../operator/operator_server.ts";
import type { Inbound } from "../server/inbound.ts";

export interface Unreadable {
  readonly code: ErrorCode & ("bad_request" | "request_invalid" | "body_too_large");
  readonly detail: string;
}

/** The bytes, not parsed. `what` is for the message: "the request to explain". A type other than application/json is refused. */
export async function readJsonBody(inbound: Inbound, maxBytes: number, what: string): Promise<Buffer | Unreadable> {
  if (!JSON_TYPE.test(headerValue(inbound.headers, "content-type") ?? "")) return { code: "bad_request", detail: `Send ${what} as application/json.` };
  try {
    return await readBody(inbound, maxBytes);
  } catch (error) {
    if (!(error instanceof Fault)) return { code: "bad_request", detail: "The body ended before its announced end." };
    return { code: "body_too_large", detail: `The body may have at most ${maxBytes} bytes.` };
  }
}

const JSON_TYPE = /^application\/json[ \t]*(?:;|$)/i;
