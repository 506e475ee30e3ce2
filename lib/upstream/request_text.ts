/**
 * A request's head, and its trailers, as the text that goes over an HTTP/1.1 connection: each byte of it is a character (Latin-1). What
 * stands in it is `request_head.ts`.
 */
import type { HeaderList } from "../http/headers.ts";

/** Throws a `TypeError` for what could be read as more than it is. Ours are names and values that come from plugins, too. */
export function writtenHead(method: string, target: string, headers: HeaderList): string {
  if (!TOKEN.test(method) || !TARGET.test(target)) throw new TypeError("the method or the target cannot be written");
  const fields = writtenFields(headers);
  // As node's own client says it: some servers of HTTP/1.0 keep a connection only then.
  const closing = hasConnection(headers) ? "\r\n" : "Connection: keep-alive\r\n\r\n";
  return `${method} ${target} HTTP/1.1\r\n${fields}${closing}`;
}

/** One line each, with its CRLF. Throws a `TypeError` as `writtenHead` does. */
export function writtenFields(list: HeaderList): string {
  let text = "";
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!;
    const value = list[i + 1]!;
    if (!TOKEN.test(name) || UNWRITABLE.test(value)) throw new TypeError(`the header ${JSON.stringify(name)} cannot be written`);
    text += `${name}: ${value}\r\n`;
  }
  return text;
}

function hasConnection(list: HeaderList): boolean {
  for (let i = 0; i < list.length; i += 2) if (list[i]!.length === 10 && list[i]!.toLowerCase() === "connection") return true;
  return false;
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const TARGET = /^[\x21-\xff]+$/;
/** Control characters other than the tab, and what no single byte can say. */
const UNWRITABLE = /[^\t\x20-\x7e\x80-\xff]/;
