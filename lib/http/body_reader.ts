/**
 * Reads the body of one HTTP/1 message at a time: of a known length, chunked with trailers, or up to the end of the
 * connection (RFC 9112 §6, §7). Requests and responses use the same reader, so both are read equally strictly.
 */
import { FIELD_LINE, TOKEN_CHARACTERS, hexDigit } from "../base/http_grammar.ts";
import { hasToken, NameMap, trimmed } from "./headers.ts";

export interface BodySink {
  /**
   * Called with each part of the body, never an empty one, in the order in which it arrives: once in each `read` at
   * most.
   */
  body(bytes: Buffer): void;
}

type State = "over" | "length" | "size" | "chunk" | "chunk end" | "trailers" | "until close";

export class BodyReader {
  /** Trailers as `[name, value, …]`; complete once `isOver`. */
  trailers: readonly string[] = NO_TRAILERS;
  /** Why the body is malformed; null while it is not. Nothing may be read after a fault. */
  fault: string | null = null;
  readonly #forbidden: "refuse" | "drop";
  #state: State = "over";
  /** Bytes of the body or of the current chunk that have yet to arrive; Infinity: until the end of the connection. */
  #left = 0;
  /** Where the data of the chunks is that this `read` has found. */
  #from = 0;
  #to = 0;
  #extensionBytes = 0;
  #trailerBytes = 0;
  #fields: string[] = [];

  /**
   * `forbidden`: what happens to trailers about framing. Of a client they are an attack; an upstream's are dropped (RFC
   * 9110 §6.5.1).
   */
  constructor(forbidden: "refuse" | "drop" = "refuse") {
    this.#forbidden = forbidden;
  }

  get isOver(): boolean {
    return this.#state === "over";
  }

  /** Whether the fault is that the trailers exceed their bound. */
  get isTooLong(): boolean {
    return this.fault === LONG_TRAILERS;
  }

  /** True when the body ends with the connection. */
  get isUntilClose(): boolean {
    return this.#state === "until close";
  }

  /** `framing`: the length in bytes, more than 0, or how the end is marked. */
  begin(framing: number | "chunked" | "until close"): void {
    this.trailers = NO_TRAILERS;
    this.#state = typeof framing === "number" ? "length" : framing === "chunked" ? "size" : framing;
    this.#left = typeof framing === "number" ? framing : Infinity;
    this.#extensionBytes = 0;
    this.#trailerBytes = 0;
    if (framing === "chunked") this.#fields = [];
  }

  /** Ends the body without reading the rest of it. */
  end(): void {
    this.#state = "over";
  }

