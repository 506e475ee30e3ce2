/**
 * Resets HTTP/2 streams.
 */
import http2, { type Http2Stream } from "node:http2";
import { ignore } from "../base/errors.ts";

/**
 * Resets a stream. Node's `close` ends the body before that, as if it were whole (END_STREAM, then RST_STREAM; probed with Node 20), and
 * the peer would act on the half that it has.
 */
export function resetStream(stream: Http2Stream, code: number): void {
  if (isClosed(stream) || stream.destroyed) return;
  if (!stream.writableEnded) stream.end = () => stream;
  stream.close(code);
}

/** Node would send NO_ERROR. `givenUp` is called if we destroy it, not if Node does because of the peer. */
export function cancelWhenDestroyed(stream: Http2Stream, givenUp = ignore): void {
  const { destroy } = stream;
  stream.destroy = (error?: Error) => {
    if (error === undefined && !isClosed(stream) && !stream.destroyed) givenUp();
    resetStream(stream, http2.constants.NGHTTP2_CANCEL);
    return destroy.call(stream, error);
  };
}

/** Node's own `closed`. */
export function isClosed(stream: Http2Stream): boolean {
  return Reflect.get(Object.getPrototypeOf(stream) as object, "closed", stream) as boolean;
}
