/**
 * Parses the responses of one HTTP/1 connection strictly: it refuses responses that two parsers could read in two ways.
 */
import { LONGEST_TIMER_MS } from "../base/clock.ts";
import { FIELD_LINE } from "../base/http_grammar.ts";
import { Pieces } from "../base/event_loop.ts";
import { BodyReader, NO_TRAILERS, type BodySink } from "../http/body_reader.ts";
import { connectionOptions, hasToken, MAX_CONNECTION_OPTIONS, nameSet, trimmed } from "../http/headers.ts";
import { TOO_MANY_OPTIONS, type ResponseHead } from "./heads.ts";

/** Receives the parsed parts in order. */
export interface ResponseSink extends BodySink {
  /** 100, 102, 103 and the like. */
  informed(head: ResponseHead): void;
  /** A 101 that names a protocol; `firstBytes` are the first bytes of that protocol. */
  switched(head: ResponseHead, firstBytes: Buffer): void;
  /**
   * `whole` is the body where its length is known and all of it has arrived with the head: `body` is not called then.
   */
  answered(head: ResponseHead, whole: Buffer | null): void;
  /**
   * The response is complete. "reusable": the connection can have another one; "spent": it cannot, or surplus bytes
   * have arrived.
   */
  ended(trailers: readonly string[], connection: "reusable" | "spent"): void;
}

/**
 * Node's default of 16 KiB, doubled: large cookies and policies are common in responses. Beyond it: 502
 * upstream_invalid.
 */
export const MAX_RESPONSE_HEAD_BYTES = 32 * 1024;

/** What a connection needs of a parser. */
export type AnyResponseParser = Pick<ResponseParser, "keepsFor" | "begin" | "feed" | "endOfConnection"> & {
  /** Frees what it holds. */
  close?(): void;
};

export class ResponseParser {
  /**
   * How long an idle connection is kept, by the last response's `Keep-Alive: timeout=N`, in milliseconds; Infinity if
   * it names none.
   */
  keepsFor = Infinity;
  #state: "idle" | "head" | "body" = "idle";
  #sink: ResponseSink | null = null;
  #isHead = false;
  /** The beginning of a head or of a line whose end has not arrived. */
  #rest: Buffer | null = null;
  readonly #pieces = new Pieces();
  /** Bytes of an incomplete head that have been checked: neither its end nor a fault is in them. */
  #checked = 0;
  readonly #body = new BodyReader("drop");
  #isReusable = false;
  /** The position at which the last read ended. */
  #at = 0;

  // Of the present head; null or false if it has no such header.
  #length: string | null = null;
  #coding: string | null = null;
  #connection: string | null = null;
  #keepAlive = Infinity;
  #upgrades = false;

  /** The response to a request with `method` comes next. */
  begin(method: string, sink: ResponseSink): void {
    this.#state = "head";
    this.#checked = 0;
    this.#sink = sink;
    this.#isHead = method === "HEAD";
  }

