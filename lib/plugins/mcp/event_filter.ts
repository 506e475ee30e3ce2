/**
 * Replaces the data of the events of a stream, event by event: each leaves as soon as its last line has arrived.
 */
import { Transform, type TransformCallback } from "node:stream";
import { Fault } from "../../base/errors.ts";
import { EventSplitter, withData, type StreamEvent } from "../../http/event_stream.ts";

/** Bytes of one event, and of one reply in JSON. */
export const MAX_REPLY_BYTES = 4 * 1024 * 1024;

/** Gets the data of an event; resolves with those that take their place, or null where they may not pass. */
export type ReplaceData = (data: Buffer) => Promise<Buffer | null>;

/** A stream of events whose data may not pass, or that are too long, fails with a `Fault`. */
export class EventFilter extends Transform {
  readonly #replace: ReplaceData;
  readonly #passesLong: boolean;
  readonly #splitter = new EventSplitter(MAX_REPLY_BYTES);

  /** `room`: bytes of events that may wait for a reader. `long`: "pass": an event that is too long stays as it is. */
  constructor(replace: ReplaceData, room?: number, long: "fail" | "pass" = "fail") {
    super(room === undefined ? {} : { readableHighWaterMark: room });
    this.#replace = replace;
    this.#passesLong = long === "pass";
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#pass(this.#splitter.write(chunk)).then(() => done(), done);
  }

  /** Readers drop an event without its last line; one that takes it gets no more than of any other. */
  override _flush(done: TransformCallback): void {
    this.#pass([this.#splitter.rest()]).then(() => done(), done);
  }

  async #pass(events: readonly StreamEvent[]): Promise<void> {
    for (const event of events) {
      const { bytes, data, isPiece } = event;
      if (isPiece && !this.#passesLong) throw unreadable(`an event has more than ${MAX_REPLY_BYTES} bytes`);
      // 2025-11-25 begins streams with an event whose data are empty.
      const isEmpty = data === null || data.toString("latin1").trim() === "";
      const replaced = isEmpty ? data : await this.#replace(data);
      if (replaced === null && !isEmpty) throw unreadable("an event cannot be read");
      const passed = replaced === data ? bytes : withData(event, replaced!.toString());
      if (passed.length > 0) this.push(passed);
    }
  }
}

export function unreadable(why: string): Fault {
  return new Fault("upstream_invalid", `mcp: ${why}`);
}
