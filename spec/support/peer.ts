import type { Clock } from "../../lib/base/clock.ts";
import { silentLog } from "../../lib/base/log.ts";
import { Health } from "../../lib/upstream/health.ts";
import { Peer, type Pool } from "../../lib/upstream/upstream_set.ts";
import { Http1Pool, type Http1PoolOptions } from "../../lib/upstream/pool.ts";
import { manualClock } from "./clock.ts";
import { ANYWHERE } from "./anywhere.ts";

/** An upstream of no service; it is never ejected. */
export function madeUpPeer(id: string, pool: Pool = madeUpPool(), clock: Clock = manualClock()): Peer {
  const health = new Health({
    clock,
    log: silentLog,
    service: "s",
    upstream: id,
    mayEject: () => false,
    changed: () => {},
  });
  return new Peer(id, pool, health);
}

/** A pool of connections to a port without a server, unless `options` set another. */
export function madeUpPool(
  options: Partial<Http1PoolOptions> = {},
  maxConnections = 1,
  clock: Clock = manualClock(),
): Http1Pool {
  return new Http1Pool(
    { ...ANYWHERE, protocol: "http", host: "127.0.0.1", port: 80, keepaliveIdleMs: 1000, ...options },
    maxConnections,
    clock,
  );
}
