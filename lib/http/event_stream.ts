/**
 * Splits server-sent events, edits the data of single ones, and leaves every other byte of the stream as it is
 * (https://html.spec.whatwg.org/multipage/server-sent-events.html, "Parsing an event stream").
 */
import { pipeline, Transform, type Readable, type TransformCallback } from "node:stream";
import { guardedEmitter } from "../base/event_loop.ts";
import { Fault, ignore } from "../base/errors.ts";
import { JoinedPieces } from "./pieces.ts";

/** A part of a stream: an event, or a piece of one that is longer than the splitter's bound. */
export interface StreamEvent {
  /** All bytes of the part, as received, with the blank line that ends an event. */
  readonly bytes: Buffer;
  /**
   * The values of its "data" fields, joined by LF; null: it has none (a comment, a heartbeat, a lone "retry"), or it is
   * a piece.
   */
  readonly data: Buffer | null;
  /** Whether this is a piece of an event that is too long. Its last piece has the blank line. */
  readonly isPiece: boolean;
  /** Where its lines begin: behind the byte order mark with which the first event may begin. */
  readonly start: number;
}

const LINE_FEED = 0x0a;
const RETURN = 0x0d;
const SPACE = 0x20;
const BYTE_ORDER_MARK = Buffer.from("\uFEFF");
const COLON = 0x3a;
const DATA = Buffer.from("data");
const NEWLINE = Buffer.from("\n");

/**
 * Splits a stream that arrives in chunks of any size. A line ends with LF, CR, or both. The bytes of all events, in
 * order, and then `rest()` are the bytes of the stream.
 */
export class EventSplitter {
  readonly #most: number;
  #pieces = new JoinedPieces();
  /** Bytes of the event that has not ended. */
  #size = 0;
  /** The event is longer than the bound: its pieces are not kept. */
  #isLong = false;
  /** Bytes of the line that has not ended. */
  #lineSize = 0;
  /** The last byte was a CR that ended a line: a LF that follows belongs to it. */
  #isReturned = false;
  #isFirst = true;

  /** `mostBytes`: the longest event that is kept until it is whole. */
  constructor(mostBytes: number) {
    this.#most = mostBytes;
  }

  /** The events that end in the chunk, and the pieces of one that is too long. The chunk must not change later. */
  write(chunk: Buffer): StreamEvent[] {
    const found: StreamEvent[] = [];
    let from = 0;
    let at = 0;
    // Each is looked for again only behind the last one: a chunk may have many lines and none of the other ends.
    let feed = -1;
    let carriage = -1;
    while (at < chunk.length) {
      if (this.#isReturned && chunk[at] === LINE_FEED) at++;
      this.#isReturned = false;
      if (feed < at) feed = placeOf(LINE_FEED, chunk, at);
      if (carriage < at) carriage = placeOf(RETURN, chunk, at);
      const end = Math.min(feed, carriage);
      this.#lineSize += end - at;
      if (end === chunk.length) break;
      const isBlank = this.#lineSize === 0;
      this.#lineSize = 0;
      this.#isReturned = end === carriage;
      at = end + 1;
      if (this.#isReturned && chunk[at] === LINE_FEED) {
        this.#isReturned = false;
        at++;
      }
      if (!isBlank) continue;
      found.push(this.#ended(chunk.subarray(from, at)));
      from = at;
    }
    if (from < chunk.length) this.#keep(chunk.subarray(from), found);
    return found;
  }

  /** What stands behind the last event once the stream has ended: no client dispatches it. */
  rest(): StreamEvent {
    return this.#ended(NOTHING);
  }

  #ended(last: Buffer): StreamEvent {
    const isPiece = this.#isLong || this.#size + last.length > this.#most;
    const bytes = this.#size === 0 ? last : Buffer.concat([...this.#pieces.all, last]);
    const isMarked = this.#isFirst && bytes.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK);
    const start = isMarked ? BYTE_ORDER_MARK.length : 0;
    const data = isPiece ? null : dataOf(bytes, start);
    this.#begin(false);
    return { bytes, data, isPiece, start };
  }

  #begin(isLong: boolean): void {
    this.#isFirst = false;
    this.#isLong = isLong;
    this.#size = 0;
    this.#pieces = new JoinedPieces();
  }

