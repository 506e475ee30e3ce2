/**
 * Reads the responses of one HTTP/1 connection, byte by byte and strictly: whatever two readers might read in two ways is refused. What
 * a response means, and who gets it, is `forward_wire.ts`.
 */
import { LONGEST_TIMER_MS } from "../base/clock.ts";
import { connectionOptions, hasToken, MOST_CONNECTION_OPTIONS } from "../http/headers.ts";
import { CROWDED, type ResponseHead } from "./response_head.ts";

/** Hears of what comes, in the order in which it comes. */
export interface ResponseSink {
  /** 100, 102, 103 and the like. */
  informed(head: ResponseHead): void;
  /** A 101 that names a protocol; whatever comes behind it is no HTTP, and `behind` the first of it. */
  switched(head: ResponseHead, behind: Buffer): void;
  answered(head: ResponseHead): void;
  /** Some of the body, never empty. */
  body(bytes: Buffer): void;
  /**
   * The response is whole. "kept": the connection can have another one; "spent": it cannot, by what was said or because more came than was
   * asked for.
   */
  ended(trailers: readonly string[], connection: "kept" | "spent"): void;
}

/** Node's default of 16 KiB, doubled: large cookies and policies are common on the way back. Beyond it: 502 upstream_invalid. */
export const MAX_RESPONSE_HEAD_BYTES = 32 * 1024;

/** Most that the trailers of one response may take, and all that is said beside the sizes of its chunks: node refuses beyond 16 KiB. */
const MAX_TRAILER_BYTES = 16 * 1024;
const MAX_EXTENSION_BYTES = 8 * 1024;
/** A chunk's size in hexadecimal, and its extensions. */
const MAX_CHUNK_LINE = 1024;

type State = "idle" | "head" | "length" | "size" | "chunk" | "chunk end" | "trailers" | "until close";

export class ResponseParser {
  /** For how long an idle connection is kept by the last response's `Keep-Alive: timeout=N`, in milliseconds; Infinity where it says nothing. */
  keepsFor = Infinity;
  #state: State = "idle";
  #sink: ResponseSink | null = null;
  #isHead = false;
  /** The beginning of a head or of a line whose end has not come. */
  #rest: Buffer | null = null;
  /** Bytes of the body, or of the chunk with its CRLF, that have yet to come. */
  #left = 0;
  #extensionBytes = 0;
  #trailerBytes = 0;
  #trailers: string[] = NONE;
  #reusable = false;

  /** Whether a response is awaited or under way. */
  get isReading(): boolean {
    return this.#state !== "idle";
  }

