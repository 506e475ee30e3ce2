/**
 * One try of a request while it runs, over HTTP/1.1 or HTTP/2: its phases and their deadlines, the upload of its body,
 * and its end.
 */
import type { Readable } from "node:stream";
import type { Clock, DeadlineTimer, HasDeadline } from "../base/clock.ts";
import { Fault, type ErrorCode } from "../base/errors.ts";
import { pump, type Sink } from "../http/body.ts";
import type { Exchange } from "../http/exchange.ts";
import { endToEnd, hasToken, headerValue, withoutHeader, type HeaderList } from "../http/headers.ts";
import { LentBody } from "../http/lent_body.ts";
import type { Reply } from "../http/reply.ts";
import { Unsent } from "./faults.ts";
import type { HeadOptions, UpstreamRequestHead } from "./heads.ts";
import type { AnyResponseParser } from "./response_parser.ts";

export interface ForwardOptions extends HeadOptions {
  readonly clock: Clock;
  /** Parses HTTP/1.1 responses. Default: the gateway's own strict parser. */
  readonly parser?: new () => AnyResponseParser;
  /** Milliseconds to get a connection: from the pool, or a new one with TCP and TLS handshakes. */
  readonly connectMs: number;
  /** Milliseconds from the end of the request to the head of the final response. */
  readonly responseMs: number;
  /** Milliseconds without a byte either way while a body is being sent or received. */
  readonly idleMs: number;
  /** Milliseconds for one try, from its beginning to the head of the response; 0: no such limit. */
  readonly tryMs: number;
}

/** The upstream of a try, and its connections. */
export interface UpstreamDestination<Connections> {
  /** For the Host header: without the port if that is the scheme's default (RFC 9110 §4.2.1). */
  readonly authority: string;
  readonly pool: Connections;
  /**
   * Called when a response has broken off in the middle, and not because of the client; the try has been answered by
   * then.
   */
  broken(fault: Fault): void;
}

export interface Try<Connections> {
  readonly exchange: Exchange;
  readonly to: UpstreamDestination<Connections>;
  readonly options: ForwardOptions;
  /** When the head of the response is due; monotonic, Infinity: no such deadline. */
  readonly tryEndsAt: number;
  /** When the whole exchange has to be over; monotonic, Infinity: no such deadline. */
  readonly endsAt: number;
  /**
   * Whether the request is sent again because an idle connection proved dead; and its body, if all of it is in memory
   * and was not sent.
   */
  readonly isSecond: boolean;
  readonly bytes: Buffer | null;
}

/** "draining": the response is complete, the request is not. */
type Phase = "connecting" | "sending" | "waiting" | "receiving" | "draining" | "over";

/** Milliseconds that the rest of an upload may take after a complete response before its connection is closed. */
const DRAIN_MS = 100;

export abstract class UpstreamRequest<
  Connections extends { readonly deadlines: DeadlineTimer },