  #keep(bytes: Buffer, found: StreamEvent[]): void {
    this.#pieces.add(bytes);
    this.#size += bytes.length;
    if (!this.#isLong && this.#size <= this.#most) return;
    found.push({ bytes: Buffer.concat(this.#pieces.all), data: null, isPiece: true, start: 0 });
    this.#begin(true);
  }
}

const NOTHING = Buffer.alloc(0);

/** The length where there is none. */
function placeOf(byte: number, bytes: Buffer, from: number): number {
  const at = bytes.indexOf(byte, from);
  return at < 0 ? bytes.length : at;
}

interface Line {
  readonly from: number;
  /** Without what ends the line. */
  readonly end: number;
  /** The beginning of the next line. */
  readonly next: number;
}

function* linesOf(bytes: Buffer, first: number): Generator<Line> {
  for (let from = first; from < bytes.length;) {
    let end = from;
    while (end < bytes.length && bytes[end] !== LINE_FEED && bytes[end] !== RETURN) end++;
    const next = bytes[end] === RETURN && bytes[end + 1] === LINE_FEED ? end + 2 : Math.min(end + 1, bytes.length);
    yield { from, end, next };
    from = next;
  }
}

/** Where the value of a line begins if its field is "data"; -1 for another one. */
function valueOf(bytes: Buffer, { from, end }: Line): number {
  const colon = from + DATA.length;
  if (end < colon || bytes.compare(DATA, 0, DATA.length, from, colon) !== 0) return -1;
  if (end === colon) return end;
  if (bytes[colon] !== COLON) return -1;
  return colon + 1 < end && bytes[colon + 1] === SPACE ? colon + 2 : colon + 1;
}

function dataOf(bytes: Buffer, start: number): Buffer | null {
  const values: Buffer[] = [];
  for (const line of linesOf(bytes, start)) {
    const value = valueOf(bytes, line);
    if (value >= 0) values.push(bytes.subarray(value, line.end));
  }
  if (values.length <= 1) return values[0] ?? null;
  return Buffer.concat(values.flatMap((value, i) => (i === 0 ? [value] : [NEWLINE, value])));
}

/**
 * The bytes of an event that has data, with other data in its place. What is before the value in the first "data" line,
 * how that line ends, all other fields and comments stay; further "data" lines are dropped. `data` that contains line
 * breaks takes a line for each.
 */
export function withData({ bytes, start }: StreamEvent, data: string): Buffer {
  const parts = [bytes.subarray(0, start)];
  let isWritten = false;
  for (const line of linesOf(bytes, start)) {
    const value = valueOf(bytes, line);
    if (value < 0) parts.push(bytes.subarray(line.from, line.next));
    else if (!isWritten) {
      isWritten = true;
      const ending = line.next > line.end ? bytes.subarray(line.end, line.next) : NEWLINE;
      const name = value > line.from + DATA.length ? bytes.subarray(line.from, value) : Buffer.from("data:");
      data.split(/\r\n|\r|\n/).forEach((text, i) => {
        if (i > 0) parts.push(ending);
        parts.push(name, Buffer.from(text));
      });
      parts.push(bytes.subarray(line.end, line.next));
    }
  }
  return Buffer.concat(parts);
}

export interface EventEdits {
  /** The longest event that is edited, in bytes. */
  readonly mostBytes: number;
  /**
   * Gets the data of each event that has some, also of one that the end of the stream cuts off. Returns the new data;
   * null: the event stays as it is. What it throws ends the stream with that error: a `Fault` is logged as the cause.
   */
  readonly edit: (data: Buffer) => string | null;
  /** Called for the first event that is longer: what it throws ends the stream, else long events pass as they are. */
  readonly tooLong: () => void;
}

/**
 * The stream with edited events. It has the back-pressure of its reader; if one of both is destroyed, so is the other
 * one. An event leaves as soon as its blank line has arrived; a stream that ends within an event ends as it is.
 */
export function editedEvents(source: Readable, { mostBytes, edit, tooLong }: EventEdits): Readable {
  const splitter = new EventSplitter(mostBytes);
  let hasLong = false;
  const edited = (event: StreamEvent): Buffer => {
    if (event.isPiece && !hasLong) {
      hasLong = true;
      tooLong();
    }
    const data = event.data === null ? null : edit(event.data);
    return data === null ? event.bytes : withData(event, data);
  };
  const pass = (events: readonly StreamEvent[], done: TransformCallback) => {
    let bytes: Buffer;
    try {
      bytes = Buffer.concat(events.map(edited));
    } catch (error) {
      return done(error instanceof Error ? error : new Fault("internal", "an event could not be edited", error));
    }
    done(null, bytes.length > 0 ? bytes : undefined);
  };
  const stream = guardedEmitter(
    new Transform({
      transform: (chunk: Buffer, _encoding, done) => pass(splitter.write(chunk), done),
      flush: (done) => pass([splitter.rest()], done),
    }),
  );
  // It may be destroyed before the server listens; the server checks its state.
  stream.on("error", ignore);
  pipeline(source, stream, ignore);
  return stream;
}
