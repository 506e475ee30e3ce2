/**
 * What survives a reload: connection pools, rate counters, rotations, each under the name of what it is, so that an unchanged
 * upstream keeps its sockets and no limit is refilled. What a configuration makes of them is `snapshot.ts`.
 */
import type { Clock } from "../base/clock.ts";
import { memoryCounters, type MemoryCounters } from "../store/memory.ts";
import type { Rotation } from "../upstream/balance.ts";
import type { Connections } from "../upstream/peer.ts";
import { Pool, type PoolOptions } from "../upstream/pool.ts";
import { Sessions, type SessionsOptions } from "../upstream/sessions.ts";

/** What one snapshot uses; all else may go when the snapshot comes into force. */
export interface InUse {
  readonly pools: Map<string, { readonly pool: Connections; readonly maxConnections: number }>;
  readonly services: Set<string>;
  readonly limiters: Set<string>;
}

export class Runtime {
  readonly clock: Clock;
  readonly counters: MemoryCounters;
  readonly #pools = new Map<string, Connections>();
  /** Of upstreams that are no longer configured, while a request still uses one of their connections. */
  readonly #retired = new Set<Connections>();
  readonly #rotations = new Map<string, Rotation>();

  constructor(clock: Clock) {
    this.clock = clock;
    this.counters = memoryCounters(clock);
  }

  /** The pool of one upstream of one service: the one that is there, or a new one. Throws when its TLS settings cannot be used. */
  pool(service: string, options: PoolOptions | SessionsOptions, maxConnections: number, inUse: InUse): Connections {
    const key = JSON.stringify([service, options.protocol, options.host, options.port, options.keepaliveIdleMs, options.tls?.identity]);
    // Two upstreams of a service may stand for one address: they share its pool.
    const pool = inUse.pools.get(key)?.pool ?? this.#pools.get(key) ?? connections(options, maxConnections, this.clock);
    inUse.pools.set(key, { pool, maxConnections });
    return pool;
  }

  /** Where the service's rotation stands. */
  rotation(service: string, inUse: InUse): Rotation {
    inUse.services.add(service);
    return this.#rotations.get(service) ?? { turn: 0 };
  }

  /** A snapshot comes into force: keeps what it uses and retires the rest. */
  adopt(inUse: InUse, rotations: ReadonlyMap<string, Rotation>): void {
    for (const pool of this.#retired) if (pool.leased === 0) this.#retired.delete(pool);
    for (const [key, pool] of this.#pools) {
      if (inUse.pools.has(key)) continue;
      this.#pools.delete(key);
      pool.retire();
      if (pool.leased > 0) this.#retired.add(pool);
    }
    for (const [key, { pool, maxConnections }] of inUse.pools) {
      pool.maxConnections = maxConnections;
      this.#pools.set(key, pool);
    }
    for (const service of this.#rotations.keys()) if (!inUse.services.has(service)) this.#rotations.delete(service);
    for (const [service, rotation] of rotations) this.#rotations.set(service, rotation);
    this.counters.retire(inUse.limiters);
  }

  /** Closes every connection to every upstream. */
  destroy(): void {
    for (const pool of [...this.#pools.values(), ...this.#retired]) pool.destroy();
    this.#pools.clear();
    this.#retired.clear();
  }
}

function connections(options: PoolOptions | SessionsOptions, maxConnections: number, clock: Clock): Connections {
  return isHttp1(options) ? new Pool(options, maxConnections, clock) : new Sessions(options, maxConnections, clock);
}

function isHttp1(options: PoolOptions | SessionsOptions): options is PoolOptions {
  return options.protocol === "http" || options.protocol === "https";
}