  /** Whether a body that says how long it is has been given to the sink to its last byte. */
  get isAtEnd(): boolean {
    return this.#state === "length" && this.#left === 0;
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
    const { length } = chunk;
    while (at < length) {
      switch (this.#state) {
        case "head": {
          const invalid = this.#readHead(chunk, at);
          if (invalid !== null) return invalid === UNFINISHED ? null : invalid;
          at = this.#at;
          break;
        }
        case "length":
        case "chunk": {
          const end = Math.min(at + this.#left, length);
          this.#left -= end - at;
          const bytes = at === 0 && end === length ? chunk : chunk.subarray(at, end);
          at = end;
          this.#sink!.body(bytes);
          if (this.#left > 0) break;
          if (this.#state === "length") this.#end(at < length);
          else this.#state = "chunk end";
          break;
        }
        case "until close":
          this.#sink!.body(at === 0 ? chunk : chunk.subarray(at));
          return null;
        case "chunk end":
          if (length - at === 1 && chunk[at] === CR) return this.#keep(chunk, at);
          if (chunk[at] !== CR || chunk[at + 1] !== LF) return "a chunk is longer than its size";
          at += 2;
          this.#state = "size";
          break;
        case "size": {
          const invalid = this.#readSize(chunk, at);
          if (invalid !== null) return invalid === UNFINISHED ? null : invalid;
          at = this.#at;
          break;
        }
        case "trailers": {
          const invalid = this.#readTrailer(chunk, at);
          if (invalid !== null) return invalid === UNFINISHED ? null : invalid;
          at = this.#at;
          break;
        }
        default:
          // Behind the end of a response: `ended` has said that the connection is spent.
          return null;
      }
    }
    return null;
  }

  /** The connection has ended in good order: whether that is the end of the response. */
  endOfConnection(): boolean {
    if (this.#state !== "until close") return false;
    this.#reusable = false;
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
    this.#extensionBytes = 0;
    this.#trailerBytes = 0;
    this.#trailers = NONE;
    const isBare = this.#isHead || status === 204 || status === 304 || (coding === null && length !== null && Number(length) === 0);
    if (isBare) this.#state = "idle";
    else if (coding !== null) this.#state = "size";
    else if (length !== null) {
      this.#state = "length";
      this.#left = Number(length);
    } else {
      this.#state = "until close";
    }
    sink.answered(head);
    if (isBare) this.#end(this.#at < chunk.length);
    return null;
  }

  #readSize(chunk: Buffer, at: number): string | null {
    let size = 0;
    let i = at;
    for (; i < chunk.length; i++) {
      const digit = hexDigit(chunk[i]!);
      if (digit < 0) break;
      size = size * 16 + digit;
    }
    if (i - at > MAX_SIZE_DIGITS) return "the size of a chunk is too large";
    if (i === chunk.length) return this.#keep(chunk, at) ?? UNFINISHED;
    if (i === at) return "the size of a chunk is no hexadecimal number";
    if (chunk[i] !== CR) {
      const end = chunk.indexOf(LF, i);
      if (end < 0) {
        if (chunk.length - at > MAX_CHUNK_LINE || chunk[i] !== SEMICOLON) return "the line of a chunk's size is malformed";
        return this.#keep(chunk, at) ?? UNFINISHED;
      }
      if (end - at > MAX_CHUNK_LINE || !EXTENSIONS.test(chunk.toString("latin1", i, end + 1))) return "the line of a chunk's size is malformed";
      this.#extensionBytes += end - i;
      if (this.#extensionBytes > MAX_EXTENSION_BYTES) return "the extensions of the chunks are too large";
      i = end - 1;
    }
    if (i + 1 === chunk.length) return this.#keep(chunk, at) ?? UNFINISHED;
    if (chunk[i + 1] !== LF) return "the line of a chunk's size is malformed";
    this.#at = i + 2;
    this.#left = size;
    this.#state = size === 0 ? "trailers" : "chunk";
    return null;
  }

  /** One line of them; the empty one is the last. */
  #readTrailer(chunk: Buffer, at: number): string | null {
    const end = chunk[at] === CR ? at + 1 : chunk.indexOf(LF, at);
    if (end < 0 || end >= chunk.length) {
      if (chunk.length - at > MAX_TRAILER_BYTES) return TOO_LONG_TRAILERS;
      if (STRAY.test(chunk.toString("latin1", at))) return "a trailer is malformed";
      return this.#keep(chunk, at) ?? UNFINISHED;
    }
    const line = chunk.toString("latin1", at, end + 1);
    this.#at = end + 1;
    if (line === "\r\n") {
      this.#end(this.#at < chunk.length);
      return null;
    }
    this.#trailerBytes += line.length;
    if (this.#trailerBytes > MAX_TRAILER_BYTES) return TOO_LONG_TRAILERS;
    if (!FIELD.test(line)) return "a trailer is malformed";
    const colon = line.indexOf(":");
    const name = line.slice(0, colon);
    // How the message is framed has been said; another word on it is for a reader who begins here.
    if (FRAMING.has(name.toLowerCase())) return "a trailer speaks of the framing of its message";
    if (this.#trailers === NONE) this.#trailers = [];
    this.#trailers.push(name, trimmed(line, colon + 1, line.length - 2));
    return null;
  }

  #end(isSurplus: boolean): void {
    const sink = this.#sink!;
    this.#state = "idle";
    this.#sink = null;
    sink.ended(this.#trailers, this.#reusable && !isSurplus ? "kept" : "spent");
  }
}

const UNFINISHED = "unfinished";
const NONE: string[] = [];

const CR = 0x0d;
const LF = 0x0a;
const SEMICOLON = 0x3b;

const START = "HTTP/1.";
const USUAL_HEAD_BYTES = 1024;

/**
 * RFC 9112 §2.2, §4, §5 without its leniences: no bare CR or LF, no folding, no space before a colon, no control characters. A reason
 * phrase says nothing to anybody: one that cannot be passed on is left out by `response_head.ts`.
 */
const HEAD = /^HTTP\/1\.[01] [1-9]\d\d(?: [^\r\n]*)?\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n$/;
const FIELD = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n$/;
/** What no beginning of a head can have: a CR or LF without the other. */
const STRAY = /(?:^|[^\r])\n|\r[^\n]/;
/** RFC 9112 §7.1.1, without the space it allows for the sake of old senders. */
const EXTENSIONS =
  /^(?:;[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:=(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+|"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"))?)+\r\n$/;
/** Sizes below 2^52. */
const MAX_SIZE_DIGITS = 13;
const TOO_LONG_TRAILERS = `the trailers of the response have more than ${MAX_TRAILER_BYTES} bytes`;
const FRAMING = new Set(["content-length", "transfer-encoding"]);

function trimmed(text: string, from: number, to: number): string {
  while (from < to && isBlank(text.charCodeAt(from))) from++;
  while (to > from && isBlank(text.charCodeAt(to - 1))) to--;
  return text.slice(from, to);
}

function isBlank(c: number): boolean {
  return c === 0x20 || c === 0x09;
}

/** Digits and nothing else, so few that arithmetic stays exact. */
function isLength(value: string): boolean {
  if (value.length === 0 || value.length > 15) return false;
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i);
    if (c < 0x30 || c > 0x39) return false;
  }
  return true;
}

function hexDigit(c: number): number {
  if (c >= 0x30 && c <= 0x39) return c - 0x30;
  const lower = c | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

/** A second less than is said: what is sent in the last moment would meet a connection that is being closed. */
function keepAliveMs(value: string): number {
  const hint = KEEP_ALIVE_TIMEOUT.exec(value);
  return hint === null ? Infinity : Math.min(Math.max(0, Number(hint[1]) * 1000 - 1000), LONGEST_TIMER_MS);
}

const KEEP_ALIVE_TIMEOUT = /^timeout=(\d{1,9})(?!\d)/;
