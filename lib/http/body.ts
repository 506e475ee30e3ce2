/**
 * Moves a body from a stream to a sink with back-pressure, checks it on the way, and counts one. The caller owns both, and decides what
 * a body that breaks off means.
 */
import { PassThrough, type Readable, type Writable } from "node:stream";
import { Fault } from "../base/errors.ts";
import { LentBody } from "./lent_body.ts";

/** Where a body goes. */
export interface Sink {
  /** False: the sink wants no more until it has called what `onceDrained` was given last. */
  write(chunk: Buffer): boolean;
  onceDrained(run: () => void): void;
}

export interface PumpEnd {
  /** All of the source has been written; the sink is not ended. */
  readonly done: () => void;
  /** What has been written is not the whole. Called at most once, and never after `done`. */
  readonly broken: (cause: Error | null) => void;
  /** Called for each chunk that is written, with its length in bytes. */
  readonly passed?: (bytes: number) => void;
}

export function sinkOf(stream: Writable): Sink {
  return { write: (chunk) => stream.write(chunk), onceDrained: (run) => void stream.once("drain", run) };
}

/**
 * Writes every chunk of `source` to `sink`, pausing the source while the sink is full. `length`: the bytes that Content-Length promises,
 * Infinity without one. A body of another length breaks off with a `Fault` "internal", and no byte beyond the promised ones is written: the
 * recipient would read it as the next message. So does a stream that yields something other than bytes or text. Returns what stops it;
 * neither `done` nor `broken` is called after that.
 */
export function pump(source: Readable, sink: Sink, end: PumpEnd, length = Infinity): () => void {
  let over = false;
  let left = length;
  const { passed } = end;
  const stop = () => {
    over = true;
    source.removeListener("data", write);
  };
  const broken = (cause: Error | null) => {
    if (over) return;
    stop();
    end.broken(cause);
  };
  const resume = () => {
    if (!over) source.resume();
  };
  const write = (chunk: unknown) => {
    if (over) return;
    const bytes = bytesOf(chunk);
    if (bytes === null) return broken(new Fault("internal", `the body's stream yields ${typeof chunk} values: it has to yield bytes or text`));
    left -= bytes.length;
    if (left < 0) return broken(new Fault("internal", `the body is longer than its Content-Length of ${length} bytes`));
    passed?.(bytes.length);
    if (sink.write(bytes)) return;
    source.pause();
    sink.onceDrained(resume);
  };
  // A plugin may have read the body and passed it on all the same: its end would never be heard of.
  if (source.readableEnded || source.destroyed) {
    process.nextTick(broken, source.errored ?? new Error("the body was read or destroyed before it was sent"));
    return stop;
  }
  source.on("data", write);
  source.on("end", () => {
    if (over) return;
    if (left > 0 && left !== Infinity) return broken(new Fault("internal", `the body is ${left} bytes shorter than its Content-Length of ${length}`));
    stop();
    end.done();
  });
  source.on("error", broken);
  source.on("close", () => broken(null));
  return stop;
}

/** Writes `chunk` as one chunk (RFC 9112 §7.1); returns what the last write does. */
export function writeChunk(to: Writable, chunk: Buffer): boolean {
  // A chunk of no bytes would be the last one.
  if (chunk.length === 0) return true;
  to.cork();
  to.write(`${chunk.length.toString(16)}\r\n`, "latin1");
  to.write(chunk);
  const hasRoom = to.write("\r\n", "latin1");
  to.uncork();
  return hasRoom;
}

/** Text as its UTF-8 bytes: its length in characters would frame it wrongly. Null for what is neither bytes nor text. */
function bytesOf(chunk: unknown): Buffer | null {
  if (Buffer.isBuffer(chunk)) return chunk;
  if (typeof chunk === "string") return Buffer.from(chunk);
  return chunk instanceof Uint8Array ? Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength) : null;
}

/**
 * A plugin's body as a stream of bytes, for all that read it: a stream in object mode (as `Readable.from` makes them) may yield anything, and
 * one that decodes text yields strings. Every other stream is returned as it is. One that breaks off before anybody listens does not end
 * the process.
 */
export function byteStream(body: Readable): Readable {
  if (body.listenerCount("error") === 0) body.on("error", ignore);
  // One that is over already is found to be by whoever sends it.
  if ((!body.readableObjectMode && body.readableEncoding === null) || body.destroyed || body.readableDidRead) return body;
  const bytes = new PassThrough();
  bytes.on("error", ignore);
  pump(body, sinkOf(bytes), {
    done: () => bytes.end(),
    broken: (cause) => void bytes.destroy(cause ?? new Error("the body broke off")),
  });
  bytes.once("close", () => void body.destroy());
  return bytes;
}

function ignore(): void {}

/** Tells `passed` of all that comes of a body, read or not, where it comes in: to listen to it would be to read it. */
export function countBytes(body: Readable, passed: (bytes: number) => void): void {
  if (body instanceof LentBody) return passed(body.byteLength);
  // What came in one packet with the head is there already.
  if (body.readableLength > 0) passed(body.readableLength);
  const { push } = body;
  body.push = (chunk: Buffer | null, encoding?: BufferEncoding) => {
    if (chunk !== null) passed(chunk.length);
    return push.call(body, chunk, encoding);
  };
}
