/**
 * Holds clients to `global.limits` where no single request can: how many connections there may be, and how slowly a body may arrive.
 */
import type { Server, Socket } from "node:net";
import { callerAddress } from "../base/cidr.ts";
import type { Clock, Timer } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Config } from "../config/model.ts";
import { hasHeader, type HeaderList } from "../http/headers.ts";

export type Limits = Config["global"]["limits"];

/** What is in force at this moment. */
export interface Rules {
  readonly limits: Limits;
  /** Whether the address is a proxy's in `global.trusted_proxies`: many clients come from it. */
  readonly isTrusted: (address: string) => boolean;
}

export interface ConnectionLimit {
  /**
   * Whether a new connection is accepted; a surplus one is reset. A 503 would cost what the limit is there to save (over TLS a whole
   * handshake first), and a reset leaves nothing behind on this side, no TIME_WAIT either.
   */
  admit(socket: Socket): boolean;
  /** Connections accepted and not yet closed. */
  readonly open: number;
  /** Connections that were reset. */
  readonly refused: number;
}

/** Under attack every surplus connection would be logged. */
const WARN_AGAIN_MS = 60_000;

/**
 * Counts connections, in all and by client address (IPv6 by /64). Counted also while there is no limit: one that a reload brings applies to
 * new connections, and has to know how many there are.
 */
export function createConnectionLimit(rules: () => Rules, log: Log, clock: Clock): ConnectionLimit {
  const byAddress = new Map<string, number>();
  let open = 0;
  let refused = 0;
  let warnedAt = -Infinity;
  const refuse = (socket: Socket, limit: string) => {
    refused++;
    socket.resetAndDestroy();
    if (clock.now() - warnedAt < WARN_AGAIN_MS) return false;
    warnedAt = clock.now();
    log.warn(`connections are refused: ${limit}`, { open, client_ip: socket.remoteAddress });
    return false;
  };
  return {
    admit(socket) {
      const remote = socket.remoteAddress;
      // Reset while it waited to be accepted.
      if (remote === undefined) {
        socket.destroy();
        return false;
      }
      const { limits, isTrusted } = rules();
      const { maxConnections, maxConnectionsPerIp } = limits;
      if (maxConnections > 0 && open >= maxConnections) return refuse(socket, `max_connections ${maxConnections} is reached`);
      const address = callerAddress(remote);
      const others = byAddress.get(address) ?? 0;
      if (maxConnectionsPerIp > 0 && others >= maxConnectionsPerIp && !isTrusted(remote)) {
        return refuse(socket, `max_connections_per_ip ${maxConnectionsPerIp} is reached`);
      }
      open++;
      byAddress.set(address, others + 1);
      socket.once("close", () => {
        open--;
        const left = byAddress.get(address)! - 1;
        if (left === 0) byAddress.delete(address);
        else byAddress.set(address, left);
      });
      return true;
    },
    get open() {
      return open;
    },
    get refused() {
      return refused;
    },
  };
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
  /** Bytes that have come so far. */
  readonly received: () => number;
  /** Whether we wait for the client: not while we, or the upstream, have not read what is there. */
  readonly awaited: () => boolean;
  /** Gives it up: it comes too slowly. */
  readonly tooSlow: () => void;
}

export interface Uploads {
  /** Watches an upload; the function returned ends that. */
  watch(upload: Upload, leastBytesPerS: number): () => void;
}

/** Whether a body may go on as slowly as it likes once its reply has begun: both may be parts of a conversation (gRPC), as it states no length. */
export function isLive(headers: HeaderList): boolean {
  return !hasHeader(headers, "content-length");
}

/** A slow start (a radio that wakes up, a device that reads from tape) is forgiven. */
const GRACE_MS = 10_000;
/** How long a body that came faster may stall: an upload that stalls holds a connection to its upstream. */
const MOST_AHEAD_MS = 60_000;
const LOOK_MS = 1_000;

interface WatchedUpload {
  readonly upload: Upload;
  readonly leastBytesPerS: number;
  /** How long the client has been waited for, in milliseconds. */
  waitedMs: number;
  /** How far the body is ahead of the least rate, in milliseconds. */
  aheadMs: number;
  /** Bytes that had come at the last look. */
  counted: number;
}

/** One timer for all uploads, running only while there are some. */
export function createUploads(clock: Clock): Uploads {
  const watched = new Set<WatchedUpload>();
  let timer: Timer | null = null;
  let lookedAt = 0;
  const look = () => {
    const now = clock.now();
    // A pause of our own, with bytes waiting in the sockets, is not held against the clients.
    const elapsed = Math.min(now - lookedAt, 2 * LOOK_MS);
    lookedAt = now;
    for (const entry of watched) {
      if (!entry.upload.awaited()) continue;
      const received = entry.upload.received();
      const earnedMs = ((received - entry.counted) * 1000) / entry.leastBytesPerS;
      entry.counted = received;
      entry.waitedMs += elapsed;
      entry.aheadMs = Math.min(entry.aheadMs + earnedMs, MOST_AHEAD_MS) - elapsed;
      if (entry.waitedMs <= GRACE_MS || entry.aheadMs >= 0) continue;
      watched.delete(entry);
      entry.upload.tooSlow();
    }
    timer = watched.size > 0 ? clock.after(LOOK_MS, look) : null;
  };
  return {
    watch(upload, leastBytesPerS) {
      const entry: WatchedUpload = { upload, leastBytesPerS, waitedMs: 0, aheadMs: 0, counted: 0 };
      watched.add(entry);
      if (timer === null) {
        lookedAt = clock.now();
        timer = clock.after(LOOK_MS, look);
      }
      return () => {
        watched.delete(entry);
        if (watched.size > 0 || timer === null) return;
        timer.cancel();
        timer = null;
      };
    },
  };
}
