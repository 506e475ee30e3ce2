/**
 * Writes commands and parses replies of RESP2, the protocol of Redis and Valkey
 * (https://redis.io/docs/latest/develop/reference/protocol-spec/).
 */
import { Pieces } from "../base/event_loop.ts";

/** Text is read as Latin-1. Null: the key or the list does not exist. */
export type RespValue = string | number | null | ErrorReply | readonly RespValue[];

/** An error that the server replied with: `-READONLY You can't write against a read only replica.` */
export class ErrorReply {
  readonly message: string;

  constructor(message: string) {
    this.message = message;
  }

  /**
   * The first word: "READONLY". Redis 6 has the error of a command further behind when a script called it:
   * `ERR Error running script (call to f_…): @user_script:74: @user_script: 74: -READONLY You can't write …`.
   */
  get code(): string {
    return /^ERR Error running script .*?: -([A-Z]+) /.exec(this.message)?.[1] ?? this.message.split(" ", 1)[0]!;
  }

  /** Whether a server of a Cluster may work all the same, and only has not, or not alone, the hash slot of the key. */
  get isAboutSlot(): boolean {
    return /^(MOVED |ASK |CLUSTERDOWN Hash slot )/.test(this.message);
  }
}

/** The bytes of a server are no RESP2. `message` never repeats them. */
export class ProtocolError extends Error {
  constructor(problem: string) {
    super(`the server does not speak RESP2: ${problem}`);
  }
}

/** A command as an array of bulk strings. */
export function command(...parts: readonly string[]): string {
  return `*${parts.length}\r\n${parts.map(bulk).join("")}`;
}

export function bulk(text: string): string {
  return `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
}

/** The longest reply that is awaited is the table of a Cluster: about 200 bytes for each of at most 1,000 servers. */
const MAX_BYTES = 1024 * 1024;
/** An incomplete line is read again with each piece of it. */
const MAX_LINE_BYTES = 64 * 1024;
const MAX_DEPTH = 8;

const INCOMPLETE: unique symbol = Symbol("incomplete");
type Read<T> = T | typeof INCOMPLETE;
/** A list has begun: its items follow. */
const OPENED: unique symbol = Symbol("opened");

const CR = 13;
const LF = 10;
const NOTHING = Buffer.alloc(0);

/** Parses the replies of one connection. Memory is bounded: a reply has at most 1 MiB. */
export class ReplyParser {
  #bytes: Buffer = NOTHING;
  readonly #pieces = new Pieces();
  #at = 0;
  /**
   * Lists that wait for items, the outermost first. An item is parsed once, in however many pieces its list arrives.
   */
  readonly #open: { readonly items: RespValue[]; left: number }[] = [];
  /** Bytes of the items that are parsed of an incomplete reply. */
  #parsed = 0;

  /** Calls `take` with every reply that is complete. Throws a `ProtocolError`, after which nothing may be fed. */
  feed(chunk: Buffer, take: (reply: RespValue) => void): void {
    this.#bytes = this.#bytes.length === 0 ? chunk : this.#pieces.joined(this.#bytes, chunk);
    let start = 0;
    while (start < this.#bytes.length) {
      this.#at = start;
      const item = this.#item();
      if (item === INCOMPLETE) break;
      this.#parsed += this.#at - start;
      start = this.#at;
      const reply = item === OPENED ? INCOMPLETE : this.#placed(item);
      if (reply === INCOMPLETE) continue;
      this.#parsed = 0;
      take(reply);
    }
    this.#bytes = this.#bytes.subarray(start);
    if (this.#bytes.length === 0) this.#pieces.forget();
    if (this.#parsed + this.#bytes.length > MAX_BYTES)
      throw new ProtocolError(`a reply has more than ${MAX_BYTES} bytes`);
  }

  /** The next text, number or empty list, or the beginning of a list. */
  #item(): Read<RespValue | typeof OPENED> {
    const type = String.fromCharCode(this.#bytes[this.#at]!);
    if (!"+-:$*".includes(type)) throw new ProtocolError("a reply has an unknown type");
    const line = this.#line();
    if (line === INCOMPLETE) return INCOMPLETE;
    if (type === "+") return line;
    if (type === "-") return new ErrorReply(line);
    const number = integerOf(line);
    if (type === ":") return number;
    if (number === -1) return null;
    if (number < 0 || number > MAX_BYTES) throw new ProtocolError("a reply has a wrong length");
    if (type === "$") return this.#text(number);
    if (this.#open.length === MAX_DEPTH) throw new ProtocolError(`a reply has more than ${MAX_DEPTH} levels`);
    if (number === 0) return [];
    this.#open.push({ items: [], left: number });
    return OPENED;
  }

  /** Adds an item to the list that waits for it. Returns the reply once it is complete. */
  #placed(item: RespValue): Read<RespValue> {
    for (let value = item; ;) {
      const list = this.#open.at(-1);
      if (list === undefined) return value;
      list.items.push(value);
      if (--list.left > 0) return INCOMPLETE;
      this.#open.pop();
      value = list.items;
    }
  }

  /** The line behind the type, without its end. */
  #line(): Read<string> {
    const end = this.#bytes.indexOf(CR, this.#at);
    if (end === -1 && this.#bytes.length - this.#at > MAX_LINE_BYTES)
      throw new ProtocolError(`a line of a reply has more than ${MAX_LINE_BYTES} bytes`);
    if (end === -1 || end + 1 === this.#bytes.length) return INCOMPLETE;
    const line = this.#bytes.toString("latin1", this.#at + 1, end);
    if (this.#bytes[end + 1] !== LF || line.includes("\n"))
      throw new ProtocolError("a line of a reply does not end with CR LF");
    this.#at = end + 2;
    return line;
  }

  #text(length: number): Read<string> {
    const end = this.#at + length;
    if (this.#bytes.length < end + 2) return INCOMPLETE;
    if (this.#bytes[end] !== CR || this.#bytes[end + 1] !== LF)
      throw new ProtocolError("a text of a reply does not end with CR LF");
    const text = this.#bytes.toString("latin1", this.#at, end);
    this.#at = end + 2;
    return text;
  }
}

function integerOf(line: string): number {
  const number = /^-?\d{1,16}$/.test(line) ? Number(line) : NaN;
  if (!Number.isSafeInteger(number)) throw new ProtocolError("a number of a reply is not an integer");
  return number;
}
