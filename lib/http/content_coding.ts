/**
 * The content coding gzip: whether a client accepts it, and JSON replies in it.
 */
import { promisify } from "node:util";
import zlib from "node:zlib";
import { tokens, withHeader, type HeaderList } from "./headers.ts";
import type { Reply } from "./reply.ts";

const gzip = promisify(zlib.gzip);
/** What gzip saves of a smaller body is not worth the time. */
const LEAST_BYTES = 500;

/** By name only (RFC 9110 §12.5.3): "*" also accepts the plain form. */
export function acceptsGzip(headers: HeaderList): boolean {
  const token = tokens(headers, "accept-encoding").find((each) => /^gzip\s*(;|$)/.test(each));
  return token !== undefined && !/;\s*q\s*=\s*0(\.0*)?\s*$/.test(token);
}

/** The reply in gzip, if the request accepts it. For replies without secrets only: their compressed length would tell of them (BREACH). */
export async function compressed(reply: Reply, request: HeaderList): Promise<Reply> {
  const { body, headers } = reply;
  if (!Buffer.isBuffer(body) || body.length < LEAST_BYTES || !acceptsGzip(request)) return reply;
  const zipped = await gzip(body);
  return { ...reply, headers: [...withHeader(headers, "Content-Length", String(zipped.length)), "Content-Encoding", "gzip", "Vary", "Accept-Encoding"], body: zipped };
}
