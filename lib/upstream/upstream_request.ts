/**
 * One try of a request while it runs, over HTTP/1.1 or HTTP/2: its phases and their deadlines, the upload of its body, and its end.
 */
import type { Readable } from "node:stream";
import type { DeadlineTimer, HasDeadline } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";
import { pump, type Sink } from "../http/body.ts";
import { hasToken, headerValue, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { overdueUpload, stalledReply, stalledUpload, Unsent, type Upload } from "./faults.ts";
import type { RequestHead } from "./request_head.ts";
import { informationHeaders } from "./response_head.ts";
import { clientDisconnected, type Try } from "./try.ts";

/** "draining": the response is complete, the request is not. */
type Phase = "connecting" | "sending" | "waiting" | "receiving" | "draining" | "over";

/** Milliseconds that the rest of an upload may take behind a complete response before its connection is given up. */
const DRAIN_MS = 100;

export abstract class UpstreamRequest<Connections extends { readonly deadlines: DeadlineTimer }> implements HasDeadline, Upload {
  /** As `HasDeadline`. */
  place = -1;
  /** Whether the client holds its body back until the upstream asks for it; the upstream's 100 does. */
  awaitsContinue = false;
  protected readonly attempt: Try<Connections>;
  protected readonly resolve: (reply: Reply | Promise<Reply>) => void;
  protected phase: Phase = "connecting";
  /** Whether the head of the final response has come. */
  protected hasResponse = false;
  /** The body of the reply, once the reply has been given. */
  protected given: Readable | null = null;
  readonly #reject: (fault: Fault) => void;
  /** When the present phase has to be over; Infinity: no such deadline. */
  #phaseEndsAt = Infinity;
  #stopUpload: (() => void) | null = null;

  constructor(attempt: Try<Connections>, resolve: (reply: Reply | Promise<Reply>) => void, reject: (fault: Fault) => void) {
    this.attempt = attempt;
    this.resolve = resolve;
    this.#reject = reject;
  }

  /** Of the request: bytes that were written and not sent; and whether all of it was written. */
  abstract get writableLength(): number;
  abstract get writableEnded(): boolean;

  /** Closes the connection or stream, on which nothing more is sent or read. */
  protected abstract close(fault: Fault | null): void;

  /** The phase's time is over, and no error: an upload behind a complete response, or a reply that its reader has left unread. */
  protected abstract phaseOver(): void;

  get dueAt(): number {
    const { tryEndsAt, endsAt } = this.attempt;
    let due = this.#phaseEndsAt;
    if (tryEndsAt !== 0 && !this.hasResponse && tryEndsAt < due) due = tryEndsAt;
    if (endsAt !== 0 && endsAt < due) due = endsAt;
    return due;
  }

  overdue(now: number): void {
    const { options, tryEndsAt, endsAt } = this.attempt;
    if (this.phase === "draining") this.phaseOver();
    else if (endsAt !== 0 && endsAt <= now) this.#deadlinePassed("the time for the whole exchange is over");
    else if (tryEndsAt !== 0 && !this.hasResponse && tryEndsAt <= now) this.#deadlinePassed("no response within the time of one try");
    else if (this.phase === "receiving") this.phaseOver();
    else if (this.phase === "connecting") this.fail(new Unsent("upstream_timeout", `no connection within ${options.connectMs} ms`));
    else this.fail(new Fault("upstream_timeout", `no response within ${options.responseMs} ms`));
  }

  #deadlinePassed(why: string): void {
    if (this.phase === "connecting") return this.fail(new Unsent("upstream_timeout", why));
    const fault = new Fault("upstream_timeout", why);
    this.fail(this.phase === "sending" ? overdueUpload(this, fault) : fault);
  }

  /** Not a byte has moved for `idleMs`. */
  silent(): void {
    const { idleMs } = this.attempt.options;
    if (this.phase === "sending") this.fail(stalledUpload(this, idleMs));
    else if (this.phase === "receiving" || this.phase === "draining") this.fail(stalledReply(this.given?.readableLength ?? 0, idleMs));
  }

  protected failWhenAborted(): void {
    this.attempt.exchange.call.onAbort(() => this.fail(clientDisconnected()));
  }

  /** Starts the time of the present phase; 0: it has no deadline of its own. */
  protected watch(phaseMs: number): void {
    const { to, options, tryEndsAt, endsAt } = this.attempt;
    const { deadlines } = to.pool;
    if (phaseMs === 0 && endsAt === 0 && (tryEndsAt === 0 || this.hasResponse)) {
      this.#phaseEndsAt = Infinity;
      return deadlines.remove(this);
    }
    const now = options.clock.now();
    this.#phaseEndsAt = phaseMs === 0 ? Infinity : now + phaseMs;
    deadlines.add(this, now);
  }

  /** Writes the body as it comes; `done` is called after its last byte. */
  protected upload(body: Readable, sink: Sink, { length }: RequestHead, done: () => void): void {
    this.awaitsContinue = hasToken(headerValue(this.attempt.exchange.headers, "expect"), "100-continue");
    const broken = (cause: Error | null) => {
      this.fail(cause instanceof Fault ? cause : new Fault("bad_request", "the request body broke off", cause));
    };
    this.#stopUpload = pump(body, sink, { done, broken }, length);
  }

  /** All of the request has been sent. */
  protected awaitResponse(): void {
    if (this.phase !== "sending") return;
    this.phase = "waiting";
    this.watch(this.attempt.options.responseMs);
  }

  protected inform(status: number, headers: HeaderList): void {
    if (this.phase === "over") return;
    if (status === 100) this.awaitsContinue = false;
    this.attempt.exchange.call.inform(status, informationHeaders(status, headers));
  }

  /** The head of the final response is there. */
  protected receive(): void {
    this.phase = "receiving";
    this.hasResponse = true;
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
    // The client has the whole response: what goes wrong behind it does not concern it.
    if (phase === "draining") return;
    if (given === null) return this.#reject(fault);
    given.destroy(fault);
    if (!this.attempt.exchange.call.aborted) this.attempt.to.broken(fault);
  }

  protected finish(): void {
    this.phase = "over";
    this.attempt.to.pool.deadlines.remove(this);
    this.#stopUpload?.();
    this.#stopUpload = null;
  }
}
