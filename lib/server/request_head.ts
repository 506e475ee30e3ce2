/**
 * Reads HTTP/1 requests from the bytes of one connection (RFC 9112), without any of the leniency the RFC permits: the
 * grammar of a head, where its message ends, its host, and whether the connection persists (§3.2, §6, §9). A request
 * that two parsers could read in two ways is refused, and headers that could pose as the gateway's own are dropped.
 * HTTP/2 and Node's parser (`global.http1`) share the rules for headers.
 *
 * ```
 *          request line and fields            body, if any
 *   head ───────────────────────────► body ──────────────────► over ──► head
 *     └──────────── fault ────────────┴──► nothing is read after a fault
 * ```
 */
import http from "node:http";
import type { ErrorCode } from "../base/errors.ts";
import { FIELD_LINE, TOKEN_CHARACTERS } from "../base/http_grammar.ts";
import { BodyReader, type BodySink } from "../http/body_reader.ts";
import {
  connectionOptions,
  hasToken,
  isHopByHop,
  isHost,
  MAX_CONNECTION_OPTIONS,
  nameSet,
  plainConnection,
  sameName,
  trimmed,
  type HeaderList,
} from "../http/headers.ts";
import type { Limits } from "./limits.ts";

export interface RequestRefusal {
  readonly code: ErrorCode;
  readonly detail: string;
}

export interface Framing {
  readonly host: string | undefined;
  /** Bytes of the body; 0: there is none. */
  readonly bodyLength: number | "chunked";
  /** Whether the connection can have another request after this one, as far as the client says (RFC 9112 §9.3). */
  readonly isPersistent: boolean;
  /** What `Expect` asks for (RFC 9110 §10.1.1). */
  readonly expects: "nothing" | "continue" | "unknown";
  /** Whether the client asks for a WebSocket (RFC 6455 §4.1); other upgrades are ignored, as RFC 9110 §7.8 allows. */
  readonly upgrade: "websocket" | null;
  /** Whether there are headers to drop, see `isDropped`. */
  readonly dropsHeaders: boolean;
  /** Whether Connection may name headers to drop. */
  readonly namesHeaders: boolean;
  readonly refusal: RequestRefusal | null;
}

/** As `global.underscore_headers` says; undefined is "drop". */
export type Underscores = "drop" | "allow" | undefined;

/** The head of a request, whichever codec has read it. */
export interface RequestHead {
  readonly method: string;
  readonly target: string;
  readonly httpVersion: string;
  readonly headers: HeaderList;
  readonly framing: Framing;
}

export type RequestLine = Pick<RequestHead, "method" | "target" | "httpVersion">;

/** Gets the body of a request that has not arrived whole with its head. */
export interface RequestSink extends BodySink {
  /** The request has been read to its end. */
  ended(): void;
}

export class RequestParser {
  /** Why the connection cannot be read any further; the detail is for the log. */
  fault: RequestRefusal | null = null;
  /** What the last `read` has ended with: a head, or null; its reader takes it from here. */
  head: RequestHead | null = null;
  /** The body of that head where all of it has arrived; null: there is none, or it is for the sink. */
  whole: Buffer | null = null;
  readonly #sink: RequestSink;
  #state: "head" | "body" | "over" = "head";
  readonly #body = new BodyReader();
  #hasSkippedLine = false;
  /** Bytes of an incomplete head that have been checked, and the part of the head that they end in. */
  #checked = 0;
  #part = START;

  constructor(sink: RequestSink) {
    this.#sink = sink;
  }

  /** True between two requests, and before the first. */
  get isOver(): boolean {
    return this.#state === "over";
  }

  /** Trailers of a chunked request; complete once it is over. */
  get trailers(): HeaderList {
    return this.#body.trailers;
  }

  /**
   * Reads a head, or what has arrived of its body, and returns how many bytes it used, -1 after a fault. The others
   * have to be passed again, together with what follows.
   */
  read(chunk: Buffer, limits: Limits, underscores?: Underscores): number {
    if (this.#state === "over") {
      this.#state = "head";
      this.#hasSkippedLine = false;
      this.#checked = 0;
      this.#part = START;
    }
    return this.#state === "head" ? this.#readHead(chunk, limits, underscores) : this.#readBody(chunk);
  }

