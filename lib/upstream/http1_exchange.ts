/**
 * One exchange with an upstream over HTTP/1.1: a lease, a connection, the request as one text, the response by our own
 * parser or by Node's, and the end of the lease.
 *
 * ```
 *            connected           all is sent          head of the response      response is complete
 * connecting ─────────► sending ────────────► waiting ───────────────────► receiving ─┬──────────► over: the connection
 *     │                    │                                                ▲         │            is kept, or closed
 *     │                    └──── the response comes before all is sent ─────┘         └─► draining ─► over
 *     │                                                                                   (the upload goes on, 100 ms)
 *     └──► over: a reused connection was dead; once more on a new one
 * ```
 *
 * A fault, a deadline, a client that disconnects, and a reader that gives the body of the reply up lead from every
 * phase to "over", and close the connection. In every phase but "over" the exchange holds its lease, and is the user of
 * its connection; in "over" it does nothing any more.
 */
import { Readable } from "node:stream";
import { entry, writeText, type ReadyWrite } from "../base/event_loop.ts";
import { connectFailure, Fault, ignore } from "../base/errors.ts";
import { IDEMPOTENT } from "../base/http_grammar.ts";
import type { HasDeadline } from "../base/clock.ts";
import { pump, writeChunk, type Sink } from "../http/body.ts";
import { NO_TRAILERS } from "../http/body_reader.ts";
import { hasToken, headerValue } from "../http/headers.ts";
import { withHead, LentBody, lentCopy } from "../http/lent_body.ts";
import type { Reply } from "../http/reply.ts";
import { ResponseBody, type Connection, type ConnectionUser, type Http1Pool } from "./pool.ts";
import { faultCode, Stale, UploadRefused } from "./faults.ts";
import {
  fieldLines,
  headText,
  receivedHeaders,
  replyOf,
  requestHead,
  requestTrailers,
  switchHeaders,
  trailerFields,
  type ResponseHead,
  type UpstreamRequestHead,
} from "./heads.ts";
import type { ResponseSink } from "./response_parser.ts";
import {
  asksForContinue,
  bodyFault,
  clientDisconnected,
  connectTimeLeft,
  DRAIN_MS,
  inform,
  isReplayable,
  isUntouched,
  MOVING,
  overdueFault,
  silenceFault,
  type Phase,
  type RunningTry,
  type Try,
} from "./try.ts";

/** As `forward` in `attempts.ts`. Not async: one more promise costs as much as a header. */
export function forwardHttp1(attempt: Try<Http1Pool>): Promise<Reply> {
  const { call } = attempt.exchange;
  // A plugin may have taken longer than the client waited.
  if (call.aborted) return Promise.reject(clientDisconnected());
  const { pool } = attempt.to;
  if (pool.tryLease(call.holder) !== null) return send(attempt);
  return pool.leases.wait(call, connectTimeLeft(attempt)).then(() => send(attempt));
}

/** The lease ends when the connection is free again. */
function send(attempt: Try<Http1Pool>): Promise<Reply> {
  return new Promise((resolve, reject) => {
    try {
      new Http1Exchange(attempt, resolve, reject).begin();
    } catch (error) {
      attempt.to.pool.leases.release(attempt.exchange.call.holder);
      reject(new Fault("internal", "the request could not be written", error));
    }
  });
}

class Http1Exchange implements RunningTry, HasDeadline, ConnectionUser, ReadyWrite, ResponseSink, Sink {
  readonly attempt: Try<Http1Pool>;
  phase: Phase = "connecting";
  index = -1;
  /** When the present phase, the try before a response, or the whole has to be over. */
  dueAt = Infinity;
  awaitsContinue = false;
  replyBody: Readable | null = null;
  readonly #resolve: (reply: Reply | Promise<Reply>) => void;
  readonly #reject: (fault: Fault) => void;
  readonly #connection: Connection;
  readonly #head: UpstreamRequestHead;
  readonly #text: string;
  /** The request's body, if all of it is in memory. */
  #bytes: Buffer | null = null;
  /** Whether any byte has arrived on this connection for this request. */
  #hasReceived = false;
  /**
   * Whether the first bytes have been handed to the system: an error before, or meanwhile, means that it has taken
   * none.
   */
  #isSent = false;
  #isWritten = false;
  /** Parts of the body that wait for the end of the round. */
  #small: Buffer[] | null = null;
  /** Nothing more can be written; an answer that arrived before is read first. */
  #writeError: NodeJS.ErrnoException | null = null;
  #response: ResponseHead | null = null;
  /**
   * The part of the response body that arrived before the reply was returned; a `LentBody` if a large body is complete.
   */
  #first: Buffer | LentBody | null = null;
  #body: ResponseBody | null = null;
  #trailers: readonly string[] = NO_TRAILERS;
  #stopUpload: (() => void) | null = null;

