/**
 * The HTTP/2 connections to one upstream: few sessions to each of its addresses with many streams each, no more of either than they
 * and we allow. What is sent on a stream is `forward_h2.ts`; the addresses are `addresses.ts`'s.
 */
import http2, { type ClientHttp2Session } from "node:http2";
import net, { type Socket } from "node:net";
import tls, { type ConnectionOptions } from "node:tls";
import type { Clock, Timer } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";
import { connectFailure, towards, type Address, type Name } from "./addresses.ts";
import { tlsOptions, type UpstreamTls } from "./tls.ts";
import { WaitQueue } from "./wait_queue.ts";

export interface SessionsOptions {
  /** "h2": over TLS, agreed on by ALPN. "h2c": without, by prior knowledge (RFC 9113 §3.3). */
  readonly protocol: "h2" | "h2c";
  readonly host: string;
  readonly port: number;
  /** How long a session without streams is kept, in milliseconds. */
  readonly keepaliveIdleMs: number;
  /** For "h2"; default: verified against the system's certificates. */
  readonly tls?: UpstreamTls;
  /** The addresses of `host`, if it is a name; default: every connection has it looked up by node. */
  readonly name?: Name;
}

export class Sessions {
  readonly options: SessionsOptions;
  #maxConnections: number;
  #leased = 0;
  #state: "open" | "retired" | "destroyed" = "open";
  readonly #clock: Clock;
  readonly #waiting: WaitQueue<Session>;
  readonly #sessions = new Set<Session>();
  readonly #tls: ConnectionOptions | null;
  /** The last TLS session, to resume the next connection from. */
  #ticket: Buffer | undefined;
  /** How many leases have been asked for: whose turn it is among the addresses. */
  #turn = 0;
  /** Streams that the peer allowed on the last connection it said so of: what is expected of the next. */
  #usualStreams = STREAMS_BEFORE_SETTINGS;
  #unfollow: (() => void) | null = null;

  /** Throws when the client certificate and its key do not fit. */
  constructor(options: SessionsOptions, maxConnections: number, clock: Clock) {
    this.options = options;
    this.#maxConnections = maxConnections;
    this.#clock = clock;
    this.#waiting = new WaitQueue(clock, () => this.#take());
    this.#tls = options.protocol === "h2" ? { ...tlsOptions(options.host, options.tls), ALPNProtocols: ["h2"] } : null;
  }

  /** Most sessions at one time; a reload may change it. */
  get maxConnections(): number {
    return this.#maxConnections;
  }

  set maxConnections(value: number) {
    this.#maxConnections = value;
    this.#waiting.grant();
  }