  #readBody(chunk: Buffer): number {
    const end = this.#body.read(chunk, 0, this.#sink);
    if (end < 0)
      return this.#refuse({
        code: this.#body.isTooLong ? "headers_too_large" : "bad_request",
        detail: this.#body.fault!,
      });
    if (this.#body.isOver) {
      this.#state = "over";
      this.#sink.ended();
    }
    return end;
  }

  #readHead(chunk: Buffer, limits: Limits, underscores: Underscores): number {
    let at = 0;
    // A client may send one empty line before a request (RFC 9112 §2.2).
    if (chunk[0] === CR && !this.#hasSkippedLine) {
      if (chunk.length === 1) return 0;
      if (chunk[1] !== LF) return this.#refuse(malformed("a line ends with CR alone"));
      this.#hasSkippedLine = true;
      at = 2;
    }
    if (this.#checked === 0) {
      // Most heads are valid and arrive whole: one regular expression checks them in half the time of a loop over the
      // bytes.
      const text = chunk.toString("latin1", at, Math.min(chunk.length, at + USUAL_HEAD_BYTES));
      HEAD.lastIndex = 0;
      const end = HEAD.test(text) && isKnownMethod(methodOf(text)) ? HEAD.lastIndex : Infinity;
      if (end <= limits.maxHeaderBytes + HEAD_END_BYTES)
        return this.#begin(readHead(text, end, limits, underscores), chunk, at + end);
    }
    return this.#readBytes(chunk, at, limits, underscores);
  }

  /**
   * Byte by byte from where it was last checked: the first byte that no valid head can have is the fault, whatever
   * pieces the head arrives in.
   */
  #readBytes(chunk: Buffer, at: number, limits: Limits, underscores: Underscores): number {
    const most = limits.maxHeaderBytes + HEAD_END_BYTES;
    const end = Math.min(chunk.length, at + most);
    let part = this.#part;
    let i = at + this.#checked;
    for (; i < end; i++) {
      const next = NEXT[part + chunk[i]!]!;
      if (next === part) continue;
      if (next === REFUSED)
        return this.#refuse(
          requestLineFault(chunk.subarray(at, i), limits) ?? (part <= REQUEST_LINE_END ? BAD_LINE : BAD_FIELD),
        );
      if (next === WHOLE) {
        const text = chunk.toString("latin1", at, i + 1);
        if (!isRequestLine(text)) return this.#refuse(requestLineFault(chunk.subarray(at, i), limits)!);
        return this.#begin(readHead(text, text.length, limits, underscores), chunk, i + 1);
      }
      part = next;
    }
    const lineFault = this.#part > REQUEST_LINE_END ? null : requestLineFault(chunk.subarray(at, i), limits);
    if (lineFault !== null) return this.#refuse(lineFault);
    if (i - at === most) return this.#refuse(LARGE_HEAD);
    this.#part = part;
    this.#checked = i - at;
    return at;
  }

  /** The body begins at `at`. */
  #begin(head: RequestHead, chunk: Buffer, at: number): number {
    this.head = head;
    const { bodyLength, refusal } = head.framing;
    // If the framing is ambiguous, so is the start of the next request: nothing more is read.
    const length = refusal === null ? bodyLength : 0;
    if (length === "chunked" || chunk.length - at < length) {
      this.#state = "body";
      this.#body.begin(length);
      return at;
    }
    this.#state = "over";
    if (length > 0) this.whole = chunk.subarray(at, at + length);
    return at + length;
  }

  #refuse(fault: RequestRefusal): number {
    this.fault = fault;
    return -1;
  }
}

const CR = 0x0d;
const LF = 0x0a;
const SPACE = 0x20;
const TAB = 0x09;
const HEAD_END_BYTES = 4;
const USUAL_HEAD_BYTES = 4096;

const BAD_LINE = malformed("this is not an HTTP/1.1 request line");
const LONG_TARGET: RequestRefusal = { code: "uri_too_long", detail: "the request target is too long" };
const BAD_FIELD = malformed("a header line is malformed");
const LARGE_HEAD: RequestRefusal = { code: "headers_too_large", detail: "the head is too large" };

/** Returns the error of a request line, or of its beginning; null if it is valid. */
export function requestLineFault(head: Buffer, { maxUriBytes }: Limits): RequestRefusal | null {
  const target = head.indexOf(SPACE) + 1;
  const targetEnd = target === 0 ? 0 : head.indexOf(SPACE, target);
  if ((targetEnd < 0 ? head.length : targetEnd) - target > maxUriBytes) return LONG_TARGET;
  const end = head.indexOf(LF);
  return end < 0 || isRequestLine(head.toString("latin1", 0, end + 1)) ? null : BAD_LINE;
}

