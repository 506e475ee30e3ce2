/**
 * Measures bodies while they arrive.
 */
import type { Readable } from "node:stream";
import { GuardedReadable } from "../base/event_loop.ts";
import { Fault, ignore } from "../base/errors.ts";
import { pump, type PumpEnd, type Sink } from "./body.ts";
import type { Notes } from "./exchange.ts";
import { hasHeader, type HeaderList } from "./headers.ts";

/**
 * A body without a Content-Length is measured as it arrives; any other cannot be longer than its Content-Length.
 * `maxBytes` 0: no limit.
 */
export function boundBody(body: Readable, headers: HeaderList, maxBytes: number): Readable {
  return maxBytes === 0 || hasHeader(headers, "content-length") ? body : limitedBody(body, maxBytes);
}

/** Notes the length of all that arrives of a body, read or not: to listen to it would be to read it. */
export function countReceived(body: Readable, notes: Notes): void {
  // Bytes from the same packet as the head are already buffered.
  notes.received! += body.readableLength;
  const { push } = body;
  body.push = (chunk: Buffer | null, encoding?: BufferEncoding) => {
    if (chunk !== null) notes.received! += chunk.length;
    return push.call(body, chunk, encoding);
  };
}

/**
 * Returns a view of `body` that is destroyed with a `Fault` "body_too_large" at the first byte beyond `most`, and reads
 * on demand only. The connection of `body` stays open, so that the client can get the error reply.
 */
export function limitedBody(body: Readable, most: number): Readable {
  let left = most;
  let stop: (() => void) | null = null;
  let resume = ignore;
  const view = new GuardedReadable({
    read() {
      if (stop === null) stop = pump(body, sink, end);
      else resume();
    },
    destroy(error, done) {
      stop?.();
      done(error);
    },
  });
  const sink: Sink = {
    write(chunk) {
      left -= chunk.length;
      if (left >= 0) return view.push(chunk);
      view.destroy(new Fault("body_too_large", `the body has more than ${most} bytes`));
      return true;
    },
    once: (_event, run) => (resume = run),
  };
  const end: PumpEnd = {
    done: () => void view.push(null),
    broken: (cause) => void view.destroy(cause ?? new Error("the body ended early")),
  };
  // The reader may have removed its listeners: an error of a body without a reader must not end the process.
  return view.on("error", ignore);
}
