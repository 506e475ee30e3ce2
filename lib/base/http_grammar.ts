/**
 * The grammar of HTTP tokens and header lines (RFC 9110 §5), as parts of regular expressions, and the headers of single
 * connections.
 */

/** The characters of a token, such as a method or the name of a header (§5.6.2), for use in brackets. */
export const TOKEN_CHARACTERS = "!#$%&'*+.^_`|~0-9A-Za-z-";
export const TOKEN = new RegExp(`^[${TOKEN_CHARACTERS}]+$`);

/** A header's value: Latin-1 text without control characters, except tabs (§5.5). */
const VALUE_PART = String.raw`[\t\x20-\x7e\x80-\xff]*`;
export const FIELD_VALUE = new RegExp(`^${VALUE_PART}$`);

/** A line of a header section or of trailers, with its CR LF; no space before the colon, no folding (RFC 9112 §5). */
export const FIELD_LINE = String.raw`[${TOKEN_CHARACTERS}]+:${VALUE_PART}\r\n`;

/** Headers that concern one connection only (RFC 9110 §7.6.1), in lower case. */
export const HOP_BY_HOP = [
  "connection",
  "keep-alive",
  "proxy-connection",
  "te",
  "transfer-encoding",
  "upgrade",
  "http2-settings",
] as const;

/** Headers in which proxies say for whom they forward a request (RFC 7239 §4, and its predecessors), in lower case. */
export const FORWARDING = [
  ...["for", "host", "port", "prefix", "proto", "scheme", "server", "ssl"].map((end) => `x-forwarded-${end}`),
  ...["forwarded", "x-real-ip"],
];

/** The methods of RFC 9110 §9, RFC 5789 and RFC 10008. */
export const METHODS: readonly string[] = [
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
  "OPTIONS",
  "TRACE",
  "CONNECT",
  "QUERY",
];

/** Methods that have the effect of one request however often they are sent (RFC 9110 §9.2.2, RFC 10008 §2). */
export const IDEMPOTENT: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "QUERY"]);

/** The value of a hexadecimal digit; -1 for another character, and for NaN, behind the end of a text. */
export function hexDigit(code: number): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const lower = code | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
