/**
 * HTTP/2 connections from their preface to their GOAWAY: what they may cost, how long they are kept, how they are drained. What
 * happens on one stream is the caller's affair.
 */
import http2, { type Http2Server, type IncomingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import type { Clock, Timer } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import {
  Allowance,
  MAX_INVALID_FRAMES,
  MAX_REJECTED_STREAMS,
  MAX_SESSION_MEGABYTES,
  MAX_STREAMS,
  PINGS,
  RESETS,
  SETTINGS,
} from "./h2_limits.ts";
import type { Limits } from "./limits.ts";

export interface SessionsOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** In force for connections that begin now. */
  readonly limits: () => Limits;
  /** Milliseconds that a connection without streams is kept. */
  readonly keepAliveMs: number;
  /**
   * Gets each request: `block` is its header list with the pseudo-headers in front. Has to call `takenBack` when the client has reset
   * it before it was answered.
   */
  readonly onStream: (stream: ServerHttp2Stream, block: readonly string[], endOfStream: boolean, takenBack: () => void) => void;
}

export interface Sessions {
  /** Speaks HTTP/2 on a connection; what has been read of it and put back counts. */
  take(socket: Duplex): void;
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

/** How long an idle connection that was told to go may stay. */
const MAX_LINGER_MS = 5_000;
/** Header lists are measured in bytes while they are read, 32 of them for each line (RFC 9113 §6.5.2); and lines are counted after. */
const SURPLUS_PAIRS = 64;

export function createSessions(options: SessionsOptions): Sessions {
  const { log } = options;
  const open = new Set<Session>();
  let draining = false;
  let server: { readonly limits: Limits; readonly http2: Http2Server } | null = null;

  /** Node's settings for a connection stand in a server object, one for each set of limits; it listens nowhere. */
  function serverFor(limits: Limits): Http2Server {
    if (server?.limits === limits) return server.http2;
    const made = http2.createServer({
      maxSessionMemory: MAX_SESSION_MEGABYTES,
      maxSessionInvalidFrames: MAX_INVALID_FRAMES,
      maxSessionRejectedStreams: MAX_REJECTED_STREAMS,
      // A client that never acknowledges our settings is not held to them; to this it is.
      maxHeaderListPairs: limits.maxHeaders + SURPLUS_PAIRS,
      settings: { maxConcurrentStreams: MAX_STREAMS, maxHeaderListSize: limits.maxHeaderBytes, enableConnectProtocol: true },
    });
    made.on("session", (session) => {
      const own = new Session(session, options);
      open.add(own);
      session.once("close", () => open.delete(own));
      session.on("error", (error) => log.debug("HTTP/2 connection failed", { error: error.message }));
      if (draining) own.drain();
    });
    made.on("sessionError", ignore);
    server = { limits, http2: made };
    return made;
  }

  return {
    take(socket) {
      // A client that has closed its side has left: half an HTTP/2 connection is none, and its streams would never hear of the end.
      socket.allowHalfOpen = false;
      serverFor(options.limits()).emit("connection", socket);
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

class Session {
  readonly #session: ServerHttp2Session;
  readonly #options: SessionsOptions;
  readonly #resets: Allowance;
  readonly #settings: Allowance;
  readonly #pings: Allowance;
  #streams = 0;
  /** Since when there has been no stream. */
  #idleSince: number;
  #idleTimer: Timer;

  constructor(session: ServerHttp2Session, options: SessionsOptions) {
    this.#session = session;
    this.#options = options;
    const now = options.clock.now();
    this.#resets = new Allowance(RESETS, now);
    this.#settings = new Allowance(SETTINGS, now);
    this.#pings = new Allowance(PINGS, now);
    this.#idleSince = now;
    this.#idleTimer = options.clock.after(options.keepAliveMs, this.#lookWhetherIdle);
    session.on("stream", this.#onStream);
    session.on("remoteSettings", () => this.#count(this.#settings, "SETTINGS"));
    session.on("ping", () => this.#count(this.#pings, "PING"));
    session.once("close", () => this.#idleTimer.cancel());
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

  readonly #onStream = (stream: ServerHttp2Stream, _headers: IncomingHttpHeaders, flags: number, block: readonly string[]): void => {
    stream.on("error", ignore);
    // Reset in the same breath: nobody has to hear of it.
    if (stream.destroyed || stream.closed) return this.#takenBack();
    this.#streams++;
    stream.once("close", this.#onStreamClose);
    this.#options.onStream(stream, block, (flags & http2.constants.NGHTTP2_FLAG_END_STREAM) !== 0, this.#takenBack);
  };

  readonly #onStreamClose = (): void => {
    if (--this.#streams === 0) this.#idleSince = this.#options.clock.now();
  };

  readonly #takenBack = (): void => this.#count(this.#resets, "RST_STREAM");

  #count(allowance: Allowance, what: string): void {
    const session = this.#session;
    if (allowance.spend(this.#options.clock.now()) || session.destroyed) return;
    this.#options.log.warn(`an HTTP/2 connection was ended: too many ${what}`, { client_ip: session.socket.remoteAddress });
    session.destroy(TOO_MUCH, http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }

  /** One timer for a connection, not one for each of its quiet moments. */
  readonly #lookWhetherIdle = (): void => {
    const { clock, keepAliveMs } = this.#options;
    const idleMs = this.#streams > 0 ? 0 : clock.now() - this.#idleSince;
    let waitMs = keepAliveMs - idleMs;
    if (waitMs <= 0) {
      // Asked to go before, and it does not even read that.
      if (this.#session.closed) return this.#session.destroy();
      this.drain();
      waitMs = MAX_LINGER_MS;
    }
    this.#idleTimer = clock.after(waitMs, this.#lookWhetherIdle);
  };
}

/** Made once: an attack must not buy a stack trace for each connection. Without an error, node would say NO_ERROR. */
const TOO_MUCH = new Error("the client asks for too much");

function ignore(): void {}
