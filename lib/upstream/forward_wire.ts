/**
 * Sends one exchange to one peer over HTTP/1.1, the gateway's own way: the head as one string, the response read by a parser of our own,
 * no object of node's for either. Its promise is `forward.ts`'s; choosing the peer and turning faults into replies is `attempts.ts`.
 */
import { Readable } from "node:stream";
import { Fault } from "../base/errors.ts";
import type { HasDeadline } from "../base/deadline_timer.ts";
import { pump, writeChunk, type Sink } from "../http/body.ts";
import type { Exchange } from "../http/exchange.ts";
import { hasToken, headerValue } from "../http/headers.ts";
import { LentBody } from "../http/lent_body.ts";
import type { Reply } from "../http/reply.ts";
import type { Connection, Occupant } from "./connection.ts";
import type { Destination } from "./destination.ts";
import { Unsent } from "./faults.ts";
import type { Pool } from "./pool.ts";
import { requestHead, type RequestHead } from "./request_head.ts";
import { writtenFields, writtenHead } from "./request_text.ts";
import { connectFailure } from "./addresses.ts";
import { informationHeaders, replyHeaders, replyOf, switchHeaders, type ResponseHead } from "./response_head.ts";
import type { ResponseSink } from "./response_parser.ts";
import { trailerFields } from "./trailers.ts";
import { clientGone, DRAIN_MS, faultCode, isStale, newTry, sendAgain, underLease, type ForwardOptions, type Try } from "./try.ts";
import { overdueUpload, stalledReply, stalledUpload } from "./upload.ts";

/** As `forward` of `forward.ts`. */
export function forwardWire(exchange: Exchange, peer: Destination<Pool>, options: ForwardOptions, endsAt: number): Promise<Reply> {
  return underLease(newTry(exchange, peer, options, endsAt), send);
}

/** One try on one connection. The lease it was given ends when the connection is free again. */
function send(one: Try<Pool>): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const { pool } = one.to;
    let connection: Connection;
    let head: RequestHead;
    let text: string;
    try {
      const { method, upstreamPath, query } = one.exchange;
      head = requestHead(one.exchange, one.to, one.options);
      text = writtenHead(method, upstreamPath + query, head.headers);
      connection = pool.connection(one.exchange.upgrade === null ? "exchange" : "upgrade");
    } catch (error) {
      pool.release();
      reject(new Fault("internal", "the request could not be written", error));
      return;
    }
    new WireExchange(one, connection, head, text, resolve, reject).begin();
  });
}

/** "draining": the response is whole, the request is not. */
type Phase = "connecting" | "sending" | "waiting" | "receiving" | "draining" | "over";

class WireExchange implements Occupant, ResponseSink, HasDeadline, Sink {
  readonly #try: Try<Pool>;
  readonly #connection: Connection;
  readonly #head: RequestHead;
  readonly #text: string;
  /** The whole body, where it is at hand. */
  #bytes: Buffer | null = null;
  readonly #resolve: (reply: Reply | Promise<Reply>) => void;
  readonly #reject: (fault: Fault) => void;
  /** As `HasDeadline`. */
  place = -1;
  #phase: Phase = "connecting";
  /** When the present phase has to be over; Infinity: no such moment. */
  #phaseEndsAt = Infinity;
  /** Whether anything has come on this connection for this exchange. */
  #heard = false;
  /** The client holds its body back until the upstream asks for it; cleared by the upstream's 100. */
  #awaitsContinue = false;
  #stopUpload: (() => void) | null = null;
  /** Whether the head of the request has left. */
  #hasDeparted = false;
  /** Whether all of the request has been written. */
  #isWritten = false;
  #onDrain: (() => void) | null = null;
  #response: ResponseHead | null = null;
  /** What has come of the body while nobody has the reply yet. */
  #first: Buffer | null = null;
  /** All of it at once, where that is much. */
  #whole: LentBody | null = null;
  #body: WireBody | null = null;
  #trailers: readonly string[] = NO_TRAILERS;

