/**
 * Keeps node from presenting a truncated HTTP/2 body as a whole one, in both directions.
 */
import type { ClientHttp2Stream, Http2Session, Http2Stream } from "node:http2";
import type { Socket } from "node:net";
import { entry } from "../base/event_loop.ts";
import { isClosed } from "./h2_reset.ts";

/**
 * Node ends a stream that was reset with NO_ERROR or CANCEL, or whose connection has closed, as if it were complete (probed with Node
 * 20). That end comes after the stream has closed, the peer's own end before: the former becomes a close without an end. Must be
 * called before anything is read.
 */
export function detectTruncatedBody(stream: Http2Stream): void {
  const { push } = stream;
  let end: "none" | "whole" | "broken" = "none";
  stream.push = (chunk: unknown, encoding?: BufferEncoding) => {
    if (chunk === null && end === "none") {
      if (isClosed(stream) || stream.destroyed) {
        end = "broken";
        // Not at once: node continues with the stream after its push, and fails if it is destroyed by then.
        process.nextTick(entry("the end of a stream", () => void stream.destroy()));
        return false;
      }
      end = "whole";
    }
    return end === "broken" ? false : push.call(stream, chunk, encoding);
  };
}

/**
 * Lets a response's body be read after all of it has arrived. To node a stream is `closed` as soon as nothing more will pass either way,
 * read or not, and `for await`, `finished`, pipelines and the adapters to web streams (most of them since Node 24) then treat what has not
 * been read as lost.
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

/**
 * Whether nghttp2 holds output back although the socket is empty: such output is never sent, because a violation of the protocol has ended
 * the session. Output for a peer that reads slowly waits in the socket.
 */
export function holdsOutputBack(session: Http2Session, socket: Socket): boolean {
  const { _handle: handle } = socket as { _handle?: { readonly writeQueueSize?: number } | null };
  return handle?.writeQueueSize === 0 && (session.state.outboundQueueSize ?? 0) > 0;
}