/**
 * The request line of RFC 9112 §3: one space between its parts, a version of HTTP/1.0 or HTTP/1.1, and as the target a
 * path, a URL, or for OPTIONS `*` (§3.2). CONNECT's authority is refused with its method.
 */
const AUTHORITY = String.raw`(?:[\w.~%!$&'()*+,;=:-]*@)?[\w.~%!$&'()*+,;=:[\]-]*`;
const TARGET = String.raw`(?:/[\x21-\x7e]*|[A-Za-z]+://${AUTHORITY}(?:[/?][\x21-\x7e]*)?)`;
const LINE = String.raw`(?:[A-Z][A-Z-]* ${TARGET}|OPTIONS \*|CONNECT [\x21-\x7e]+) HTTP/1\.[01]\r\n`;
const REQUEST_LINE = new RegExp(`^${LINE}`);
/** A complete head. Every head that it matches, `GRAMMAR` accepts too. */
const HEAD = new RegExp(String.raw`${LINE}(?:${FIELD_LINE})*\r\n`, "y");
/** The methods that node's own parser accepts: an unknown method is a mistake, or a request smuggling attempt. */
const METHODS: ReadonlySet<string> = new Set(http.METHODS);

/** Whether this is a request line with its end. */
export function isRequestLine(text: string): boolean {
  return REQUEST_LINE.test(text) && isKnownMethod(methodOf(text));
}

/**
 * The request line of a head that could not be read as a whole, for the log, perhaps with an unknown method; null: it
 * has none, or not all of it.
 */
export function requestLineOf(head: Buffer): RequestLine | null {
  const from = head[0] === CR ? EMPTY_LINE_BYTES : 0;
  const line = head.toString("latin1", from, head.indexOf(LF, from) + 1);
  const isShown = REQUEST_LINE.test(line) && methodOf(line).length < LONGEST_METHOD_BYTES;
  return isShown ? readHead(line, line.length, NO_LINES, undefined) : null;
}

const EMPTY_LINE_BYTES = 2;
const LONGEST_METHOD_BYTES = 32;
const NO_LINES = { maxHeaders: 0 };

function methodOf(requestLine: string): string {
  return requestLine.slice(0, requestLine.indexOf(" "));
}

/** In HTTP/2 too: an upstream may know no more. */
export function isKnownMethod(method: string): boolean {
  return METHODS.has(method);
}

const PARTS = [
  "refused",
  "start",
  "method",
  "target",
  "version",
  "request line end",
  "line start",
  "name",
  "value",
  "line end",
  "head end",
  "whole",
] as const;
type Part = (typeof PARTS)[number];
const [REFUSED, START, REQUEST_LINE_END, WHOLE] = [row("refused"), row("start"), row("request line end"), row("whole")];

/** The offset of a part's row in `NEXT`; identifies the part. */
function row(part: Part): number {
  return PARTS.indexOf(part) * 256;
}

const NAME_BYTE = new RegExp(`[${TOKEN_CHARACTERS}]`);

/**
 * The bytes that may follow in each part of a head, and the part that these lead to (RFC 9112 §3, §5): CR LF at each
 * line's end, no line folding (§5.2), no white space before a colon (§5.1), no control characters in values (RFC 9110
 * §5.5).
 */
const GRAMMAR: readonly (readonly [part: Part, bytes: RegExp, next: Part])[] = [
  ["start", /[A-Z]/, "method"],
  ["method", /[A-Z-]/, "method"],
  ["method", / /, "target"],
  ["target", /[\x21-\x7e]/, "target"],
  ["target", / /, "version"],
  ["version", /[HTP/1.0]/, "version"],
  ["version", /\r/, "request line end"],
  ["request line end", /\n/, "line start"],
  ["line start", NAME_BYTE, "name"],
  ["line start", /\r/, "head end"],
  ["name", NAME_BYTE, "name"],
  ["name", /:/, "value"],
  ["value", /[\t\x20-\x7e\x80-\xff]/, "value"],
  ["value", /\r/, "line end"],
  ["line end", /\n/, "line start"],
  ["head end", /\n/, "whole"],
];
/** The row of the next part, at each byte in the row of a part. */
const NEXT = new Uint16Array(PARTS.length * 256);
for (const [part, bytes, next] of GRAMMAR) {
  for (let byte = 0; byte < 256; byte++) if (bytes.test(String.fromCharCode(byte))) NEXT[row(part) + byte] = row(next);
}

function hasTabBefore(text: string, end: number): boolean {
  for (let i = end - 1; text.charCodeAt(i) <= SPACE; i--) if (text.charCodeAt(i) === TAB) return true;
  return false;
}

