/**
 * Content codings: which ones a client accepts (RFC 9110 §12.5.3), and JSON replies in gzip.
 */
import { promisify } from "node:util";
import zlib from "node:zlib";
import { headerValues, withHeader, type HeaderList } from "./headers.ts";
import type { Reply } from "./reply.ts";
import { weightOf } from "./weight.ts";

const gzip = promisify(zlib.gzip);
/** What gzip saves of a smaller body is not worth the time. */
const LEAST_BYTES = 500;

/** The weight of each coding in Accept-Encoding, in lower case, without those of an invalid weight. */
export function acceptedCodings(headers: HeaderList): ReadonlyMap<string, number> {
  const weights = new Map<string, number>();
  for (const item of headerValues(headers, "accept-encoding").join().toLowerCase().split(",")) {
    const [coding = "", ...parameters] = item.split(";").map((part) => part.trim());
    const weight = weightOf(parameters);
    if (coding !== "" && weight !== null) weights.set(coding === "x-gzip" ? "gzip" : coding, weight);
  }
  return weights;
}

/** By name only: "*" also accepts the plain form. */
export function acceptsGzip(headers: HeaderList): boolean {
  return (acceptedCodings(headers).get("gzip") ?? 0) > 0;
}

/**
 * The reply in gzip, if the request accepts it. For replies without secrets only: their compressed length would tell of
 * them (BREACH).
 */
export async function compressed(reply: Reply, request: HeaderList): Promise<Reply> {
  const { body, headers } = reply;
  if (!Buffer.isBuffer(body) || body.length < LEAST_BYTES || !acceptsGzip(request)) return reply;
  const zipped = await gzip(body);
  return {
    ...reply,
    headers: [
      ...withHeader(headers, "Content-Length", String(zipped.length)),
      "Content-Encoding",
      "gzip",
      "Vary",
      "Accept-Encoding",
    ],
    body: zipped,
  };
}
