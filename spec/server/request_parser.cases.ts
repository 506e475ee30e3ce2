/** Requests as bytes, the section of the RFC that decides about each, and how they have to be read. */
import type { Limits } from "../../lib/server/limits.ts";
import type { Reading } from "../support/request_reading.ts";

export interface Case {
  /** A section and its subject in our words, not a quotation: "RFC 9112 §5.2: no folded lines". */
  readonly rule: string;
  readonly title: string;
  readonly bytes: string;
  /** The requests that are accepted, as `asText` writes them. */
  readonly reads: readonly string[];
  readonly end: Reading["end"];
  readonly limits?: Partial<Limits>;
}

type Row = readonly [
  title: string,
  bytes: string,
  ...more: readonly [reads: string | readonly string[], end?: Reading["end"]] | readonly [],
];
const UNLIMITED: Partial<Limits> = {};

/** Rows that name no request are refused with `code`; rows that name one are accepted. */
function rows(rule: string, code: string, list: readonly Row[], limits = UNLIMITED): Case[] {
  return list.map(([title, bytes, reads, end]) => ({
    rule,
    title,
    bytes,
    reads: reads === undefined ? [] : typeof reads === "string" ? [reads] : reads,
    end: end ?? (reads === undefined ? `refused ${code}` : "idle"),
    limits,
  }));
}

const refused = (rule: string, list: readonly Row[]) => rows(rule, "bad_request", list);

const head = (...lines: string[]) => `${lines.join("\r\n")}\r\n\r\n`;
const get = (...fields: string[]) => head("GET / HTTP/1.1", "Host: h", ...fields);
const post = (...fields: string[]) => head("POST / HTTP/1.1", "Host: h", ...fields);
const CHUNKED = post("Transfer-Encoding: chunked");
const READ = "POST / 1.1 Host|h|Transfer-Encoding|chunked";
const UPGRADE = ["Connection: Upgrade", "Upgrade: websocket"];