/**
 * Some parsers read a tab after these values as a part of them, and so read another length, coding or upgrade than
 * other parsers.
 */
const NEVER_TABBED = new Set(["connection", "content-length", "transfer-encoding", "upgrade"]);
const TABBED = malformed("A header about the connection or the length of the body has a tab behind its value.");

/**
 * The parts of the well-formed head that ends at `end`. Header lines beyond `maxHeaders` are not read: the request is
 * refused for them.
 */
function readHead(
  text: string,
  end: number,
  { maxHeaders }: Pick<Limits, "maxHeaders">,
  underscores: Underscores,
): RequestHead {
  const method = methodOf(text);
  const lineEnd = text.indexOf("\r");
  const httpVersion = text.charCodeAt(lineEnd - 1) === 0x30 ? "1.0" : "1.1";
  const headers: string[] = [];
  let isTabbed = false;
  const last = end - 2;
  let at = lineEnd + 2;
  while (at < last && headers.length < maxHeaders * 2) {
    const colon = text.indexOf(":", at);
    // A search for one character is several times as fast as a search for two.
    const valueEnd = text.indexOf("\r", colon);
    const name = text.slice(at, colon);
    headers.push(name, trimmed(text, colon + 1, valueEnd));
    if (text.charCodeAt(valueEnd - 1) <= SPACE && hasTabBefore(text, valueEnd) && NEVER_TABBED.has(name.toLowerCase()))
      isTabbed = true;
    at = valueEnd + 2;
  }
  const framing = readFraming(method, headers, httpVersion, underscores);
  const target = text.slice(method.length + 1, lineEnd - 9);
  const refusal = at < last ? tooManyLines(maxHeaders) : isTabbed ? TABBED : null;
  return { method, target, httpVersion, headers, framing: refusal === null ? framing : { ...framing, refusal } };
}

type Value = string | undefined;

/** What the headers say of the message and its connection, in one pass over them. */
export function readFraming(
  method: string,
  headers: HeaderList,
  httpVersion: string,
  underscores?: Underscores,
): Framing {
  let host: Value;
  let hosts = 0;
  let length: Value;
  let coding: Value;
  let connection: Value;
  let upgrade: Value;
  let expect: Value;
  let proxyCloses = false;
  let dropsHeaders = false;
  let namesHeaders = false;
  let options = 0;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    const value = headers[i + 1]!;
    if (!dropsHeaders && isDropped(name, underscores)) dropsHeaders = true;
    switch (KNOWN.get(name)) {
      case "host":
        host = value;
        hosts++;
        break;
      case "expect":
        expect = joined(expect, value);
        break;
      case "upgrade":
        upgrade = joined(upgrade, value);
        break;
      case "connection":
        connection = joined(connection, value);
        options += connectionOptions(value);
        if (!plainConnection(value)) namesHeaders = true;
        break;
      case "content-length":
        length = length === undefined ? value : TWO;
        break;
      case "proxy-connection":
        // Not a standard header (RFC 9112 §C.2.2); parsers that know it ignore all bytes after this request.
        if (hasToken(value, "close")) proxyCloses = true;
        break;
      case "transfer-encoding":
        coding = coding === undefined ? value : TWO;
    }
  }
  const isOld = httpVersion === "1.0";
  const isCrowded = options > MAX_CONNECTION_OPTIONS;
  const bodyLength = coding !== undefined ? "chunked" : length === undefined ? 0 : Number(length);
  const asks =
    upgrade !== undefined && !isOld && method === "GET" && lists(upgrade, "websocket") && lists(connection, "upgrade");
  const refusedMethod = method === "CONNECT" ? NO_TUNNEL : asks && bodyLength !== 0 ? UPGRADE_WITH_BODY : null;
  return {
    host,
    bodyLength,
    isPersistent: proxyCloses
      ? false
      : connection === undefined
        ? !isOld
        : !hasToken(connection, "close") && (!isOld || lists(connection, "keep-alive")),
    expects:
      expect === undefined || isOld ? "nothing" : expect.toLowerCase() === "100-continue" ? "continue" : "unknown",
    upgrade: asks ? "websocket" : null,
    dropsHeaders,
    namesHeaders: namesHeaders && !isCrowded,
    refusal: isCrowded ? CROWDED : (refuseFraming(host, hosts, length, coding, isOld) ?? refusedMethod),
  };
}

