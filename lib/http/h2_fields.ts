/**
 * Writes header lists as the objects that node's HTTP/2 takes.
 */
import type { OutgoingHttpHeaders } from "node:http2";
import { FIELD_VALUE, TOKEN } from "../base/http_grammar.ts";
import { isHopByHop, type HeaderList } from "./headers.ts";

/**
 * Adds a list to `fields`: names in lower case, values of one name together, no headers of the connection. Null when
 * HTTP cannot carry it: node would send a line break in a plugin's value as it is, and split it at a NUL.
 */
export function h2Fields(
  list: HeaderList,
  fields: OutgoingHttpHeaders = Object.create(null) as OutgoingHttpHeaders,
): OutgoingHttpHeaders | null {
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!.toLowerCase();
    if (isHopByHop(name)) continue;
    const value = list[i + 1]!;
    if (!TOKEN.test(name) || !FIELD_VALUE.test(value)) return null;
    const earlier = fields[name];
    if (earlier === undefined) fields[name] = value;
    else if (Array.isArray(earlier)) earlier.push(value);
    else if (LISTS.has(name)) fields[name] = `${String(earlier)}, ${value}`;
    else if (!SINGLE.has(name)) fields[name] = [String(earlier), value];
  }
  return fields;
}

/** Lists of which node's HTTP/2 sends one line: several are one, joined (RFC 9110 §5.3). */
const LISTS = new Set(["content-encoding", "content-language"]);

/** Names of which node's HTTP/2 sends one value; of several, the first counts. */
const SINGLE = new Set([
  "access-control-allow-credentials",
  "access-control-max-age",
  "access-control-request-method",
  "age",
  "authorization",
  "content-length",
  "content-location",
  "content-md5",
  "content-range",
  "content-type",
  "date",
  "dnt",
  "etag",
  "expires",
  "from",
  "host",
  "if-match",
  "if-modified-since",
  "if-none-match",
  "if-range",
  "if-unmodified-since",
  "last-modified",
  "location",
  "max-forwards",
  "proxy-authorization",
  "range",
  "referer",
  "retry-after",
  "tk",
  "upgrade-insecure-requests",
  "user-agent",
  "x-content-type-options",
]);
