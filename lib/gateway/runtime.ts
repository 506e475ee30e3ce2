/**
 * What survives a reload: connection pools, the health of upstreams, rate counters, each under the name of what it is, so that an
 * unchanged upstream keeps its sockets and its state, and no limit is refilled. What a configuration makes of them is `snapshot.ts`.
 */
import type { Clock } from "../base/clock.ts";
import { WriteBatch } from "../base/write_batch.ts";
import type { Log } from "../base/log.ts";
import { SharedMemory } from "../base/shared_memory.ts";
import type { KeptState } from "../plugins/plugin.ts";
import { memoryCounters, type MemoryCounters } from "../store/memory.ts";
import type { Breaker, BreakerSettings } from "../upstream/breaker.ts";
import { UpstreamSet, type UpstreamSetReport, type Member } from "../upstream/upstream_set.ts";
import { startHealthCheck, type HealthCheck, type HealthCheckSettings } from "../upstream/health_checks.ts";
import type { Connections, Peer } from "../upstream/peer.ts";
import { Pool, ReadBuffer, type PoolOptions } from "../upstream/pool.ts";
import { ReplayMemory } from "../upstream/replay.ts";
import { Names, type Address } from "../upstream/addresses.ts";
import { Sessions, type SessionsOptions } from "../upstream/sessions.ts";

/** What one snapshot uses; all else may go when the snapshot comes into force. */
export interface InUse {
  readonly pools: Map<string, { readonly pool: Connections; readonly maxConnections: number }>;
  /** By the name of their service. */
  readonly fleets: Map<string, FleetPlan>;
  readonly limiters: Set<string>;
  /** What plugin instances hold, by its key. */
  readonly kept: Map<string, { readonly settings: string; readonly value: KeptState }>;
  /** Names and addresses of upstreams. */
  readonly hosts: Set<string>;
  readonly dnsTtlMs: number;
}

/** What a configuration says of the upstreams of one service. */
export interface FleetPlan {
  readonly fleet: UpstreamSet;
  readonly members: readonly Member[];
  readonly breaker: { readonly breaker: Breaker; readonly settings: BreakerSettings } | null;
  /** Null: they are not probed. */
  readonly checks: CheckSettings | null;
}

export interface CheckSettings extends HealthCheckSettings {
  /** What `expects` was made from, so that two can be compared. */
  readonly expectStatus: string;
}

export interface RuntimeOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** All addresses of a host; default: getaddrinfo. */
  readonly lookup?: (host: string) => Promise<readonly Address[]>;
  /** Numbers from 0 to below 1. Default `Math.random`. */
  readonly random?: () => number;
}

/** All request bodies together that are kept to be sent again. */
const MAX_REPLAY_BYTES = 64 * 1024 * 1024;

/** All verdicts together that plugins remember: of some ten thousand tokens. */
const MAX_VERDICT_BYTES = 32 * 1024 * 1024;

export class Runtime {
  readonly clock: Clock;
  readonly counters: MemoryCounters;
  readonly replayMemory = new ReplayMemory(MAX_REPLAY_BYTES);
  readonly verdicts = new SharedMemory(MAX_VERDICT_BYTES);
  readonly #log: Log;
  readonly #random: () => number;
  readonly #names: Names;
  readonly #readBuffer = new ReadBuffer();
  /** Requests to upstreams and replies to clients leave together. */
  readonly writeBatch = new WriteBatch();
  readonly #pools = new Map<string, Connections>();
  /** Of upstreams that are no longer configured, while a request still uses one of their connections. */
  readonly #retired = new Set<Connections>();
  readonly #fleets = new Map<string, UpstreamSet>();
  readonly #kept = new Map<string, { readonly settings: string; readonly value: KeptState }>();
  readonly #checks = new Map<Peer, { readonly settings: string; readonly check: HealthCheck }>();
  #inUse: InUse | null = null;
  #isActive = false;

  constructor({ clock, log, lookup, random = Math.random }: RuntimeOptions) {
    this.clock = clock;
    this.counters = memoryCounters(clock);
    this.#log = log;
    this.#random = random;
    this.#names = new Names({ clock, log, random, ...(lookup === undefined ? {} : { lookup }) });
  }

  /** For one snapshot, to be filled while it is compiled. */
  inUse(dnsTtlMs: number): InUse {
    return { pools: new Map(), fleets: new Map(), limiters: new Set(), kept: new Map(), hosts: new Set(), dnsTtlMs };
  }

  /** The pool of one upstream of one service: the one that is there, or a new one. Throws when its TLS settings cannot be used. */
  pool(service: string, options: PoolOptions | SessionsOptions, maxConnections: number, inUse: InUse): Connections {
    const key = JSON.stringify([service, options.protocol, options.host, options.port, options.keepaliveIdleMs, options.tls?.identity]);
    // Two upstreams of a service may stand for one address: they share its pool.
    const pool = inUse.pools.get(key)?.pool ?? this.#pools.get(key) ?? this.#connections(options, maxConnections);
    inUse.pools.set(key, { pool, maxConnections });
    inUse.hosts.add(options.host);
    return pool;
  }

