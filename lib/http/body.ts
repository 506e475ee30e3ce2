/**
 * Moves a body from a stream to a sink with back-pressure, and counts one. Who owns them, and what an early end means, is the callers'
 * affair.
 */
import type { Readable, Writable } from "node:stream";

export interface PumpEnd {
  /** All of the source has been written; the sink is not ended. */
  readonly done: () => void;
  /** The source broke off: what has been written is not the whole. Called at most once, and never after `done`. */
  readonly broken: (cause: Error | null) => void;
  /** Hears of each chunk that is written, by its length. */
  readonly passed?: (bytes: number) => void;
}

/** Writes every chunk of `source` to `sink`, pausing the source while the sink is full. */
export function pump(source: Readable, sink: Writable, end: PumpEnd): void {
  let over = false;
  const resume = () => source.resume();
  const stop = (cause: Error | null) => {
    if (over) return;
    over = true;
    end.broken(cause);
  };
  const { passed } = end;
  source.on("data", (chunk: Buffer) => {
    passed?.(chunk.length);
    if (!sink.write(chunk)) {
      source.pause();
      sink.once("drain", resume);
    }
  });
  source.on("end", () => {
    if (over) return;
    over = true;
    end.done();
  });
  source.on("error", stop);
  source.on("close", () => stop(null));
}

/** Tells `passed` of all that comes of a body, read or not, where it comes in: to listen to it would be to read it. */
export function countBytes(body: Readable, passed: (bytes: number) => void): void {
  // What came in one packet with the head is there already.
  if (body.readableLength > 0) passed(body.readableLength);
  const { push } = body;
  body.push = (chunk: Buffer | null, encoding?: BufferEncoding) => {
    if (chunk !== null) passed(chunk.length);
    return push.call(body, chunk, encoding);
  };
}
