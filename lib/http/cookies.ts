/**
 * Reads and removes cookies of a request (RFC 6265 §4.2).
 */
import { sameName, trimmed, type HeaderList } from "./headers.ts";

/**
 * The first result of `read` that is not null, over the values of all cookies with this name in their order. Names
 * compare with case.
 * Values are given as they are sent, with quotes where they have some. `most`: further ones are not read. Default: all
 * are.
 */
export function findCookie<T>(
  headers: HeaderList,
  name: string,
  read: (value: string) => T | null,
  most = Infinity,
): T | null {
  let left = most;
  for (let i = 0; i < headers.length; i += 2) {
    if (!sameName(headers[i]!, "cookie")) continue;
    const line = headers[i + 1]!;
    if (!line.includes(name)) continue;
    for (const pair of pairsOf(line, name)) {
      if (pair.value === null) continue;
      if (left-- === 0) return null;
      const found = read(pair.value);
      if (found !== null) return found;
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

/** The list without the cookies of this name whose value `isUnwanted`; the same list if there is none. */
export function withoutCookies(headers: HeaderList, name: string, isUnwanted: (value: string) => boolean): HeaderList {
  if (findCookie(headers, name, (value) => isUnwanted(value) || null) === null) return headers;
  return headers.flatMap((field, i) => {
    if (i % 2 === 1) return [];
    const line = headers[i + 1]!;
    if (!sameName(field, "cookie")) return [field, line];
    const kept = [...pairsOf(line, name)].filter(({ value }) => value === null || !isUnwanted(value));
    const text = kept
      .map(({ start, end }) => line.slice(start, end))
      .join(";")
      .trim();
    return text === "" ? [] : [field, text];
  });
}

interface Pair {
  /** Its place in the line. */
  readonly start: number;
  readonly end: number;
  /** Null: another cookie's. */
  readonly value: string | null;
}

function* pairsOf(line: string, name: string): Generator<Pair> {
  let equals = -1;
  for (let start = 0, end = 0; start < line.length; start = end + 1) {
    const semicolon = line.indexOf(";", start);
    end = semicolon < 0 ? line.length : semicolon;
    // Looked for once for all pairs before it: thousands of them without "=" would take seconds otherwise.
    if (equals < start) equals = line.indexOf("=", start);
    if (equals < 0) equals = Infinity;
    yield {
      start,
      end,
      value: equals < end && trimmed(line, start, equals) === name ? trimmed(line, equals + 1, end) : null,
    };
  }
}