> implements HasDeadline {
  place = -1;
  /**
   * Whether the client holds its body back until the upstream asks for it (`Expect: 100-continue`); the upstream's 100
   * does.
   */
  protected awaitsContinue = false;
  protected readonly attempt: Try<Connections>;
  protected readonly resolve: (reply: Reply | Promise<Reply>) => void;
  protected phase: Phase = "connecting";
  /** The body of the reply, once the reply has been given. */
  protected given: Readable | null = null;
  readonly #reject: (fault: Fault) => void;
  /** When the present phase has to be over; Infinity: no such deadline. */
  #phaseEndsAt = Infinity;
  #stopUpload: (() => void) | null = null;

  constructor(
    attempt: Try<Connections>,
    resolve: (reply: Reply | Promise<Reply>) => void,
    reject: (fault: Fault) => void,
  ) {
    this.attempt = attempt;
    this.resolve = resolve;
    this.#reject = reject;
  }

  /** Of the request: whether all of its body that has arrived was sent, and more is expected. */
  protected abstract get awaitsBody(): boolean;

  /** Closes the connection or stream, on which nothing more is sent or read. */
  protected abstract close(fault: Fault | null): void;

  /**
   * The phase's time is over, and no error: an upload behind a complete response, or a reply that its reader has left
   * unread.
   */
  protected abstract phaseOver(): void;

  get dueAt(): number {
    const { tryEndsAt, endsAt } = this.attempt;
    return Math.min(this.#phaseEndsAt, endsAt, this.#hasResponse ? Infinity : tryEndsAt);
  }

  get #hasResponse(): boolean {
    return this.phase === "receiving" || this.phase === "draining";
  }

  overdue(now: number): void {
    const { options, tryEndsAt, endsAt } = this.attempt;
    if (this.phase === "draining") this.phaseOver();
    else if (endsAt <= now) this.#deadlinePassed("the time for the whole exchange is over");
    else if (!this.#hasResponse && tryEndsAt <= now) this.#deadlinePassed("no response within the time of one try");
    else if (this.phase === "receiving") this.phaseOver();
    else if (this.phase === "connecting")
      this.fail(new Unsent("upstream_timeout", `no connection within ${options.connectMs} ms`));
    else this.fail(new Fault("upstream_timeout", `no response within ${options.responseMs} ms`));
  }

  #deadlinePassed(why: string): void {
    if (this.phase === "connecting") return this.fail(new Unsent("upstream_timeout", why));
    if (this.phase !== "sending" || this.awaitsContinue || !this.awaitsBody)
      return this.fail(new Fault("upstream_timeout", why));
    this.fail(new Fault("request_timeout", `${why}, and the client has not sent all of its body`));
  }

  /** Measures another `idleMs` of silence. */
  protected abstract listen(): void;

  /**
   * Not a byte has moved for `idleMs`: the upstream's fault unless the client has a part of either body to send or to
   * read.
   */
  silent(): void {
    const { options, exchange } = this.attempt;
    if (this.phase === "over" || this.phase === "connecting" || this.phase === "waiting") return;
    // The client was waited for meanwhile: what becomes of one that reads too little is decided where the reply is
    // sent.
    if (this.#hasResponse && options.clock.now() - exchange.call.heldUpTill < options.idleMs) return this.listen();
    this.fail(new Fault(...this.#stall(options.idleMs)));
  }

  #stall(idleMs: number): [ErrorCode, string] {
    if (this.phase === "sending") {
      if (this.awaitsContinue) return ["upstream_timeout", `the upstream did not ask for the body within ${idleMs} ms`];
      if (!this.awaitsBody) return ["upstream_timeout", `the upstream read nothing for ${idleMs} ms`];
      return ["request_timeout", `the client sent nothing for ${idleMs} ms`];
    }
    if ((this.given?.readableLength ?? 0) > 0) return ["request_timeout", `the reply was not read for ${idleMs} ms`];
    return ["upstream_timeout", `no byte either way for ${idleMs} ms`];
  }

  /** Starts the time of the present phase; 0: it has no deadline of its own. */
  protected watch(phaseMs: number): void {
    const { to, options } = this.attempt;
    this.#phaseEndsAt = Infinity;
    if (phaseMs === 0 && this.dueAt === Infinity) return to.pool.deadlines.remove(this);
    const now = options.clock.now();
    if (phaseMs > 0) this.#phaseEndsAt = now + phaseMs;
    to.pool.deadlines.add(this, now);
  }

  /** Writes the body as it arrives; `done` is called after its last byte. */
  protected upload(body: Readable, sink: Sink, { length }: UpstreamRequestHead, done: () => void): void {
    this.awaitsContinue = hasToken(headerValue(this.attempt.exchange.headers, "expect"), "100-continue");
    const broken = (cause: Error | null) => {
      this.fail(cause instanceof Fault ? cause : new Fault("bad_request", "the request body ended early", cause));
    };
    this.#stopUpload = pump(body, sink, { done, broken }, length);
  }

  protected awaitResponse(): void {
    if (this.phase !== "sending") return;
    this.phase = "waiting";
    this.watch(this.attempt.options.responseMs);
  }

  protected inform(status: number, headers: HeaderList): void {
    if (this.phase === "over") return;
    if (status === 100) this.awaitsContinue = false;
    // The headers of a 100 are dropped; a 1xx has no body, so Content-Length is removed.
    this.attempt.exchange.call.inform(status, status === 100 ? [] : withoutHeader(endToEnd(headers), "content-length"));
  }

  protected receive(): void {
    this.phase = "receiving";
    this.watch(0);
  }

  /** The response is complete: an upload that goes on must not hold the lease for long. */
  protected drain(): void {
    this.phase = "draining";
    this.watch(DRAIN_MS);
  }

  protected fail(fault: Fault): void {
    const { phase, given } = this;
    if (phase === "over") return;
    this.finish();
    this.close(fault);
    // The client has the whole response: later faults do not concern it.
    if (phase === "draining") return;
    if (given === null) return this.#reject(fault);
    given.destroy(fault);
    if (!this.attempt.exchange.call.aborted) this.attempt.to.broken(fault);
  }

  protected finish(): void {
    this.phase = "over";
    this.attempt.to.pool.deadlines.remove(this);
    this.stopUpload();
  }

  protected stopUpload(): void {
    this.#stopUpload?.();
    this.#stopUpload = null;
  }
}

/** Milliseconds that getting a connection may take from now on. */
export function connectTimeLeft({ options, tryEndsAt, endsAt }: Try<unknown>): number {
  return Math.min(options.connectMs, Math.max(0, Math.ceil(Math.min(tryEndsAt, endsAt) - options.clock.now())));
}

export function clientDisconnected(): Fault {
  return new Fault("upstream_reset", "the client disconnected");
}

/** Whether a body can still be sent from its beginning. */
export function isUntouched(body: Readable): boolean {
  if (body instanceof LentBody) return body.bytes !== null;
  return body.readableFlowing === null && !body.readableDidRead;
}

/** Can be sent twice: no body, and an idempotent method (RFC 9110 §9.2.2). */
export function isReplayable(exchange: Exchange): boolean {
  return exchange.body === null && !exchange.call.aborted && isIdempotent(exchange.method);
}

/** RFC 9110 §9.2.2. */
export function isIdempotent(method: string): boolean {
  return (
    method === "GET" ||
    method === "HEAD" ||
    method === "OPTIONS" ||
    method === "PUT" ||
    method === "DELETE" ||
    method === "TRACE"
  );
}
