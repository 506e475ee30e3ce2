/**
 * Reads HTTP/1 requests from the bytes of one connection (RFC 9112), without any of the leniency the RFC permits: a request that two
 * readers could understand differently is refused. Answering requests is `client_connection.ts`.
 *
 * ```
 *          request line and fields            body, if any
 *   head ───────────────────────────► body ──────────────────► over ── next() ──► head
 *     └──────────── fault ────────────┴──► nothing is read after a fault
 * ```
 */
import http from "node:http";
import type { ErrorCode } from "../base/errors.ts";
import { BodyReader, trimmed, type BodySink } from "../http/body_reader.ts";
import type { HeaderList } from "../http/headers.ts";
import { readFraming } from "./framing.ts";
import type { Limits } from "./limits.ts";
import type { RequestHead } from "./receive.ts";

/** Why a request is not valid HTTP/1.1; the connection cannot be read any further. */
export interface ParseFault {
  readonly code: ErrorCode;
  /** For the log. */
  readonly message: string;
}

export interface RequestSink extends BodySink {
  /** A request head has been read. `whole` is the body where all of it has arrived with the head. */
  head(head: RequestHead, whole: Buffer | null): void;
  /** The request has been read to its end. Not called where `head` was given the whole body, or where there is none. */
  ended(): void;
}

export type HeadLimits = Pick<Limits, "maxHeaderBytes" | "maxUriBytes">;

export class RequestParser {
  fault: ParseFault | null = null;
  readonly #sink: RequestSink;
  #state: "head" | "body" | "over" = "head";
  readonly #body = new BodyReader();
  /** Bytes of an incomplete head that have been searched for its end. */
  #searched = 0;
  #hasSkippedLine = false;

  constructor(sink: RequestSink) {
    this.#sink = sink;
  }

  /** True between two requests, and before the first. */
  get isOver(): boolean {
    return this.#state === "over";
  }

  /** True while the head of a request is awaited or incomplete. */
  get isInHead(): boolean {
    return this.#state === "head";
  }

  get #isInBody(): boolean {
    return this.#state === "body";
  }

  /** Trailers of a chunked request; complete once it is over. */
  get trailers(): HeaderList {
    return this.#body.trailers;
  }

  /** Reads the next request. */
  next(): void {
    this.#state = "head";
    this.#searched = 0;
    this.#hasSkippedLine = false;
  }

  /** Ends the request without reading the rest of it: what follows is not HTTP/1. */
  stop(): void {
    this.#state = "over";
  }

  /**
   * Reads one request and returns how many bytes it used: up to the end of the request, of `chunk`, or up to a part that is incomplete and
   * has to be passed again together with what follows. Returns -1 after a fault. Never holds on to `chunk`.
   */
  read(chunk: Buffer, limits: HeadLimits): number {
    let at = 0;
    if (this.#state === "head") {
      at = this.#readHead(chunk, limits);
      if (at < 0) return at;
    }
    if (!this.#isInBody) return at;
    const end = this.#body.read(chunk, at, this.#sink);
    if (end < 0) return this.#refuse(this.#body.isTooLong ? "headers_too_large" : "bad_request", this.#body.fault!);
    if (this.#body.isOver) {
      this.#state = "over";
      this.#sink.ended();
    }
    return end;
  }

  #readHead(chunk: Buffer, limits: HeadLimits): number {
    let at = 0;
    // A client may send one empty line before a request (RFC 9112 §2.2).
    if (chunk[0] === CR && !this.#hasSkippedLine) {
      if (chunk.length === 1) return 0;
      if (chunk[1] !== LF) return this.#refuse("bad_request", "a line ends with CR alone");
      this.#hasSkippedLine = true;
      at = 2;
      if (chunk.length === 2) return at;
    }
    let text = "";
    let end = -1;
    if (this.#searched === 0) {
      // Most heads are short; the body behind them need not be decoded.
      text = chunk.toString("latin1", at, Math.min(chunk.length, at + USUAL_HEAD_BYTES));
      end = text.indexOf(HEAD_END);
    }
    if (end < 0) {
      const found = chunk.indexOf(HEAD_END, at + Math.max(0, this.#searched - HEAD_END.length));
      const length = (found < 0 ? chunk.length : found) - at;
      if (length > limits.maxHeaderBytes) return this.#refuseLong(chunk.toString("latin1", at, at + limits.maxHeaderBytes), limits);
      if (found < 0) return this.#keepReading(chunk, at, limits);
      text = chunk.toString("latin1", at, found + HEAD_END.length);
      end = found - at;
    }
    if (end > limits.maxHeaderBytes) return this.#refuseLong(text.slice(0, limits.maxHeaderBytes), limits);
    if (text.length > end + HEAD_END.length) text = text.slice(0, end + HEAD_END.length);
    if (!HEAD.test(text)) return this.#refuse("bad_request", whyMalformed(text));
    const head = readFields(text);
    if (!METHODS.has(head.method)) return this.#refuse("bad_request", "the method is unknown");
    return this.#begin(head, chunk, at + end + HEAD_END.length);
  }

  /** The body begins at `at`. */
  #begin(head: RequestHead, chunk: Buffer, at: number): number {
    const { bodyLength, refusal } = head.framing;
    // Where the framing is in doubt, so is the start of the next request: nothing more is read.
    if (refusal !== null || bodyLength === 0) {
      this.#state = "over";
      this.#sink.head(head, null);
      return at;
    }
    if (bodyLength !== "chunked" && chunk.length - at >= bodyLength) {
      this.#state = "over";
      this.#sink.head(head, chunk.subarray(at, at + bodyLength));
      return at + bodyLength;
    }
    this.#state = "body";
    this.#body.begin(bodyLength);
    this.#sink.head(head, null);
    return at;
  }

  /** An incomplete head: refused as soon as it is known to be malformed or too long. */
  #keepReading(chunk: Buffer, at: number, limits: HeadLimits): number {
    const isFirst = this.#searched === 0;
    this.#searched = chunk.length - at;
    const text = chunk.toString("latin1", at, Math.min(chunk.length, at + limits.maxUriBytes + LONGEST_METHOD + LINE_REST));
    const line = text.indexOf("\n");
    if (line < 0) {
      if (!LINE_BEGINNING.test(text)) return this.#refuse("bad_request", "this is not an HTTP/1.1 request line");
      if (text.length > limits.maxUriBytes + LONGEST_METHOD + LINE_REST - 1) return this.#refuseLong(text, limits);
    } else if (isFirst && !REQUEST_LINE.test(text.slice(0, line + 1))) return this.#refuse("bad_request", "this is not an HTTP/1.1 request line");
    return at;
  }

  #refuseLong(text: string, { maxUriBytes }: HeadLimits): number {
    const line = text.indexOf("\n");
    const isLine = line < 0 ? LINE_BEGINNING.test(text) : REQUEST_LINE.test(text.slice(0, line + 1));
    if (!isLine) return this.#refuse("bad_request", "this is not an HTTP/1.1 request line");
    const isTarget = (line < 0 ? text.length : line) > maxUriBytes;
    return isTarget ? this.#refuse("uri_too_long", "the request target is too long") : this.#refuse("headers_too_large", "the head is too large");
  }

  #refuse(code: ErrorCode, message: string): number {
    this.fault = { code, message };
    return -1;
  }
}

