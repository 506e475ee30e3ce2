/**
 * Streams of Node's HTTP/2 as the gateway needs them: a truncated body is never presented as a whole one, in both
 * directions.
 */
import http2, { type ClientHttp2Stream, type Http2Session, type Http2Stream, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { EventEmitter } from "node:events";
import { entry, listenerFailed } from "../base/event_loop.ts";
import { ignore } from "../base/errors.ts";

/**
 * Node ends a stream that was reset with NO_ERROR or CANCEL, or whose connection has closed, as if it were complete
 * (probed with Node 20). That end comes after the stream has closed, the peer's own end before: the former becomes a
 * close without an end. Must be called before anything is read.
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
 * Lets a response's body be read after all of it has arrived. To node a stream is `closed` as soon as nothing more will
 * pass either way, read or not, and `for await`, `finished`, pipelines and the adapters to web streams (most of them
 * since Node 24) then treat what has not been read as lost.
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

/** Is told of the streams that it owns. */
export interface StreamOwner {
  /** The client has reset the stream, or its connection has ended, before all of the reply was written. */
  aborted(stream: ServerHttp2Stream): void;
  closed(stream: ServerHttp2Stream): void;
}

const OWNER = Symbol("owner");
type OwnedStream = ServerHttp2Stream & { [OWNER]: StreamOwner };

/**
 * Tells `owner` of the end of a stream, ignores its errors, and destroys it when a listener of it throws. Listeners and
 * `guarded` would do the same, and cost more: node emits an event for each listener that is added.
 */
export function ownStream(stream: ServerHttp2Stream, owner: StreamOwner): void {
  (stream as OwnedStream)[OWNER] = owner;
  stream.emit = emitOwned;
}

function emitOwned(this: OwnedStream, ...event: Parameters<ServerHttp2Stream["emit"]>): boolean {
  try {
    const name = event[0] as string;
    if (name === "aborted") this[OWNER].aborted(this);
    else if (name === "close") this[OWNER].closed(this);
    else if (name === "error" && this.listenerCount("error") === 0) return true;
    return emit.apply(this, event);
  } catch (error) {
    return listenerFailed([this, ...(event as readonly unknown[])], error);
  }
}

const { emit } = EventEmitter.prototype;

/**
 * Whether nghttp2 holds output back although the socket is empty: such output is never sent, because a violation of the
 * protocol has ended the session. Output for a peer that reads slowly waits in the socket.
 */
export function holdsOutputBack(session: Http2Session, socket: Socket): boolean {
  const { _handle: handle } = socket as { _handle?: { readonly writeQueueSize?: number } | null };
  return handle?.writeQueueSize === 0 && (session.state.outboundQueueSize ?? 0) > 0;
}

/**
 * Whether the system has closed a connection that node still waits to write to: over TLS node never ends a write that
 * follows a failed one, and does not read meanwhile (Node 20 to 24).
 */
export function isGone(socket: Socket): boolean {
  const { _handle: handle } = socket as {
    _handle?: { readonly writeQueueSize?: number; getpeername?(into: object): number } | null;
  };
  return (handle?.writeQueueSize ?? 0) > 0 && (handle?.getpeername?.({}) ?? 0) !== 0;
}

/**
 * Resets a stream. Node's `close` ends the body before that, as if it were whole (END_STREAM, then RST_STREAM; probed
 * with Node 20), and the peer would act on the half that it has.
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
