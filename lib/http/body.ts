/**
 * Moves a body from a stream to a sink with back-pressure. Who owns the two, and what an early end means, is the callers' affair.
 */
import type { Readable, Writable } from "node:stream";

export interface PumpEnd {
  /** All of the source has been written; the sink is not ended. */
  readonly done: () => void;
  /** The source broke off: what has been written is not the whole. Called at most once, and never after `done`. */
  readonly broken: (cause: Error | null) => void;
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
  source.on("data", (chunk: Buffer) => {
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
