/**
 * HTTP/2 connections from their preface to their GOAWAY: what they may cost, how long they are kept, how they are drained. What
 * happens on one stream is the caller's affair.
 */
import http2, { type IncomingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream, type ServerOptions } from "node:http2";
import type { Socket } from "node:net";
import type { Clock, Timer } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import {
  Allowance,
  ANSWER_MS,
  LEAST_REQUEST_BYTES,
  LOOK_MS,
  MAX_INVALID_FRAMES,
  MAX_LINGER_MS,
  MAX_REJECTED_STREAMS,
  MAX_SESSION_MEGABYTES,
  MAX_STREAMS,
  MAX_UNHEARD,
  PINGS,
  RESETS,
  SETTINGS,
  SILENCE_MS,
  SURPLUS_HEAD_BYTES,
  SURPLUS_LINES,
} from "./h2_limits.ts";
import type { Limits } from "./limits.ts";

export interface SessionsOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** In force for connections that begin now. */
  readonly limits: () => Limits;
  /** Milliseconds that a connection without streams is kept; before its first one it is `limits.headersTimeoutMs`, if that is less. */
  readonly keepAliveMs: number;
  /**
   * Gets each request: `block` is its header list with the pseudo-headers in front. Has to call `takenBack` when the client has reset
   * it before it was answered.
   */
  readonly onStream: (stream: ServerHttp2Stream, block: readonly string[], endOfStream: boolean, takenBack: () => void) => void;
}

export interface Sessions {
  /** Speaks HTTP/2 on a connection; what has been read of it and put back counts. */
  take(socket: Socket): void;
  /** Tells clients to go elsewhere with new requests; each connection ends with its last stream. */
  drain(): void;
  /**
   * Tells connections to go that were opened under what is in force no more, with a GOAWAY as at a drain: all of them, or those without
   * TLS. Their clients open new ones.
   */
  renew(which: "all" | "plain"): void;
  /** Ends every connection at once. */
  destroy(): void;
  readonly open: number;
}

export function createSessions(options: SessionsOptions): Sessions {
  const { clock, log } = options;
  const open = new Set<Session>();
  let draining = false;
  let timer: Timer | null = null;
  let lookedAt = 0;

  /** One timer for all connections, running only while there are some. */
  function startLooking(): void {
    if (timer !== null) return;
    lookedAt = clock.now();
    timer = clock.after(LOOK_MS, look);
  }

  function look(): void {
    const now = clock.now();
    // A pause of our own, with bytes waiting in the sockets, is not held against the clients.
    const elapsed = Math.min(now - lookedAt, 2 * LOOK_MS);
    lookedAt = now;
    for (const session of open) session.look(now, elapsed);
    timer = open.size > 0 ? clock.after(LOOK_MS, look) : null;
  }

  return {
    take(socket) {
      // A client that has closed its side has left: half an HTTP/2 connection is none, and its streams would never hear of the end.
      socket.allowHalfOpen = false;
      const limits = options.limits();
      const session = http2.performServerHandshake(socket, optionsFor(limits));
      const own = new Session(session, socket, limits, options);
      open.add(own);
      startLooking();
      session.once("close", () => {
        open.delete(own);
        if (open.size > 0) return;
        timer?.cancel();
        timer = null;
      });
      session.on("error", (error) => log.debug("HTTP/2 connection failed", { error: error.message }));
      if (draining) own.drain();
    },
    drain() {
      draining = true;
      for (const session of open) session.drain();
    },
    renew(which) {
      for (const session of open) if (which === "all" || !session.encrypted) session.drain();
    },
    destroy() {
      draining = true;
      for (const session of open) session.destroy();
    },
    get open() {
      return open.size;
    },
  };
}

function optionsFor(limits: Limits): ServerOptions {
  return {
    maxSessionMemory: MAX_SESSION_MEGABYTES,
    maxSessionInvalidFrames: MAX_INVALID_FRAMES,
    maxSessionRejectedStreams: MAX_REJECTED_STREAMS,
    // A client that never acknowledges our settings is not held to them; to this it is.
    maxHeaderListPairs: limits.maxHeaders + SURPLUS_LINES,
    // Node holds clients to what it tells them. What they may really have is less, and checked in h2_receive.ts.
    settings: {
      maxConcurrentStreams: MAX_STREAMS,
      maxHeaderListSize: limits.maxHeaderBytes + SURPLUS_HEAD_BYTES,
      enableConnectProtocol: true,
    },
  };
}

