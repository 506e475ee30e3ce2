/**
 * Sends a request to an upstream over HTTP/2, on one stream.
 */
import http2, { type ClientHttp2Session, type ClientHttp2Stream, type OutgoingHttpHeaders } from "node:http2";
// Node's own function: see `base/event_loop.ts`.
import { setImmediate } from "node:timers";
import type { Readable } from "node:stream";
import type { Clock, HasDeadline, Timer } from "../base/clock.ts";
import { entry, guardedEmitter } from "../base/event_loop.ts";
import { Fault } from "../base/errors.ts";
import { pump } from "../http/body.ts";
import type { Exchange } from "../http/exchange.ts";
import { cancelWhenDestroyed, detectTruncatedBody, keepOpenUntilRead, resetStream } from "../http/h2_streams.ts";
import { h2Fields } from "../http/h2_fields.ts";
import { hasToken, headerValue, headerValues, withoutHeader, type HeaderList } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { Unsent, UploadRefused } from "./faults.ts";
import {
  isBodiless,
  receivedHeaders,
  requestHead,
  requestTrailers,
  switchHeaders,
  trailerFields,
  websocketAccept,
} from "./heads.ts";
import type { ResponseHead, UpstreamRequestHead } from "./heads.ts";
import type { PoolOptions } from "./connect.ts";
import { SessionPool, type Session } from "./sessions.ts";
import {
  asksForContinue,
  bodyFault,
  clientDisconnected,
  connectTimeLeft,
  DRAIN_MS,
  inform,
  isReplayable,
  MOVING,
  overdueFault,
  silenceFault,
} from "./try.ts";
import type { Phase, RunningTry, Try, UpstreamDestination } from "./try.ts";

const { NGHTTP2_CANCEL, NGHTTP2_FLAG_END_STREAM, NGHTTP2_PROTOCOL_ERROR, NGHTTP2_REFUSED_STREAM } = http2.constants;

/** Connections to one upstream over HTTP/2. */
export function http2Pool(options: PoolOptions, maxConnections: number, clock: Clock): SessionPool {
  return new SessionPool(options, maxConnections, clock, forwardHttp2);
}

/** As `forward` in `attempts.ts`. */
export async function forwardHttp2(attempt: Try<SessionPool>): Promise<Reply> {
  const { exchange } = attempt;
  const { call } = exchange;
  // A plugin may have taken longer than the client waited.
  if (call.aborted) throw clientDisconnected();
  if (
    exchange.upgrade !== null &&
    exchange.httpVersion !== "2.0" &&
    !isWebsocketKey(headerValues(exchange.headers, "sec-websocket-key"))
  ) {
    // HTTP/2 has no such key: the gateway answers it, and the upstream cannot check it.
    return problem(call, "bad_request", {
      detail: "A request for a WebSocket needs one Sec-WebSocket-Key of 16 bytes in base64.",
    });
  }
  const first = await lease(attempt, null);
  try {
    return await send(attempt, first);
  } catch (fault) {
    if (!(fault instanceof Unserved) || call.aborted) throw fault;
    return send(attempt, await lease(attempt, first));
  }
}

/** Whether a request has one Sec-WebSocket-Key, of 16 bytes in base64 (RFC 6455 §4.2.1). */
export function isWebsocketKey(values: readonly string[]): boolean {
  return values.length === 1 && /^[A-Za-z0-9+/]{22}==$/.test(values[0]!);
}

/**
 * The upstream has not processed the request, or an idle connection broke as it was used; and the request can be sent
 * again.
 */
class Unserved extends Unsent {}

/**
 * A lease on a session whose upstream has sent its SETTINGS: how many streams, and whether WebSockets. More streams
 * would be refused, or wait in Node behind the others although another connection has room.
 */
async function lease(attempt: Try<SessionPool>, except: Session | null): Promise<Session> {
  const {
    to: { pool },
    exchange: { call },
  } = attempt;
  for (let full = except; ;) {
    const free = pool.tryLease(call.holder, full) ?? pool.tryLease(call.holder);
    const session = free ?? (await pool.leases.wait(call, connectTimeLeft(attempt)));
    if (!session.isSettled) await settled(session, attempt);
    if (!session.isOverfull) return session;
    session.release(call.holder);
    full = session;
  }
}

