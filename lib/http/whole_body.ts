/**
 * Reads bodies as a whole, for plugins that have to know all of one before they decide, and keeps them to be sent all
 * the same.
 */
import { PassThrough, pipeline, Readable } from "node:stream";
import { systemClock, type Clock } from "../base/clock.ts";
import { Fault, ignore } from "../base/errors.ts";
import { guardedEmitter } from "../base/event_loop.ts";
import { pump } from "./body.ts";
import type { Exchange } from "./exchange.ts";
import { hasToken, headerValue, withoutHeader } from "./headers.ts";
import { LentBody } from "./lent_body.ts";
import { JoinedPieces } from "./pieces.ts";
import { discard, type Reply } from "./reply.ts";

const IDLE_MS = 60_000;
/** Bytes of request bodies that `readBody` holds at a time, in each worker. */
const MAX_HELD = 268_435_456;

let held = 0;

/**
 * Resolves with a copy of the whole request body, empty where there is none. The body is forwarded all the same:
 * `exchange.body` begins anew, and is read as often as needed. A client that waits for 100 (Continue) gets it here (RFC
 * 9110 §10.1.1). Call it before `exchange.with`: a copy that was made earlier still has the old stream.
 *
 * Rejects with a `Fault`, which a plugin lets pass: code "body_too_large" (413) for more than `maxBytes`, "bad_request"
 * if the body ends early, "request_timeout" if nothing comes for a minute, "overloaded" (503) if all such bodies
 * together have more than 256 MiB. Rejects with a `TypeError` if the body was read before, as a stream.
 */
export async function readBody(exchange: Exchange, maxBytes: number): Promise<Buffer> {
  const { body, call, headers } = exchange;
  if (body === null) return NONE;
  const most = bytesOf(maxBytes);
  const tooLarge = () => new Fault("body_too_large", `the body has more than ${most} bytes`);
  if (bytesIn(body) === null) {
    if (Number(headerValue(headers, "content-length") ?? 0) > most) throw tooLarge();
    refuseRead(body, brokenRequest);
    const expects = hasToken(headerValue(headers, "expect"), "100-continue");
    if (expects) call.inform(100, []);
    let own = 0;
    let isCounted = true;
    call.onEnd(() => {
      isCounted = false;
      held -= own;
    });
    const read = await wholeRequest(body, systemClock, ({ length: bytes }) => {
      if (own + bytes > most) return tooLarge();
      if (held + bytes > MAX_HELD)
        return new Fault("overloaded", `request bodies that plugins have read hold ${MAX_HELD} bytes`);
      own += bytes;
      if (isCounted) held += bytes;
      return null;
    });
    if (read instanceof Fault) throw read;
    // Node ends the body of a stream that is reset.
    if (call.aborted) throw brokenRequest(null);
    const kept = {
      body: new LentBody(Buffer.concat(read), ignore),
      headers: expects ? withoutHeader(headers, "expect") : headers,
    };
    Object.assign(exchange, kept);
  }
  const whole = bytesIn(exchange.body as LentBody)!;
  if (whole.length > most) throw tooLarge();
  return Buffer.from(whole);
}

/**
 * Resolves with a copy of the whole body of a reply, as the upstream has sent it (perhaps compressed), empty where
 * there is none. The reply can be returned all the same: `reply.body` begins anew. Event streams do not end: look at
 * the reply's headers first.
 *
 * Rejects with a `Fault`, which a plugin lets pass: code "upstream_invalid" (502) for more than `maxBytes`, that of the
 * upstream's failure if the body ends early. The body is destroyed then. Rejects with a `TypeError` if it was read
 * before, as a stream.
 */