  /** Throws if the head cannot be written, or if Node cannot begin to connect. */
  constructor(
    attempt: Try<Http1Pool>,
    resolve: (reply: Reply | Promise<Reply>) => void,
    reject: (fault: Fault) => void,
  ) {
    this.attempt = attempt;
    this.#resolve = resolve;
    this.#reject = reject;
    const { exchange, to, options } = attempt;
    this.#head = requestHead(exchange, to, options);
    this.#text = headText(exchange.method, exchange.upstreamPath + exchange.query, this.#head.headers);
    this.#connection = to.pool.connection(exchange.upgrade === null ? "exchange" : "upgrade", exchange.clientAddress);
  }

  begin(): void {
    const { exchange, options, tryEndsAt } = this.attempt;
    this.#connection.user = this;
    exchange.call.onAbort(() => this.#fail(clientDisconnected()));
    if (this.#connection.isConnected) this.connected();
    else if (this.phase === "connecting") this.#watch(options.connectMs, tryEndsAt);
  }

  connected(): void {
    if (this.phase !== "connecting") return;
    const { exchange, options, to, tryEndsAt } = this.attempt;
    const { method, body } = exchange;
    const connection = this.#connection;
    connection.beginResponse(method, this, options.parser);
    this.phase = "sending";
    // Without a body, a request that can be repeated need not know how much of it was sent.
    if (body !== null || !IDEMPOTENT.has(method)) connection.guardWrites();
    this.#isWritten = body === null || this.#takeWhole(body);
    if (body !== null) this.#watch(0, tryEndsAt);
    if (!this.#isWritten) connection.setSilence(options.idleMs);
    // A new connection sends at once: bytes that arrive before that may be its refusal.
    if (connection.isReused) to.pool.options.writeBatch.add(this);
    else this.writeNow();
    if (body === null) this.#awaitResponse();
  }

  unasked(): void {
    if (this.phase === "draining") this.#leave("spent");
    else this.failed(ANSWERED_EARLY);
  }

  invalid(why: string): void {
    this.#fail(new Fault("upstream_invalid", why));
  }

  received(): void {
    this.#hasReceived = true;
    if (this.phase !== "receiving") return;
    // The rest of the body has yet to arrive.
    this.#connection.setSilence(this.attempt.options.idleMs);
    if (this.#body === null) this.#openBody();
  }

  endOfConnection(): void {
    if (this.phase === "over" || this.phase === "draining" || this.#connection.parser.endOfConnection()) return;
    this.failed(CONNECTION_ENDED);
  }

  failed(error: NodeJS.ErrnoException): void {
    if (this.phase === "over") return;
    const isUnsent = this.#connection.isReused && !this.#isSent;
    if (this.#isStale(error, isUnsent)) {
      const bytes = this.#bytes;
      const { client } = this.#connection;
      this.#leave("spent");
      // The other idle connections are as old; a server that tells clients apart may have closed those of one alone.
      this.attempt.to.pool.dropIdle(client);
      return this.#resolve(forwardHttp1({ ...this.attempt, bytes, isSecond: true }));
    }
    this.#fail(this.#faultOf(error, isUnsent));
  }

  /** What was handed to the system may arrive. Nothing else does: it can be sent again, whatever the method. */
  writeFailed(error: NodeJS.ErrnoException): void {
    if (this.phase === "over") return;
    this.#writeError = error;
    this.#endUpload();
    if (!this.#isSent) this.failed(error);
  }

  #faultOf(error: NodeJS.ErrnoException, isUnsent: boolean): Fault {
    const code = faultCode(error, this.phase === "connecting");
    const why = connectFailure(this.#writeError ?? error);
    if (isUnsent) return new Stale(code, why, error);
    const isUploading = this.#writeError !== null || (this.phase === "sending" && this.attempt.exchange.body !== null);
    return new (isUploading ? UploadRefused : Fault)(code, why, error);
  }

  /**
   * Whether to send again, once, on a new connection: the upstream closed an idle connection as it was used, before any
   * byte of a response, and the request is replayable (RFC 9112 §9.3.1) or not a byte of it was sent.
   */
  #isStale({ code }: NodeJS.ErrnoException, isUnsent: boolean): boolean {
    const { exchange, isSecond } = this.attempt;
    if (isSecond || this.#hasReceived || !this.#connection.isReused || (code !== "ECONNRESET" && code !== "EPIPE"))
      return false;
    if (!isUnsent) return isReplayable(exchange);
    return !exchange.call.aborted && (exchange.body === null || this.#bytes !== null || isUntouched(exchange.body));
  }

  closed(): void {
    this.#fail(new Fault("upstream_reset", "the connection closed before a response"));
  }

  /** Accepts a body that is in memory and as long as the head states; any other body is streamed. */
  #takeWhole(body: Readable): boolean {
    const isWhole = body instanceof LentBody && this.#head.length === body.byteLength;
    this.#bytes = this.attempt.bytes ?? (isWhole ? body.lend() : null);
    return this.#bytes !== null;
  }

  /** Sends the request, unless it was cancelled while it waited. */
  writeNow(): void {
    if (this.phase === "over") return;
    const { body, method } = this.attempt.exchange;
    const { socket, lendsBytes } = this.#connection;
    if (body !== null && this.#bytes === null) return this.#stream(body);
    // Plain connections, and no others, lend what they read. Guarded writes are the stream's.
    if (body === null && lendsBytes && IDEMPOTENT.has(method)) writeText(socket, this.#text);
    else if (this.#bytes === null) socket.write(this.#text, "latin1");
    else this.#sendWhole(withHead(this.#text, this.#bytes));
    this.#sent();
    if (body !== null) this.#written();
  }

  #sent(): void {
    this.#isSent = this.#connection.awaitsResponse = true;
  }

  /**
   * In one write: if the system took the head alone, and then nothing more, the request would count as unsent, and be
   * repeated.
   */
  #sendWhole(parts: readonly (Buffer | string)[]): void {
    const { socket } = this.#connection;
    if (parts.length > 1) socket.cork();
    for (const part of parts) socket.write(part, "latin1");
    if (parts.length > 1) socket.uncork();
  }

  #stream(body: Readable): void {
    const { socket } = this.#connection;
    socket.cork();
    socket.write(this.#text, "latin1");
    this.awaitsContinue = asksForContinue(this.attempt.exchange);
    const broken = (cause: Error | null) => this.#fail(bodyFault(cause));
    this.#stopUpload = pump(body, this, { done: () => this.#endBody(), broken }, this.#head.length);
    // What has arrived of the body flows in the next tick, and is in the same write; the head does not wait for more.
    process.nextTick(entry("the beginning of a body", () => this.#uncork()));
  }

  /**
   * Small parts of one round of the event loop leave as one: a client of HTTP/2 can send its body byte by byte, and
   * each part costs memory, a write of its own, and a chunk's frame of six bytes.
   */
  write(chunk: Buffer): boolean {
    if (this.#small === null) {
      if (chunk.length >= SMALL_BYTES) return this.#put(chunk);
      this.#small = [chunk];
      this.attempt.to.pool.options.writeBatch.add({ writeNow: () => void this.#putSmall() });
    } else if (this.#small.push(chunk) === MAX_SMALL) return this.#putSmall();
    return !this.#connection.socket.writableNeedDrain;
  }

  #putSmall(): boolean {
    const small = this.#small;
    // Another request may use the connection by now.
    if (small === null || this.phase === "over") return true;
    this.#small = null;
    return this.#put(small.length === 1 ? small[0]! : Buffer.concat(small));
  }

  #put(bytes: Buffer): boolean {
    const { socket } = this.#connection;
    return this.#head.length === Infinity ? writeChunk(socket, bytes) : socket.write(bytes);
  }

  #uncork(): void {
    this.#putSmall();
    this.#connection.socket.uncork();
    if (this.phase !== "over") this.#sent();
  }

  once(event: "drain", run: () => void): void {
    this.#connection.socket.once(event, run);
  }

  #endBody(): void {
    this.#putSmall();
    if (this.#head.length === Infinity) {
      let last: string;
      try {
        last = `0\r\n${fieldLines(requestTrailers(this.attempt.exchange))}\r\n`;
      } catch (error) {
        return this.#fail(new Fault("internal", "the request's trailers could not be written", error));
      }
      this.#connection.socket.write(last, "latin1");
    }
    this.#isWritten = true;
    if (this.phase === "draining") return this.#leave("reusable");
    this.#written();
  }

  /** The response is awaited once the request has been sent: an upstream that does not read is another fault. */
  #written(): void {
    const { socket } = this.#connection;
    if (this.phase !== "sending") return;
    if (socket.writableLength === 0) return this.#awaitResponse();
    this.#connection.setSilence(this.attempt.options.idleMs);
    socket.write(NO_BYTES, () => this.#awaitResponse());
  }

  get awaitsBody(): boolean {
    return this.#connection.socket.writableLength === 0 && !this.#isWritten;
  }

  informed(head: ResponseHead): void {
    if (this.phase !== "over") inform(this, head.statusCode, head.rawHeaders);
  }

  switched(head: ResponseHead, firstBytes: Buffer): void {
    if (this.phase === "over") return;
    const { exchange, options } = this.attempt;
    const { upgrade } = exchange;
    if (upgrade === null || !hasToken(headerValue(head.rawHeaders, "upgrade"), upgrade)) {
      return this.#fail(new Fault("upstream_invalid", "the upstream switched to a protocol that was not requested"));
    }
    if (this.#head.accept !== null && headerValue(head.rawHeaders, "sec-websocket-accept") !== this.#head.accept) {
      return this.#fail(new Fault("upstream_invalid", "the upstream's Sec-WebSocket-Accept does not match the key"));
    }
    this.#finish();
    const socket = this.#connection.detach();
    socket.once("close", () => this.#release());
    socket.on("error", ignore);
    this.#resolve({
      status: 101,
      headers: switchHeaders(upgrade, receivedHeaders(head, options.viaName)),
      body: null,
      tunnel: { socket, head: firstBytes, idleMs: options.idleMs },
    });
  }

  answered(head: ResponseHead, whole: Buffer | null): void {
    if (this.phase === "over") return;
    this.#response = head;
    this.phase = "receiving";
    this.#watch(0, this.attempt.endsAt);
    if (whole === null || !this.#connection.lendsBytes) this.#first = whole;
    else this.#first = whole.length >= LENT_BYTES ? lentCopy(whole) : Buffer.from(whole);
  }

  body(part: Buffer): void {
    if (this.phase === "over") return;
    const bytes = this.#connection.lendsBytes ? Buffer.from(part) : part;
    if (this.#body === null && this.#first === null) {
      this.#first = bytes;
      return;
    }
    this.#body ??= this.#openBody();
    this.#body.deliver(bytes);
  }

  ended(trailers: readonly string[], connection: "reusable" | "spent"): void {
    if (this.phase === "over") return;
    const { exchange, options, endsAt } = this.attempt;
    this.#connection.awaitsResponse = false;
    this.#trailers = trailers;
    if (this.#body === null && trailers.length > 0) this.#openBody();
    const body = this.#body;
    // After a refused upgrade it is unclear whether the upstream continues with HTTP.
    if (connection === "spent" || exchange.upgrade !== null || this.#writeError !== null) this.#leave("spent");
    else if (this.#isWritten) this.#leave("reusable");
    else {
      // An upload that goes on must not hold the lease for long.
      this.phase = "draining";
      this.#watch(DRAIN_MS, endsAt);
      // If the end of the body left the socket paused, bytes after it would be hidden from this request and go to the
      // next one.
      if (this.#connection.socket.isPaused()) this.#connection.socket.resume();
    }
    if (body !== null) body.complete();
    // All of it arrived at once: there is nothing to stream.
    else this.#resolve(replyOf(exchange.method, this.#response!, options.viaName, this.#first ?? NO_BYTES));
  }

  /** Gives the reply, with a body that is read as it arrives. */
  #openBody(): ResponseBody {
    const { exchange, options } = this.attempt;
    const body = new ResponseBody(this.#connection, () => {
      if (this.phase === "receiving") this.#leave("spent");
    });
    this.#body = this.replyBody = body;
    // A lent body is complete: it is never followed by more.
    if (Buffer.isBuffer(this.#first)) body.deliver(this.#first);
    this.#first = null;
    this.#resolve(
      replyOf(exchange.method, this.#response!, options.viaName, body, () => trailerFields(this.#trailers)),
    );
    return body;
  }

  /** The response is awaited from now on. */
  #awaitResponse(): void {
    if (this.phase !== "sending") return;
    this.phase = "waiting";
    this.#watch(this.attempt.options.responseMs, this.attempt.tryEndsAt);
  }

  /** Sets the deadline of the present phase: in `ms` milliseconds (0: it has none), and at `latest` in any case. */
  #watch(ms: number, latest: number): void {
    this.attempt.to.pool.deadlines.watch(this, ms, latest);
  }

  overdue(now: number): void {
    const fault = overdueFault(this, now);
    if (fault !== null) this.#fail(fault);
    else this.#leave("spent");
  }

  silent(): void {
    if (!MOVING.has(this.phase)) return;
    const fault = silenceFault(this);
    if (fault !== null) this.#fail(fault);
    else this.#connection.socket.setTimeout(this.attempt.options.idleMs);
  }

  #fail(fault: Fault): void {
    const { phase, replyBody } = this;
    if (phase === "over") return;
    this.#finish();
    this.#close();
    // The client has the whole response: later faults do not concern it.
    if (phase === "draining") return;
    if (replyBody === null) return this.#reject(fault);
    replyBody.destroy(fault);
    if (!this.attempt.exchange.call.aborted) this.attempt.to.brokeOff(fault);
  }

  #finish(): void {
    this.phase = "over";
    this.attempt.to.pool.deadlines.remove(this);
    this.#endUpload();
  }

  #endUpload(): void {
    this.#stopUpload?.();
    this.#stopUpload = null;
  }

  #close(): void {
    this.#connection.end();
    this.#release();
  }

  #release(): void {
    const { to, exchange } = this.attempt;
    to.pool.leases.release(exchange.call.holder);
  }

  #leave(connection: "reusable" | "spent"): void {
    this.#finish();
    if (connection === "spent") return this.#close();
    // The upstream's system has all of it, and behind a response it is not sent again.
    if (this.#bytes !== null && this.#connection.socket.writableLength === 0)
      (this.attempt.exchange.body as LentBody).giveBack();
    this.attempt.to.pool.giveBack(this.#connection);
    this.#release();
  }
}

/** The error that Node reports for a connection that ends where a response was due. */
const CONNECTION_ENDED: NodeJS.ErrnoException = Object.assign(new Error("the connection ended"), {
  code: "ECONNRESET",
});
const ANSWERED_EARLY: NodeJS.ErrnoException = Object.assign(new Error("a response came before the request"), {
  code: "ECONNRESET",
});
const NO_BYTES = Buffer.alloc(0);
/** From this size on, a copy into separate memory costs more than a stream. */
const LENT_BYTES = 16 * 1024;
/** Smaller parts of a request's body wait for the end of the round, at most so many. */
const SMALL_BYTES = 1024;
const MAX_SMALL = 256;