const KNOWN = nameSet([
  "host",
  "expect",
  "upgrade",
  "connection",
  "content-length",
  "proxy-connection",
  "transfer-encoding",
]);

/** Stands for more than one value; refused as a value, too. */
const TWO = "two values";

/**
 * Whether a list holds exactly this token between spaces. Some readers see an upgrade in `upgrade;a` or before a tab:
 * to go on then is not safe.
 */
function lists(value: Value, lowerToken: string): boolean {
  if (value === undefined || !hasToken(value, lowerToken)) return false;
  return value
    .toLowerCase()
    .split(",")
    .some((part) => trimmed(part, 0, part.length) === lowerToken && !part.includes("\t"));
}

function joined(value: Value, more: string): string {
  return value === undefined ? more : `${value},${more}`;
}

function refuseFraming(
  host: Value,
  hosts: number,
  length: Value,
  coding: Value,
  isOld: boolean,
): RequestRefusal | null {
  if (hosts > 1) return malformed("The request has more than one Host header.");
  if (host === undefined && !isOld) return malformed("The request has no Host header.");
  if (host !== undefined && !isHost(host))
    return malformed("The Host header is not a host name with an optional port.");
  if (length === TWO) return malformed("The request has more than one Content-Length header.");
  if (length !== undefined && !PLAIN_LENGTH.test(length)) return BAD_LENGTH;
  if (coding === undefined) return null;
  if (length !== undefined) return malformed("The request has both Content-Length and Transfer-Encoding.");
  if (isOld) return malformed("An HTTP/1.0 request cannot have a Transfer-Encoding.");
  if (coding.toLowerCase() !== "chunked") return malformed("The only Transfer-Encoding accepted is chunked.");
  return null;
}

/** Digits that every parser reads as the same number: some read `0010` as eight, and 2^64 as no number. */
export const PLAIN_LENGTH = /^(?:0|[1-9]\d{0,14})$/;

export function malformed(detail: string): RequestRefusal {
  return { code: "bad_request", detail };
}

export const BAD_LENGTH = malformed("The Content-Length is not a plain number below 10^15.");
/** CONNECT asks for a tunnel, which only a forward proxy gives (RFC 9110 §9.3.6). */
export const NO_TUNNEL = malformed("The gateway is no forward proxy: CONNECT is not served.");
/** The bytes after an upgrade are of the other protocol; two parsers may disagree whether a body comes first. */
export const UPGRADE_WITH_BODY = malformed("A request for a WebSocket cannot have a body.");
const CROWDED = malformed(`A request may name ${MAX_CONNECTION_OPTIONS} options in Connection.`);

export function headTooLarge(maxHeaderBytes: number): RequestRefusal {
  const detail = `The request line and header fields may have at most ${maxHeaderBytes} bytes together.`;
  return { code: "headers_too_large", detail };
}

export function tooManyLines(maxHeaders: number): RequestRefusal {
  return { code: "headers_too_large", detail: `A request may have at most ${maxHeaders} header lines.` };
}

/**
 * Whether a header or trailer of a client is dropped on arrival, in every protocol: `Proxy`, which CGI programs take
 * for the setting HTTP_PROXY (CVE-2016-5385); `X-Client-Cert-…`, in which the gateway sends certificate data to
 * upstreams (`plugins/mtls.ts`); and names with "_", which CGI and many servers read as "-", so that `X_Forwarded_For`
 * poses as the gateway's. Where underscores are allowed, only names that do so.
 */
export function isDropped(name: string, underscores: Underscores): boolean {
  if (name.indexOf("_") < 0) return isForged(name);
  const read = name.replaceAll("_", "-");
  return underscores !== "allow" || isForged(read) || isHopByHop(read) || RESERVED.test(read);
}

/** The same list when nothing is dropped. */
export function withoutDropped(list: HeaderList, underscores: Underscores): HeaderList {
  const names = list.filter((_text, i) => i % 2 === 0);
  return names.some((name) => isDropped(name, underscores))
    ? list.filter((_text, i) => !isDropped(names[i >> 1]!, underscores))
    : list;
}

function isForged(name: string): boolean {
  if (name.length === 5) return sameName(name, "proxy");
  return (
    name.length > 13 && name.charCodeAt(13) === DASH && name.charCodeAt(8) === DASH && CERTIFICATE_HEADER.test(name)
  );
}

const DASH = 0x2d;
const CERTIFICATE_HEADER = /^x-client-cert-/i;
const RESERVED = /^(?:content-length|x-forwarded-.*|x-real-ip|x-request-id)$/i;
