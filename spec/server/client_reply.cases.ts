/** Replies, and the text that a client gets of each head. */
import type { HeaderList } from "../../lib/http/headers.ts";
import { replyText, type BodyFraming } from "../../lib/server/client_reply.ts";

export interface ReplyCase {
  readonly title: string;
  readonly status?: number;
  readonly reason?: string;
  readonly headers?: HeaderList;
  readonly requestId?: string;
  readonly framing: BodyFraming;
  /** The lines before X-Request-Id, or null where the head cannot be written. */
  readonly lines: readonly string[] | null;
  readonly ownDate?: boolean;
}

export function textOf({ status = 200, reason, headers = [], requestId = "id", framing }: ReplyCase): string {
  return replyText(
    { status, headers, ...(reason === undefined ? {} : { reason }) },
    requestId,
    framing,
    "Connection: close\r\n",
    "Date: today\r\n",
  );
}

const OK = "HTTP/1.1 200 OK";
const CHUNKED = "Transfer-Encoding: chunked";

export const REPLY_CASES: readonly ReplyCase[] = [
  { title: "a body at hand has its length", framing: 4, headers: ["A", "b"], lines: [OK, "A: b", "Content-Length: 4"] },
  { title: "an empty body has its length, too", framing: 0, lines: [OK, "Content-Length: 0"] },
  {
    title: "a wrong Content-Length is put right in its place",
    framing: 4,
    headers: ["content-length", "9", "A", "b"],
    lines: [OK, "content-length: 4", "A: b"],
  },
  {
    title: "a 426 names the protocol to upgrade to, also in Connection",
    status: 426,
    framing: 0,
    headers: ["Upgrade", "TLS/1.3"],
    lines: ["HTTP/1.1 426 Upgrade Required", "Connection: Upgrade", "Upgrade: TLS/1.3", "Content-Length: 0"],
  },
  {
    title: "another status has no Upgrade",
    framing: 0,
    headers: ["Upgrade", "TLS/1.3"],
    lines: [OK, "Content-Length: 0"],
  },
  {
    title: "a second Content-Length is left out",
    framing: 4,
    headers: ["Content-Length", "4", "Content-Length", "5"],
    lines: [OK, "Content-Length: 4"],
  },
  {
    title: "a Content-Length that is given stands for a streamed body",
    framing: "stated",
    headers: ["Content-Length", "9"],
    lines: [OK, "Content-Length: 9"],
  },
  {
    title: "a second Content-Length of a streamed body is left out",
    framing: "stated",
    headers: ["Content-Length", "9", "CONTENT-LENGTH", "7"],
    lines: [OK, "Content-Length: 9"],
  },
  {
    title: "a streamed body cannot have a Content-Length that is no number",
    framing: "stated",
    headers: ["Content-Length", "9, 9"],
    lines: null,
  },
  { title: "a reply to HEAD need not name a length", framing: "stated", lines: [OK] },
  {
    title: "a chunked body names its coding, and no length",
    framing: "chunked",
    headers: ["Content-Length", "9", "Transfer-Encoding", "gzip", "Trailer", "X-Sum"],
    lines: [OK, "Trailer: X-Sum", CHUNKED],
  },
  {
    title: "a body until the connection ends has no framing and no trailers",
    framing: "until close",
    headers: ["Content-Length", "9", "Transfer-Encoding", "chunked", "trailer", "X-Sum"],
    lines: [OK],
  },
  {
    title: "a 204 has no framing",
    status: 204,
    framing: "none",
    headers: ["Content-Length", "0"],
    lines: ["HTTP/1.1 204 No Content"],
  },
  {
    title: "headers about the connection are left out",
    framing: 0,
    headers: [
      "Connection",
      "a",
      "Keep-Alive",
      "b",
      "Proxy-Connection",
      "c",
      "Upgrade",
      "d",
      "TRANSFER-ENCODING",
      "chunked",
      "X-Request-Id",
      "e",
      "Trailer",
      "f",
    ],
    lines: [OK, "Content-Length: 0"],
  },
  {
    title: "headers whose names are as long as those are kept",
    framing: 0,
    headers: [
      "Vary",
      "a",
      "Expires",
      "b",
      "Set-Cookie",
      "c",
      "Content-Type",
      "d",
      "x-fourteenchars",
      "e",
      "Accept-Charset",
      "f",
      "X-Sixteen-Chars-",
      "g",
      "X-Seventeen-Chars",
      "h",
    ],
    lines: [
      OK,
      "Vary: a",
      "Expires: b",
      "Set-Cookie: c",
      "Content-Type: d",
      "x-fourteenchars: e",
      "Accept-Charset: f",
      "X-Sixteen-Chars-: g",
      "X-Seventeen-Chars: h",
      "Content-Length: 0",
    ],
  },
  {
    title: "a Date of its own stands",
    framing: 0,
    headers: ["date", "tomorrow"],
    lines: [OK, "date: tomorrow", "Content-Length: 0"],
    ownDate: true,
  },
  {
    title: "a reason phrase of its own stands",
    framing: 0,
    reason: "Fin\xe9 ",
    lines: ["HTTP/1.1 200 Fin\xe9 ", "Content-Length: 0"],
  },
  {
    title: "a status without a usual phrase has none",
    status: 299,
    framing: 0,
    lines: ["HTTP/1.1 299 ", "Content-Length: 0"],
  },
  {
    title: "values are Latin-1, order, case and duplicates kept",
    framing: 0,
    headers: ["x-B", "caf\xe9\t\x80\xff", "X-b", "", "x-B", " "],
    lines: [OK, "x-B: caf\xe9\t\x80\xff", "X-b: ", "x-B:  ", "Content-Length: 0"],
  },
  {
    title: "a value with a line break and a header behind it",
    framing: 0,
    headers: ["A", "b\r\nSet-Cookie: c"],
    lines: null,
  },
  { title: "a value with a line break at its end", framing: 0, headers: ["A", "b\r\n"], lines: null },
  { title: "a value that ends the head", framing: 0, headers: ["A", "b\r\n\r\nHTTP/1.1 200 OK"], lines: null },
  { title: "a value with LF alone", framing: 0, headers: ["A", "b\nC: d"], lines: null },
  { title: "a value with CR alone", framing: 0, headers: ["A", "b\rC: d"], lines: null },
  { title: "a value with NUL", framing: 0, headers: ["A", "b\0"], lines: null },
  { title: "a value with DEL", framing: 0, headers: ["A", "b\x7f"], lines: null },
  { title: "a value beyond Latin-1", framing: 0, headers: ["A", "\u010a"], lines: null },
  {
    title: "a value of characters whose low bytes are a line break",
    framing: 0,
    headers: ["A", "b\u010d\u010aSet-Cookie: c"],
    lines: null,
  },
  { title: "a name with a colon", framing: 0, headers: ["A: b", "c"], lines: null },
  { title: "a name with a line break", framing: 0, headers: ["A\r\nB", "c"], lines: null },
  { title: "a name with a header in it", framing: 0, headers: ["A: b\r\nC", "d"], lines: null },
  { title: "a name with a space", framing: 0, headers: ["A B", "c"], lines: null },
  { title: "an empty name", framing: 0, headers: ["", "c"], lines: null },
  { title: "a name beyond ASCII", framing: 0, headers: ["\xe9", "c"], lines: null },
  { title: "a reason phrase with a header in it", framing: 0, reason: "OK\r\nA: b", lines: null },
  { title: "a reason phrase with a control character", framing: 0, reason: "\0", lines: null },
  { title: "a status of four digits", status: 1000, framing: 0, lines: null },
  { title: "a status below 100", status: 99, framing: 0, lines: null },
  { title: "a request id with a line break", framing: 0, requestId: "a\r\nB: c", lines: null },
];

const LAST = "0\r\n\r\n";

/** Trailers, and the end of the body that carries them. */
export const TRAILER_CASES: readonly (readonly [title: string, trailers: HeaderList, text: string])[] = [
  ["no trailers", [], LAST],
  ["trailers", ["X-Sum", "1", "x-sum", "caf\xe9"], "0\r\nX-Sum: 1\r\nx-sum: caf\xe9\r\n\r\n"],
  ["an empty value", ["X-Sum", ""], "0\r\nX-Sum: \r\n\r\n"],
  ["a value with a line break", ["A", "b\r\nC: d"], LAST],
  ["a value that ends the body and begins a reply", ["A", "b\r\n\r\nHTTP/1.1 200 OK"], LAST],
  ["a value beyond Latin-1", ["A", "\u010a"], LAST],
  ["a name with a colon", ["A:b", "c"], LAST],
  ["an empty name", ["", "c"], LAST],
  ["a name with a space", ["A B", "c"], LAST],
];
