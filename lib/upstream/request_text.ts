/**
 * A request's head, and its trailers, as the text that goes over an HTTP/1.1 connection: each byte of it is a character (Latin-1). What
 * stands in it is `request_head.ts`.
 */
import type { HeaderList } from "../http/headers.ts";

/** Throws a `TypeError` for what could be read as more than it is. Ours are names and values that come from plugins, too. */
export function writtenHead(method: string, target: string, headers: HeaderList): string {
  let text = `${method} ${target} HTTP/1.1\r\n`;
  let hasConnection = false;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    // A value may have a colon, so that the look at the whole would take the rest of such a name for the value's beginning.
    if (name.includes(":")) throw new TypeError("the name of a header of the request has a colon");
    if (name.length === 10 && name.toLowerCase() === "connection") hasConnection = true;
    text += `${name}: ${headers[i + 1]!}\r\n`;
  }
  // As node's own client says it: some servers of HTTP/1.0 keep a connection only then.
  text += hasConnection ? "\r\n" : "Connection: keep-alive\r\n\r\n";
  // One look at the whole costs less than one at each name and value; it would take a value's own line breaks for lines, so those are counted.
  if (!HEAD.test(text) || breaks(text) !== headers.length / 2 + (hasConnection ? 2 : 3)) throw new TypeError("the head of the request cannot be written");
  return text;
}

/** Trailers, one line each, with its CRLF. Throws a `TypeError` as `writtenHead` does. */
export function writtenFields(list: HeaderList): string {
  let text = "";
  for (let i = 0; i < list.length; i += 2) {
    if (list[i]!.includes(":")) throw new TypeError("the name of a trailer of the request has a colon");
    text += `${list[i]!}: ${list[i + 1]!}\r\n`;
  }
  if (!FIELDS.test(text) || breaks(text) !== list.length / 2) throw new TypeError("the trailers of the request cannot be written");
  return text;
}

function breaks(text: string): number {
  let found = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) found++;
  return found;
}

/** No character that a single byte cannot say, no control character other than the tab. */
const HEAD = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+ [\x21-\x7e\x80-\xff]+ HTTP\/1\.1\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)+\r\n$/;
const FIELDS = /^(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)*$/;
