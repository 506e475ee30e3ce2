/**
 * Reads what a request says of its place in a trace: `traceparent` and `tracestate` (W3C Trace Context, level 1). Traces are neither begun
 * nor told of here.
 */
import { headerValues, type HeaderList } from "../http/headers.ts";

/** The span of somebody else's in which a request was sent. */
export interface RemoteParent {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** 16 hexadecimal digits. */
  readonly spanId: string;
  /** Whether whoever sent it records the trace. */
  readonly sampled: boolean;
}

/** 32 hexadecimal digits; null where there is no such header, or more than one, or none that is valid. */
export function traceIdOf(headers: HeaderList): string | null {
  const found = traceparentOf(headers);
  return found === null ? null : found.slice(3, 35);
}

/** Null where `traceIdOf` is. */
export function parentOf(headers: HeaderList): RemoteParent | null {
  const found = traceparentOf(headers);
  if (found === null) return null;
  // Of the flags, only the lowest has a meaning that later versions keep (§3.2.2.5, §4.3).
  return { traceId: found.slice(3, 35), spanId: found.slice(36, 52), sampled: (parseInt(found.slice(53, 55), 16) & 1) === 1 };
}

/**
 * All lines as one; null where there are none, or where they are not what they should be, which says nothing of `traceparent` (§3.3). Of
 * more than 512 characters, entries go as §3.3.1.5 has it: first those of more than 128, then the last ones.
 */
export function tracestateOf(headers: HeaderList): string | null {
  const lines = headerValues(headers, "tracestate");
  if (lines.length === 0) return null;
  const text = lines.join(",");
  if (text.length > MOST_READ) return null;
  let entries: string[] = [];
  for (let from = 0; from < text.length; ) {
    const comma = text.indexOf(",", from);
    const end = comma < 0 ? text.length : comma;
    const entry = trimmed(text, from, end);
    from = end + 1;
    if (entry === "") continue;
    if (entries.length === MOST_ENTRIES || !ENTRY.test(entry)) return null;
    entries.push(entry);
  }
  if (new Set(entries.map((entry) => entry.slice(0, entry.indexOf("=")))).size < entries.length) return null;
  if (length(entries) > MOST_CHARACTERS) entries = entries.filter((entry) => entry.length <= LONG_ENTRY);
  while (length(entries) > MOST_CHARACTERS) entries.pop();
  return entries.length === 0 ? null : entries.join(",");
}

/** What stands between, without blanks around it. An expression for them would take 200 ms over 15000 blanks inside. */
function trimmed(text: string, from: number, end: number): string {
  while (from < end && isBlank(text.charCodeAt(from))) from++;
  while (from < end && isBlank(text.charCodeAt(end - 1))) end--;
  return text.slice(from, end);
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

function length(entries: readonly string[]): number {
  return entries.reduce((sum, entry) => sum + entry.length + 1, -1);
}

const MOST_ENTRIES = 32;
const MOST_CHARACTERS = 512;
const LONG_ENTRY = 128;
/** As many entries of the greatest length as there may be, and blanks around them. */
const MOST_READ = 20_000;
/** §3.3.1.3: a key of up to 256 characters, perhaps with the name of a system behind "@", and a value without comma, "=" and final blank. */
const ENTRY = /^(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

function traceparentOf(headers: HeaderList): string | null {
  let found: string | null = null;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    if (name.length !== 11 || name.toLowerCase() !== "traceparent") continue;
    if (found !== null) return null;
    found = headers[i + 1]!;
  }
  if (found === null || !VALID.test(found)) return null;
  // Versions to come may append fields; the first one has none, and ff is no version.
  return found.length > 55 && found.startsWith("00") ? null : found;
}

const VALID = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:$|-)/;