  /**
   * Reads from `at` and returns how far it came: the end of the body, the end of `chunk`, or the start of a line that
   * is incomplete, which has to be passed again together with what follows. Returns -1 when the body is malformed;
   * `fault` says why.
   *
   * Moves the data of several chunks together, within `chunk`: a body in chunks of one byte must not cost a call, a
   * write and a chunk of our own for each of them.
   */
  read(chunk: Buffer, at: number, sink: BodySink): number {
    this.#from = this.#to = 0;
    let end = at;
    for (let from = -1; end > from && end < chunk.length && this.#state !== "over";) {
      from = end;
      end = this.#readPart(chunk, from);
    }
    if (this.#to > 0) sink.body(this.#to - this.#from === chunk.length ? chunk : chunk.subarray(this.#from, this.#to));
    return end;
  }

  #readPart(chunk: Buffer, at: number): number {
    if (this.#state === "size") return this.#readSize(chunk, at);
    if (this.#state === "chunk end") return this.#readChunkEnd(chunk, at);
    return this.#state === "trailers" ? this.#readTrailer(chunk, at) : this.#readBytes(chunk, at);
  }

  #readBytes(chunk: Buffer, at: number): number {
    const end = Math.min(at + this.#left, chunk.length);
    this.#left -= end - at;
    if (this.#to === 0) this.#from = this.#to = at;
    if (this.#to === at) this.#to = end;
    else this.#append(chunk, at, end);
    if (this.#left === 0) this.#state = this.#state === "chunk" ? "chunk end" : "over";
    return end;
  }

  /**
   * Moves the data of a chunk to the end of the chunks before it. Few bytes that are moved one by one cost less than a
   * call.
   */
  #append(chunk: Buffer, from: number, end: number): void {
    if (end - from < FEW_BYTES) for (let i = from; i < end; i++) chunk[this.#to++] = chunk[i]!;
    else {
      chunk.copyWithin(this.#to, from, end);
      this.#to += end - from;
    }
  }

  #readChunkEnd(chunk: Buffer, at: number): number {
    const left = chunk.length - at;
    if (chunk[at] !== CR || (left > 1 && chunk[at + 1] !== LF)) return this.#refuse("a chunk is longer than its size");
    if (left === 1) return at;
    this.#state = "size";
    return at + 2;
  }

  /** `1a;name=value` CRLF (RFC 9112 §7.1). */
  #readSize(chunk: Buffer, at: number): number {
    let size = 0;
    let i = at;
    for (; i < chunk.length; i++) {
      const digit = hexDigit(chunk[i]!);
      if (digit < 0) break;
      size = size * 16 + digit;
    }
    if (i - at > MAX_SIZE_DIGITS) return this.#refuse("the size of a chunk is too large");
    if (i === chunk.length) return at;
    if (i === at) return this.#refuse("the size of a chunk is not a hexadecimal number");
    if (chunk[i] !== CR) {
      if (chunk[i] !== SEMICOLON) return this.#refuse(MALFORMED_SIZE);
      const end = chunk.indexOf(LF, i);
      if ((end < 0 ? chunk.length : end) - at > MAX_CHUNK_LINE) return this.#refuse(MALFORMED_SIZE);
      if (end < 0) return at;
      if (!EXTENSIONS.test(chunk.toString("latin1", i, end + 1))) return this.#refuse(MALFORMED_SIZE);
      this.#extensionBytes += end - i;
      if (this.#extensionBytes > MAX_EXTENSION_BYTES) return this.#refuse("the extensions of the chunks are too large");
      i = end - 1;
    }
    if (i + 1 === chunk.length) return at;
    if (chunk[i + 1] !== LF) return this.#refuse(MALFORMED_SIZE);
    this.#left = size;
    this.#state = size === 0 ? "trailers" : "chunk";
    return i + 2;
  }

  /** One line of the trailer section; the empty line ends it (RFC 9112 §7.1.2). */
  #readTrailer(chunk: Buffer, at: number): number {
    const end = chunk[at] === CR ? at + 1 : chunk.indexOf(LF, at);
    if (end === chunk.length) return at;
    if (end < 0) {
      if (this.#trailerBytes + chunk.length - at > MAX_TRAILER_BYTES) return this.#refuse(LONG_TRAILERS);
      return at;
    }
    const line = chunk.toString("latin1", at, end + 1);
    if (line === "\r\n") {
      this.trailers = this.#fields;
      this.#state = "over";
      return end + 1;
    }
    this.#trailerBytes += line.length;
    if (this.#trailerBytes > MAX_TRAILER_BYTES) return this.#refuse(LONG_TRAILERS);
    if (!FIELD.test(line)) return this.#refuse("a trailer is malformed");
    const colon = line.indexOf(":");
    const name = line.slice(0, colon);
    const value = trimmed(line, colon + 1, line.length - 2);
    const isForbidden = isForbiddenTrailer(name, value);
    if (isForbidden && this.#forbidden === "refuse") return this.#refuse(FORBIDDEN_TRAILER);
    if (!isForbidden) this.#fields.push(name, value);
    return end + 1;
  }

  #refuse(fault: string): number {
    this.fault = fault;
    return -1;
  }
}

export const NO_TRAILERS: readonly string[] = Object.freeze([]);

/** Bytes of all trailers of a message, and of all its chunk extensions; node refuses more than 16 KiB. */
const MAX_TRAILER_BYTES = 16 * 1024;
const MAX_EXTENSION_BYTES = 8 * 1024;
/** Bytes of a chunk's size and its extensions. */
const MAX_CHUNK_LINE = 1024;
const FEW_BYTES = 16;
/** Sizes below 2^52. */
const MAX_SIZE_DIGITS = 13;

const CR = 0x0d;
const LF = 0x0a;
const SEMICOLON = 0x3b;

const FIELD = new RegExp(`^${FIELD_LINE}$`);
/** RFC 9112 §7.1.1 without the optional white space. */
const QUOTED = String.raw`"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"`;
const EXTENSIONS = new RegExp(String.raw`^(?:;[${TOKEN_CHARACTERS}]+(?:=(?:[${TOKEN_CHARACTERS}]+|${QUOTED}))?)+\r\n$`);
const MALFORMED_SIZE = "the line of a chunk's size is malformed";
const LONG_TRAILERS = `the trailers of the message have more than ${MAX_TRAILER_BYTES} bytes`;

/**
 * A reader that merges trailers into the header section would give the message another framing (RFC 9110 §6.5.1), or
 * end its connection.
 */
export function isForbiddenTrailer(name: string, value: string): boolean {
  const kind = FORBIDDEN.get(name);
  return kind === "framing" || (kind === "closing" && hasToken(value, "close"));
}

export const FORBIDDEN_TRAILER = "a trailer is about the framing of its message or ends its connection";
const FORBIDDEN = new NameMap<"framing" | "closing">([
  ["content-length", "framing"],
  ["transfer-encoding", "framing"],
  ["connection", "closing"],
  ["proxy-connection", "closing"],
]);
