/**
 * Reads cookies of a request (RFC 6265 §4.2).
 */
import { sameName, type HeaderList } from "./headers.ts";

/**
 * The first result of `read` that is not null, over the values of all cookies with this name in their order. Names compare with case.
 * Values are given as they are sent, with quotes where they have some.
 */
export function findCookie<T>(headers: HeaderList, name: string, read: (value: string) => T | null): T | null {
  for (let i = 0; i < headers.length; i += 2) {
    if (!sameName(headers[i]!, "cookie")) continue;
    const line = headers[i + 1]!;
    let equals = -1;
    for (let start = 0; start < line.length; ) {
      const semicolon = line.indexOf(";", start);
      const end = semicolon < 0 ? line.length : semicolon;
      // Looked for once for all pairs before it: thousands of them without "=" would take seconds otherwise.
      if (equals < start) equals = line.indexOf("=", start);
      if (equals < 0) break;
      if (equals < end && line.slice(start, equals).trim() === name) {
        const found = read(line.slice(equals + 1, end).trim());
        if (found !== null) return found;
      }
      start = end + 1;
    }
  }
  return null;
}

/** The values of all cookies with this name. */
export function cookieValues(headers: HeaderList, name: string): string[] {
  const found: string[] = [];
  findCookie(headers, name, (value) => (found.push(value), null));
  return found;
}
