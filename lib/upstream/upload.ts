/**
 * Sends a request's body to the upstream, pausing the client while the upstream is behind. Unlike a pump it can be stopped, since a
 * body nobody reads any more is the server's to dispose of. How the body is delimited is `request_head.ts`.
 */
import type { Readable, Writable } from "node:stream";
import { Fault } from "../base/errors.ts";
import type { PumpEnd } from "../http/body.ts";

/** Where it goes. */
export interface UploadSink {
  /** False: it wants no more until it has called what `onceDrained` was given last. */
  write(chunk: Buffer): boolean;
  onceDrained(run: () => void): void;
}

export function sinkOf(stream: Writable): UploadSink {
  return { write: (chunk) => stream.write(chunk), onceDrained: (run) => void stream.once("drain", run) };
}

/** What a stream knows of what it was given. */
export interface Outgoing {
  readonly writableLength: number;
  readonly writableEnded: boolean;
}

/** Returns what stops it; neither `done` nor `broken` is called after that. */
export function upload(body: Readable, sink: UploadSink, end: PumpEnd): () => void {
  let over = false;
  const write = (chunk: Buffer | string) => {
    // A body that a plugin has made may give text, whose length is not that of its bytes: framed by it, the rest would be the next request.
    if (over || sink.write(typeof chunk === "string" ? Buffer.from(chunk) : chunk)) return;
    body.pause();
    sink.onceDrained(resume);
  };
  const resume = () => {
    if (!over) body.resume();
  };
  const stop = () => {
    over = true;
    body.removeListener("data", write);
  };
  const broken = (cause: Error | null) => {
    if (over) return;
    stop();
    end.broken(cause);
  };
  // A plugin may have read the body and passed it on all the same: its end would never be heard of.
  if (body.readableEnded || body.destroyed) {
    process.nextTick(broken, new Error("the body was read or destroyed before it was forwarded"));
    return stop;
  }
  body.on("data", write);
  body.on("end", () => {
    if (over) return;
    stop();
    end.done();
  });
  body.on("error", broken);
  body.on("close", () => broken(null));
  return stop;
}

/**
 * Whose fault it is that not a byte of the body moved for `idleMs`: the upstream's, if what we wrote is still waiting to leave, or if it
 * was to ask for the body (`Expect: 100-continue`); else the client's.
 */
export function stalledUpload(request: Outgoing, awaitsContinue: boolean, idleMs: number): Fault {
  if (awaitsContinue) return new Fault("upstream_timeout", `the upstream did not ask for the body within ${idleMs} ms`);
  if (!awaitsClient(request, awaitsContinue)) return new Fault("upstream_timeout", `the upstream read nothing for ${idleMs} ms`);
  return new Fault("request_timeout", `the client sent nothing for ${idleMs} ms`);
}

/** Whether it is the client's body that is missing: all there was of it has left, and the upstream was not to ask for it. */
export function awaitsClient(request: Outgoing, awaitsContinue: boolean): boolean {
  return !awaitsContinue && request.writableLength === 0 && !request.writableEnded;
}

/** For a deadline that comes while the request is being sent: whose fault it is. */
export function overdueUpload(request: Outgoing, awaitsContinue: boolean, fault: Fault): Fault {
  return awaitsClient(request, awaitsContinue) ? new Fault("request_timeout", `${fault.message}, and the client has not sent all of its body`) : fault;
}