const CR = 0x0d;
const LF = 0x0a;
const HEAD_END = "\r\n\r\n";
const USUAL_HEAD_BYTES = 1024;
/** Bytes of a request line beside its method and target: two spaces, `HTTP/1.1`, CR LF. */
const LINE_REST = 12;

/** Those that node's own parser knows: a method that nobody has heard of is a mistake, or an attempt to confuse a reader. */
const METHODS: ReadonlySet<string> = new Set(http.METHODS);
const LONGEST_METHOD = Math.max(...http.METHODS.map(({ length }) => length));

/**
 * RFC 9112 §3, §5 without the leniency it permits: one space between the parts of the request line, CR LF at each line's end, no line folding
 * (§5.2), no white space before a colon (§5.1), no control characters in values (RFC 9110 §5.5), no version but HTTP/1.0 and HTTP/1.1. The
 * target is a path, a URL or `*` (§3.2); CONNECT's authority is refused with its method.
 */
const HEAD =
  /^(?:CONNECT [\x21-\x7e]+|[A-Z][A-Z-]* (?:\/[\x21-\x7e]*|\*|[A-Za-z][A-Za-z0-9+.-]*:\/\/[\x21-\x7e]*)) HTTP\/1\.[01]\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n$/;
const REQUEST_LINE = /^(?:CONNECT [\x21-\x7e]+|[A-Z][A-Z-]* (?:\/[\x21-\x7e]*|\*|[A-Za-z][A-Za-z0-9+.-]*:\/\/[\x21-\x7e]*)) HTTP\/1\.[01]\r\n$/;
/** Everything that a request line can begin with. */
const LINE_BEGINNING = /^(?:$|[A-Z][A-Z-]*(?:$| (?:$|[\x21-\x7e]+(?:$| (?:$|H$|HT$|HTT$|HTTP$|HTTP\/$|HTTP\/1$|HTTP\/1\.$|HTTP\/1\.[01]\r?$)))))/;

function whyMalformed(head: string): string {
  return REQUEST_LINE.test(head.slice(0, head.indexOf("\n") + 1)) ? "a header line is malformed" : "this is not an HTTP/1.1 request line";
}

/** The parts of a head that `HEAD` matches. */
function readFields(text: string): RequestHead {
  const methodEnd = text.indexOf(" ");
  const lineEnd = text.indexOf("\r\n");
  const httpVersion = text.charCodeAt(lineEnd - 1) === 0x30 ? "1.0" : "1.1";
  const headers: string[] = [];
  for (let at = lineEnd + 2, last = text.length - 2; at < last; ) {
    const colon = text.indexOf(":", at);
    const end = text.indexOf("\r\n", colon);
    headers.push(text.slice(at, colon), trimmed(text, colon + 1, end));
    at = end + 2;
  }
  const method = text.slice(0, methodEnd);
  return { method, target: text.slice(methodEnd + 1, lineEnd - 9), httpVersion, headers, framing: readFraming(method, headers, httpVersion, undefined) };
}
