/**
 * Keeps node from passing a broken HTTP/2 body off as a whole one, coming or going, downstream and upstream alike. What a broken body
 * means is left to those who have to do with it.
 */
import type { ClientHttp2Stream, Http2Stream } from "node:http2";

/**
 * Node ends a stream that was reset with NO_ERROR or CANCEL, or whose connection has closed, as if all of it had come (probed with
 * Node 20). The end it makes up comes when the stream is closed already; the peer's comes before. The former becomes a close without an
 * end. To be called before anything is read.
 */
export function detectTruncatedBody(stream: Http2Stream): void {
  const { push } = stream;
  let end: "none" | "whole" | "broken" = "none";
  stream.push = (chunk: unknown, encoding?: BufferEncoding) => {
    if (chunk === null && end === "none") {
      if (isClosed(stream) || stream.destroyed) {
        end = "broken";
        // Not at once: node goes on with the stream after its push, and falls over one that is destroyed by then.
        process.nextTick(() => stream.destroy());
        return false;
      }
      end = "whole";
    }
    return end === "broken" ? false : push.call(stream, chunk, encoding);
  };
}

/**
 * Resets a stream. Node's `close` ends the body before that, as if it were whole (END_STREAM, then RST_STREAM; probed with Node 20), and
 * the peer would act upon the half it has.
 */
export function resetStream(stream: Http2Stream, code: number): void {
  if (isClosed(stream) || stream.destroyed) return;
  if (!stream.writableEnded) stream.end = () => stream;
  stream.close(code);
}

/**
 * Lets a response's body be read after all of it has come. To node a stream is `closed` as soon as nothing more will pass either way, read
 * or not; whatever asks streams for that (`for await`, `finished`, a pipeline, the adapters to web streams; most of them since Node 24)
 * takes it that what has not been read is lost.
 */
export function keepOpenUntilRead(stream: ClientHttp2Stream): void {
  Object.defineProperty(stream, "closed", CLOSED_WHEN_READ);
}

const CLOSED_WHEN_READ: PropertyDescriptor & ThisType<ClientHttp2Stream> = {
  configurable: true,
  get() {
    return (this.readableEnded || this.destroyed) && isClosed(this);
  },
};

/** What node itself says of it, read or not. */
export function isClosed(stream: Http2Stream): boolean {
  return Reflect.get(Object.getPrototypeOf(stream) as object, "closed", stream) as boolean;
}
