/**
 * Runs HTTP/2 connections from their preface to their GOAWAY: limits what one may cost, ends idle and dead ones, drains
 * them.
 */
import { randomUUID } from "node:crypto";
import http2, {
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from "node:http2";
import type { Socket } from "node:net";
import { entry, guardedEmitter } from "../base/event_loop.ts";
import { ignore } from "../base/errors.ts";
import { PacedSink, takenBySystem } from "../http/delivery.ts";
import { holdsOutputBack, isClosed, isGone, ownStream, type StreamOwner } from "../http/h2_streams.ts";
import * as h2 from "./h2_limits.ts";
import { LATE_HEAD, type Http1Options } from "./http1.ts";
import type { Limits } from "./limits.ts";

const { NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_FLAG_END_STREAM, NGHTTP2_NO_ERROR } = http2.constants;

/** Connections are opened under the rules that are in force then. */
export interface H2SessionsOptions extends Pick<
  Http1Options,
  "clock" | "log" | "deadlines" | "receiving" | "drain" | "connectionOf" | "unread"
> {
  /**
   * Milliseconds that a connection without streams is kept; before its first one it is `limits.headersTimeoutMs`, if
   * that is less.
   */
  readonly keepAliveMs: number;
  /**
   * Gets each request: `block` is its header list, pseudo-headers first, `socket` its connection. Calls `onReset` when
   * the client resets it before it was answered.
   */
  readonly onStream: (
    stream: ServerHttp2Stream,
    block: readonly string[],
    endOfStream: boolean,
    socket: Socket,
    onReset: () => void,
  ) => StreamUser | undefined;
}

/** Answers a request. */
export interface StreamUser {
  begin(): void;
  aborted(): void;
  closed(): void;
}

export class H2Sessions {
  readonly #options: H2SessionsOptions;
  readonly #sessions = new Set<Session>();

  constructor(options: H2SessionsOptions) {
    this.#options = options;
  }

  get open(): number {
    return this.#sessions.size;
  }

  /** Serves HTTP/2 on a connection; bytes that were read from it and put back are included. */
  add(socket: Socket): void {
    const session: Session = new Session(socket, this.#options, () => this.#sessions.delete(session));
    this.#sessions.add(session);
    if (this.#options.drain.hasBegun) session.drain();
  }

  /**
   * Sends a GOAWAY to the clients of all connections, or of those with or without TLS: each ends with its last stream.
   */
  renew(which: "all" | "plain" | "secure"): void {
    for (const session of this.#sessions)
      if (which === "all" || session.encrypted === (which === "secure")) session.drain();
  }

  /** Ends every connection at once. */
  destroy(): void {
    for (const session of this.#sessions) session.destroy();
  }
}

function optionsFor(limits: Limits): ServerOptions {
  return {
    maxSessionMemory: h2.MAX_SESSION_MEGABYTES,
    maxSessionInvalidFrames: h2.MAX_INVALID_FRAMES,
    maxSessionRejectedStreams: h2.MAX_REJECTED_STREAMS,
    // Holds also for a client that never acknowledges our settings.
    maxHeaderListPairs: limits.maxHeaders + h2.SURPLUS_LINES,
    // Node enforces the settings that it sends. The real limits are lower, and checked in h2_receive.ts.
    settings: {
      maxConcurrentStreams: h2.MAX_STREAMS,
      maxHeaderListSize: limits.maxHeaderBytes + h2.SURPLUS_HEAD_BYTES,
      enableConnectProtocol: true,
    },
  };
}

class Session implements StreamOwner {
  readonly #session: ServerHttp2Session;
  readonly #socket: Socket;
  readonly #options: H2SessionsOptions;
  /** All that is sent: a client that may still be reading it is not silent, and would lose it with the connection. */
  readonly #output: PacedSink;
  readonly #resets: h2.Allowance;
  readonly #settings: h2.Allowance;
  readonly #pings: h2.Allowance;
  /** Milliseconds without streams after which it is drained. */
  #keepMs: number;
  readonly #streams = new Map<ServerHttp2Stream, StreamUser | undefined>();
  /** Since when there has been no stream. */
  #idleSince: number;
  /** When it was first seen draining without streams. */
  #drainedSince: number | null = null;
  /** Requests reported to us since the last check. */
  #reported = 0;
  /** At the last check: bytes read, the last stream id, requests that node refused without reporting them. */
  #bytesRead = 0;
  #lastStream = 0;
  #unreported = 0;
  /** Milliseconds that a request head may take. */
  readonly #headMs: number;
  /** The last stream whose head is complete. */
  #lastReported = 0;
  /**
   * The last stream at an answer to a PING: no head was incomplete then, since no frame may stand between its frames
   * (RFC 9113 §4.3).
   */
  #lastSettled = 0;
  /** A stream whose head may be incomplete, and since when. */
  #awaited = 0;
  #awaitedSince = 0;
  #silentMs = 0;
  /** Bytes written at the last check if nghttp2 had something to send and the socket had not; else -1. */
  #stuckAt = -1;

  constructor(socket: Socket, options: H2SessionsOptions, closed: () => void) {
    const { limits } = options.receiving();
    // A client that has closed its side has disconnected: its streams would get no event for that.
    socket.allowHalfOpen = false;
    const session = (this.#session = http2.performServerHandshake(socket, optionsFor(limits)));
    this.#socket = socket;
    this.#options = options;
    const pace = { clock: options.clock, watch: options.deadlines, idleMs: h2.SILENCE_MS, leastBytesPerS: () => 0 };
    this.#output = new PacedSink(socket, pace, () => socket.bytesWritten, ignore);
    this.#headMs = limits.headersTimeoutMs;
    this.#keepMs = Math.min(options.keepAliveMs, limits.headersTimeoutMs);
    const now = options.clock.now();
    this.#resets = new h2.Allowance(h2.RESETS, now);
    this.#settings = new h2.Allowance(h2.SETTINGS_FRAMES, now);
    this.#pings = new h2.Allowance(h2.PINGS, now);
    this.#idleSince = now;
    this.#bytesRead = socket.bytesRead;
    guardedEmitter(session).on("stream", this.#onStream);
    session.on("remoteSettings", () => this.#spend(this.#settings, "SETTINGS"));
    session.on("ping", () => this.#spend(this.#pings, "PING"));
    session.on("error", this.#onError);
    session.once(
      "close",
      options.deadlines.everySecond((now, elapsedMs) => this.#check(now, elapsedMs)),
    );
    session.once("close", closed);
  }

  /**
   * Sends one GOAWAY that names the last request that is served: open streams finish, and the client repeats later
   * requests elsewhere (RFC 9113 §6.8). An earlier GOAWAY that refuses nothing would spare it that, but nghttp2 ignores
   * new streams after any GOAWAY of node.
   */
  drain(): void {
    if (!this.#session.destroyed) this.#session.close();
  }

  get encrypted(): boolean {
    return this.#session.encrypted === true;
  }

  destroy(): void {
    if (!this.#session.destroyed) this.#session.destroy();
  }

  /** Finds what no event reports. `elapsed`: milliseconds since the last check. */
  #check(now: number, elapsed: number): void {
    const bytes = this.#socket.bytesRead - this.#bytesRead;
    this.#bytesRead += bytes;
    if (isGone(this.#socket)) return this.#cutOff();
    if (bytes > 0) this.#countUnreported(bytes);
    const isReading = this.#output.isBusy();
    if (this.#lastStream > this.#lastReported && this.#lastStream > this.#lastSettled) this.#checkHead(now);
    this.#endLost();
    if (this.#streams.size > 0) return this.#checkAlive(bytes > 0, elapsed, isReading);
    this.#silentMs = 0;
    if (!this.#session.closed && !this.#session.destroyed) {
      if (now - this.#idleSince < this.#keepMs) return;
      this.drain();
    }
    // Node waits for the client to close its side.
    this.#drainedSince ??= now;
    if (now - this.#drainedSince >= h2.MAX_LINGER_MS && !isReading) this.#cutOff();
  }

  /**
   * Without waiting for a write that is under way. The session comes first: with output left over TLS, node itself
   * fails an assertion, and the process with it, if a session loses its socket (Node 20).
   */
  #cutOff(): void {
    this.destroy();
    this.#socket.destroy();
  }

  readonly #onStream = (
    stream: ServerHttp2Stream,
    _headers: IncomingHttpHeaders,
    flags: number,
    block: readonly string[],
  ): void => {
    ownStream(stream, this);
    this.#reported++;
    this.#lastReported = stream.id!;
    // Reset at once: it is not served at all.
    if (stream.destroyed || stream.closed) return this.#onReset();
    this.#keepMs = this.#options.keepAliveMs;
    const user = this.#options.onStream(
      stream,
      block,
      (flags & NGHTTP2_FLAG_END_STREAM) !== 0,
      this.#socket,
      this.#onReset,
    );
    this.#streams.set(stream, user);
    user?.begin();
  };

  aborted(stream: ServerHttp2Stream): void {
    this.#streams.get(stream)?.aborted();
  }

  closed(stream: ServerHttp2Stream): void {
    const user = this.#streams.get(stream);
    if (this.#streams.delete(stream) && this.#streams.size === 0) this.#idleSince = this.#options.clock.now();
    user?.closed();
  }

  /**
   * Node never ends a stream that its client has reset with NO_ERROR before all of the reply was sent (probed with Node
   * 20 and 24), nor then its connection: it waits for a write that nghttp2 has dropped. One that the system has yet to
   * take may still be under way.
   */
  #endLost(): void {
    if (takenBySystem(this.#socket)?.isFull === true) return;
    for (const stream of this.#streams.keys()) if (isClosed(stream) && stream.writableLength > 0) stream.destroy();
  }

  readonly #onReset = (): void => this.#spend(this.#resets, "RST_STREAM");

  /**
   * Node resets a request whose head is invalid or much too large without an event; only its stream id shows. Clients
   * that cancel queued requests skip ids, too (nghttp2 does): so the count is bounded by how many requests fit in
   * `bytes`, and ends no open stream.
   */
  #countUnreported(bytes: number): void {
    if (this.#session.destroyed) return;
    const last = this.#session.state.lastProcStreamID ?? 0;
    const arrived = Math.min(Math.ceil((last - this.#lastStream) / 2), Math.ceil(bytes / h2.LEAST_REQUEST_BYTES));
    this.#lastStream = last;
    // A request whose head is incomplete has its id already, and is subtracted once it is reported.
    this.#unreported += arrived - this.#reported;
    this.#reported = 0;
    if (this.#unreported >= h2.MAX_UNREPORTED) this.drain();
  }

  /**
   * A head that is incomplete, or was refused, shows only by its stream id; a client that answers a PING is not in the
   * middle of a head.
   */
  #checkHead(now: number): void {
    const session = this.#session;
    if (session.destroyed) return;
    if (this.#awaited !== this.#lastStream) {
      this.#awaited = this.#lastStream;
      this.#awaitedSince = now;
      session.ping(this.#onPong);
    } else if (now - this.#awaitedSince >= this.#headMs) session.destroy(SLOW_HEAD, NGHTTP2_NO_ERROR);
  }

  readonly #onPong = (error: Error | null): void => {
    if (error === null && !this.#session.destroyed) this.#lastSettled = this.#session.state.lastProcStreamID ?? 0;
  };

  #checkAlive(hasReceived: boolean, elapsed: number, isReading: boolean): void {
    const silentBefore = this.#silentMs;
    this.#silentMs = hasReceived ? 0 : silentBefore + elapsed;
    if (this.#session.destroyed) return;
    const stuckBefore = this.#stuckAt;
    this.#stuckAt = holdsOutputBack(this.#session, this.#socket) ? this.#socket.bytesWritten : -1;
    // A blocked process may run two checks in one turn, and flushes output only at its end: check again after the
    // flush.
    if (this.#stuckAt >= 0 && this.#stuckAt === stuckBefore) setImmediate(this.#endIfStuck);
    if (silentBefore < h2.SILENCE_MS && this.#silentMs >= h2.SILENCE_MS) this.#session.ping(ignore);
    else if (this.#silentMs >= h2.SILENCE_MS + h2.ANSWER_MS && !isReading)
      this.#session.destroy(SILENT, NGHTTP2_NO_ERROR);
  }

  readonly #endIfStuck = entry("a check of a session", () => {
    if (
      this.#session.destroyed ||
      !holdsOutputBack(this.#session, this.#socket) ||
      this.#socket.bytesWritten !== this.#stuckAt
    )
      return;
    this.#session.destroy(SILENT, NGHTTP2_NO_ERROR);
  });

  /** What nghttp2 cannot read ends its connection, without an event for a request and without a reply. */
  readonly #onError = (error: NodeJS.ErrnoException): void => {
    const { log, unread, connectionOf } = this.#options;
    log.debug("HTTP/2 connection failed", { error: error.message });
    const isLate = error === SLOW_HEAD;
    if (!isLate && error.code !== "ERR_HTTP2_ERROR") return;
    const [id, code] = [randomUUID(), isLate ? LATE_HEAD.code : "bad_request"] as const;
    const connection = connectionOf(this.#socket);
    const unsent = { line: null, httpVersion: "2.0", sent: null, status: null, isGone: false } as const;
    unread({ id, code, detail: error.message, connection, ...unsent });
  };

  #spend(allowance: h2.Allowance, what: string): void {
    const session = this.#session;
    if (allowance.spend(this.#options.clock.now()) || session.destroyed) return;
    this.#options.log.warn(`an HTTP/2 connection was ended: too many ${what}`, {
      client_ip: this.#socket.remoteAddress,
    });
    session.destroy(TOO_MUCH, NGHTTP2_ENHANCE_YOUR_CALM);
  }
}

/**
 * Created once: an attack must not cost a stack trace for each connection. Without an error, node would send NO_ERROR.
 */
const TOO_MUCH = new Error("the client sends too many control frames or resets");
const SLOW_HEAD: NodeJS.ErrnoException = new Error(LATE_HEAD.detail);
const SILENT = new Error("the client does not answer a PING or reads nothing");
