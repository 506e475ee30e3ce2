/**
 * Reads the header `traceparent` of a request (W3C Trace Context, level 1).
 */
import { sameName, type HeaderList } from "../http/headers.ts";

/** 32 hexadecimal digits; null without a valid `traceparent`, or with more than one. */
export function traceIdOf(headers: HeaderList): string | null {
  const found = traceparentOf(headers);
  return found === null ? null : found.slice(3, 35);
}

/** The header as it is; null where `traceIdOf` is. */
export function traceparentOf(headers: HeaderList): string | null {
  let found: string | null = null;
  for (let i = 0; i < headers.length; i += 2) {
    if (!sameName(headers[i]!, "traceparent")) continue;
    if (found !== null) return null;
    found = headers[i + 1]!;
  }
  if (found === null || !VALID.test(found)) return null;
  // Later versions may append fields; version 00 has none, and ff is not a version.
  return found.length > 55 && found.startsWith("00") ? null : found;
}

const VALID = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:$|-)/;
