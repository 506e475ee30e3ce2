/**
 * Reads the responses of one HTTP/1 connection, byte by byte and strictly: whatever two readers might read in two ways is refused. What
 * a response means, and who gets it, is `forward_wire.ts`.
 */
import { LONGEST_TIMER_MS } from "../base/clock.ts";
import { BodyReader, NO_TRAILERS, trimmed, type BodySink } from "../http/body_reader.ts";
import { connectionOptions, hasToken, MOST_CONNECTION_OPTIONS } from "../http/headers.ts";
import { CROWDED, type ResponseHead } from "./response_head.ts";

/** Hears of what comes, in the order in which it comes. */
export interface ResponseSink extends BodySink {
  /** 100, 102, 103 and the like. */
  informed(head: ResponseHead): void;
  /** A 101 that names a protocol; whatever comes behind it is no HTTP, and `behind` the first of it. */
  switched(head: ResponseHead, behind: Buffer): void;
  answered(head: ResponseHead): void;
  /**
   * The response is whole. "kept": the connection can have another one; "spent": it cannot, by what was said or because more came than was
   * asked for.
   */
  ended(trailers: readonly string[], connection: "kept" | "spent"): void;
}

/** Node's default of 16 KiB, doubled: large cookies and policies are common on the way back. Beyond it: 502 upstream_invalid. */
export const MAX_RESPONSE_HEAD_BYTES = 32 * 1024;

type State = "idle" | "head" | "body";

export class ResponseParser {
  /** For how long an idle connection is kept by the last response's `Keep-Alive: timeout=N`, in milliseconds; Infinity where it says nothing. */
  keepsFor = Infinity;
  #state: State = "idle";
  #sink: ResponseSink | null = null;
  #isHead = false;
  /** The beginning of a head or of a line whose end has not come. */
  #rest: Buffer | null = null;
  readonly #body = new BodyReader();
  #reusable = false;

  /** Whether a response is awaited or under way. */
  get isReading(): boolean {
    return this.#state !== "idle";
  }

  /** True while the sink receives the last bytes of a body of known length. */
  get isAtEnd(): boolean {
    return this.#body.isAtEnd;
  }

  /** One response comes next, and `sink` hears of it. */
  begin(method: string, sink: ResponseSink): void {
    this.#state = "head";
    this.#sink = sink;
    this.#isHead = method === "HEAD";
  }

  /** Takes what has come, and keeps none of it beyond the call; gives why it is no response, or null. Nothing may be fed after that. */
  feed(chunk: Buffer): string | null {
    if (this.#rest !== null) {
      chunk = Buffer.concat([this.#rest, chunk]);
      this.#rest = null;
    }
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
        // Behind the end of a response: `ended` has said that the connection is spent.
        return null;
      }
    }
    return null;
  }

  /** The connection has ended in good order: whether that is the end of the response. */
  endOfConnection(): boolean {
    if (this.#state !== "body" || !this.#body.isUntilClose) return false;
    this.#reusable = false;
    this.#body.end();
    this.#end(false);
    return true;
  }

  /** Where the last reading ended. */
  #at = 0;

  #keep(chunk: Buffer, at: number): null {
    this.#rest = Buffer.from(chunk.subarray(at));
    return null;
  }

