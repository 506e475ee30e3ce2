/**
 * Enforces the limits of `global.limits` that do not concern a single head: the number of connections, and the minimum rate of a body.
 */
import type { Socket } from "node:net";
import type { Clock, DeadlineTimer } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Config } from "../config/model.ts";
import { hasHeader, type HeaderList } from "../http/headers.ts";
import { OwnConnections, type ConnectionCounts } from "./connection_counts.ts";

export type Limits = Config["global"]["limits"];

/** The settings in force. */
export interface Rules {
  readonly limits: Limits;
  readonly proxies: { has(address: string): boolean } | null;
}

/** Under attack every surplus connection would be logged. */
const WARN_AGAIN_MS = 60_000;

/**
 * Limits the number of connections, in all and by client address (IPv6 by /64). They are counted also while there is no limit: one that a
 * reload brings applies to new connections, and has to know how many there are.
 */
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
   * Whether a new connection is accepted; a surplus one is reset. A 503 would cost the resources that the limit saves (over TLS a whole
   * handshake first), and a reset leaves nothing behind on this side, no TIME_WAIT either.
   */
  admit(socket: Socket): boolean {
    const remote = socket.remoteAddress;
    // Reset while it waited to be accepted.
    if (remote === undefined) {
      socket.destroy();
      return false;
    }
    const { limits, proxies } = this.#rules();
    const { maxConnections, maxConnectionsPerIp } = limits;
    const counts = this.#counts;
    if (!counts.take(maxConnections)) return this.#refuse(socket, `max_connections ${maxConnections} is reached`);
    // Many clients come from a proxy.
    const mostOfClient = maxConnectionsPerIp > 0 && proxies?.has(remote) === true ? 0 : maxConnectionsPerIp;
    const giveOfClient = counts.takeFor(remote, mostOfClient);
    if (giveOfClient === null) {
      counts.give();
      return this.#refuse(socket, `max_connections_per_ip ${maxConnectionsPerIp} is reached`);
    }
    socket.once("close", () => {
      counts.give();
      giveOfClient();
    });
    return true;
  }

  #refuse(socket: Socket, limit: string): false {
    this.refused++;
    socket.resetAndDestroy();
    const now = this.#clock.now();
    if (now - this.#warnedAt >= WARN_AGAIN_MS) {
      this.#warnedAt = now;
      this.#log.warn(`connections are refused: ${limit}`, { open: this.open, client_ip: socket.remoteAddress });
    }
    return false;
  }
}

/** A request body on its way in. */
export interface Upload {
  /** Bytes that have arrived so far. */
  readonly received: () => number;
  /** Whether the gateway waits for the client: false while received bytes are unread by the gateway or the upstream. */
  readonly awaited: () => boolean;
  /** Aborts the upload: it arrives too slowly. */
  readonly tooSlow: () => void;
}

/** Whether a body may go on as slowly as it likes once its reply has begun: both may be parts of a conversation (gRPC), as it states no length. */
export function isLive(headers: HeaderList): boolean {
  return !hasHeader(headers, "content-length");
}

/** A slow start (a radio that wakes up, a device that reads from tape) is tolerated. */
const GRACE_MS = 10_000;
/** How long a body that came faster may stall: an upload that stalls holds a connection to its upstream. */
const MAX_AHEAD_MS = 60_000;

/** Watches an upload until the function returned is called, or until it has been given up. */
export function watchUpload(deadlines: DeadlineTimer, upload: Upload, leastBytesPerS: number): () => void {
  /** How long the gateway has waited for the client. */
  let waitedMs = 0;
  /** How far the body is ahead of the minimum rate. */
  let aheadMs = 0;
  let counted = 0;
  const end = deadlines.everySecond((_now, elapsedMs) => {
    if (!upload.awaited()) return;
    const received = upload.received();
    const earnedMs = ((received - counted) * 1000) / leastBytesPerS;
    counted = received;
    waitedMs += elapsedMs;
    aheadMs = Math.min(aheadMs + earnedMs, MAX_AHEAD_MS) - elapsedMs;
    if (waitedMs <= GRACE_MS || aheadMs >= 0) return;
    end();
    upload.tooSlow();
  });
  return end;
}
