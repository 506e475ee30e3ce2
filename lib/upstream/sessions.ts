/**
 * The HTTP/2 connections to one upstream: few connections for each of its addresses, with many streams each, within the
 * limits of both sides.
 */
import http2, { type ClientHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import tls from "node:tls";
import { DeadlineTimer, type Clock, type Timer } from "../base/clock.ts";
import { http2Over } from "../base/egress_clients.ts";
import { entry } from "../base/event_loop.ts";
import { connectFailure, Fault, ignore } from "../base/errors.ts";
import { holdsOutputBack } from "../http/h2_streams.ts";
import type { Reply } from "../http/reply.ts";
import type { Address } from "./contracts.ts";
import { Connector, readyEvent, shuttingDown, type PoolOptions } from "./connect.ts";
import { Leases } from "./leases.ts";
import { MAX_RESPONSE_HEAD_BYTES } from "./response_parser.ts";
import type { Try } from "./try.ts";

export class SessionPool {
  /** As `forward` in `attempts.ts`. */
  readonly forward: (attempt: Try<SessionPool>) => Promise<Reply>;
  readonly options: PoolOptions;
  readonly clock: Clock;
  /** The deadlines of all requests over these connections. */
  readonly deadlines: DeadlineTimer;
  readonly leases: Leases<Session>;
  readonly #connector: Connector;
  /** Whether a session without streams is kept for later requests: until the upstream is no longer configured. */
  keepsIdle = true;
  readonly #sessions = new Set<Session>();
  /** Counts leases: whose turn it is among the addresses. */
  #turn = 0;
  /**
   * The stream limit of the upstream's latest connection: assumed for the next connection until its SETTINGS arrive.
   */
  #usualStreams = STREAMS_BEFORE_SETTINGS;

  /**
   * `forward`: `forwardHttp2`, which is loaded together with this class. Throws when the client certificate and its key
   * do not fit.
   */
  constructor(options: PoolOptions, maxConnections: number, clock: Clock, forward: SessionPool["forward"]) {
    this.options = options;
    this.clock = clock;
    this.forward = forward;
    this.deadlines = new DeadlineTimer(clock);
    this.leases = new Leases(maxConnections, clock, () => this.#take(null));
    this.#connector = new Connector(options, (addresses) => this.#readdress(addresses));
    this.#countPlaces();
  }

  /**
   * A lease for `client` (see `Call.holder`), not on `except`; null: none is free, and `leases.wait` has to be
   * called.
   */
  tryLease(client: string, except: Session | null = null): Session | null {
    const lease = this.leases.mayHave(client) ? this.#take(except) : null;
    if (lease !== null) this.leases.add(client);
    return lease;
  }

  /** All connections, unused ones included. */
  get open(): number {
    return this.#sessions.size;
  }

  /** Also with a reload; `clientShare`: see `Leases`. */
  limitTo(maxConnections: number, clientShare: number): void {
    this.leases.limitTo(maxConnections, clientShare);
    this.#countPlaces();
    this.leases.grant();
  }

  #countPlaces(): void {
    this.leases.places = this.leases.maxConnections * this.#usualStreams;
  }

  dropIdle(): void {
    for (const session of [...this.#sessions]) session.closeIfUnused();
  }

  /** The upstream is no longer configured: unused connections close now, the others after their last request. */
  retire(): void {
    this.keepsIdle = false;
    this.#connector.close();
    this.dropIdle();
  }

  /** Closes every connection and refuses all requests that wait for one. */
  destroy(): void {
    this.keepsIdle = false;
    this.#connector.close();
    this.leases.refuseAll(shuttingDown());
    for (const session of [...this.#sessions]) session.destroy(shuttingDown());
  }

  /** Called by a session that may have room that it did not have before. */
  roomChanged(mostStreams: number): void {
    this.#usualStreams = mostStreams;
    this.#countPlaces();
    this.leases.grant();
  }

  /** Called by a session that is connected: the name may have other addresses by now. */
  connected(session: Session): void {
    this.#drainIfGone(session, this.#connector.addresses);
  }

  /** Called by a session that has ended. */
  closed(session: Session): void {
    this.#sessions.delete(session);
    this.leases.grant();
  }

  /**
   * The first session with room at the address whose turn it is, else any with room: few sessions are kept busy, the
   * others time out.
   */
  #take(except: Session | null): Session | null {
    const { addresses } = this.#connector;
    const next = addresses[this.#turn++ % addresses.length];
    let other: Session | null = null;
    let isUsed = false;
    for (const session of this.#sessions) {
      const isHere = session.address === next;
      if (isHere && session.acceptsStreams) isUsed = true;
      if (!session.hasRoom || session === except || session.isQuiet) continue;
      if (isHere) return session.lease();
      other ??= session;
    }
    const mayConnect = this.#sessions.size < this.leases.maxConnections;
    if (other !== null && (isUsed || !mayConnect)) return other.lease();
    if (!mayConnect) return null;
    const address = isUsed ? this.#leastUsed(addresses) : next;
    const session = new Session(this.#connector.open(address), address, this, this.#usualStreams);
    this.#sessions.add(session);
    return session.lease();
  }

  #readdress(addresses: readonly Address[]): void {
    for (const session of [...this.#sessions]) this.#drainIfGone(session, addresses);
    // A draining session does not count: there may be room for another.
    this.leases.grant();
  }

  #drainIfGone(session: Session, addresses: readonly Address[]): void {
    const { address } = session;
    const { remoteAddress } = session.socket;
    if (addresses.length === 0 || remoteAddress === undefined) return;
    // An unreachable address was replaced by another one.
    const isReached = addresses.some((each) => each.address === remoteAddress);
    if (!isReached || address === undefined || !addresses.includes(address)) session.drain();
  }

  #leastUsed(addresses: readonly Address[]): Address | undefined {
    const counts = new Map(addresses.map((address) => [address, 0]));
    for (const { address } of this.#sessions) {
      if (address !== undefined && counts.has(address)) counts.set(address, counts.get(address)! + 1);
    }
    return [...counts].sort(([, a], [, b]) => a - b)[0]?.[0];
  }
}

/** One connection, from its first packet on. */
export class Session {
  /** Null until it is connected. */
  http2: ClientHttp2Session | null = null;
  /** Resolves when the upstream's SETTINGS have arrived; rejects with a `Fault` if the connection ends before. */
  readonly settled: Promise<void>;
  isSettled = false;
  /**
   * One request timed out waiting for the SETTINGS: new requests do not wait for them; requests that already wait
   * continue to.
   */
  isOverdue = false;
  /** Whether the upstream accepts an extended CONNECT (RFC 8441 §3); known from its SETTINGS. */
  allowsWebSockets = false;
  /** The last stream that the upstream has processed, by its GOAWAY: later ones can be sent again. */
  lastStream = Infinity;
  /** The address it was opened for; another one if that was unreachable. */
  readonly address: Address | undefined;
  readonly socket: Socket;
  readonly #pool: SessionPool;
  #fail: (fault: Fault) => void = ignore;
  #settle: () => void = ignore;
  #state: "connecting" | "open" | "suspect" | "draining" | "closed" = "connecting";
  #streams = 0;
  #mostStreams: number;
  /** Bytes that had arrived when a lease was last given after some, and when that was. */
  #bytesRead = -1;
  #quietSince = 0;
  #idleSince = 0;
  #idleTimer: Timer | null = null;
  /** Runs while there are streams. */
  #outputTimer: Timer | null = null;
  /** Runs while a sign of life is awaited: the answer to a PING, or the end of the connection. */
  #probe: Timer | null = null;
  /** When the next one is due for a client that leaves. */
  #probesFrom = 0;

  /** `mostStreams`: how many leases are given before the upstream's SETTINGS have arrived. */
  constructor(socket: Socket, address: Address | undefined, pool: SessionPool, mostStreams: number) {
    this.socket = socket;
    this.address = address;
    this.#pool = pool;
    this.#mostStreams = mostStreams;
    this.settled = new Promise((resolve, reject) => {
      this.#settle = resolve;
      this.#fail = reject;
    });
    // If no request waits any more, nobody needs the failure.
    this.settled.catch(ignore);
    socket.once(readyEvent(socket), () => this.#begin());
    socket.once("error", (error) => this.destroy(new Fault("upstream_connect_failed", connectFailure(error), error)));
    socket.once("close", () => {
      if (this.#state === "connecting") this.destroy(new Fault("upstream_connect_failed", CLOSED_EARLY));
    });
  }

  get hasRoom(): boolean {
    return this.#streams < this.#mostStreams && this.acceptsStreams;
  }

  /**
   * More leases than the upstream allows streams: the excess moves to other connections. If it allows none, one lease
   * stays and waits.
   */
  get isOverfull(): boolean {
    return this.#streams > Math.max(1, this.#mostStreams);
  }

  get acceptsStreams(): boolean {
    return (this.#state === "open" || this.#state === "connecting") && (this.isSettled || !this.isOverdue);
  }

  lease(): this {
    const { bytesRead } = this.socket;
    if (bytesRead !== this.#bytesRead) {
      this.#bytesRead = bytesRead;
      this.#quietSince = this.#pool.clock.now();
    }
    if (this.#streams++ === 0) this.http2?.ref();
    this.#outputTimer ??= this.#pool.clock.after(OUTPUT_MS, this.#checkLater);
    return this;
  }

  /**
   * Whether it is silent under load: no byte has come for QUIET_MS although a request was sent. All clients may have
   * given up long before `response_ms`. It is probed, and gets no new requests until it answers.
   */
  get isQuiet(): boolean {
    const { bytesRead } = this.socket;
    if (bytesRead !== this.#bytesRead || this.#pool.clock.now() - this.#quietSince < QUIET_MS) return false;
    this.probe(bytesRead);
    return !this.acceptsStreams;
  }

  /** Ends one lease of this client. */
  release(client: string): void {
    if (--this.#streams === 0) this.#becomeIdle();
    this.#pool.leases.release(client);
  }

  /**
   * After a violation of the protocol nghttp2 sends a GOAWAY and neither reads nor writes any more, and Node up to 20
   * reports nothing: no stream ends, and requests would wait for ever. Called a turn after output: all that could be
   * sent then has been sent, but what this turn has queued leaves at the beginning of the next one (a WINDOW_UPDATE for
   * a body whose client reads again), so that it is looked at once more there.
   */
  readonly checkOutput = entry("a check of a session", () => {
    if (this.#isStuck) setImmediate(this.#endIfStuck, this.socket.bytesWritten);
  });

  readonly #endIfStuck = entry("a check of a session", (bytesWritten: number) => {
    if (this.#isStuck && this.socket.bytesWritten === bytesWritten)
      this.#giveUp(new Fault("upstream_reset", VIOLATION));
  });

  /** Requests that are more than the upstream allows at this moment, as it may, are held back, too. */
  get #isStuck(): boolean {
    const { http2, socket } = this;
    if (http2 === null || http2.destroyed || this.#streams > this.#mostStreams) return false;
    return holdsOutputBack(http2, socket);
  }

  /**
   * A request has timed out, or its client has left: the upstream may have vanished without a FIN or RST, and all
   * streams with it. A PING without an answer ends them. If nothing has arrived since `bytesRead` had that value, no
   * new request uses the connection meanwhile.
   */
  probe(bytesRead: number): void {
    if (this.#probe !== null || this.http2 === null || this.http2.destroyed) return;
    const { socket } = this;
    const now = socket.bytesRead;
    if (this.#state === "open" && bytesRead === now) this.#state = "suspect";
    this.#probe = this.#pool.clock.after(PROBE_MS, () => {
      // The answer may wait behind the bodies of other streams: any byte is a sign of life.
      if (socket.bytesRead !== now) this.#isAlive();
      else
        this.#giveUp(
          new Fault("upstream_timeout", `the connection is dead: no answer to a PING within ${PROBE_MS} ms`),
        );
    });
    this.http2.ping((error) => {
      if (error === null) this.#isAlive();
    });
  }

  /**
   * As `probe`, at most once in QUIET_MS: clients must not choose how many PINGs an upstream gets, which may end the
   * connection for them.
   */
  clientLeft(): void {
    const now = this.#pool.clock.now();
    if (now < this.#probesFrom) return;
    this.#probesFrom = now + QUIET_MS;
    this.probe(-1);
  }

  /** Accepts no new streams; ends with the last it has. */
  drain(): void {
    if (this.#state === "open" || this.#state === "suspect") this.#state = "draining";
    this.closeIfUnused();
  }

  closeIfUnused(): void {
    if (this.#streams > 0 || this.#state === "closed") return;
    if (!this.isSettled)
      return this.destroy(new Fault("upstream_connect_failed", "the connection is not needed any more"));
    this.#state = "draining";
    const session = this.http2!;
    if (!session.closed && !session.destroyed) session.close();
    // If the upstream has vanished, the system would wait for the end for many minutes.
    this.#probe ??= this.#pool.clock.after(PROBE_MS, () =>
      this.#giveUp(new Fault("upstream_reset", "the connection did not close")),
    );
  }

  destroy(fault: Fault): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#idleTimer?.cancel();
    this.#outputTimer?.cancel();
    this.#probe?.cancel();
    this.#fail(fault);
    if (this.http2 !== null && !this.http2.destroyed) this.http2.destroy();
    // Node may wait for the upstream's end; a turn later the last frames have been sent.
    setImmediate(entry("the end of a session", () => void this.socket.destroy()));
    this.#pool.closed(this);
  }

  #begin(): void {
    if (this.#state !== "connecting") return;
    const socket = this.socket;
    if (socket instanceof tls.TLSSocket && socket.alpnProtocol !== "h2") {
      return this.destroy(new Fault("upstream_connect_failed", "the upstream does not offer HTTP/2 (ALPN h2)"));
    }
    const session = http2Over(socket, {
      maxSessionMemory: MAX_SESSION_MEGABYTES,
      maxHeaderListPairs: MAX_HEADER_PAIRS,
      settings: {
        enablePush: false,
        initialWindowSize: STREAM_WINDOW_BYTES,
        maxHeaderListSize: MAX_RESPONSE_HEAD_BYTES,
      },
    });
    this.http2 = session;
    session.on("error", ignore);
    session.once("close", () => {
      // Without the upstream's SETTINGS, which come first, nothing was sent.
      if (this.isSettled) this.destroy(new Fault("upstream_reset", "the connection closed"));
      else this.destroy(new Fault("upstream_connect_failed", CLOSED_EARLY));
    });
    session.on("goaway", (code: number, lastStream: number) => {
      this.lastStream = lastStream;
      this.drain();
      if (code !== http2.constants.NGHTTP2_NO_ERROR) finishPendingStreams(session);
    });
    session.on("remoteSettings", ({ maxConcurrentStreams, enableConnectProtocol }) => {
      this.allowsWebSockets = enableConnectProtocol === true;
      if (maxConcurrentStreams !== undefined) this.#mostStreams = maxConcurrentStreams;
      this.isSettled = true;
      this.#settle();
      this.#pool.roomChanged(this.#mostStreams);
    });
    session.once("connect", () => {
      if (this.#state !== "connecting") return;
      this.#state = "open";
      session.setLocalWindowSize(SESSION_WINDOW_BYTES);
      this.#pool.connected(this);
    });
  }

  #isAlive(): void {
    this.#probe?.cancel();
    this.#probe = null;
    if (this.#state === "draining") return this.closeIfUnused();
    if (this.#state !== "suspect") return;
    this.#state = "open";
    if (this.#streams === 0) this.#becomeIdle();
    this.#pool.roomChanged(this.#mostStreams);
  }

  /** Closes the connection without flushing written data. */
  #giveUp(fault: Fault): void {
    if (!this.http2!.destroyed) this.http2!.destroy(fault, http2.constants.NGHTTP2_NO_ERROR);
    this.destroy(fault);
    this.socket.destroy();
  }

  #becomeIdle(): void {
    const { keepsIdle, options, clock } = this.#pool;
    if (this.#state === "suspect" && keepsIdle) return;
    if (this.#state !== "open" || !this.isSettled || !keepsIdle) return this.closeIfUnused();
    // An idle connection must not keep the process alive.
    this.http2!.unref();
    this.#idleSince = clock.now();
    // One timer for many short idle times: when it fires, it checks how long the present one has lasted.
    this.#idleTimer ??= clock.after(options.keepaliveIdleMs, this.#checkIdle);
  }

  readonly #checkLater = (): void => {
    this.#outputTimer = this.#streams === 0 ? null : this.#pool.clock.after(OUTPUT_MS, this.#checkLater);
    setImmediate(this.checkOutput);
  };

  readonly #checkIdle = (): void => {
    this.#idleTimer = null;
    if (this.#streams > 0) return;
    const { options, clock } = this.#pool;
    const left = this.#idleSince + options.keepaliveIdleMs - clock.now();
    if (left <= 0) this.closeIfUnused();
    else this.#idleTimer = clock.after(left, this.#checkIdle);
  };
}

/**
 * Node destroys a session right after the event of a GOAWAY with an error. Its streams up to the last that the GOAWAY
 * names may still be answered (RFC 9113 §6.8), and nghttp2 continues them: the session is closed gracefully instead, as
 * after a GOAWAY without an error.
 */
function finishPendingStreams(session: ClientHttp2Session): void {
  const { destroy } = session;
  const restore = entry("a GOAWAY", () => {
    session.destroy = destroy;
  });
  session.destroy = () => {
    restore();
    session.close();
  };
  process.nextTick(restore);
}

/** Every peer answers a PING before everything else. Shorter than most requests wait for a connection. */
const PROBE_MS = 2_500;
/** A session that has sent nothing for this long, although requests were sent, may be dead. */
const QUIET_MS = 3_000;
const OUTPUT_MS = 1_000;
const VIOLATION = "the upstream broke the rules of HTTP/2, and the connection is of no use any more";
const CLOSED_EARLY = "the connection closed before it was ready";
/** The minimum that RFC 9113 §6.5.2 recommends. */
const STREAMS_BEFORE_SETTINGS = 100;
const MAX_HEADER_PAIRS = 1000;
/** Bytes buffered for clients that do not read: per response, and per connection. */
const STREAM_WINDOW_BYTES = 256 * 1024;
const SESSION_WINDOW_BYTES = 4 * 1024 * 1024;
const MAX_SESSION_MEGABYTES = 64;
