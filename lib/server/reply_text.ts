/**
 * Writes the head of a reply to an HTTP/1 client as Latin-1 text.
 */
import { STATUS_CODES } from "node:http";
import type { HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";

/** How the end of the body is marked: by this Content-Length, by the one among the headers, by chunks, or by the end of the connection. */
export type BodyFraming = number | "stated" | "chunked" | "until close" | "none";

export interface ReplyTextOptions {
  readonly requestId: string;
  readonly framing: BodyFraming;
  /** Lines about the connection, each with its CR LF. */
  readonly connection: string;
  /** `Date: …` with its CR LF; left out where the reply has a date of its own (RFC 9110 §6.6.1). */
  readonly date: string;
}

/**
 * Throws a `TypeError` for a reply whose reason phrase, header names or values HTTP cannot carry: plugins write them too. Headers about the
 * connection (RFC 9110 §7.6.1) and the framing are the gateway's own and are left out.
 */
export function replyText({ status, reason, headers }: Pick<Reply, "status" | "reason" | "headers">, options: ReplyTextOptions): string {
  const { framing } = options;
  let text = `HTTP/1.1 ${status} ${reason ?? STATUS_CODES[status] ?? ""}\r\n`;
  let lines = 2;
  let hasDate = false;
  let hasLength = typeof framing !== "number" && framing !== "stated";
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    let value = headers[i + 1]!;
    if (KNOWN_LENGTHS.has(name.length)) {
      const lower = name.toLowerCase();
      if (OWN.has(lower) || (lower === "trailer" && framing !== "chunked")) continue;
      if (lower === "date") hasDate = true;
      else if (lower === "content-length") {
        if (hasLength) continue;
        hasLength = true;
        if (typeof framing === "number") value = String(framing);
        else if (!DIGITS.test(value)) throw new TypeError(`the Content-Length "${value}" is not a number`);
      }
    }
    // A colon in a name would move the rest of the name into the value, which the look at the whole text cannot see.
    if (name.includes(":")) throw new TypeError(`the name of the header "${name}" has a colon`);
    text += `${name}: ${value}\r\n`;
    lines++;
  }
  if (!hasLength && typeof framing === "number") {
    text += `Content-Length: ${framing}\r\n`;
    lines++;
  } else if (framing === "chunked") {
    text += "Transfer-Encoding: chunked\r\n";
    lines++;
  }
  text += `X-Request-Id: ${options.requestId}\r\n`;
  // One look at the whole costs less than one at each name and value; a line break inside a value shows by the number of lines.
  if (!HEAD.test(text) || linesOf(text) !== lines) throw new TypeError("the reply's head has a name or value that HTTP cannot carry");
  return hasDate ? `${text}${options.connection}\r\n` : `${text}${options.date}${options.connection}\r\n`;
}

const DIGITS = /^\d+$/;
/** Headers that the gateway sets itself. */
const OWN = new Set(["connection", "keep-alive", "x-request-id", "proxy-connection", "transfer-encoding", "upgrade"]);
const KNOWN_LENGTHS = new Set([...OWN, "date", "content-length", "trailer"].map((name) => name.length));

/** The end of a chunked body: the last chunk and the trailers. Trailers that HTTP cannot carry are left out; the body is whole without them. */
export function lastChunk(trailers: HeaderList): string {
  let text = "";
  for (let i = 0; i < trailers.length; i += 2) {
    if (trailers[i]!.includes(":")) return LAST_CHUNK;
    text += `${trailers[i]!}: ${trailers[i + 1]!}\r\n`;
  }
  return FIELDS.test(text) && linesOf(text) === trailers.length / 2 ? `0\r\n${text}\r\n` : LAST_CHUNK;
}

const LAST_CHUNK = "0\r\n\r\n";

function linesOf(text: string): number {
  let found = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) found++;
  return found;
}

/** No character beyond a byte, no control character but the tab (RFC 9110 §5.5, RFC 9112 §4). */
const HEAD = /^HTTP\/1\.1 [1-9]\d\d [\t\x20-\x7e\x80-\xff]*\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)*$/;
const FIELDS = /^(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)*$/;