class Session {
  readonly #session: ServerHttp2Session;
  readonly #socket: Socket;
  readonly #options: SessionsOptions;
  readonly #resets: Allowance;
  readonly #settings: Allowance;
  readonly #pings: Allowance;
  /** Milliseconds without streams after which it is told to go. */
  #keepMs: number;
  #streams = 0;
  /** Since when there has been no stream. */
  #idleSince: number;
  /** When it was first seen to be going, without streams. */
  #goingSince: number | null = null;
  /** Requests that we have heard of since the last look, and before. */
  #delivered = 0;
  /** What the last look saw: bytes read, the last stream's number, requests refused unheard of. */
  #bytesRead = 0;
  #lastStream = 0;
  #unheard = 0;
  /** Milliseconds that the head of a request may take. */
  readonly #headMs: number;
  /** The last stream whose head has come whole. */
  #lastHeard = 0;
  /** The last stream number at an answer to a PING: no head was under way then, since nothing may stand between its frames (RFC 9113 §4.3). */
  #lastSettled = 0;
  /** A stream whose head may be under way, and since when. */
  #awaited = 0;
  #awaitedSince = 0;
  #silentMs = 0;
  /** Bytes written when the last look saw that something is to be sent and nothing is on its way; else -1. */
  #stuckAt = -1;

