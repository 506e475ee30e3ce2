/**
 * Resets HTTP/2 streams.
 */
import type { Http2Stream } from "node:http2";

/**
 * Resets a stream. Node's `close` ends the body before that, as if it were whole (END_STREAM, then RST_STREAM; probed with Node 20), and
 * the peer would act on the half that it has.
 */
export function resetStream(stream: Http2Stream, code: number): void {
  if (isClosed(stream) || stream.destroyed) return;
  if (!stream.writableEnded) stream.end = () => stream;
  stream.close(code);
}

/** Node's own `closed`. */
export function isClosed(stream: Http2Stream): boolean {
  return Reflect.get(Object.getPrototypeOf(stream) as object, "closed", stream) as boolean;
}