async function settled(session: Session, attempt: Try<SessionPool>): Promise<void> {
  const ms = connectTimeLeft(attempt);
  let timer: Timer | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      timer = attempt.options.clock.after(ms, () => {
        session.isOverdue = true;
        reject(new Unsent("upstream_timeout", `no connection within ${ms} ms`));
      });
      session.settled.then(resolve, reject);
      attempt.exchange.call.onAbort(() => reject(clientDisconnected()));
    });
  } catch (fault) {
    session.release(attempt.exchange.call.holder);
    throw fault;
  } finally {
    timer?.cancel();
  }
}

/** The lease ends with the stream. */
function send(attempt: Try<SessionPool>, session: Session): Promise<Reply> | Reply {
  const { exchange, to, options } = attempt;
  const { call } = exchange;
  // An upstream that has not said that it accepts an extended CONNECT must not be sent one (RFC 8441 §3).
  if (exchange.upgrade !== null && !session.allowsWebSockets) {
    session.release(attempt.exchange.call.holder);
    const detail = "The service behind this route is reached over HTTP/2 and accepts no WebSockets there.";
    return problem(call, "upstream_invalid", {
      detail,
      why: "the upstream's SETTINGS do not allow extended CONNECT (RFC 8441)",
    });
  }
  try {
    const head = requestHead(exchange, to, options);
    const fields = requestFields(exchange, to, head.headers);
    if (listBytes(fields) > MAX_HEAD_BYTES) {
      session.release(attempt.exchange.call.holder);
      return problem(call, "headers_too_large", {
        detail: HEAD_TOO_LARGE,
        why: "nghttp2 sends no more than 64 KiB in one head",
      });
    }
    // A body of stated length has trailers only if the client speaks HTTP/2 too; waiting for them costs a frame.
    const waitForTrailers = exchange.body !== null && (head.length === Infinity || exchange.httpVersion === "2.0");
    const stream = open(session.http2!, fields, {
      endStream: exchange.body === null && exchange.upgrade === null,
      waitForTrailers,
    });
    return new Promise((resolve, reject) =>
      new Http2Request(attempt, session, stream, resolve, reject).begin(head, waitForTrailers),
    );
  } catch (error) {
    session.release(attempt.exchange.call.holder);
    if (error instanceof Unserved) session.drain();
    throw error instanceof Fault ? error : new Fault("internal", "the request could not be written", error);
  }
}

class Http2Request implements RunningTry, HasDeadline {
  readonly attempt: Try<SessionPool>;
  phase: Phase = "sending";
  index = -1;
  /** When the present phase, the try before a response, or the whole has to be over. */
  dueAt = Infinity;
  awaitsContinue = false;
  replyBody: Readable | null = null;
  readonly #resolve: (reply: Reply | Promise<Reply>) => void;
  readonly #reject: (fault: Fault) => void;
  readonly #session: Session;
  readonly #stream: ClientHttp2Stream;
  #trailers: HeaderList = [];
  /** Bytes that had arrived from the upstream when the whole request was sent; -1 if that is of no use. */
  #bytesRead = -1;
  #hasLease = true;
  #stopUpload: (() => void) | null = null;

  constructor(
    attempt: Try<SessionPool>,
    session: Session,
    stream: ClientHttp2Stream,
    resolve: (reply: Reply | Promise<Reply>) => void,
    reject: (fault: Fault) => void,
  ) {
    this.attempt = attempt;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#session = session;
    this.#stream = stream;
  }