  constructor(session: ServerHttp2Session, socket: Socket, limits: Limits, options: SessionsOptions) {
    this.#session = session;
    this.#socket = socket;
    this.#options = options;
    this.#headMs = limits.headersTimeoutMs;
    this.#keepMs = Math.min(options.keepAliveMs, limits.headersTimeoutMs);
    const now = options.clock.now();
    this.#resets = new Allowance(RESETS, now);
    this.#settings = new Allowance(SETTINGS, now);
    this.#pings = new Allowance(PINGS, now);
    this.#idleSince = now;
    this.#bytesRead = socket.bytesRead;
    session.on("stream", this.#onStream);
    session.on("remoteSettings", () => this.#count(this.#settings, "SETTINGS"));
    session.on("ping", () => this.#count(this.#pings, "PING"));
  }

  /**
   * One GOAWAY that names the last request that is served: those under way finish, and what was on its way the client sends again
   * elsewhere (RFC 9113 §6.8). An earlier one that refuses nothing would save it that, but after any GOAWAY of node's nghttp2 looks at
   * no new stream.
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

  /** Finds what no event tells of. `elapsed`: milliseconds since the last look. */
  look(now: number, elapsed: number): void {
    const bytes = this.#socket.bytesRead - this.#bytesRead;
    this.#bytesRead += bytes;
    if (bytes > 0) this.#countUnheard(bytes);
    if (this.#lastStream > this.#lastHeard && this.#lastStream > this.#lastSettled) this.#awaitHead(now);
    if (this.#streams > 0) return this.#lookWhetherAlive(bytes > 0, elapsed);
    this.#silentMs = 0;
    if (!this.#session.closed && !this.#session.destroyed) {
      if (now - this.#idleSince < this.#keepMs) return;
      this.drain();
    }
    // Node waits for the client to close its side.
    this.#goingSince ??= now;
    if (now - this.#goingSince >= MAX_LINGER_MS) this.#socket.destroy();
  }

  readonly #onStream = (stream: ServerHttp2Stream, _headers: IncomingHttpHeaders, flags: number, block: readonly string[]): void => {
    stream.on("error", ignore);
    this.#delivered++;
    this.#lastHeard = stream.id!;
    // Reset in the same breath: nobody has to hear of it.
    if (stream.destroyed || stream.closed) return this.#takenBack();
    this.#keepMs = this.#options.keepAliveMs;
    this.#streams++;
    stream.once("close", this.#onStreamClose);
    this.#options.onStream(stream, block, (flags & http2.constants.NGHTTP2_FLAG_END_STREAM) !== 0, this.#takenBack);
  };

  readonly #onStreamClose = (): void => {
    if (--this.#streams === 0) this.#idleSince = this.#options.clock.now();
  };

  readonly #takenBack = (): void => this.#count(this.#resets, "RST_STREAM");

  /**
   * A request whose head is not valid, or much too large, is reset by node without an event: its stream's number is all that is seen.
   * Numbers are left out, too, by clients that take back what has waited in them (nghttp2's do): so no more of them count than requests
   * can have come in so many bytes, and it costs nobody what is under way.
   */
  #countUnheard(bytes: number): void {
    if (this.#session.destroyed) return;
    const last = this.#session.state.lastProcStreamID ?? 0;
    const came = Math.min(Math.ceil((last - this.#lastStream) / 2), Math.ceil(bytes / LEAST_REQUEST_BYTES));
    this.#lastStream = last;
    // One whose head is under way has its number already, and makes up for that when it is heard of.
    this.#unheard += came - this.#delivered;
    this.#delivered = 0;
    if (this.#unheard >= MAX_UNHEARD) this.drain();
  }

  /**
   * Node tells of a head only when it is whole. One that is not, or was refused, shows by its stream's number; a client that answers a PING
   * is not in the middle of one.
   */
  #awaitHead(now: number): void {
    const session = this.#session;
    if (session.destroyed) return;
    if (this.#awaited !== this.#lastStream) {
      this.#awaited = this.#lastStream;
      this.#awaitedSince = now;
      session.ping(this.#onAnswer);
    } else if (now - this.#awaitedSince >= this.#headMs) session.destroy(SLOW_HEAD, http2.constants.NGHTTP2_NO_ERROR);
  }

  readonly #onAnswer = (error: Error | null): void => {
    if (error === null && !this.#session.destroyed) this.#lastSettled = this.#session.state.lastProcStreamID ?? 0;
  };

  #lookWhetherAlive(heard: boolean, elapsed: number): void {
    const silentBefore = this.#silentMs;
    this.#silentMs = heard ? 0 : silentBefore + elapsed;
    if (this.#session.destroyed) return;
    const stuckBefore = this.#stuckAt;
    this.#stuckAt = this.#isStuck() ? this.#socket.bytesWritten : -1;
    // In a process that was held up, two looks may come in one turn: what is to be sent is sent at the end of it.
    if (this.#stuckAt >= 0 && this.#stuckAt === stuckBefore) setImmediate(this.#endIfStuck);
    if (silentBefore < SILENCE_MS && this.#silentMs >= SILENCE_MS) this.#session.ping(ignore);
    else if (this.#silentMs >= SILENCE_MS + ANSWER_MS) this.#session.destroy(SILENT, http2.constants.NGHTTP2_NO_ERROR);
  }

  readonly #endIfStuck = (): void => {
    if (this.#session.destroyed || !this.#isStuck() || this.#socket.bytesWritten !== this.#stuckAt) return;
    this.#session.destroy(SILENT, http2.constants.NGHTTP2_NO_ERROR);
  };

  /** What a client does not read waits in the socket; what nghttp2 holds back while nothing waits there, it will never send. */
  #isStuck(): boolean {
    const { _handle: handle } = this.#socket as { _handle?: { readonly writeQueueSize?: number } | null };
    return handle?.writeQueueSize === 0 && (this.#session.state.outboundQueueSize ?? 0) > 0;
  }

  #count(allowance: Allowance, what: string): void {
    const session = this.#session;
    if (allowance.spend(this.#options.clock.now()) || session.destroyed) return;
    this.#options.log.warn(`an HTTP/2 connection was ended: too many ${what}`, { client_ip: this.#socket.remoteAddress });
    session.destroy(TOO_MUCH, http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }
}

/** Made once: an attack must not buy a stack trace for each connection. Without an error, node would say NO_ERROR. */
const TOO_MUCH = new Error("the client asks for too much");
const SLOW_HEAD = new Error("the head of a request did not arrive in time");
const SILENT = new Error("the client gives no sign of life");

function ignore(): void {}