  /** Streams in use. */
  get leased(): number {
    return this.#leased;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Sessions there are, idle and connecting ones counted. */
  get open(): number {
    return this.#sessions.size;
  }

  /**
   * Takes the right to one stream on the session that is given; null when all are full and `waitForLease` has to be called. Every lease
   * ends with `session.release()`. Does not give `except`, which has just refused.
   */
  tryLease(except: Session | null = null): Session | null {
    // Who waits goes first.
    return this.#waiting.length === 0 ? this.#take(except) : null;
  }

  /** Waits for a lease, first come first served. Rejects with `upstream_saturated` after `ms` milliseconds. */
  async waitForLease(ms: number, onAbort: (run: () => void) => void): Promise<Session> {
    if (this.#state === "destroyed") throw shuttingDown();
    return this.#waiting.wait(ms, onAbort, () => `max_connections ${this.#maxConnections}, ${this.#leased} streams in use`);
  }

  /** The upstream is no longer configured: idle sessions close now, the others with their last stream. */
  retire(): void {
    if (this.#state === "open") this.#state = "retired";
    this.#unfollow?.();
    for (const session of [...this.#sessions]) session.closeIfUnused();
  }

  /** Closes every session, used or not, and lets nobody wait for one. */
  destroy(): void {
    this.#state = "destroyed";
    this.#unfollow?.();
    this.#waiting.refuse(shuttingDown);
    for (const session of [...this.#sessions]) session.destroy(shuttingDown());
  }

  /** The first with room on the address whose turn it is, else any with room: few sessions are kept busy, the rest run out. */
  #take(except: Session | null = null): Session | null {
    if (this.#state === "destroyed") return null;
    const addresses = this.#addresses();
    const next = addresses[this.#turn++ % addresses.length];
    let other: Session | null = null;
    let isUsed = false;
    for (const session of this.#sessions) {
      const isHere = session.address === next;
      if (isHere && session.takesStreams) isUsed = true;
      if (!session.hasRoom || session === except) continue;
      if (isHere) return this.#lease(session);
      other ??= session;
    }
    const mayConnect = this.#sessions.size < this.#maxConnections;
    if (other !== null && (isUsed || !mayConnect)) return this.#lease(other);
    return mayConnect ? this.#lease(this.#connect(isUsed ? this.#leastUsed(addresses) : next)) : null;
  }

  /** None: what the first look-up gives, or wherever node's own leads where there is no name. */
  #addresses(): readonly Address[] {
    const { name } = this.options;
    if (name === undefined) return NONE;
    // From the first use on, for sessions may be made for a configuration that never comes into force.
    if (this.#unfollow === null && this.#state === "open") {
      this.#unfollow = name.onChange(() => {
        for (const session of [...this.#sessions]) this.#leaveIfGone(session);
        // A session that takes no more streams is no obstacle to who waits, if there may be another.
        this.#waiting.grant();
      });
    }
    return name.addresses;
  }

  #leastUsed(addresses: readonly Address[]): Address | undefined {
    const counts = new Map(addresses.map((address) => [address, 0]));
    for (const { address } of this.#sessions) if (address !== undefined && counts.has(address)) counts.set(address, counts.get(address)! + 1);
    return [...counts].sort(([, a], [, b]) => a - b)[0]?.[0];
  }

  /** Connections to an address that the upstream no longer has take no new streams, whether it was theirs from the start or not. */
  #leaveIfGone(session: Session): void {
    const addresses = this.#addresses();
    if (addresses.length === 0 || session.remoteAddress === undefined) return;
    const reached = addresses.some(({ address }) => address === session.remoteAddress);
    if (!reached || session.address === undefined || !addresses.includes(session.address)) session.leave();
  }

  #lease(session: Session): Session {
    this.#leased++;
    session.lease();
    return session;
  }

  #connect(address: Address | undefined): Session {
    const { host, port, keepaliveIdleMs, name } = this.options;
    const ticket = this.#ticket;
    const to = { host, port, ...towards(name, address) };
    const socket = this.#tls === null ? net.connect(to) : tls.connect({ ...this.#tls, ...to, ...(ticket === undefined ? {} : { session: ticket }) });
    if (this.#tls !== null) socket.on("session", (next: Buffer) => (this.#ticket = next));
    const session = new Session(socket, address, {
      clock: this.#clock,
      idleMs: keepaliveIdleMs,
      mostStreams: this.#usualStreams,
      isKept: () => this.#state === "open",
      released: () => {
        this.#leased--;
        this.#waiting.grant();
      },
      changed: (mostStreams) => {
        this.#usualStreams = mostStreams;
        this.#waiting.grant();
      },
      closed: () => {
        this.#sessions.delete(session);
        this.#waiting.grant();
      },
    });
    this.#sessions.add(session);
    // The answer may be another since the connection was begun.
    if (name !== undefined) session.ready.then(() => this.#leaveIfGone(session), ignore);
    return session;
  }
}

function shuttingDown(): Fault {
  return new Fault("upstream_unavailable", "the gateway is shutting down");
}

interface SessionHooks {
  readonly clock: Clock;
  readonly idleMs: number;
  /** Leases that are given before the peer has said what it allows. */
  readonly mostStreams: number;
  /** Whether a session without streams is kept for later. */
  readonly isKept: () => boolean;
  readonly released: () => void;
  /** It may have room that it had not before. */
  readonly changed: (mostStreams: number) => void;
  readonly closed: () => void;
}

/** One connection, from its first packet on. */
export class Session {
  /** Null until it is connected. */
  http2: ClientHttp2Session | null = null;
  /** Rejects with a `Fault` when there will be no connection. */
  readonly ready: Promise<ClientHttp2Session>;
  /** Resolves when the peer has said what it allows; rejects as `ready` does, and when the connection ends before. */
  readonly settled: Promise<void>;
  isSettled = false;
  /** Somebody has waited for it to be settled as long as he would: nobody new is to wait. Those who do may be luckier. */
  isOverdue = false;
  /** Whether the peer takes an extended CONNECT (RFC 8441 §3); known once it is `settled`. */
  takesWebSockets = false;
  /** The last stream the peer has looked at, by its GOAWAY: later ones can be sent again. */
  lastStream = Infinity;
  /** What it was opened for. Another address took its place if that one was out of reach. */
  readonly address: Address | undefined;
  readonly #socket: Socket;
  readonly #hooks: SessionHooks;
  #fail: (fault: Fault) => void = ignore;
  #settle: () => void = ignore;
  #state: "connecting" | "open" | "doubted" | "leaving" | "closed" = "connecting";
  #streams = 0;
  #mostStreams: number;
  #idleSince = 0;
  #timer: Timer | null = null;
  /** Runs while a sign of life is waited for: the answer to a PING, or the end of the connection. */
  #proof: Timer | null = null;

  constructor(socket: Socket, address: Address | undefined, hooks: SessionHooks) {
    this.#socket = socket;
    this.address = address;
    this.#hooks = hooks;
    this.#mostStreams = hooks.mostStreams;
    let unsettled: (fault: Fault) => void;
    this.settled = new Promise((resolve, reject) => {
      this.#settle = resolve;
      unsettled = reject;
    });
    this.ready = new Promise((resolve, reject) => {
      this.#fail = (fault) => {
        reject(fault);
        unsettled(fault);
      };
      socket.once(socket instanceof tls.TLSSocket ? "secureConnect" : "connect", () => this.#begin(resolve));
    });
    // Those who wait have given up by then; that nobody hears of it is no fault.
    this.ready.catch(ignore);
    this.settled.catch(ignore);
    socket.once("error", (error) => this.destroy(new Fault("upstream_connect_failed", connectFailure(error), error)));
    socket.once("close", () => {
      if (this.#state === "connecting") this.destroy(new Fault("upstream_connect_failed", CLOSED_EARLY));
    });
    // Nagle's algorithm would hold back the last small frame of each message.
    socket.setNoDelay(true);
  }

  get hasRoom(): boolean {
    return this.#streams < this.#mostStreams && this.takesStreams;
  }

  /** More were given leases than the peer turned out to allow: some have to go elsewhere. Of a peer that allows none, one waits for more. */
  get isOverfull(): boolean {
    return this.#streams > Math.max(1, this.#mostStreams);
  }

  get takesStreams(): boolean {
    return (this.#state === "open" || this.#state === "connecting") && (this.isSettled || !this.isOverdue);
  }

  /** Undefined until it is connected. */
  get remoteAddress(): string | undefined {
    return this.#socket.remoteAddress;
  }

  /** Bytes that have come from the peer, of whatever stream. */
  get heard(): number {
    return this.#socket.bytesRead;
  }

  lease(): void {
    if (this.#streams++ === 0) this.http2?.ref();
  }

  /** Ends one lease. */
  release(): void {
    if (--this.#streams === 0) this.#becomeIdle();
    this.#hooks.released();
  }

  /**
   * Somebody has waited for the peer in vain: it may have vanished without a word, and with it all streams of the connection. A PING
   * that finds nobody ends them. Where nothing has come since `heard` was that much, nobody new is put on the connection meanwhile.
   */
  doubt(heard: number): void {
    if (this.#proof !== null || this.http2 === null || this.http2.destroyed) return;
    const now = this.heard;
    if (this.#state === "open" && heard === now) this.#state = "doubted";
    this.#proof = this.#hooks.clock.after(PROOF_MS, () => {
      // Its answer may be stuck behind the bodies of others: whatever comes is a sign of life.
      if (this.heard !== now) this.#believe();
      else this.#giveUp(new Fault("upstream_timeout", `the connection is dead: no answer to a PING within ${PROOF_MS} ms`));
    });
    this.http2.ping((error) => {
      if (error === null) this.#believe();
    });
  }

  /** Takes no new streams; ends with the last it has. */
  leave(): void {
    if (this.#state === "open" || this.#state === "doubted") this.#state = "leaving";
    this.closeIfUnused();
  }

  closeIfUnused(): void {
    if (this.#streams > 0 || this.#state === "closed") return;
    if (!this.isSettled) {
      this.destroy(new Fault("upstream_connect_failed", "nobody needs the connection any more"));
      return void this.#socket.destroy();
    }
    this.#state = "leaving";
    const session = this.http2!;
    if (!session.closed && !session.destroyed) session.close();
    // Of a peer that has vanished the system would wait for an end for many minutes.
    this.#proof ??= this.#hooks.clock.after(PROOF_MS, () => this.#giveUp(new Fault("upstream_reset", "the connection did not close")));
  }

  destroy(fault: Fault): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#timer?.cancel();
    this.#proof?.cancel();
    this.#fail(fault);
    if (this.http2 === null) this.#socket.destroy();
    else if (!this.http2.destroyed) this.http2.destroy();
    this.#hooks.closed();
  }

  #begin(resolve: (session: ClientHttp2Session) => void): void {
    if (this.#state !== "connecting") return;
    const socket = this.#socket;
    if (socket instanceof tls.TLSSocket && socket.alpnProtocol !== "h2") {
      return this.destroy(new Fault("upstream_connect_failed", "the upstream does not offer HTTP/2 (ALPN h2)"));
    }
    // The address is for node's defaults, which are not used: each request says its own authority and scheme.
    const session = http2.connect("http://upstream", {
      createConnection: () => socket,
      maxSessionMemory: MAX_SESSION_MEGABYTES,
      maxHeaderListPairs: MAX_HEADER_PAIRS,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES, maxHeaderListSize: MAX_RESPONSE_HEAD_BYTES },
    });
    this.http2 = session;
    session.on("error", ignore);
    session.once("close", () => {
      // Without the peer's SETTINGS, which come first, nothing was sent.
      this.destroy(this.isSettled ? new Fault("upstream_reset", "the connection closed") : new Fault("upstream_connect_failed", CLOSED_EARLY));
    });
    session.on("goaway", (code: number, lastStream: number) => {
      this.lastStream = lastStream;
      this.leave();
      if (code !== http2.constants.NGHTTP2_NO_ERROR) sparePending(session);
    });
    session.on("remoteSettings", ({ maxConcurrentStreams, enableConnectProtocol }) => {
      this.takesWebSockets = enableConnectProtocol === true;
      if (maxConcurrentStreams !== undefined) this.#mostStreams = maxConcurrentStreams;
      this.isSettled = true;
      this.#settle();
      this.#hooks.changed(this.#mostStreams);
    });
    session.once("connect", () => {
      if (this.#state !== "connecting") return;
      this.#state = "open";
      session.setLocalWindowSize(SESSION_WINDOW_BYTES);
      resolve(session);
    });
  }

  #believe(): void {
    this.#proof?.cancel();
    this.#proof = null;
    if (this.#state === "leaving") return this.closeIfUnused();
    if (this.#state !== "doubted") return;
    this.#state = "open";
    if (this.#streams === 0) this.#becomeIdle();
    this.#hooks.changed(this.#mostStreams);
  }

  /** Ends the connection without waiting for the peer to take what was written. */
  #giveUp(fault: Fault): void {
    if (!this.http2!.destroyed) this.http2!.destroy(fault, http2.constants.NGHTTP2_NO_ERROR);
    this.destroy(fault);
    this.#socket.destroy();
  }

  #becomeIdle(): void {
    if (this.#state === "doubted" && this.#hooks.isKept()) return;
    if (this.#state !== "open" || !this.isSettled || !this.#hooks.isKept()) return this.closeIfUnused();
    // An idle connection must not keep the process alive.
    this.http2!.unref();
    this.#idleSince = this.#hooks.clock.now();
    // One timer for many quiet moments: it looks when it fires how long this one has lasted.
    this.#timer ??= this.#hooks.clock.after(this.#hooks.idleMs, this.#lookWhetherIdle);
  }

  readonly #lookWhetherIdle = (): void => {
    this.#timer = null;
    if (this.#streams > 0) return;
    const left = this.#idleSince + this.#hooks.idleMs - this.#hooks.clock.now();
    if (left <= 0) this.closeIfUnused();
    else this.#timer = this.#hooks.clock.after(left, this.#lookWhetherIdle);
  };
}

/**
 * Node destroys a session right after the event of a GOAWAY with an error. Its streams up to the last that the GOAWAY names may still be
 * answered (RFC 9113 §6.8), and nghttp2 goes on with them: they get the gentle end that node gives where there is no error.
 */
function sparePending(session: ClientHttp2Session): void {
  const { destroy } = session;
  const restore = () => {
    session.destroy = destroy;
  };
  session.destroy = () => {
    restore();
    session.close();
  };
  process.nextTick(restore);
}

/** Time for a sign of life: any peer answers a PING ahead of all else. Less than most wait for a connection. */
const PROOF_MS = 2_500;
const CLOSED_EARLY = "the connection closed before it was ready";
/** What RFC 9113 §6.5.2 asks peers to allow at least. */
const STREAMS_BEFORE_SETTINGS = 100;
/** As `forward.ts` has it for HTTP/1. */
const MAX_RESPONSE_HEAD_BYTES = 32 * 1024;
const MAX_HEADER_PAIRS = 1000;
/** What is kept of a response for a client that does not read; and of all of them on one connection. */
const STREAM_WINDOW_BYTES = 256 * 1024;
const SESSION_WINDOW_BYTES = 4 * 1024 * 1024;
const MAX_SESSION_MEGABYTES = 64;

const NONE: readonly Address[] = [];

function ignore(): void {}
