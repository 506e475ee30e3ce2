/**
 * Reads for how long a server asks to wait.
 */
import { httpDate } from "./date.ts";
import { headerValue, type HeaderList } from "./headers.ts";

/**
 * Retry-After in milliseconds: seconds, or a date (RFC 9110 §10.2.3), which may be over. Null: it is neither, or not
 * there. `wall`: milliseconds since 1970.
 */
export function askedWait(headers: HeaderList, wall: number): number | null {
  const text = headerValue(headers, "retry-after");
  if (text === undefined) return null;
  const ms = /^[0-9]+$/.test(text) ? Number(text) * 1000 : httpDate(text, wall) - wall;
  return Number.isNaN(ms) ? null : ms;
}
