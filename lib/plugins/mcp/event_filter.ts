/**
 * Replaces the data of the events of a stream (https://html.spec.whatwg.org/multipage/server-sent-events.html), event by
 * event: each leaves as soon as its last line has arrived.
 */
import { Transform, type TransformCallback } from "node:stream";
import { Fault } from "../../base/errors.ts";
import { JoinedPieces } from "../../http/pieces.ts";

/** Bytes of one event. */
export const MAX_EVENT_BYTES = 4 * 1024 * 1024;

/** Gets the data of an event; resolves with those that take their place, or null where they may not pass. */
export type ReplaceData = (data: Buffer) => Promise<Buffer | null>;

const [LF, CR] = [0x0a, 0x0d];

/** A stream of events whose data cannot be read, or do not end, fails with a `Fault`. */
export class EventFilter extends Transform {
  readonly #replace: ReplaceData;
  /** Of the event that has not ended. */
  #pieces = new JoinedPieces();
  #bytes = 0;
  #isLineEmpty = true;
  /** The last byte was CR: LF belongs to the same end of a line. */
  #isAfterReturn = false;
  #isFirst = true;

  /** `room`: bytes of events that may wait for a reader. */
  constructor(replace: ReplaceData, room?: number) {
    super(room === undefined ? {} : { readableHighWaterMark: room });
    this.#replace = replace;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#read(chunk).then(() => done(), done);
  }

  /** Readers drop an event that does not end with an empty line; one that takes it gets no more than of any other. */
  override _flush(done: TransformCallback): void {
    this.#pass().then(() => done(), done);
  }

  async #read(chunk: Buffer): Promise<void> {
    let from = 0;
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at]!;
      const isRest = this.#isAfterReturn && byte === LF;
      this.#isAfterReturn = byte === CR;
      if (isRest) continue;
      const isLineEnd = byte === LF || byte === CR;
      const isEventEnd = isLineEnd && this.#isLineEmpty;
      this.#isLineEmpty = isLineEnd;
      if (!isEventEnd) continue;
      this.#keep(chunk.subarray(from, at + 1));
      from = at + 1;
      await this.#pass();
    }
    this.#keep(chunk.subarray(from));
  }

  /** A copy: the chunk may be in memory that the next read overwrites. */
  #keep(bytes: Buffer): void {
    if (bytes.length === 0) return;
    this.#pieces.add(Buffer.from(bytes));
    this.#bytes += bytes.length;
    if (this.#bytes > MAX_EVENT_BYTES) throw unreadable(`an event has more than ${MAX_EVENT_BYTES} bytes`);
  }

  async #pass(): Promise<void> {
    const event = Buffer.concat(this.#pieces.all);
    this.#pieces = new JoinedPieces();
    this.#bytes = 0;
    const mark = this.#isFirst && event.subarray(0, 3).equals(BYTE_ORDER_MARK) ? 3 : 0;
    this.#isFirst = false;
    const replaced = await replacedEvent(event, mark, this.#replace);
    if (replaced === null) throw unreadable("an event cannot be read");
    if (replaced.length > 0) this.push(replaced);
  }
}

export function unreadable(why: string): Fault {
  return new Fault("upstream_invalid", `mcp: ${why}`);
}

const BYTE_ORDER_MARK = Buffer.from("\uFEFF");

/** The event with other data, in place of the first line of its own; the same where these stay, or there are none. */
async function replacedEvent(event: Buffer, begin: number, replace: ReplaceData): Promise<Buffer | null> {
  // One character for each byte.
  const lines = event.toString("latin1", begin).split(/(?<=\n)|(?<=\r)(?!\n)/);
  const data = lines.flatMap((line) => DATA.exec(line)?.[1] ?? []);
  if (data.every((text) => text.trim() === "")) return event;
  const own = Buffer.from(data.join("\n"), "latin1");
  const replaced = await replace(own);
  if (replaced === null || replaced === own) return replaced && event;
  let isFirst = true;
  const text = lines.map((line) => {
    const found = DATA.exec(line);
    if (found === null) return line;
    const whole = isFirst ? `data: ${replaced.toString("latin1")}${found[2]}` : "";
    isFirst = false;
    return whole;
  });
  return Buffer.from(text.join(""), "latin1");
}

/** A line of data, and what ends it. One space behind the colon is no part of them. */
const DATA = /^data(?:: ?([^\r\n]*)|(?=[\r\n]|$))(\r\n|[\r\n]|)$/;
