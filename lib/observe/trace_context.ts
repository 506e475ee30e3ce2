/**
 * W3C Trace Context (level 1): the parent of a request's trace, its `tracestate`, and ids of traces and spans.
 */
import { randomFillSync } from "node:crypto";
import { headerValues, type HeaderList } from "../http/headers.ts";
import { traceparentOf } from "./traceparent.ts";

/** The span of the sender. */
export interface RemoteParent {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** 16 hexadecimal digits. */
  readonly spanId: string;
  /** Whether the sender records the trace. */
  readonly sampled: boolean;
}

/** Null where `traceIdOf` is. */
export function parentOf(headers: HeaderList): RemoteParent | null {
  const found = traceparentOf(headers);
  if (found === null) return null;
  // Later versions keep the meaning of the lowest flag alone (§3.2.2.5, §4.3).
  return {
    traceId: found.slice(3, 35),
    spanId: found.slice(36, 52),
    sampled: (parseInt(found.slice(53, 55), 16) & 1) === 1,
  };
}

/**
 * All lines joined; null where there is none or one is invalid, which does not make `traceparent` invalid (§3.3). A
 * list of more than 512 characters loses entries as in §3.3.1.5: entries of more than 128 characters first, then the
 * last ones.
 */
export function tracestateOf(headers: HeaderList): string | null {
  const text = headerValues(headers, "tracestate").join(",");
  if (text.length > MAX_READ) return null;
  let entries = text
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
  if (entries.length > MAX_ENTRIES || !entries.every((entry) => ENTRY.test(entry))) return null;
  if (new Set(entries.map((entry) => entry.slice(0, entry.indexOf("=")))).size < entries.length) return null;
  const length = () => entries.reduce((sum, entry) => sum + entry.length + 1, -1);
  if (length() > MAX_CHARACTERS) entries = entries.filter((entry) => entry.length <= LONG_ENTRY);
  while (length() > MAX_CHARACTERS) entries.pop();
  return entries.length === 0 ? null : entries.join(",");
}

const MAX_ENTRIES = 32;
const MAX_CHARACTERS = 512;
const LONG_ENTRY = 128;
/** Room for the most and longest entries that are valid, and blanks around them. */
const MAX_READ = 20_000;
/**
 * §3.3.1.3: a key of up to 256 characters, perhaps with a system's name after "@", and a value without comma, "=" and
 * final blank.
 */
const ENTRY = new RegExp(
  String.raw`^(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})` +
    String.raw`=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$`,
);

export interface Ids {
  /** 32 hexadecimal digits, not all of them 0. */
  trace(): string;
  /** 16 hexadecimal digits, not all of them 0. */
  span(): string;
}

/**
 * Draws random bytes in stock: a system call for each id would cost more than the rest of a span. Default of `fill`:
 * `randomFillSync`.
 */
export function createIds(fill: (buffer: Buffer) => unknown = randomFillSync): Ids {
  const bytes = Buffer.alloc(STOCK_BYTES);
  let stock = "";
  let next = 0;
  const take = (digits: number): string => {
    for (;;) {
      if (next + digits > stock.length) {
        fill(bytes);
        stock = bytes.toString("hex");
        next = 0;
      }
      const id = stock.slice(next, (next += digits));
      if (!ZEROS.startsWith(id)) return id;
    }
  };
  return { trace: () => take(32), span: () => take(16) };
}

const STOCK_BYTES = 2048;
/** Not valid as an id (§3.2.2). */
const ZEROS = "0".repeat(32);