export async function readReply(reply: Reply, maxBytes: number): Promise<Buffer> {
  const { body } = reply;
  if (body === null) return NONE;
  const most = bytesOf(maxBytes);
  const tooLarge = () => new Fault("upstream_invalid", `the response body has more than ${most} bytes`);
  const whole = bytesIn(body);
  if (whole !== null) {
    if (whole.length <= most) return Buffer.from(whole);
    discard(reply);
    throw tooLarge();
  }
  const stream = body as Readable;
  refuseRead(stream, brokenReply);
  let received = 0;
  const read = await wholeBody(stream, ({ length }) => ((received += length) > most ? tooLarge() : null), brokenReply);
  if (read instanceof Fault) {
    discard(reply);
    throw read;
  }
  // A stream, so that trailers can follow it.
  Object.assign(reply, { body: Readable.from(read, { objectMode: false }) });
  return Buffer.concat(read);
}

const NONE = Buffer.alloc(0);

function bytesOf(maxBytes: unknown): number {
  if (typeof maxBytes === "number" && maxBytes >= 0) return maxBytes;
  throw new TypeError("maxBytes must be a number of bytes");
}

/** All of a body that is in memory, and has no reader. */
function bytesIn(body: Buffer | Readable): Buffer | null {
  return body instanceof LentBody ? body.bytes : Buffer.isBuffer(body) ? body : null;
}

function refuseRead(body: Readable, broken: Broken): void {
  if (body.destroyed && !body.readableEnded) throw broken(body.errored);
  if (body.readableDidRead || body.readableFlowing !== null)
    throw new TypeError("the body has been read before, or is being read");
}

type Broken = (cause: Error | null) => Fault;

/** The chunks of a request's body, see `wholeBody`. Rejects with "request_timeout" if nothing comes for a minute. */
export function wholeRequest<Stop>(
  body: Readable,
  clock: Clock,
  take: (chunk: Buffer) => Stop | null,
): Promise<Buffer[] | Stop> {
  return wholeBody(body, take, brokenRequest, clock);
}

/**
 * The chunks of a reply's body, see `wholeBody`. Where reading stopped, the stream is paused behind the chunks that
 * `take` got, and can be read on.
 */
export function wholeReply<Stop>(body: Readable, take: Take<Stop>): Promise<Buffer[] | Stop> {
  return wholeBody(body, take, brokenReply);
}

/** A body with the pieces that have been read of it before the rest of it, see `wholeReply`. */
export function continued(pieces: readonly Buffer[], rest: Readable): Readable {
  const stream = guardedEmitter(new PassThrough());
  stream.on("error", ignore);
  for (const piece of pieces) stream.write(piece);
  pipeline(rest, stream, ignore);
  return stream;
}

/** Gets each chunk, and all pieces of the body with it. Null: reading goes on. */
type Take<Stop> = (chunk: Buffer, pieces: readonly Buffer[]) => Stop | null;

/**
 * The chunks of a body, or the result of `take` for the chunk at which reading stopped. Rejects with `broken` if the
 * body ends early.
 */
function wholeBody<Stop>(body: Readable, take: Take<Stop>, broken: Broken, clock?: Clock): Promise<Buffer[] | Stop> {
  return new Promise((resolve, reject) => {
    const pieces = new JoinedPieces();
    const write = (chunk: Buffer) => {
      timer?.restart();
      pieces.add(chunk);
      const stopped = take(chunk, pieces.all);
      if (stopped === null) return true;
      timer?.cancel();
      stop();
      resolve(stopped);
      return false;
    };
    const end = {
      done: () => {
        timer?.cancel();
        resolve(pieces.all);
      },
      broken: (cause: Error | null) => {
        timer?.cancel();
        reject(broken(cause));
      },
    };
    const timer = clock?.after(IDLE_MS, () => {
      stop();
      reject(new Fault("request_timeout", `the client sent nothing for ${IDLE_MS} ms`));
    });
    const stop = pump(body, { write, once: ignore }, end);
  });
}

const brokenRequest: Broken = (cause) =>
  cause instanceof Fault ? cause : new Fault("bad_request", "the request body ended early", cause ?? undefined);
const brokenReply: Broken = (cause) =>
  cause instanceof Fault ? cause : new Fault("upstream_reset", "the response body ended early", cause ?? undefined);
