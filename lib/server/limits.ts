/**
 * Enforces the limits of `global.limits` that do not concern a single head: the number of connections, and the minimum rate of a body.
 */
import type { Server, Socket } from "node:net";
import { callerAddress } from "../base/cidr.ts";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Config } from "../config/model.ts";
import { hasHeader, type HeaderList } from "../http/headers.ts";
import type { Sweep } from "./sweep.ts";

export type Limits = Config["global"]["limits"];

/** The settings in force. */
export interface Rules {
  readonly limits: Limits;
  /** Whether the address is a proxy's in `global.trusted_proxies`: many clients come from it. */
  readonly isTrusted: ((address: string) => boolean) | null;
}

/** Under attack every surplus connection would be logged. */
const WARN_AGAIN_MS = 60_000;

/**
 * Counts connections, in all and by client address (IPv6 by /64). Counted also while there is no limit: one that a reload brings applies to
 * new connections, and has to know how many there are.
 */
export class ConnectionLimit {
  /** Connections accepted and not yet closed. */
  open = 0;
  /** Connections that were reset. */
  refused = 0;
  readonly #rules: () => Rules;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #byAddress = new Map<string, number>();
  #warnedAt = -Infinity;

  constructor(rules: () => Rules, log: Log, clock: Clock) {
    this.#rules = rules;
    this.#log = log;
    this.#clock = clock;
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
    const { limits, isTrusted } = this.#rules();
    const { maxConnections, maxConnectionsPerIp } = limits;
    if (maxConnections > 0 && this.open >= maxConnections) return this.#refuse(socket, `max_connections ${maxConnections} is reached`);
    const address = callerAddress(remote);
    const others = this.#byAddress.get(address) ?? 0;
    if (maxConnectionsPerIp > 0 && others >= maxConnectionsPerIp && isTrusted?.(remote) !== true) {
      return this.#refuse(socket, `max_connections_per_ip ${maxConnectionsPerIp} is reached`);
    }
    this.open++;
    this.#byAddress.set(address, others + 1);
    socket.once("close", () => {
      this.open--;
      const left = this.#byAddress.get(address)! - 1;
      if (left === 0) this.#byAddress.delete(address);
      else this.#byAddress.set(address, left);
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

/** Puts `admitted` before a server's own listeners, so that a surplus connection costs no parser and no handshake. Throws if it has none. */
export function guard(server: Server, admitted: (socket: Socket) => boolean): void {
  const own = server.listeners("connection") as ((this: Server, socket: Socket) => void)[];
  // Added later, they would serve every connection that is refused here.
  if (own.length === 0) throw new Error("this version of Node.js is not supported: its servers have no connection listener that limits could be put before");
  server.removeAllListeners("connection");
  server.on("connection", (socket: Socket) => {
    if (admitted(socket)) for (const listener of own) listener.call(server, socket);
  });
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
const MOST_AHEAD_MS = 60_000;

/** Watches an upload until the function returned is called, or until it has been given up. */
export function watchUpload(sweep: Sweep, upload: Upload, leastBytesPerS: number): () => void {
  /** How long the gateway has waited for the client. */
  let waitedMs = 0;
  /** How far the body is ahead of the minimum rate. */
  let aheadMs = 0;
  let counted = 0;
  const end = sweep.watch((_now, elapsedMs) => {
    if (!upload.awaited()) return;
    const received = upload.received();
    const earnedMs = ((received - counted) * 1000) / leastBytesPerS;
    counted = received;
    waitedMs += elapsedMs;
    aheadMs = Math.min(aheadMs + earnedMs, MOST_AHEAD_MS) - elapsedMs;
    if (waitedMs <= GRACE_MS || aheadMs >= 0) return;
    end();
    upload.tooSlow();
  });
  return end;
}
