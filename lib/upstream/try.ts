/**
 * One try of a request, over HTTP/1.1 or HTTP/2: what it is made with, and the rules that both have for its deadlines,
 * for silence, and for what may be sent again.
 */
import type { Readable } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";
import { IDEMPOTENT } from "../base/http_grammar.ts";
import type { Exchange } from "../http/exchange.ts";
import { endToEnd, hasToken, headerValue, withoutHeader, type HeaderList } from "../http/headers.ts";
import { LentBody } from "../http/lent_body.ts";
import { Unsent } from "./faults.ts";
import type { HeadOptions } from "./heads.ts";
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
export interface UpstreamDestination<Pool> {
  /** For the Host header: without the port if that is the scheme's default (RFC 9110 §4.2.1). */
  readonly authority: string;
  readonly pool: Pool;
  /**
   * Called when a response has broken off in the middle, and not because of the client; the try has been answered by
   * then.
   */
  brokeOff(fault: Fault): void;
}

export interface Try<Pool> {
  readonly exchange: Exchange;
  readonly to: UpstreamDestination<Pool>;
  readonly options: ForwardOptions;
  /** When the head of the response is due, `endsAt` at the latest; monotonic, Infinity: no such deadline. */
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
export type Phase = "connecting" | "sending" | "waiting" | "receiving" | "draining" | "over";

/** Milliseconds that the rest of an upload may take after a complete response before its connection is closed. */
export const DRAIN_MS = 100;

/** The phases in which bytes are expected; in the others silence means nothing. */
export const MOVING: ReadonlySet<Phase> = new Set(["sending", "receiving", "draining"]);

/** A try that has been begun. */
export interface RunningTry {
  readonly attempt: Try<unknown>;
  readonly phase: Phase;
  /**
   * Whether the client holds its body back until the upstream asks for it (`Expect: 100-continue`); the upstream's 100
   * does.
   */
  awaitsContinue: boolean;
  /** Of the request: whether all of its body that has arrived was sent, and more is expected. */
  readonly awaitsBody: boolean;
  /** The body of the reply, once the reply has been given. */
  readonly replyBody: Readable | null;
}

/**
 * What a deadline that has passed means. Null: the time of the phase is over, and that is no error: an upload behind a
 * complete response, or a reply that its reader has left unread.
 */
export function overdueFault(running: RunningTry, now: number): Fault | null {
  const { phase, attempt } = running;
  const { options, tryEndsAt, endsAt } = attempt;
  if (phase === "draining") return null;
  if (endsAt <= now) return deadlinePassed(running, "the time for the whole exchange is over");
  if (phase === "receiving") return null;
  if (tryEndsAt <= now) return deadlinePassed(running, "no response within the time of one try");
  if (phase === "connecting") return new Unsent("upstream_timeout", `no connection within ${options.connectMs} ms`);
  return new Fault("upstream_timeout", `no response within ${options.responseMs} ms`);
}

function deadlinePassed({ phase, awaitsContinue, awaitsBody }: RunningTry, why: string): Fault {
  if (phase === "connecting") return new Unsent("upstream_timeout", why);
  if (phase !== "sending" || awaitsContinue || !awaitsBody) return new Fault("upstream_timeout", why);
  return new Fault("request_timeout", `${why}, and the client has not sent all of its body`);
}

/**
 * Not a byte has moved for `idleMs` in a phase of `MOVING`: the upstream's fault unless the client has a part of either
 * body to send or to read. Null: silence is measured anew.
 */
export function silenceFault({ phase, attempt, awaitsContinue, awaitsBody, replyBody }: RunningTry): Fault | null {
  const { options, exchange } = attempt;
  const { idleMs } = options;
  if (phase === "sending") {
    if (awaitsContinue)
      return new Fault("upstream_timeout", `the upstream did not ask for the body within ${idleMs} ms`);
    if (!awaitsBody) return new Fault("upstream_timeout", `the upstream read nothing for ${idleMs} ms`);
    return new Fault("request_timeout", `the client sent nothing for ${idleMs} ms`);
  }
  // The client was waited for meanwhile: what becomes of one that reads too little is decided where the reply is sent.
  if (options.clock.now() - exchange.call.heldUpTill < idleMs) return null;
  if ((replyBody?.readableLength ?? 0) > 0)
    return new Fault("request_timeout", `the reply was not read for ${idleMs} ms`);
  return new Fault("upstream_timeout", `no byte either way for ${idleMs} ms`);
}

/** RFC 9110 §10.1.1. */
export function asksForContinue({ headers }: Exchange): boolean {
  return hasToken(headerValue(headers, "expect"), "100-continue");
}

/** The body of a request could not be read to its end. */
export function bodyFault(cause: Error | null): Fault {
  return cause instanceof Fault ? cause : new Fault("bad_request", "the request body ended early", cause);
}

/** Passes an informational response on to the client. */
export function inform(running: RunningTry, status: number, headers: HeaderList): void {
  if (status === 100) running.awaitsContinue = false;
  // The headers of a 100 are dropped; a 1xx has no body, so Content-Length is removed.
  const kept = status === 100 ? [] : withoutHeader(endToEnd(headers), "content-length");
  running.attempt.exchange.call.inform(status, kept);
}

/** Milliseconds that getting a connection may take from now on. */
export function connectTimeLeft({ options, tryEndsAt }: Try<unknown>): number {
  return Math.min(options.connectMs, Math.max(0, Math.ceil(tryEndsAt - options.clock.now())));
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
  return exchange.body === null && !exchange.call.aborted && IDEMPOTENT.has(exchange.method);
}