  #readHead(chunk: Buffer, at: number): string | null {
    // Most heads are short: what stands behind one need not be looked at.
    let text = chunk.toString("latin1", at, Math.min(chunk.length, at + USUAL_HEAD_BYTES));
    let end = text.indexOf("\r\n\r\n");
    if (end < 0 && chunk.length - at > USUAL_HEAD_BYTES) {
      text = chunk.toString("latin1", at, Math.min(chunk.length, at + MAX_RESPONSE_HEAD_BYTES));
      end = text.indexOf("\r\n\r\n");
    }
    if (end < 0) {
      if (chunk.length - at >= MAX_RESPONSE_HEAD_BYTES) return `the head of the response has more than ${MAX_RESPONSE_HEAD_BYTES} bytes`;
      const isBeginning = text.length >= START.length ? text.startsWith(START) : START.startsWith(text);
      if (!isBeginning || STRAY.test(text)) return "the upstream did not answer in HTTP/1.1";
      this.#keep(chunk, at);
      return UNFINISHED;
    }
    if (text.length > end + 4) text = text.slice(0, end + 4);
    if (!HEAD.test(text)) return "the head of the response is malformed";
    this.#at = at + end + 4;
    return this.#takeHead(text, chunk);
  }

  /** What it says of itself: `HEAD` fits. */
  #takeHead(text: string, chunk: Buffer): string | null {
    const status = (text.charCodeAt(9) - 48) * 100 + (text.charCodeAt(10) - 48) * 10 + text.charCodeAt(11) - 48;
    const firstEnd = text.indexOf("\r\n");
    const headers: string[] = [];
    let length: string | null = null;
    let coding: string | null = null;
    let connection: string | null = null;
    let upgrades = false;
    let keepsFor = Infinity;
    for (let at = firstEnd + 2, last = text.length - 2; at < last; ) {
      const colon = text.indexOf(":", at);
      const end = text.indexOf("\r\n", colon);
      const name = text.slice(at, colon);
      const value = trimmed(text, colon + 1, end);
      headers.push(name, value);
      at = end + 2;
      switch (name.length) {
        case 7:
          if (name.toLowerCase() === "upgrade") upgrades = true;
          break;
        case 10: {
          const lower = name.toLowerCase();
          if (lower === "connection") connection = connection === null ? value : `${connection},${value}`;
          else if (lower === "keep-alive") keepsFor = keepAliveMs(value);
          break;
        }
        case 14:
          if (name.toLowerCase() !== "content-length") break;
          if (length !== null) return "the upstream gave more than one Content-Length";
          length = value;
          break;
        case 17:
          if (name.toLowerCase() !== "transfer-encoding") break;
          if (coding !== null) return "the upstream used a transfer coding other than chunked";
          coding = value;
      }
    }
    if (connection !== null && connectionOptions(connection) > MOST_CONNECTION_OPTIONS) return CROWDED;
    const isOld = text.charCodeAt(7) === 0x30;
    if (coding !== null) {
      // Passed on without the name of its coding, the body would be taken for what it is not (RFC 9112 §6.1).
      if (coding.toLowerCase() !== "chunked") return "the upstream used a transfer coding other than chunked";
      if (length !== null) return "the upstream gave both Content-Length and Transfer-Encoding";
      if (isOld) return "the upstream used a transfer coding with HTTP/1.0";
    }
    if (length !== null && !isLength(length)) return "the upstream's Content-Length is no plain number below 10^15";
    const head: ResponseHead = {
      statusCode: status,
      statusMessage: firstEnd > 12 ? text.slice(13, firstEnd) : "",
      httpVersion: isOld ? "1.0" : "1.1",
      rawHeaders: headers,
    };
    const sink = this.#sink!;
    if (status < 200) {
      if (status !== 101) {
        // The connection is to end behind it: what comes then is no answer.
        if (isOld || (connection !== null && hasToken(connection, "close"))) return "the upstream gave an informational response and no other";
        sink.informed(head);
        return null;
      }
      if (!upgrades || connection === null || !hasToken(connection, "upgrade")) return "the upstream answered with status 101";
      this.#state = "idle";
      sink.switched(head, chunk.subarray(this.#at));
      this.#at = chunk.length;
      return null;
    }
    this.keepsFor = keepsFor;
    this.#reusable = isOld ? connection !== null && hasToken(connection, "keep-alive") : true;
    if (connection !== null && hasToken(connection, "close")) this.#reusable = false;
    // A 204 must not speak of a body (RFC 9112 §6.1, §6.2). Whoever does may send it, too: it would be the beginning of the next response.
    if (status === 204 && (coding !== null || (length !== null && Number(length) > 0))) this.#reusable = false;
    const isBare = this.#isHead || status === 204 || status === 304 || (coding === null && length !== null && Number(length) === 0);
    this.#state = isBare ? "idle" : "body";
    if (!isBare) this.#body.begin(coding !== null ? "chunked" : length !== null ? Number(length) : "until close");
    sink.answered(head);
    if (isBare) this.#end(this.#at < chunk.length, NO_TRAILERS);
    return null;
  }

  #end(isSurplus: boolean, trailers = this.#body.trailers): void {
    const sink = this.#sink!;
    this.#state = "idle";
    this.#sink = null;
    sink.ended(trailers, this.#reusable && !isSurplus ? "kept" : "spent");
  }
}

const UNFINISHED = "unfinished";

const START = "HTTP/1.";
const USUAL_HEAD_BYTES = 1024;

/**
 * RFC 9112 §2.2, §4, §5 without its leniences: no bare CR or LF, no folding, no space before a colon, no control characters. A reason
 * phrase says nothing to anybody: one that cannot be passed on is left out by `response_head.ts`.
 */
const HEAD = /^HTTP\/1\.[01] [1-9]\d\d(?: [^\r\n]*)?\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n$/;
/** What no beginning of a head can have: a CR or LF without the other. */
const STRAY = /(?:^|[^\r])\n|\r[^\n]/;
/** Digits and nothing else, so few that arithmetic stays exact. */
function isLength(value: string): boolean {
  if (value.length === 0 || value.length > 15) return false;
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i);
    if (c < 0x30 || c > 0x39) return false;
  }
  return true;
}

/** A second less than is said: what is sent in the last moment would meet a connection that is being closed. */
export function keepAliveMs(value: string): number {
  const hint = KEEP_ALIVE_TIMEOUT.exec(value);
  return hint === null ? Infinity : Math.min(Math.max(0, Number(hint[1]) * 1000 - 1000), LONGEST_TIMER_MS);
}

const KEEP_ALIVE_TIMEOUT = /^timeout=(\d{1,9})(?!\d)/;