  constructor(one: Try<Pool>, connection: Connection, head: RequestHead, text: string, resolve: (reply: Reply | Promise<Reply>) => void, reject: (fault: Fault) => void) {
    this.#try = one;
    this.#connection = connection;
    this.#head = head;
    this.#text = text;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  begin(): void {
    const { exchange, options } = this.#try;
    const connection = this.#connection;
    connection.take(this);
    exchange.call.onAbort(() => this.#fail(clientGone()));
    if (connection.isConnected) this.connected();
    else if (this.#phase === "connecting") this.#watch(options.connectMs);
  }

  // The connection.

  connected(): void {
    if (this.#phase !== "connecting") return;
    const { exchange, tryEndsAt, endsAt, options } = this.#try;
    const connection = this.#connection;
    connection.parser.begin(exchange.method, this);
    this.#phase = "sending";
    const { body } = exchange;
    if (body !== null) {
      if (tryEndsAt === 0 && endsAt === 0) this.#unwatch();
      else this.#watch(0);
      connection.setSilence(options.idleMs);
      if (!this.#takeWhole(body)) return this.#sendBody(body);
    }
    this.#isWritten = true;
    // A fresh connection is alone in its round, and what comes on it before it is asked may be its refusal.
    if (connection.isReused) this.#try.to.pool.writeBatch.add(() => this.#sendWhole());
    else this.#sendWhole();
    if (body === null) this.#awaitResponse();
  }

  received(chunk: Buffer): void {
    // More than was asked for, behind a response that is whole: whoever has the connection next would read it.
    if (this.#phase === "draining") return this.#leave("spent");
    // As on an idle connection, it answers no question: taken for an answer, it would leave the true one to whoever is next.
    if (!this.#hasDeparted && this.#connection.isReused) return this.failed(EARLY);
    this.#heard = true;
    const invalid = this.#connection.parser.feed(chunk);
    if (invalid !== null) this.#fail(new Fault("upstream_invalid", invalid));
    else if (this.#phase === "receiving") {
      // The rest of the body is still on its way.
      this.#connection.setSilence(this.#try.options.idleMs);
      if (this.#body === null) this.#openBody();
    }
  }

  drained(): void {
    const run = this.#onDrain;
    this.#onDrain = null;
    run?.();
  }

  endOfConnection(): void {
    if (this.#phase === "over" || this.#phase === "draining" || this.#connection.parser.endOfConnection()) return;
    this.failed(END);
  }

  silent(): void {
    const { idleMs } = this.#try.options;
    if (this.#phase === "sending") this.#fail(stalledUpload(this.#outgoing, this.#awaitsContinue, idleMs));
    else if (this.#phase === "receiving" || this.#phase === "draining") this.#fail(stalledReply(this.#body?.readableLength ?? 0, idleMs));
  }

  failed(error: NodeJS.ErrnoException): void {
    if (this.#phase === "over") return;
    // On a kept connection nothing leaves before its turn: until then no upstream can have seen the request.
    const connection = !this.#connection.isReused ? "fresh" : this.#hasDeparted ? "reused" : "unsent";
    if (!this.#heard && isStale(this.#try, connection, error)) {
      this.#leave("spent");
      return this.#resolve(sendAgain(this.#try, send));
    }
    const code = faultCode(error, this.#phase === "connecting");
    this.#fail(connection === "unsent" ? new Unsent(code, connectFailure(error), error) : new Fault(code, connectFailure(error), error));
  }

  closed(): void {
    this.#fail(new Fault("upstream_reset", "the connection closed before a response"));
  }

  // Deadlines.

  get dueAt(): number {
    const { tryEndsAt, endsAt } = this.#try;
    let due = this.#phaseEndsAt;
    if (tryEndsAt !== 0 && this.#response === null && tryEndsAt < due) due = tryEndsAt;
    if (endsAt !== 0 && endsAt < due) due = endsAt;
    return due;
  }

  overdue(now: number): void {
    if (this.#phase === "draining") return this.#leave("spent");
    const { options, tryEndsAt, endsAt } = this.#try;
    if (endsAt !== 0 && endsAt <= now) return this.#validityProblem("the time for the whole exchange is over");
    if (tryEndsAt !== 0 && this.#response === null && tryEndsAt <= now) return this.#validityProblem("no response within the time of one try");
    if (this.#phase === "connecting") this.#fail(new Unsent("upstream_timeout", `no connection within ${options.connectMs} ms`));
    else this.#fail(new Fault("upstream_timeout", `no response within ${options.responseMs} ms`));
  }

  #validityProblem(why: string): void {
    const fault = new Fault("upstream_timeout", why);
    if (this.#phase === "connecting") this.#fail(new Unsent(fault.code, fault.message));
    else this.#fail(this.#phase === "sending" ? overdueUpload(this.#outgoing, this.#awaitsContinue, fault) : fault);
  }

  /** 0: the phase has no deadline, but the whole may have one. */
  #watch(phaseMs: number): void {
    const { clock } = this.#try.options;
    const now = clock.now();
    this.#phaseEndsAt = phaseMs === 0 ? Infinity : now + phaseMs;
    this.#try.to.pool.watch.add(this, now);
  }

  #unwatch(): void {
    this.#try.to.pool.watch.remove(this);
  }

  // The request.

  /** Takes a body that is at hand and as long as the head says; any other is streamed. */
  #takeWhole(body: Readable): boolean {
    if (!(body instanceof LentBody) || !body.isUntouched || this.#head.framing !== "length") return false;
    if (Number(headerValue(this.#head.headers, "content-length")) !== body.byteLength) return false;
    this.#bytes = body.lend();
    return true;
  }

  /** All of a request whose body is at hand, unless it has come to its end while it waited. */
  #sendWhole(): void {
    if (this.#phase === "over") return;
    this.#hasDeparted = true;
    const { socket } = this.#connection;
    const bytes = this.#bytes;
    if (bytes === null) return void socket.write(this.#text, "latin1");
    socket.cork();
    socket.write(this.#text, "latin1");
    socket.write(bytes);
    socket.uncork();
    this.#written();
  }

  #sendBody(body: Readable): void {
    const { exchange } = this.#try;
    const { socket } = this.#connection;
    const length = this.#head.framing === "length" ? Number(headerValue(this.#head.headers, "content-length")) : Infinity;
    this.#awaitsContinue = hasToken(headerValue(exchange.headers, "expect"), "100-continue");
    // By the time it departs a small body that came with the head is in the same write; a slow one does not hold the head back.
    socket.cork();
    socket.write(this.#text, "latin1");
    const end = {
      done: () => this.#endBody(),
      broken: (cause: Error | null) => this.#fail(cause instanceof Fault ? cause : new Fault("bad_request", "the request body broke off", cause)),
    };
    this.#stopUpload = pump(body, this, end, length);
    this.#try.to.pool.writeBatch.add(() => {
      this.#hasDeparted = true;
      socket.uncork();
    });
  }

  /** As a stream's, for `pump`. */
  write(chunk: Buffer): boolean {
    const { socket } = this.#connection;
    return this.#head.framing === "length" ? socket.write(chunk) : writeChunk(socket, chunk);
  }

  onceDrained(run: () => void): void {
    this.#onDrain = run;
  }

  #endBody(): void {
    const { socket } = this.#connection;
    this.#stopUpload = null;
    if (this.#head.framing === "chunked") {
      let last: string;
      try {
        last = `0\r\n${writtenFields(trailerFields(this.#try.exchange.trailers()))}\r\n`;
      } catch (error) {
        return this.#fail(new Fault("internal", "the request's trailers could not be written", error));
      }
      socket.write(last, "latin1");
    }
    this.#isWritten = true;
    if (this.#phase === "draining") return this.#leave();
    this.#written();
  }

  /** All of the request has been written; the response is awaited once it has left, since an upstream that does not read is another fault. */
  #written(): void {
    const { socket } = this.#connection;
    if (this.#phase !== "sending") return;
    if (socket.writableLength === 0) this.#awaitResponse();
    else socket.write(NOTHING, () => this.#awaitResponse());
  }

  #awaitResponse(): void {
    if (this.#phase !== "sending") return;
    this.#phase = "waiting";
    this.#watch(this.#try.options.responseMs);
  }

  get #outgoing(): { readonly writableLength: number; readonly writableEnded: boolean } {
    return { writableLength: this.#connection.socket.writableLength, writableEnded: this.#isWritten };
  }

  // The response.

  informed(head: ResponseHead): void {
    if (this.#phase === "over") return;
    const status = head.statusCode!;
    if (status === 100) this.#awaitsContinue = false;
    this.#try.exchange.call.inform(status, informationHeaders(status, head.rawHeaders));
  }

  switched(head: ResponseHead, behind: Buffer): void {
    if (this.#phase === "over") return;
    const { exchange, options, to } = this.#try;
    const { upgrade } = exchange;
    if (upgrade === null || !hasToken(headerValue(head.rawHeaders, "upgrade"), upgrade)) {
      return this.#fail(new Fault("upstream_invalid", "the upstream switched to a protocol nobody asked for"));
    }
    if (this.#head.accept !== null && headerValue(head.rawHeaders, "sec-websocket-accept") !== this.#head.accept) {
      return this.#fail(new Fault("upstream_invalid", "the upstream's Sec-WebSocket-Accept does not fit the key"));
    }
    this.#phase = "over";
    this.#unwatch();
    const socket = this.#connection.detach();
    socket.once("close", () => to.pool.release());
    socket.on("error", ignore);
    this.#resolve({
      status: 101,
      headers: switchHeaders(upgrade, replyHeaders(head, options.viaName)),
      body: null,
      tunnel: { socket, head: behind, idleMs: options.idleMs },
    });
  }

  answered(head: ResponseHead): void {
    if (this.#phase === "over") return;
    this.#phase = "receiving";
    this.#response = head;
    this.#phaseEndsAt = Infinity;
    if (this.#try.endsAt === 0) this.#unwatch();
  }

  body(part: Buffer): void {
    if (this.#phase === "over") return;
    const { lendsBytes, parser } = this.#connection;
    if (lendsBytes && part.length >= LENT_BYTES && parser.isAtEnd && this.#body === null && this.#first === null) {
      this.#whole = this.#try.to.pool.inlet.body(part);
      return;
    }
    const bytes = lendsBytes ? Buffer.from(part) : part;
    if (this.#body !== null) this.#body.deliver(bytes);
    else if (this.#first === null) this.#first = bytes;
    else {
      this.#openBody();
      this.#body!.deliver(bytes);
    }
  }

  ended(trailers: readonly string[], connection: "kept" | "spent"): void {
    if (this.#phase === "over") return;
    this.#trailers = trailers;
    // Whether the upstream goes on with HTTP behind a refused upgrade is its own guess: the connection is not used again.
    const isSpent = connection === "spent" || this.#try.exchange.upgrade !== null;
    const isWhole = this.#body === null && trailers.length === 0;
    if (!isWhole && this.#body === null) this.#openBody();
    this.#phase = "draining";
    const body = this.#body;
    // Answered before a byte of it had left, the request may still leave: over a kept connection its answer would be the next exchange's.
    if (isSpent || !this.#hasDeparted) this.#leave("spent");
    else if (this.#isWritten) this.#leave();
    else {
      this.#watch(DRAIN_MS);
      // Left paused by the last of the body, the socket would hide what comes behind until another exchange has it.
      if (this.#connection.socket.isPaused()) this.#connection.socket.resume();
    }
    if (body !== null) body.complete();
    // All of it came at once: there is nothing to stream.
    else this.#resolve(replyOf(this.#try.exchange, this.#response!, this.#try.options.viaName, this.#whole ?? this.#first ?? NOTHING));
  }

  /** The reply, with a body to be read as it comes. */
  #openBody(): void {
    const { exchange, options } = this.#try;
    const body = new WireBody(this.#connection, () => this.#giveUp());
    this.#body = body;
    if (this.#first !== null) body.deliver(this.#first);
    this.#first = null;
    this.#resolve(replyOf(exchange, this.#response!, options.viaName, body, () => trailerFields(this.#trailers)));
  }

  /** Nobody wants the rest of the response. */
  #giveUp(): void {
    if (this.#phase === "receiving") this.#leave("spent");
  }

  // The end.

  #fail(fault: Fault): void {
    const phase = this.#phase;
    if (phase === "over") return;
    const { exchange, to } = this.#try;
    this.#leave("spent");
    if (this.#body === null && phase !== "draining") return this.#reject(fault);
    // The answer is whole: what goes wrong behind it (the rest of an upload nobody reads any more) is not the client's.
    if (phase === "draining") return;
    this.#body!.destroy(fault);
    if (!exchange.call.aborted) to.broken(fault);
  }

  /** The connection goes back to the pool, or ends. */
  #leave(how: "kept" | "spent" = "kept"): void {
    const { pool } = this.#try.to;
    const connection = this.#connection;
    this.#phase = "over";
    this.#unwatch();
    this.#stopUpload?.();
    this.#stopUpload = null;
    if (how === "kept") pool.giveBack(connection);
    else connection.end();
    pool.release();
  }
}

/** The body of a response, while the connection gives it. */
class WireBody extends Readable {
  readonly #connection: Connection;
  readonly #givenUp: () => void;
  #isComplete = false;

  constructor(connection: Connection, givenUp: () => void) {
    super();
    this.#connection = connection;
    this.#givenUp = givenUp;
    // Its reader may have stopped listening, or not begun: the end of a body nobody reads is no event.
    this.on("error", ignore);
  }

  deliver(bytes: Buffer): void {
    if (!this.push(bytes)) this.#connection.socket.pause();
  }

  complete(): void {
    this.#isComplete = true;
    this.push(null);
  }

  override _read(): void {
    if (!this.#isComplete) this.#connection.socket.resume();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#isComplete) {
      this.#isComplete = true;
      this.#givenUp();
    }
    done(error);
  }
}

/** What node says when a connection ends where an answer was due. */
const END: NodeJS.ErrnoException = Object.assign(new Error("the connection ended"), { code: "ECONNRESET" });
const EARLY: NodeJS.ErrnoException = Object.assign(new Error("an answer came before the request was sent"), { code: "ECONNRESET" });
const NOTHING = Buffer.alloc(0);
/** From here on a copy into memory of its own costs more than being a stream. */
const LENT_BYTES = 16 * 1024;
const NO_TRAILERS: readonly string[] = [];

function ignore(): void {}