  /**
   * Parses the bytes that have arrived, and keeps none of them; returns an error, or null. Must not be called after an
   * error.
   */
  feed(chunk: Buffer): string | null {
    if (this.#rest !== null) {
      chunk = this.#pieces.joined(this.#rest, chunk);
      this.#rest = null;
    }
    const invalid = this.#read(chunk);
    if (this.#rest === null) this.#pieces.forget();
    return invalid;
  }

  #read(chunk: Buffer): string | null {
    let at = 0;
    while (at < chunk.length) {
      if (this.#state === "head") {
        const invalid = this.#readHead(chunk, at);
        if (invalid !== null) return invalid === UNFINISHED ? null : invalid;
        at = this.#at;
      } else if (this.#state === "body") {
        const end = this.#body.read(chunk, at, this.#sink!);
        if (end < 0) return this.#body.fault;
        if (this.#body.isOver) this.#end(end < chunk.length);
        else if (end < chunk.length) return this.#keep(chunk, end);
        at = end;
      } else {
        // After a response: `ended` has reported that the connection is spent.
        return null;
      }
    }
    return null;
  }

  /** The connection has ended in good order; returns whether that is the end of the response. */
  endOfConnection(): boolean {
    if (this.#state !== "body" || !this.#body.isUntilClose) return false;
    this.#isReusable = false;
    this.#body.end();
    this.#end(false);
    return true;
  }

  #keep(chunk: Buffer, at: number): null {
    this.#rest = this.#pieces.owned(chunk.subarray(at));
    return null;
  }

  #readHead(chunk: Buffer, at: number): string | null {
    let text = "";
    let end = -1;
    // Most heads are short and arrive whole: most of a body behind one is not decoded.
    if (this.#checked === 0) {
      text = chunk.toString("latin1", at, Math.min(chunk.length, at + USUAL_HEAD_BYTES));
      end = text.indexOf("\r\n\r\n");
    }
    if (end < 0) {
      end = chunk.indexOf(HEAD_END, at + Math.max(0, this.#checked - 3)) - at;
      if (end < 0 || end + 4 > MAX_RESPONSE_HEAD_BYTES) return this.#awaitHead(chunk, at);
      text = chunk.toString("latin1", at, at + end + 4);
    } else if (text.length > end + 4) text = text.slice(0, end + 4);
    this.#checked = 0;
    if (!HEAD.test(text)) return "the head of the response is malformed";
    this.#at = at + end + 4;
    const firstEnd = text.indexOf("\r\n");
    const isOld = text.charCodeAt(7) === 0x30;
    const headers: string[] = [];
    const invalid = this.#readFields(text, firstEnd + 2, headers) ?? this.#framingFault(isOld);
    if (invalid !== null) return invalid;
    const status = (text.charCodeAt(9) - 48) * 100 + (text.charCodeAt(10) - 48) * 10 + text.charCodeAt(11) - 48;
    const statusMessage = firstEnd > 12 ? text.slice(13, firstEnd) : "";
    const head: ResponseHead = {
      statusCode: status,
      statusMessage,
      httpVersion: isOld ? "1.0" : "1.1",
      rawHeaders: headers,
    };
    if (status >= 200) return this.#beginBody(head, chunk);
    return status === 101 ? this.#switch(head, chunk) : this.#inform(head);
  }

  /** Checks what has arrived of a head since it was last checked. */
  #awaitHead(chunk: Buffer, at: number): string {
    const length = chunk.length - at;
    if (length >= MAX_RESPONSE_HEAD_BYTES)
      return `the head of the response has more than ${MAX_RESPONSE_HEAD_BYTES} bytes`;
    const isBeginning = START.startsWith(chunk.toString("latin1", at, at + Math.min(length, START.length)));
    // With the byte before them, which may be a CR.
    const added = chunk.toString("latin1", at + Math.max(0, this.#checked - 1));
    if (!isBeginning || BARE_CR_OR_LF.test(added)) return "the upstream did not answer in HTTP/1.1";
    this.#checked = length;
    this.#keep(chunk, at);
    return UNFINISHED;
  }

  /** Of a head that `HEAD` matches. */
  #readFields(text: string, from: number, headers: string[]): string | null {
    this.#length = this.#coding = this.#connection = null;
    this.#keepAlive = Infinity;
    this.#upgrades = false;
    for (let at = from, last = text.length - 2; at < last;) {
      const colon = text.indexOf(":", at);
      const end = text.indexOf("\r\n", colon);
      const name = text.slice(at, colon);
      const value = trimmed(text, colon + 1, end);
      headers.push(name, value);
      at = end + 2;
      switch (KNOWN.get(name)) {
        case "upgrade":
          this.#upgrades = true;
          break;
        case "connection":
          this.#connection = this.#connection === null ? value : `${this.#connection},${value}`;
          break;
        case "keep-alive":
          this.#keepAlive = keepAliveMs(value);
          break;
        case "content-length":
          if (this.#length !== null) return "the upstream sent more than one Content-Length";
          this.#length = value;
          break;
        case "transfer-encoding":
          if (this.#coding !== null) return "the upstream used a transfer coding other than chunked";
          this.#coding = value;
      }
    }
    return null;
  }

  #framingFault(isOld: boolean): string | null {
    const length = this.#length;
    if (this.#connection !== null && connectionOptions(this.#connection) > MAX_CONNECTION_OPTIONS)
      return TOO_MANY_OPTIONS;
    if (this.#coding !== null) {
      // The client would get the coded body without the name of its coding (RFC 9112 §6.1).
      if (this.#coding.toLowerCase() !== "chunked") return "the upstream used a transfer coding other than chunked";
      if (length !== null) return "the upstream sent both Content-Length and Transfer-Encoding";
      if (isOld) return "the upstream used a transfer coding with HTTP/1.0";
    }
    return length === null || LENGTH.test(length)
      ? null
      : "the upstream's Content-Length is no plain number below 10^15";
  }

  #inform(head: ResponseHead): string | null {
    // The connection must end after it: no response can follow.
    if (head.httpVersion === "1.0" || this.#hasOption("close"))
      return "the upstream sent an informational response and no other";
    this.#sink!.informed(head);
    return null;
  }

  #switch(head: ResponseHead, chunk: Buffer): string | null {
    if (!this.#upgrades || !this.#hasOption("upgrade")) return "the upstream answered with status 101";
    this.#state = "idle";
    const firstBytes = chunk.subarray(this.#at);
    this.#at = chunk.length;
    this.#sink!.switched(head, firstBytes);
    return null;
  }

  #beginBody(head: ResponseHead, chunk: Buffer): null {
    const status = head.statusCode;
    const length = this.#length === null ? null : Number(this.#length);
    const isChunked = this.#coding !== null;
    this.keepsFor = this.#keepAlive;
    this.#isReusable = (head.httpVersion === "1.1" || this.#hasOption("keep-alive")) && !this.#hasOption("close");
    // A 204 must not announce a body (RFC 9112 §6.1, §6.2). A body that arrives all the same would begin the next
    // response.
    if (status === 204 && (isChunked || (length !== null && length > 0))) this.#isReusable = false;
    const isBare = this.#isHead || status === 204 || status === 304 || (!isChunked && length === 0);
    const from = this.#at;
    const end = isBare ? from : isChunked || length === null ? Infinity : from + length;
    if (end <= chunk.length) {
      this.#at = end;
      this.#sink!.answered(head, isBare ? null : chunk.subarray(from, end));
      this.#end(end < chunk.length, NO_TRAILERS);
    } else {
      this.#state = "body";
      this.#body.begin(isChunked ? "chunked" : (length ?? "until close"));
      this.#sink!.answered(head, null);
    }
    return null;
  }

  #hasOption(option: string): boolean {
    return this.#connection !== null && hasToken(this.#connection, option);
  }

  #end(isSurplus: boolean, trailers = this.#body.trailers): void {
    const sink = this.#sink!;
    this.#state = "idle";
    this.#sink = null;
    sink.ended(trailers, this.#isReusable && !isSurplus ? "reusable" : "spent");
  }
}

const KNOWN = nameSet(["upgrade", "connection", "keep-alive", "content-length", "transfer-encoding"]);
const UNFINISHED = "unfinished";
const HEAD_END = Buffer.from("\r\n\r\n");

const START = "HTTP/1.";
const USUAL_HEAD_BYTES = 1024;

/**
 * RFC 9112 §2.2, §4, §5 without their leniency: no bare CR or LF, no folding, no space before a colon, no control
 * characters. A reason phrase that cannot be passed on is left out by `replyOf`.
 */
const HEAD = new RegExp(String.raw`^HTTP/1\.[01] [1-9]\d\d(?: [^\r\n]*)?\r\n(?:${FIELD_LINE})*\r\n$`);
const BARE_CR_OR_LF = /[^\r]\n|\r[^\n]/;
/** So few digits that arithmetic stays exact. */
const LENGTH = /^\d{1,15}$/;

/**
 * A second less than the upstream states: a request sent at the last moment would meet a connection that is being
 * closed.
 */
export function keepAliveMs(value: string): number {
  const hint = KEEP_ALIVE_TIMEOUT.exec(value);
  return hint === null ? Infinity : Math.min(Math.max(0, Number(hint[1]) * 1000 - 1000), LONGEST_TIMER_MS);
}

const KEEP_ALIVE_TIMEOUT = /^timeout=(\d{1,9})(?!\d)/;
