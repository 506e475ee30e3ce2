/**
 * Ends a request over HTTP/2 whose body takes too long to arrive, or comes too slowly: what `limits.ts` and node's own check do for
 * HTTP/1. How the request is ended then is the caller's affair.
 */
import type { ServerHttp2Stream } from "node:http2";
import type { Clock } from "../base/clock.ts";
import { countBytes } from "../http/body.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { isLive, type Limits, type Uploads } from "./limits.ts";

export interface StreamUpload {
  readonly stream: ServerHttp2Stream;
  readonly headers: HeaderList;
  readonly limits: Limits;
  /** Called once at most, with the reason for the log. */
  readonly tooSlow: (why: string) => void;
}

/** Watches the body of a request whose stream has not ended with its head, until the stream closes. */
export function watchStream({ stream, headers, limits, tooSlow }: StreamUpload, uploads: Uploads, clock: Clock): void {
  const { minBodyBytesPerS, requestTimeoutMs } = limits;
  if (minBodyBytesPerS > 0) {
    let received = 0;
    countBytes(stream, (bytes) => (received += bytes));
    const asks = headerValue(headers, "expect") !== undefined;
    const endWatch = uploads.watch(
      {
        received: () => received,
        // Bodies of others that are not read do not hold this one back: node gives the connection's window back as bytes come.
        awaited: () =>
          stream.readableFlowing === true && !isWhole(stream) && (!asks || isContinued(stream)) && !(stream.headersSent && isLive(headers)),
        tooSlow: () => tooSlow("the body arrives too slowly"),
      },
      minBodyBytesPerS,
    );
    stream.once("close", endWatch);
  }
  if (requestTimeoutMs > 0) {
    const timer = clock.after(requestTimeoutMs, () => {
      if (!isWhole(stream)) tooSlow(`the request was not whole after ${requestTimeoutMs} ms`);
    });
    stream.once("close", () => timer.cancel());
  }
}

/** Whether the client has sent its END_STREAM. */
function isWhole(stream: ServerHttp2Stream): boolean {
  return stream.destroyed || stream.state.remoteClose === 1;
}

function isContinued({ sentInfoHeaders }: ServerHttp2Stream): boolean {
  return sentInfoHeaders?.some((fields) => fields[":status"] === 100) === true;
}
