/**
 * Reads HTTP/1 requests from the bytes of one connection (RFC 9112), without any of the leniency the RFC permits: a
 * request that two readers could understand differently is refused.
 *
 * ```
 *          request line and fields            body, if any
 *   head ───────────────────────────► body ──────────────────► over ── next() ──► head
 *     └──────────── fault ────────────┴──► nothing is read after a fault
 * ```
 */
import http from "node:http";
import { FIELD_LINE, TOKEN_CHARACTERS } from "../base/http_grammar.ts";
import { BodyReader, type BodySink } from "../http/body_reader.ts";
import { trimmed, type HeaderList } from "../http/headers.ts";
import { malformed, readFraming, tooManyLines, type Refusal, type Underscores } from "./framing.ts";
import type { Limits } from "./limits.ts";
import type { RequestHead } from "./inbound.ts";

export interface RequestSink extends BodySink {
  /** A request head has been read. `whole` is the body where all of it has arrived with the head. */
  head(head: RequestHead, whole: Buffer | null): void;
  /** The request has been read to its end. Not called where `head` was given the whole body, or where there is none. */
  ended(): void;
}

export class RequestParser {
  /** Why the connection cannot be read any further; the detail is for the log. */
  fault: Refusal | null = null;
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
   * Reads one request and returns how many bytes it used, -1 after a fault. The others have to be passed again,
   * together with what follows.
   */
  read(chunk: Buffer, limits: Limits, underscores?: Underscores): number {
    if (this.#state === "over") {
      this.#state = "head";
      this.#hasSkippedLine = false;
      this.#checked = 0;
      this.#part = START;
    }
    const at = this.#state === "head" ? this.#readHead(chunk, limits, underscores) : 0;
    return at >= 0 && this.#state === "body" ? this.#readBody(chunk, at) : at;
  }

  #readBody(chunk: Buffer, at: number): number {
    const end = this.#body.read(chunk, at, this.#sink);
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
      const end = HEAD.test(text) && hasKnownMethod(text) ? HEAD.lastIndex : Infinity;
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
    const { bodyLength, refusal } = head.framing;
    // If the framing is ambiguous, so is the start of the next request: nothing more is read.
    const length = refusal === null ? bodyLength : 0;
    if (length === "chunked" || chunk.length - at < length) {
      this.#state = "body";
      this.#body.begin(length);
      this.#sink.head(head, null);
      return at;
    }
    this.#state = "over";
    this.#sink.head(head, length === 0 ? null : chunk.subarray(at, at + length));
    return at + length;
  }

  #refuse(fault: Refusal): number {
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
const LONG_TARGET: Refusal = { code: "uri_too_long", detail: "the request target is too long" };
const BAD_FIELD = malformed("a header line is malformed");
const LARGE_HEAD: Refusal = { code: "headers_too_large", detail: "the head is too large" };

/** Returns the error of a request line, or of its beginning; null if it is valid. */
function requestLineFault(head: Buffer, { maxUriBytes }: Limits): Refusal | null {
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

function isRequestLine(text: string): boolean {
  return REQUEST_LINE.test(text) && hasKnownMethod(text);
}

function hasKnownMethod(requestLine: string): boolean {
  return METHODS.has(requestLine.slice(0, requestLine.indexOf(" ")));
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
function readHead(text: string, end: number, { maxHeaders }: Limits, underscores: Underscores): RequestHead {
  const methodEnd = text.indexOf(" ");
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
  const method = text.slice(0, methodEnd);
  const framing = readFraming(method, headers, httpVersion, underscores);
  const target = text.slice(methodEnd + 1, lineEnd - 9);
  const refusal = at < last ? tooManyLines(maxHeaders) : isTabbed ? TABBED : null;
  return { method, target, httpVersion, headers, framing: refusal === null ? framing : { ...framing, refusal } };
}