  begin(head: UpstreamRequestHead, waitsForTrailers: boolean): void {
    const { exchange, tryEndsAt } = this.attempt;
    const { body } = exchange;
    const stream = guardedEmitter(this.#stream);
    detectTruncatedBody(stream);
    this.#endWithReset();
    this.#listen();
    stream.on("timeout", () => this.#silent());
    stream.once("finish", () => this.#awaitResponse());
    stream.on("headers", (_fields: object, _flags: number, raw: HeaderList) => {
      if (this.phase !== "over") inform(this, Number(raw[1]), raw.slice(2));
    });
    stream.once("response", (_fields: object, flags: number, raw: HeaderList) => this.#answered(raw, flags));
    stream.once("trailers", (_fields: object, _flags: number, raw: HeaderList) => (this.#trailers = raw));
    stream.on("error", (error: NodeJS.ErrnoException) => {
      // A connection can carry 2^30 requests (RFC 9113 §5.1.1).
      if (error.code === "ERR_HTTP2_OUT_OF_STREAMS") this.#session.drain();
      if (this.phase !== "over") this.#fail(this.#faultOf(error));
    });
    stream.once("close", () => this.#closed());
    exchange.call.onAbort(() => this.#fail(clientDisconnected()));
    if (body === null) return this.#awaitResponse();
    if (this.phase === "over") return;
    this.#watch(0, tryEndsAt);
    if (waitsForTrailers) stream.once("wantTrailers", () => this.#sendTrailers());
    this.awaitsContinue = asksForContinue(exchange);
    const broken = (cause: Error | null) => this.#fail(bodyFault(cause));
    this.#stopUpload = pump(body, stream, { done: () => void stream.end(), broken }, head.length);
  }

  get awaitsBody(): boolean {
    return this.#stream.writableLength === 0 && !this.#stream.writableEnded;
  }

  #awaitResponse(): void {
    if (this.phase !== "sending") return;
    this.#bytesRead = this.#session.socket.bytesRead;
    this.phase = "waiting";
    this.#watch(this.attempt.options.responseMs, this.attempt.tryEndsAt);
  }

  #sendTrailers(): void {
    try {
      this.#stream.sendTrailers(h2Fields(requestTrailers(this.attempt.exchange)) ?? {});
    } catch (error) {
      this.#fail(new Fault("internal", "the request's trailers could not be written", error));
    }
  }

  #answered(raw: HeaderList, flags: number): void {
    if (this.phase === "over") return;
    const { exchange, options, endsAt } = this.attempt;
    const { method, upgrade, body, call } = exchange;
    const stream = this.#stream;
    const status = Number(raw[1]);
    // nghttp2 wants three digits, `099` among them.
    if (status < 200) return this.#fail(new Fault("upstream_invalid", `the upstream answered with status ${raw[1]}`));
    const head: ResponseHead = { statusCode: status, httpVersion: "2.0", rawHeaders: raw.slice(2) };
    const headers = receivedHeaders(head, options.viaName);
    // A body that is destroyed cancels the request: Node would send NO_ERROR.
    cancelWhenDestroyed(stream, () => this.#finish());
    // Any 2xx answers a CONNECT with a tunnel (RFC 9113 §8.5).
    if (upgrade !== null && raw[1]!.startsWith("2")) return this.#switch(upgrade, headers);
    this.#bytesRead = -1;
    this.phase = "receiving";
    this.#watch(0, endsAt);
    // A refused WebSocket is an answered request: nothing follows on it.
    if (upgrade !== null) stream.end();
    if (body !== null) {
      stream.once("end", () => {
        if (stream.writableEnded || this.phase !== "receiving") return;
        // An upload that goes on must not hold the lease for long.
        this.phase = "draining";
        this.#watch(DRAIN_MS, endsAt);
      });
    }
    call.onEnd(() => this.#watchUnread());
    const isEmpty = (flags & NGHTTP2_FLAG_END_STREAM) !== 0 || isBodiless(method, status);
    // A body of no bytes is still a body if trailers may follow, as in gRPC errors. A stream without one is read: it
    // would not end.
    if (isEmpty) stream.resume();
    else keepOpenUntilRead(stream);
    const give = () => {
      if (this.phase === "over") return;
      this.replyBody = stream;
      this.#resolve({ status, headers, body: isEmpty ? null : stream, trailers: () => trailerFields(this.#trailers) });
    };
    // By the end of this round Node reports what came in one packet with the head and makes it invalid, such as a body
    // of another length than it states.
    if (isEmpty) give();
    else setImmediate(entry("a response", give));
  }

  /** Answers the client's upgrade with a 101: the stream carries the bytes that a socket would. */
  #switch(protocol: string, received: HeaderList): void {
    const { exchange, options } = this.attempt;
    this.#finish();
    let headers = withoutHeader(received, "sec-websocket-accept");
    if (exchange.httpVersion !== "2.0") {
      headers = [
        ...headers,
        "Sec-WebSocket-Accept",
        websocketAccept(headerValue(exchange.headers, "sec-websocket-key")!),
      ];
    }
    const tunnel = { socket: this.#stream, head: Buffer.alloc(0), idleMs: options.idleMs };
    this.#resolve({ status: 101, headers: switchHeaders(protocol, headers), body: null, tunnel });
  }

  get #isRead(): boolean {
    return this.#stream.readableDidRead || this.#stream.readableFlowing !== null;
  }

  /**
   * The client has its reply, and this one may never be read: Node has stopped the stream's timeout, and it would never
   * end.
   */
  #watchUnread(): void {
    const { exchange, options, endsAt } = this.attempt;
    if (this.phase === "receiving" && !exchange.call.aborted && !this.#isRead) this.#watch(options.idleMs, endsAt);
  }

  /** Measures another `idleMs` of silence. */
  #listen(): void {
    this.#stream.setTimeout(this.attempt.options.idleMs);
  }

  #silent(): void {
    if (!MOVING.has(this.phase)) return;
    const fault = silenceFault(this);
    if (fault !== null) this.#fail(fault);
    else this.#listen();
  }

  /** Sets the deadline of the present phase: in `ms` milliseconds (0: it has none), and at `latest` in any case. */
  #watch(ms: number, latest: number): void {
    this.attempt.to.pool.deadlines.watch(this, ms, latest);
  }

  overdue(now: number): void {
    const fault = overdueFault(this, now);
    if (fault !== null) return this.#fail(fault);
    // A reader that has begun may take its time.
    if (this.phase !== "draining" && this.#isRead) return this.#watch(0, this.attempt.endsAt);
    const { phase } = this;
    this.#finish();
    if (phase === "draining") resetStream(this.#stream, NGHTTP2_CANCEL);
    else this.#stream.destroy();
  }

  #fail(fault: Fault): void {
    const { phase, replyBody } = this;
    if (phase === "over") return;
    this.#finish();
    this.#close(fault);
    // The client has the whole response: later faults do not concern it.
    if (phase === "draining") return;
    if (replyBody === null) return this.#reject(fault);
    replyBody.destroy(fault);
    if (!this.attempt.exchange.call.aborted) this.attempt.to.brokeOff(fault);
  }

  #finish(): void {
    this.phase = "over";
    this.attempt.to.pool.deadlines.remove(this);
    this.#stopUpload?.();
    this.#stopUpload = null;
  }

  #close(fault: Fault): void {
    const session = this.#session;
    if (fault.code === "upstream_timeout") session.probe(this.#bytesRead);
    // A client that gives up early says as much, if nothing at all has arrived since.
    else if (this.attempt.exchange.call.aborted && this.#bytesRead === session.socket.bytesRead) session.clientLeft();
    resetStream(this.#stream, NGHTTP2_CANCEL);
    if (this.replyBody === null) this.#stream.destroy();
  }

  /**
   * The lease ends with a reset, also one of a tunnel: after a violation of the protocol Node would never report the
   * stream's end.
   */
  #endWithReset(): void {
    const stream = this.#stream;
    const { close } = stream;
    stream.close = (code) => {
      close.call(stream, code);
      this.#release();
      setImmediate(this.#session.checkOutput);
    };
  }

  #release(): void {
    if (!this.#hasLease) return;
    this.#hasLease = false;
    this.#session.release(this.attempt.exchange.call.holder);
  }

  #closed(): void {
    this.#release();
    const { phase } = this;
    if (phase === "receiving" && this.replyBody === null) return this.#fail(this.#faultOf(null));
    if (phase === "receiving") {
      // To Node neither the end of the connection nor a reset with some codes is an error.
      const isBroken = !this.#stream.readableEnded && !this.attempt.exchange.call.aborted;
      if (isBroken)
        this.attempt.to.brokeOff(new Fault("upstream_reset", "the stream ended in the middle of a response"));
    }
    if (phase === "receiving" || phase === "draining") this.#finish();
    // A reset that is no error to Node: CANCEL, or NO_ERROR.
    else if (phase !== "over") this.#fail(this.#faultOf(null));
  }

  #faultOf(error: NodeJS.ErrnoException | null): Fault {
    const { rstCode, id } = this.#stream;
    const { exchange } = this.attempt;
    const why = error?.message ?? `the upstream reset the stream (code ${rstCode})`;
    if (this.phase !== "receiving") {
      // RFC 9113 §8.7: a refused stream, or one beyond a GOAWAY, has not been processed, whatever the method.
      const isUnprocessed = rstCode === NGHTTP2_REFUSED_STREAM || id === undefined || id > this.#session.lastStream;
      // The connection broke: as in HTTP/1.1, only if it had served before.
      const isStale = id !== 1 && this.#session.http2!.destroyed && isReplayable(exchange);
      // A body has been read: only the caller, which may have kept it, can send it again.
      if (isUnprocessed || isStale)
        return new (exchange.body === null ? Unserved : Unsent)("upstream_reset", why, error ?? undefined);
    }
    // A session that was destroyed has its own fault.
    if (error instanceof Fault) return error;
    // Also if Node could not parse the response.
    const isInvalid = rstCode === NGHTTP2_PROTOCOL_ERROR || error?.code === "ERR_HTTP2_ERROR";
    if (isInvalid) return new Fault("upstream_invalid", why, error ?? undefined);
    const isUploading = this.phase === "sending" && exchange.body !== null;
    return new (isUploading ? UploadRefused : Fault)("upstream_reset", why, error ?? undefined);
  }
}

function open(
  session: ClientHttp2Session,
  fields: OutgoingHttpHeaders,
  options: http2.ClientSessionRequestOptions,
): ClientHttp2Stream {
  // It may have ended since the lease. Newer Nodes report that later, by an error of the stream, when a part of the
  // body may be lost.
  if (session.closed || session.destroyed) throw new Unserved("upstream_reset", "the connection has ended");
  return session.request(fields, options);
}

/** Throws when a header cannot be written. */
function requestFields(
  exchange: Exchange,
  to: UpstreamDestination<SessionPool>,
  list: HeaderList,
): OutgoingHttpHeaders {
  const fields = Object.create(null) as OutgoingHttpHeaders;
  fields[":method"] = exchange.method;
  fields[":scheme"] = to.pool.options.protocol === "h2" ? "https" : "http";
  fields[":authority"] = headerValue(list, "host");
  fields[":path"] = exchange.upstreamPath + exchange.query;
  if (h2Fields(list, fields) === null) throw new Fault("internal", "a header of the request cannot be written");
  delete fields["host"];
  if (exchange.upgrade !== null) {
    // RFC 8441 §4, §5: the equivalent of an HTTP/1.1 upgrade with GET, without its key.
    fields[":method"] = "CONNECT";
    fields[":protocol"] = exchange.upgrade;
    delete fields["sec-websocket-key"];
    delete fields["content-length"];
  }
  if (hasToken(headerValue(list, "te"), "trailers")) fields["te"] = "trailers";
  return fields;
}

/** The most bytes that nghttp2 counts for packing a field, and a list. */
const FIELD_BYTES = 12;
const LIST_BYTES = 32;
/** The largest head that nghttp2 sends, as it counts before packing; for a larger one Node destroys the connection. */
const MAX_HEAD_BYTES = 64 * 1024 - LIST_BYTES;
const HEAD_TOO_LARGE =
  "The service behind this route is reached over HTTP/2, " +
  "where a request's header fields may have at most 64 KiB together.";

function listBytes(fields: OutgoingHttpHeaders): number {
  let bytes = 0;
  for (const name in fields) {
    const value = fields[name];
    if (typeof value === "string") bytes += name.length + value.length + FIELD_BYTES;
    else if (Array.isArray(value)) for (const each of value) bytes += name.length + each.length + FIELD_BYTES;
  }
  return bytes;
}
