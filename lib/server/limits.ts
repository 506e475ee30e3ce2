/**
 * Enforces the limits of `global.limits` that do not concern a single head: the number of connections, and the minimum
 * rate of a body.
 */
import type { Socket } from "node:net";
import type { Clock } from "../base/clock.ts";
import { callerAddress } from "../base/ip_address.ts";
import type { Log } from "../base/log.ts";
import type { Config } from "../config/model.ts";
import { hasHeader, type HeaderList } from "../http/headers.ts";

export type Limits = Config["global"]["limits"];

/** The settings in force. */
export interface Rules {
  readonly limits: Limits;
  readonly proxies: { has(address: string): boolean } | null;
}

/**
 * Counts client connections, in all and by client address (IPv6 by /64): those of this thread, or those of all workers
 * (`shared_connections.ts`).
 */
export interface ConnectionCounts {
  /** Connections that are open. */
  readonly open: number;
  /** Counts one more, and returns the function that gives it back; else the limit that is reached (0: none). */
  take(
    address: string,
    most: number,
    mostOfClient: number,
  ): (() => void) | "max_connections" | "max_connections_per_ip";
}

/** Of a program without workers. */
export class OwnConnections implements ConnectionCounts {
  open = 0;
  readonly #byAddress = new Map<string, number>();

  take(remote: string, most: number, mostOfClient: number): ReturnType<ConnectionCounts["take"]> {
    if (most > 0 && this.open >= most) return "max_connections";
    const address = callerAddress(remote);
    const others = this.#byAddress.get(address) ?? 0;
    if (mostOfClient > 0 && others >= mostOfClient) return "max_connections_per_ip";
    this.open++;
    this.#byAddress.set(address, others + 1);
    return () => {
      this.open--;
      const left = this.#byAddress.get(address)! - 1;
      if (left === 0) this.#byAddress.delete(address);
      else this.#byAddress.set(address, left);
    };
  }
}

/** Under attack every surplus connection would be logged. */
const WARN_AGAIN_MS = 60_000;

/** Limits connections. They are counted also while there is no limit: a reload may bring one. */
export class ConnectionLimit {
  /** Connections that were reset. */
  refused = 0;
  readonly #rules: () => Rules;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #counts: ConnectionCounts;
  #warnedAt = -Infinity;

  constructor(rules: () => Rules, log: Log, clock: Clock, counts: ConnectionCounts = new OwnConnections()) {
    this.#rules = rules;
    this.#log = log;
    this.#clock = clock;
    this.#counts = counts;
  }

  /** Connections accepted and not yet closed, of all workers. */
  get open(): number {
    return this.#counts.open;
  }

  /**
   * Counts a new connection, and returns the function that gives it back. Null: it is surplus, and has been reset: a
   * 503 would cost what the limit saves, over TLS a whole handshake first.
   */
  admit(socket: Socket): (() => void) | null {
    const remote = socket.remoteAddress;
    // Reset while it waited to be accepted.
    if (remote === undefined) {
      socket.destroy();
      return null;
    }
    const { limits, proxies } = this.#rules();
    // Many clients come from a proxy.
    const mostOfClient =
      limits.maxConnectionsPerIp > 0 && proxies?.has(remote) === true ? 0 : limits.maxConnectionsPerIp;
    const taken = this.#counts.take(remote, limits.maxConnections, mostOfClient);
    if (typeof taken === "function") {
      socket.once("close", taken);
      return taken;
    }
    const limit = taken === "max_connections" ? limits.maxConnections : mostOfClient;
    this.refuse(socket, `${taken} ${limit} is reached`);
    return null;
  }

  /** Resets a connection. */
  refuse(socket: Socket, reason: string): void {
    const { remoteAddress } = socket;
    this.refused++;
    socket.resetAndDestroy();
    const now = this.#clock.now();
    if (now - this.#warnedAt < WARN_AGAIN_MS) return;
    this.#warnedAt = now;
    this.#log.warn(`connections are refused: ${reason}`, { open: this.open, client_ip: remoteAddress });
  }
}

/**
 * Whether a body may go on as slowly as it likes once its reply has begun: both may be parts of a conversation (gRPC),
 * as it states no length.
 */
export function isLive(headers: HeaderList): boolean {
  return !hasHeader(headers, "content-length");
}

/** A slow start (a radio that wakes up, a device that reads from tape) is tolerated. */
const GRACE_MS = 10_000;
/** How long a body that came faster may stall: an upload that stalls holds a connection to its upstream. */
const MAX_AHEAD_MS = 60_000;

/**
 * How fast a request body arrives while the gateway waits for its client: not while what has arrived is unread by the
 * gateway or the upstream.
 */
export class UploadPace {
  readonly #leastBytesPerS: number;
  /** How long the gateway has waited, and how far the body is ahead of the minimum rate. */
  #waitedMs = 0;
  #aheadMs = 0;
  #counted = 0;

  /** 0: no limit. */
  constructor(leastBytesPerS: number) {
    this.#leastBytesPerS = leastBytesPerS;
  }

  /** `received`: bytes so far; `elapsedMs`: milliseconds that have been waited since the last look. */
  isTooSlow(received: number, elapsedMs: number): boolean {
    const earnedMs = ((received - this.#counted) * 1000) / this.#leastBytesPerS;
    this.#counted = received;
    this.#waitedMs += elapsedMs;
    this.#aheadMs = Math.min(this.#aheadMs + earnedMs, MAX_AHEAD_MS) - elapsedMs;
    return this.#leastBytesPerS > 0 && this.#waitedMs > GRACE_MS && this.#aheadMs < 0;
  }
}