  /** The upstreams of one service: those that are there, or none yet. */
  fleet(service: string): UpstreamSet {
    return this.#fleets.get(service) ?? new UpstreamSet(service, this.clock, this.#log);
  }

  /** What a plugin instance holds under `key`: what is there with the same settings, or a new one. */
  keep<T extends KeptState>(key: string, settings: string, make: () => T, inUse: InUse): T {
    const known = inUse.kept.get(key) ?? this.#kept.get(key);
    const held = known?.settings === settings ? known : { settings, value: make() };
    inUse.kept.set(key, held);
    return held.value as T;
  }

  /** The snapshot will not come into force: what was made for it goes. */
  abandon(inUse: InUse): void {
    for (const [key, { value }] of inUse.kept) if (this.#kept.get(key)?.value !== value) void closed(value);
  }

  /** A snapshot comes into force: keeps what it uses and retires the rest. */
  adopt(inUse: InUse): void {
    this.#inUse = inUse;
    this.#adoptPools(inUse);
    for (const [service, fleet] of this.#fleets) if (!inUse.fleets.has(service)) fleet.close();
    this.#fleets.clear();
    for (const [service, { fleet, members, breaker }] of inUse.fleets) {
      this.#fleets.set(service, fleet);
      fleet.adopt(members, breaker);
    }
    if (this.#isActive) this.#ask(inUse);
    this.counters.retire(inUse.limiters);
    for (const [key, { value }] of this.#kept) if (inUse.kept.get(key)?.value !== value) void closed(value);
    this.#kept.clear();
    for (const [key, held] of inUse.kept) this.#kept.set(key, held);
  }

  /** From now on names are looked up and upstreams probed: nothing goes out for a configuration that is only looked at. */
  activate(): void {
    if (this.#isActive) return;
    this.#isActive = true;
    if (this.#inUse !== null) this.#ask(this.#inUse);
  }

  #ask(inUse: InUse): void {
    this.#names.ttlMs = inUse.dnsTtlMs;
    this.#names.retain(inUse.hosts);
    this.#adoptChecks(inUse);
  }

  /** How the upstreams of every service are, in the order of the configuration. */
  get health(): readonly UpstreamSetReport[] {
    return [...this.#fleets.values()].map((fleet) => fleet.report);
  }

  /** In the order of the configuration. */
  get fleets(): Iterable<UpstreamSet> {
    return this.#fleets.values();
  }

  /** Closes what plugin instances hold. Resolves when all of it is closed. */
  async closeKept(): Promise<void> {
    const all = [...this.#kept.values()];
    this.#kept.clear();
    await Promise.all(all.map(({ value }) => closed(value)));
  }

  /** Closes every connection to every upstream, and asks nobody for anything any more. */
  destroy(): void {
    this.#names.close();
    for (const { check } of this.#checks.values()) check.stop();
    this.#checks.clear();
    for (const fleet of this.#fleets.values()) fleet.close();
    for (const pool of [...this.#pools.values(), ...this.#retired]) pool.destroy();
    this.#pools.clear();
    this.#retired.clear();
  }

  #adoptPools(inUse: InUse): void {
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
  }

  /** Probes go on where nothing has changed: what they have found so far, and when the next is due, stays. */
  #adoptChecks(inUse: InUse): void {
    const wanted = new Map<Peer, CheckSettings>();
    for (const { members, checks } of inUse.fleets.values()) if (checks !== null) for (const { peer } of members) wanted.set(peer, checks);
    for (const [peer, { check, settings }] of this.#checks) {
      const now = wanted.get(peer);
      if (now !== undefined && describeChecks(now) === settings) wanted.delete(peer);
      else {
        check.stop();
        this.#checks.delete(peer);
      }
    }
    for (const [peer, settings] of wanted) {
      const check = startHealthCheck({
        target: { ...peer.pool.options, authority: peer.authority },
        settings,
        clock: this.clock,
        random: this.#random,
        report: (failure) => peer.health.checked(failure),
      });
      this.#checks.set(peer, { settings: describeChecks(settings), check });
    }
  }

  #connections(options: PoolOptions | SessionsOptions, maxConnections: number): Connections {
    const name = this.#names.name(options.host);
    const named = name === undefined ? options : { ...options, name };
    if (!isHttp1(named)) return new Sessions(named, maxConnections, this.clock);
    return new Pool({ ...named, readBuffer: this.#readBuffer, writeBatch: this.writeBatch }, maxConnections, this.clock);
  }
}

/** A plugin that breaks its word on closing harms nobody else. */
async function closed(value: KeptState): Promise<void> {
  try {
    await value.close();
  } catch {
    // It is gone from here all the same.
  }
}

function describeChecks({ path, intervalMs, timeoutMs, expectStatus }: CheckSettings): string {
  return JSON.stringify([path, intervalMs, timeoutMs, expectStatus]);
}

function isHttp1(options: PoolOptions | SessionsOptions): options is PoolOptions {
  return options.protocol === "http" || options.protocol === "https";
}