export const CASES: readonly Case[] = [
  ...refused("RFC 9112 §3: method, target and version of the request line, one space between them", [
    ["a request", "GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a?b 1.1 Host|h"],
    [
      "every printable character in a target",
      `GET /!"$%&'()*+,-.:;<=>?@[\\]^_\`{|}~ HTTP/1.1\r\nHost: h\r\n\r\n`,
      `GET /!"$%&'()*+,-.:;<=>?@[\\]^_\`{|}~ 1.1 Host|h`,
    ],
    ["two spaces behind the method", head("GET  / HTTP/1.1", "Host: h")],
    ["two spaces before the version", head("GET /  HTTP/1.1", "Host: h")],
    ["a space behind the version", head("GET / HTTP/1.1 ", "Host: h")],
    ["a space before the method", head(" GET / HTTP/1.1", "Host: h")],
    ["tabs for spaces", head("GET\t/\tHTTP/1.1", "Host: h")],
    ["a vertical tab for a space", head("GET\x0b/ HTTP/1.1", "Host: h")],
    ["no target", head("GET HTTP/1.1", "Host: h")],
    ["an empty target", head("GET  HTTP/1.1", "Host: h")],
    ["no version (HTTP/0.9)", "GET /\r\n\r\n"],
    ["another line", head("hello", "Host: h")],
    ["a response", "HTTP/1.1 200 OK\r\n\r\n"],
    ["the beginning of a TLS handshake", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"],
    ["the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
  ]),
  ...refused("RFC 9112 §3.2: no white space in the target", [
    ["a space in the target", head("GET /a b HTTP/1.1", "Host: h")],
    ["a tab in the target", head("GET /a\tb HTTP/1.1", "Host: h")],
    ["NUL in the target", head("GET /a\0 HTTP/1.1", "Host: h")],
    ["DEL in the target", head("GET /a\x7f HTTP/1.1", "Host: h")],
    ["a byte beyond ASCII in the target", head("GET /caf\xe9 HTTP/1.1", "Host: h")],
    ["a target without a slash", head("GET a HTTP/1.1", "Host: h")],
    ["a query alone", head("GET ?a HTTP/1.1", "Host: h")],
  ]),
  ...refused("RFC 9110 §9.1: methods are case-sensitive", [
    ["a method with a hyphen", head("M-SEARCH / HTTP/1.1", "Host: h"), "M-SEARCH / 1.1 Host|h"],
    ["a method in lower case", head("get / HTTP/1.1", "Host: h")],
    ["a method that nobody registered", head("FETCH / HTTP/1.1", "Host: h")],
    ["the beginning of a method", head("GE / HTTP/1.1", "Host: h")],
    ["a method with a letter more", head("GETT / HTTP/1.1", "Host: h")],
    ["a method that begins with a hyphen", head("-GET / HTTP/1.1", "Host: h")],
    ["NUL before the method", head("\0GET / HTTP/1.1", "Host: h")],
  ]),
  ...refused("RFC 9112 §2.3: the version is case-sensitive", [
    ["http in lower case", head("GET / http/1.1", "Host: h")],
    ["HTTP/1.2", head("GET / HTTP/1.2", "Host: h")],
    ["HTTP/2.0", head("GET / HTTP/2.0", "Host: h")],
    ["HTTP/0.9", head("GET / HTTP/0.9", "Host: h")],
    ["HTTP/1.10", head("GET / HTTP/1.10", "Host: h")],
    ["HTTP/1", head("GET / HTTP/1", "Host: h")],
    ["HTTP/11.1", head("GET / HTTP/11.1", "Host: h")],
    ["HTTPS/1.1", head("GET / HTTPS/1.1", "Host: h")],
    ["a version of the right letters in the wrong order", head("GET / PTTH/1.1", "Host: h")],
  ]),
  ...refused("RFC 9112 §3.2.2: absolute-form of the target", [
    ["an http URL", head("GET http://h:80/a HTTP/1.1", "Host: h"), "GET http://h:80/a 1.1 Host|h"],
    ["an https URL in capitals", head("GET HTTPS://h HTTP/1.1", "Host: h"), "GET HTTPS://h 1.1 Host|h"],
    ["a scheme alone", head("GET http: HTTP/1.1", "Host: h")],
    ["one slash behind the scheme", head("GET http:/h HTTP/1.1", "Host: h")],
    ["a query behind the host", head("GET http://h?a HTTP/1.1", "Host: h"), "GET http://h?a 1.1 Host|h"],
    ["an IPv6 address", head("GET http://[::1]:80/ HTTP/1.1", "Host: h"), "GET http://[::1]:80/ 1.1 Host|h"],
    ["a scheme that begins with a digit", head("GET 1ttp://h HTTP/1.1", "Host: h")],
    ["a scheme with a dot", head("GET ht.tp://h HTTP/1.1", "Host: h")],
    ["a quote in the host", head('GET http://h"/ HTTP/1.1', "Host: h")],
    ["a backslash in the host", head("GET http://h\\i/ HTTP/1.1", "Host: h")],
    ["a fragment behind the host", head("GET http://h#a HTTP/1.1", "Host: h")],
    ["two @ in the host", head("GET http://a@b@h/ HTTP/1.1", "Host: h")],
    ["no Host beside a URL", head("GET http://h/ HTTP/1.1")],
  ]),
  ...refused("RFC 9112 §3.2.4: asterisk-form of the target for OPTIONS alone", [
    ["OPTIONS *", head("OPTIONS * HTTP/1.1", "Host: h"), "OPTIONS * 1.1 Host|h"],
    ["GET *", head("GET * HTTP/1.1", "Host: h")],
    ["OPTIONS **", head("OPTIONS ** HTTP/1.1", "Host: h")],
  ]),
  ...refused("RFC 9112 §3.2.3: authority-form of the target for CONNECT alone", [
    ["CONNECT with an authority", head("CONNECT h:443 HTTP/1.1", "Host: h:443")],
    ["CONNECT with a path", head("CONNECT / HTTP/1.1", "Host: h")],
    ["CONNECT with what would be a request behind it", head("CONNECT h:443 HTTP/1.1", "Host: h:443") + get()],
    ["GET with an authority", head("GET h:443 HTTP/1.1", "Host: h:443")],
  ]),
  ...refused("RFC 9112 §2.2: an empty line before the request line", [
    ["one empty line", `\r\n${get()}`, "GET / 1.1 Host|h"],
    [
      "one empty line before each of two requests",
      `\r\n${get()}\r\n${get()}`,
      ["GET / 1.1 Host|h", "GET / 1.1 Host|h"],
    ],
    ["an empty line and no request yet", `${get()}\r\n`, "GET / 1.1 Host|h", "waits"],
    ["two empty lines", `\r\n\r\n${get()}`],
    [
      "an empty line behind two bodies, as old clients sent it",
      `${post("Content-Length: 1")}a\r\n${get()}`,
      ["POST / 1.1 Host|h|Content-Length|1 {a}", "GET / 1.1 Host|h"],
    ],
    ["an empty line of LF alone", `\n${get()}`],
    ["an empty line of CR alone", `\r${get()}`],
    ["an empty line of a space", ` \r\n${get()}`],
  ]),
  ...refused("RFC 9112 §2.2: lines end with CR LF", [
    ["LF alone behind the request line", "GET / HTTP/1.1\nHost: h\r\n\r\n"],
    ["LF alone behind a field", "GET / HTTP/1.1\r\nHost: h\nX-A: b\r\n\r\n"],
    ["LF alone for the empty line", "GET / HTTP/1.1\r\nHost: h\r\n\n"],
    ["LF alone throughout", "GET / HTTP/1.1\nHost: h\n\n"],
    ["LF before CR", "GET / HTTP/1.1\r\nHost: h\n\r\n\r"],
  ]),
  ...refused("RFC 9112 §2.2: no CR alone", [
    ["CR alone behind the request line", "GET / HTTP/1.1\rHost: h\r\n\r\n"],
    ["CR alone in a value", get("X-A: b\rX-C: d")],
    ["CR alone in a name", get("X\r-A: b")],
    ["CR alone before the colon", get("X-A\r: b")],
    ["CR alone in the request line", head("GET /\ra HTTP/1.1", "Host: h")],
    ["two CR before LF", "GET / HTTP/1.1\r\nHost: h\r\r\n\r\n"],
    ["CR alone for the empty line", "GET / HTTP/1.1\r\nHost: h\r\n\rX"],
  ]),
  ...refused("RFC 9112 §2.2: no white space between the request line and the first field", [
    ["a space before the first field", "GET / HTTP/1.1\r\n Host: h\r\n\r\n"],
    ["a line of a space before the first field", "GET / HTTP/1.1\r\n \r\nHost: h\r\n\r\n"],
    ["a tab before the first field", "GET / HTTP/1.1\r\n\tHost: h\r\n\r\n"],
  ]),
  ...refused("RFC 9112 §5: field name, colon, optional white space, value", [
    ["white space around a value", get("A: \t b c \t"), "GET / 1.1 Host|h|A|b c"],
    ["no white space around a value", get("A:b"), "GET / 1.1 Host|h|A|b"],
    ["empty values", get("A:", "B:  \t", "C: "), "GET / 1.1 Host|h|A||B||C|"],
    ["the same name twice, in its order and case", get("x-A: 1", "X-a: 2"), "GET / 1.1 Host|h|x-A|1|X-a|2"],
    ["colons in a value", get("A: b:c:"), "GET / 1.1 Host|h|A|b:c:"],
    ["a field without a colon", get("A")],
    ["a field without a name", get(": b")],
    ["a field of a colon", get(":")],
  ]),
  ...refused("RFC 9112 §5.1: no white space between a field name and the colon", [
    ["a space before the colon", get("A : b")],
    ["a tab before the colon", get("A\t: b")],
    ["a space before the colon of the framing", post("Content-Length : 1") + "a"],
    ["a space in a name", get("A B: c")],
  ]),
  ...refused("RFC 9112 §5.2: no folded lines", [
    ["a value that goes on behind a space", get("A: b\r\n c")],
    ["a value that goes on behind a tab", get("A: b\r\n\tc")],
    ["a value that begins behind a fold", get("A:\r\n b")],
    ["a fold of white space alone", get("A: b\r\n ")],
  ]),
  ...refused("RFC 9110 §5.6.2: characters of a token", [
    ["every character of a token", get("!#$%&'*+-.^_`|~09azAZ: b"), "GET / 1.1 Host|h|!#$%&'*+-.^_`|~09azAZ|b"],
    ...[
      '"',
      "(",
      ")",
      ",",
      "/",
      ";",
      "<",
      "=",
      ">",
      "?",
      "@",
      "[",
      "\\",
      "]",
      "{",
      "}",
      "\0",
      "\x7f",
      "\x80",
      "\xff",
    ].map((mark): Row => [`${JSON.stringify(mark)} in a name`, get(`X${mark}A: b`)]),
  ]),
  ...refused("RFC 9110 §5.5: characters of a field value", [
    ["a tab and bytes beyond ASCII in a value", get("A: b\t\x80\xff"), "GET / 1.1 Host|h|A|b\t\x80\xff"],
    ...["\0", "\x01", "\x08", "\x0b", "\x0c", "\x1b", "\x1f", "\x7f"].map((mark): Row => [
      `${JSON.stringify(mark)} in a value`,
      get(`A: b${mark}c`),
    ]),
  ]),
  ...refused("RFC 9112 §3.2: exactly one valid Host", [
    ["no Host", head("GET / HTTP/1.1")],
    ["no Host in HTTP/1.0", head("GET / HTTP/1.0"), "GET / 1.0 ", "last"],
    ["an empty Host", head("GET / HTTP/1.1", "Host:"), "GET / 1.1 Host|"],
    ["two Hosts", get("Host: i")],
    ["two equal Hosts", get("HOST: h")],
    ["a Host that is none", head("GET / HTTP/1.1", "Host: a b")],
  ]),
  ...refused("RFC 9112 §6.3: no body without a length or a coding", [
    ["POST without framing", post() + get(), ["POST / 1.1 Host|h", "GET / 1.1 Host|h"]],
    [
      "DELETE with a body",
      head("DELETE / HTTP/1.1", "Host: h", "Content-Length: 2") + "ok",
      "DELETE / 1.1 Host|h|Content-Length|2 {ok}",
    ],
    ["GET with a body", get("Content-Length: 2") + "ok", "GET / 1.1 Host|h|Content-Length|2 {ok}"],
  ]),
  ...refused("RFC 9112 §6.3: one valid Content-Length", [
    ["a length", post("Content-Length: 4") + "good", "POST / 1.1 Host|h|Content-Length|4 {good}"],
    ["a length of zero", post("Content-Length: 0") + get(), ["POST / 1.1 Host|h|Content-Length|0", "GET / 1.1 Host|h"]],
    [
      "a body that would be a request",
      post("Content-Length: 4") + "GET " + get(),
      ["POST / 1.1 Host|h|Content-Length|4 {GET }", "GET / 1.1 Host|h"],
    ],
    ["two lengths", post("Content-Length: 1", "Content-Length: 2") + "ab"],
    ["two equal lengths", post("Content-Length: 1", "content-length: 1") + "a"],
    ["a list of equal lengths", post("Content-Length: 1, 1") + "a"],
    ["a list of one length", post("Content-Length: 1,") + "a"],
    ["an empty length", post("Content-Length:") + "a"],
    ["a length behind a tab", post("Content-Length:\t1") + "a", "POST / 1.1 Host|h|Content-Length|1 {a}"],
    ["a length before a space", post("Content-Length: 1 ") + "a", "POST / 1.1 Host|h|Content-Length|1 {a}"],
    ["a length before a tab", post("Content-Length: 1\t") + "a"],
    ["a length before a space, a tab and a space", post("X-A: b ", "Content-Length: 1 \t ") + "a"],
    ["a length with a plus", post("Content-Length: +1") + "a"],
    ["a length with a minus", post("Content-Length: -1") + "a"],
    ["a hexadecimal length", post("Content-Length: 0x1") + "a"],
    ["a length with a leading zero", post("Content-Length: 01") + "a"],
    ["a length with a space in it", post("Content-Length: 1 0") + "a"],
    ["a length with a fraction", post("Content-Length: 1.0") + "a"],
    ["a length with an exponent", post("Content-Length: 1e1") + "a"],
    ["a length of 2^64", post("Content-Length: 18446744073709551616") + "a"],
    ["a length in quotes", post('Content-Length: "1"') + "a"],
    ["a length that Latin-1 counts as a digit", post("Content-Length: \xb9") + "a"],
  ]),
  ...refused("RFC 9110 §7.6.1: a bounded number of options in Connection", [
    ["more than 100 options", post(`Connection: ${"a,".repeat(100)}`, "Content-Length: 1") + "a"],
  ]),
  ...refused("RFC 9112 §6.1: Content-Length or Transfer-Encoding, not both", [
    ["length before coding", post("Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n"],
    ["coding before length", post("Transfer-Encoding: chunked", "Content-Length: 5") + "0\r\n\r\n"],
    ["coding and a length of zero", post("Transfer-Encoding: chunked", "Content-Length: 0") + "0\r\n\r\n"],
  ]),
  ...refused("RFC 9112 §6.3: chunked as the only coding", [
    [
      "chunked in capitals",
      post("TRANSFER-ENCODING: CHUNKED") + "0\r\n\r\n",
      "POST / 1.1 Host|h|TRANSFER-ENCODING|CHUNKED",
    ],
    ["identity", post("Transfer-Encoding: identity") + "0\r\n\r\n"],
    ["chunked before another", post("Transfer-Encoding: chunked, gzip") + "0\r\n\r\n"],
    ["chunked behind another", post("Transfer-Encoding: gzip, chunked") + "0\r\n\r\n"],
    ["chunked twice on a line", post("Transfer-Encoding: chunked, chunked") + "0\r\n\r\n"],
    ["chunked on two lines", post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + "0\r\n\r\n"],
    ["an empty coding", post("Transfer-Encoding:") + "0\r\n\r\n"],
    ["an empty list before it", post("Transfer-Encoding: , chunked") + "0\r\n\r\n"],
    ["a parameter", post("Transfer-Encoding: chunked;a=b") + "0\r\n\r\n"],
    ["a tab behind it", post("Transfer-Encoding: chunked\t") + "0\r\n\r\n"],
    ["quotes", post('Transfer-Encoding: "chunked"') + "0\r\n\r\n"],
    ["a vertical tab before it", post("Transfer-Encoding: \x0bchunked") + "0\r\n\r\n"],
  ]),
  ...refused("RFC 9112 §6.1: no Transfer-Encoding in HTTP/1.0", [
    ["chunked in HTTP/1.0", head("POST / HTTP/1.0", "Host: h", "Transfer-Encoding: chunked") + "0\r\n\r\n"],
  ]),
  ...refused("RFC 9112 §7.1: size, line end, data, line end of a chunk", [
    ["two chunks", `${CHUNKED}2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n${get()}`, [`${READ} {abcde}`, "GET / 1.1 Host|h"]],
    [
      "sizes in both cases, with leading zeros",
      `${CHUNKED}00A\r\n0123456789\r\n0b\r\n0123456789a\r\n000\r\n\r\n`,
      `${READ} {01234567890123456789a}`,
    ],
    ["line breaks as data", `${CHUNKED}4\r\n\r\n\r\n\r\n0\r\n\r\n`, `${READ} {\r\n\r\n}`],
    ["no size", `${CHUNKED}\r\n\r\n`],
    ["a size that is none", `${CHUNKED}g\r\n`],
    ["a size with a sign", `${CHUNKED}+1\r\na\r\n`],
    ["a size with 0x", `${CHUNKED}0x1\r\na\r\n`],
    ["a size with an underscore", `${CHUNKED}1_0\r\n`],
    ["a space before a size", `${CHUNKED} 1\r\na\r\n`],
    ["a space behind a size", `${CHUNKED}1 \r\na\r\n`],
    ["LF alone behind a size", `${CHUNKED}1\na\r\n`],
    ["CR alone behind a size", `${CHUNKED}1\ra\r\n`],
    ["a chunk that is longer than its size", `${CHUNKED}1\r\nab\r\n`],
    ["a chunk that is shorter than its size", `${CHUNKED}3\r\na\r\n0\r\n\r\n`],
    ["LF alone behind a chunk", `${CHUNKED}1\r\na\n0\r\n\r\n`],
    ["CR alone behind a chunk", `${CHUNKED}1\r\na\r0\r\n\r\n`],
    ["nothing behind a chunk", `${CHUNKED}1\r\na0\r\n\r\n`],
  ]),
  ...refused("RFC 9112 §7.1: sizes of chunks beyond the range of integers", [
    ["a size of 13 digits", `${CHUNKED}0000000000001\r\na\r\n0\r\n\r\n`, `${READ} {a}`],
    ["a size of 14 digits", `${CHUNKED}00000000000001\r\na\r\n`],
    ["a size of 2^64 + 1", `${CHUNKED}10000000000000001\r\na\r\n0\r\n\r\n`],
    ["a size of 2^32", `${CHUNKED}100000000\r\na`, [], "waits"],
  ]),
  ...refused("RFC 9112 §7.1.1: chunk extensions are ignored", [
    ["extensions", `${CHUNKED}1;a;b=c;d="e \\" \xe9"\r\na\r\n0;z\r\n\r\n`, `${READ} {a}`],
    ["an extension without a name", `${CHUNKED}1;\r\na\r\n`],
    ["an extension without a value", `${CHUNKED}1;a=\r\na\r\n`],
    ["a space before an extension", `${CHUNKED}1 ;a\r\na\r\n`],
    ["a space behind the semicolon", `${CHUNKED}1; a\r\na\r\n`],
    ["quotes that are not closed", `${CHUNKED}1;a="b\r\na\r\n`],
    ["something behind quotes", `${CHUNKED}1;a="b"c\r\na\r\n`],
    ["CR alone in an extension", `${CHUNKED}1;a=b\rc\r\na\r\n`],
    ["CR alone in quotes", `${CHUNKED}1;a="b\rc"\r\na\r\n`],
    ["LF alone behind an extension", `${CHUNKED}1;a\na\r\n`],
    ["a line break in quotes", `${CHUNKED}1;a="\r\n0\r\n\r\nGET / HTTP/1.1\r\n"\r\n`],
    ["NUL in an extension", `${CHUNKED}1;a\0\r\na\r\n`],
  ]),
  ...refused("RFC 9112 §7.1.1: a bounded length of chunk extensions", [
    ["a line of 1024 bytes", `${CHUNKED}1;${"a".repeat(1021)}\r\na\r\n0\r\n\r\n`, `${READ} {a}`],
    ["a line of more", `${CHUNKED}1;${"a".repeat(1024)}\r\na\r\n`],
    ["a line without end", `${CHUNKED}1;${"a".repeat(1100)}`],
    ["8 KiB in all", CHUNKED + `1;${"a".repeat(510)}\r\na\r\n`.repeat(16) + "0\r\n\r\n", `${READ} {${"a".repeat(16)}}`],
    ["more than 8 KiB in all", CHUNKED + `1;${"a".repeat(510)}\r\na\r\n`.repeat(16) + "1;a\r\na\r\n"],
  ]),
  ...refused("RFC 9110 §6.5.1: no framing in trailers", [
    [
      "trailers",
      `${CHUNKED}1\r\na\r\n0\r\nX-A: \t b \r\nx-a:c\r\nHost: d\r\n\r\n${get()}`,
      [`${READ} {a} <X-A|b|x-a|c|Host|d>`, "GET / 1.1 Host|h"],
    ],
    ...["Content-Length: 4", "TRANSFER-ENCODING: chunked", "connection: x, Close", "Proxy-Connection: close"].map(
      (line): Row => [`${line} as a trailer`, `${CHUNKED}0\r\nX-A: b\r\n${line}\r\n\r\n`],
    ),
  ]),
  ...refused("RFC 9112 §7.1.2: trailers have the form of fields", [
    ["a folded trailer", `${CHUNKED}0\r\nX-A: b\r\n c\r\n\r\n`],
    ["a space before a trailer's colon", `${CHUNKED}0\r\nX-A : b\r\n\r\n`],
    ["LF alone behind a trailer", `${CHUNKED}0\r\nX-A: b\n\r\n`],
    ["LF alone behind all trailers", `${CHUNKED}0\r\nX-A: b\r\n\n`],
    ["CR alone in a trailer", `${CHUNKED}0\r\nX-A: b\rc\r\n\r\n`],
    ["CR alone behind all trailers", `${CHUNKED}0\r\n\rX`],
    ["NUL in a trailer", `${CHUNKED}0\r\nX-A: \0\r\n\r\n`],
    ["a trailer without a name", `${CHUNKED}0\r\n: b\r\n\r\n`],
    ["data behind the last chunk", `${CHUNKED}0\r\nGET / HTTP/1.1\r\n\r\n`],
  ]),
  ...rows("RFC 6585 §5: trailers that are too large", "headers_too_large", [
    [
      "trailers of 16 KiB",
      `${CHUNKED}0\r\n${`A: ${"b".repeat(1019)}\r\n`.repeat(16)}\r\n`,
      `${READ} <${Array.from({ length: 16 }, () => `A|${"b".repeat(1019)}`).join("|")}>`,
    ],
    ["trailers of more than 16 KiB", `${CHUNKED}0\r\n${`A: ${"b".repeat(1019)}\r\n`.repeat(16)}A: b\r\n`],
    ["a trailer of more than 16 KiB that has no end yet", `${CHUNKED}0\r\nA: ${"b".repeat(16_400)}`],
  ]),
  ...refused("RFC 9112 §8: incomplete requests", [
    ["a body that has not ended", `${CHUNKED}1\r\na\r\n0\r\n`, [], "waits"],
    ["a body of which some is missing", `${post("Content-Length: 5")}half`, [], "waits"],
    ["a head that has not ended", "GET / HTTP/1.1\r\nHost: h\r\n", [], "waits"],
    ["nothing", "", []],
  ]),
  ...refused("RFC 9112 §9.3: which connections persist", [
    ["HTTP/1.0", head("GET / HTTP/1.0", "Host: h") + get(), "GET / 1.0 Host|h", "last"],
    [
      "HTTP/1.0 that keeps its connection",
      head("GET / HTTP/1.0", "Connection: Keep-Alive") + get(),
      ["GET / 1.0 Connection|Keep-Alive", "GET / 1.1 Host|h"],
    ],
    [
      "HTTP/1.0 that keeps its connection with a parameter",
      head("GET / HTTP/1.0", "Connection: keep-alive;a") + get(),
      "GET / 1.0 Connection|keep-alive;a",
      "last",
    ],
    [
      "HTTP/1.0 that does and does not",
      head("GET / HTTP/1.0", "Connection: keep-alive, close") + get(),
      "GET / 1.0 Connection|keep-alive, close",
      "last",
    ],
    [
      "HTTP/1.0 with a body",
      head("POST / HTTP/1.0", "Content-Length: 1") + "a",
      "POST / 1.0 Content-Length|1 {a}",
      "last",
    ],
    ["Connection: close", get("Connection: Close") + get(), "GET / 1.1 Host|h|Connection|Close", "last"],
    [
      "close among others",
      get("Connection: x", "Connection: y , close") + get(),
      "GET / 1.1 Host|h|Connection|x|Connection|y , close",
      "last",
    ],
    [
      "Proxy-Connection: close, which some take for Connection",
      get("Proxy-Connection: x, Close") + get(),
      "GET / 1.1 Host|h|Proxy-Connection|x, Close",
      "last",
    ],
    [
      "Proxy-Connection: keep-alive",
      get("Proxy-Connection: keep-alive") + get(),
      ["GET / 1.1 Host|h|Proxy-Connection|keep-alive", "GET / 1.1 Host|h"],
    ],
    ["keep-alive", get("Connection: keep-alive"), "GET / 1.1 Host|h|Connection|keep-alive"],
  ]),
  ...refused("RFC 9112 §9.6: no request behind the last one of a connection", [
    ["garbage behind the last request", get("Connection: close") + "\0\0", "GET / 1.1 Host|h|Connection|close", "last"],
    [
      "garbage behind the body of the last request",
      post("Connection: close", "Content-Length: 1") + "a\0",
      "POST / 1.1 Host|h|Connection|close|Content-Length|1 {a}",
      "last",
    ],
    ["a request behind one that is refused", post("Content-Length: x") + get()],
  ]),
  ...refused("RFC 9110 §10.1.1: Expect: 100-continue, and none in HTTP/1.0", [
    [
      "Expect: 100-continue",
      post("Expect: 100-Continue", "Content-Length: 1") + "a",
      "POST / 1.1 Host|h|Expect|100-Continue|Content-Length|1 {a}",
    ],
    [
      "any expectation in HTTP/1.0",
      head("POST / HTTP/1.0", "Expect: x", "Content-Length: 1") + "a",
      "POST / 1.0 Expect|x|Content-Length|1 {a}",
      "last",
    ],
  ]),
  ...rows("RFC 9110 §10.1.1: any other expectation", "expectation_failed", [
    ["another expectation", post("Expect: 200-ok")],
    ["two expectations", post("Expect: 100-continue", "Expect: 100-continue")],
    ["an empty expectation", post("Expect:")],
  ]),
  ...refused("RFC 9110 §7.8: upgrades", [
    [
      "a WebSocket and what is sent behind its request",
      get(...UPGRADE) + "\x81\x00GET ",
      "GET / 1.1 Host|h|Connection|Upgrade|Upgrade|websocket",
      "upgraded \x81\x00GET ",
    ],
    [
      "a WebSocket in HTTP/1.0",
      head("GET / HTTP/1.0", "Connection: Upgrade, keep-alive", "Upgrade: websocket") + get(),
      ["GET / 1.0 Connection|Upgrade, keep-alive|Upgrade|websocket", "GET / 1.1 Host|h"],
    ],
    [
      "a WebSocket that Connection does not name",
      get("Upgrade: websocket") + get(),
      ["GET / 1.1 Host|h|Upgrade|websocket", "GET / 1.1 Host|h"],
    ],
    ["a tab behind Connection", get("Connection: upgrade \t", "Upgrade: websocket")],
    ["a tab behind Upgrade", get("Connection: upgrade", "Upgrade: websocket\t ")],
    [
      "a tab in a list of Connection",
      get("Connection: x, upgrade\t, y", "Upgrade: websocket") + get(),
      ["GET / 1.1 Host|h|Connection|x, upgrade\t, y|Upgrade|websocket", "GET / 1.1 Host|h"],
    ],
    [
      "an upgrade with a space in its name",
      get("Connection: up grade, upgrade;a", "Upgrade: websocket") + get(),
      ["GET / 1.1 Host|h|Connection|up grade, upgrade;a|Upgrade|websocket", "GET / 1.1 Host|h"],
    ],
    [
      "an upgrade with a parameter",
      get("Connection: upgrade;a", "Upgrade: websocket") + get(),
      ["GET / 1.1 Host|h|Connection|upgrade;a|Upgrade|websocket", "GET / 1.1 Host|h"],
    ],
    [
      "an upgrade before a space of Latin-1",
      get("Connection: upgrade\xa0", "Upgrade: websocket") + get(),
      ["GET / 1.1 Host|h|Connection|upgrade\xa0|Upgrade|websocket", "GET / 1.1 Host|h"],
    ],
    [
      "h2c",
      get("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAM") + get(),
      ["GET / 1.1 Host|h|Connection|Upgrade, HTTP2-Settings|Upgrade|h2c|HTTP2-Settings|AAM", "GET / 1.1 Host|h"],
    ],
    [
      "h2c with a body",
      post("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 1") + "a" + get(),
      ["POST / 1.1 Host|h|Connection|Upgrade|Upgrade|h2c|Content-Length|1 {a}", "GET / 1.1 Host|h"],
    ],
    [
      "a WebSocket with an empty body",
      get(...UPGRADE, "Content-Length: 0") + "x",
      "GET / 1.1 Host|h|Connection|Upgrade|Upgrade|websocket|Content-Length|0",
      "upgraded x",
    ],
    ["a WebSocket with a body", get(...UPGRADE, "Content-Length: 1") + "a"],
    ["a WebSocket with a chunked body", get(...UPGRADE, "Transfer-Encoding: chunked") + "0\r\n\r\n"],
  ]),
  ...refused("RFC 9112 §9.3.2: pipelined requests", [
    [
      "three requests",
      get() + post("Content-Length: 2") + "ok" + get(),
      ["GET / 1.1 Host|h", "POST / 1.1 Host|h|Content-Length|2 {ok}", "GET / 1.1 Host|h"],
    ],
    ["a request before garbage", get() + "garbage\r\n\r\n", "GET / 1.1 Host|h", "refused bad_request"],
  ]),
  ...rows(
    "RFC 9110 §15.5.15: a target that is too long",
    "uri_too_long",
    [
      [
        "a target of the bound",
        head(`GET /${"a".repeat(19)} HTTP/1.1`, "Host: h"),
        `GET /${"a".repeat(19)} 1.1 Host|h`,
      ],
      ["a target beyond the bound", head(`GET /${"a".repeat(20)} HTTP/1.1`, "Host: h")],
      ["a target beyond the bound that has not ended", `GET /${"a".repeat(20)}`],
      ["a target beyond all bounds", `GET /${"a".repeat(500)}`],
    ],
    { maxUriBytes: 20, maxHeaderBytes: 100 },
  ),
  ...rows(
    "RFC 6585 §5: a head that is too large",
    "headers_too_large",
    [
      [
        "a head of the bound",
        head("GET / HTTP/1.1", "Host: h", `A: ${"b".repeat(32)}`),
        `GET / 1.1 Host|h|A|${"b".repeat(32)}`,
      ],
      ["a head beyond the bound", head("GET / HTTP/1.1", "Host: h", `A: ${"b".repeat(33)}`)],
      [
        "a head beyond the bound that has not ended",
        head("GET / HTTP/1.1", "Host: h").slice(0, -2) + `A: ${"b".repeat(37)}`,
      ],
      ["a name without end", head("GET / HTTP/1.1", "Host: h").slice(0, -2) + "A".repeat(100)],
      ["as many lines as fit", head("GET / HTTP/1.1", "Host: h", "a:", "b:"), "GET / 1.1 Host|h|a||b|"],
      ["a line too many", head("GET / HTTP/1.1", "Host: h", "a:", "b:", "c:")],
      ["a line too many before Host", head("GET / HTTP/1.1", "a:", "b:", "c:", "Host: h")],
      ["a line too many that has a length", head("POST / HTTP/1.1", "a:", "b:", "c:", "Content-Length: 1") + "a"],
    ],
    { maxHeaderBytes: 60, maxHeaders: 3 },
  ),
  ...rows(
    "RFC 6585 §5: of several faults, the first in the order of bytes",
    "bad_request",
    [
      ["a malformed line before the bound", head("GET / HTTP/1.1", "Host : h", `A: ${"b".repeat(100)}`)],
      [
        "a malformed line behind the bound",
        head("GET / HTTP/1.1", "Host: h", `A: ${"b".repeat(100)}`, "B : c"),
        [],
        "refused headers_too_large",
      ],
      ["an unknown method before the bound", head("FETCH / HTTP/1.1", `A: ${"b".repeat(100)}`)],
    ],
    { maxHeaderBytes: 60 },
  ),
  ...rows(
    "RFC 9110 §15.5.14: a body that is too large",
    "body_too_large",
    [
      ["a length of the bound", post("Content-Length: 4") + "good", "POST / 1.1 Host|h|Content-Length|4 {good}"],
      ["a length beyond the bound", post("Content-Length: 5") + "bad"],
    ],
    { maxBodyBytes: 4 },
  ),
];
