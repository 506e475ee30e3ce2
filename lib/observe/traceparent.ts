/**
 * Reads the trace id of a request's `traceparent` header (W3C Trace Context, level 1). Traces are neither begun nor told of here.
 */
import type { HeaderList } from "../http/headers.ts";

/** 32 hexadecimal digits; null where there is no such header, or more than one, or none that is valid. */
export function traceIdOf(headers: HeaderList): string | null {
  let found: string | null = null;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    if (name.length !== 11 || name.toLowerCase() !== "traceparent") continue;
    if (found !== null) return null;
    found = headers[i + 1]!;
  }
  if (found === null || !VALID.test(found)) return null;
  // Versions to come may append fields; the first one has none, and ff is no version.
  if (found.length > 55 && found.startsWith("00")) return null;
  return found.slice(3, 35);
}

const VALID = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:$|-)/;
