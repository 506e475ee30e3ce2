/**
 * Keeps what survives a reload: connection pools, the health of upstreams, rate counters and the state of plugins. Each
 * has a key that identifies it, so that an unchanged upstream keeps its connections and its state, and no rate limit is
 * refilled.
 */
import { isIP } from "node:net";
import type { Clock } from "../base/clock.ts";
import { WriteBatch } from "../base/event_loop.ts";
import type { Log } from "../base/log.ts";
import { ALONE, isWorker, type ThreadCount, type Threads } from "../base/threads.ts";
import type { KeptState, ToolCode } from "../plugins/plugin.ts";
import type { ConnectionCounts } from "../server/limits.ts";
import type { Service } from "../config/model.ts";
import type { HashSecret, MemoryCounters, QuotaTables } from "../store/caller_tables.ts";
import type { GatewayCounters } from "../store/counters.ts";
import type { BalancedService, Balancing } from "../upstream/balancing.ts";
import type {
  FailureCounts,
  HealthTools,
  HostName,
  HostNames,
  NamesOptions,
  ServiceRecordsOptions,
  TargetsRecord,
  TargetsRecords,
  TlsToUpstreams,
  UpstreamTlsSettings,
  UpstreamTlsTools,
} from "../upstream/contracts.ts";
import { UpstreamSet, type Pool, type Peer } from "../upstream/upstream_set.ts";
import { Http1Pool } from "../upstream/pool.ts";
import type { PoolOptions } from "../upstream/connect.ts";

/** Keeps in files what outlives the program. */
export interface StateKeeper {
  readonly quotas: QuotaTables;
  /** Writes that have failed. */
  readonly failures: number;
  /** Resolves when all is written, or cannot be. */
  close(): Promise<void>;
}

/**
 * The objects that one snapshot, or one service of it, uses; all others are released when the snapshot comes into
 * force.
 */
export interface InUse {
  /** By the name of their service. */
  readonly pools: Map<string, PlannedPools>;
  /** By the name of their service. */
  readonly upstreamSets: Map<string, UpstreamSetPlan>;
  readonly limiters: Set<string>;
  /** The counters that gateways share (`global.counters`); null: rate limits count in this process. */
  shared: GatewayCounters | null;
  /** The state that plugin instances keep, by key and settings. */
  readonly pluginState: Map<string, KeptState>;
  /** What all threads of the program share, by name. */
  readonly memory: Map<string, ArrayBufferLike>;
  /** Whether a plugin that is not the gateway's own uses it. */
  hasForeignPlugins: boolean;
  /** Of the units that it was compiled in, see `CompiledUnit`: it has all that they have. */
  readonly units: Set<InUse>;
  readonly dnsTtlMs: number;
  readonly maxClientShare: number;
}

/** The pools of one service, by all that they hold of a configuration. */
export type PlannedPools = Map<string, PlannedPool>;

interface PlannedPool {
  readonly pool: Pool;
  readonly maxConnections: number;
}

/** Client connections of all workers. */
export interface WorkerConnections extends ConnectionCounts {
  of(worker: number): number;
  /** A worker has ended. */
  clear(worker: number): void;
}

/** The features that it uses. */
export interface RuntimeFeatures {
  /** Services that have several upstreams, or say how one is chosen, judged or asked again. */
  readonly balancing: Balancing;
  /** Upstreams that have a name, or are reached over TLS. */
  readonly outbound: {
    readonly Names: new (options: NamesOptions) => HostNames;
    readonly ServiceRecords: new (options: ServiceRecordsOptions) => TargetsRecords;
    readonly UpstreamTls: new (settings?: UpstreamTlsSettings, tools?: UpstreamTlsTools) => TlsToUpstreams;
  };
  readonly http2: {
    http2Pool(options: PoolOptions, maxConnections: number, clock: Clock): Pool;
  };
  readonly workers: {
    readonly FailureReports: new () => FailureCounts;
    readonly SharedConnections: new (threads: Threads) => WorkerConnections;
    readonly SharedCount: NonNullable<ToolCode["SharedCount"]>;
    workerCounters(clock: Clock, threads: Threads, secret?: HashSecret): MemoryCounters;
  };
}

/** To ask for one that has not been loaded throws. */
type UsedFeatures = RuntimeFeatures & { readonly loaded: Partial<RuntimeFeatures> };

export interface UpstreamSetPlan extends BalancedService {
  readonly upstreamSet: UpstreamSet;
  /**
   * Its endpoints are those that SRV records and names have; the other members change with them. Default: they do not
   * change.
   */
  readonly following?: EndpointsFollowing;
}

/** How the endpoints of a service follow what name servers say. */
export interface EndpointsFollowing {
  /** As configured: an upstream of it may have no endpoint at the moment. */
  readonly service: Pick<Service, "upstreams">;
  /** The records that it follows. */
  readonly records: readonly TargetsRecord[];
  /** The names whose addresses it follows. */
  readonly names: readonly HostName[];
  /** Before it comes into force: brings it to what is known now, in this turn. */
  refresh(): void;
  /** It is in force: `Runtime.replace` gets each change from now on. */
  follow(): void;
  /** It is no longer in force. */
  leave(): void;
  /** Calls these as soon as it has the first answer of every record, which it may have had before. */
  afterFirst(listeners: Iterable<() => void>): void;
}

/** What is asked in place of the system's resolver. */
export type RuntimeLookUps = Pick<NamesOptions, "lookup"> & Pick<ServiceRecordsOptions, "lookUpService">;

const NO_FEATURES = { loaded: {} } as UsedFeatures;

export class Runtime {
  readonly clock: Clock;
  readonly log: Log;
  readonly threads: Threads;
  readonly #features: UsedFeatures;
  /** Decisions that shared counters did not make, by reason. */
  readonly countersErrors = new Map<string, number>();
  /** See `Tools`. Those of earlier configurations stay: requests that have met them may not be logged yet. */
  readonly secretParameters = new Set<string>();
  /** Requests to upstreams and replies to clients are written together. */
  readonly writeBatch = new WriteBatch();
  readonly #lookUps: RuntimeLookUps;
  /** Null: no upstream has had a name. */
  #names: HostNames | null = null;
  /** Null: no upstream has been an SRV record. */
  #records: TargetsRecords | null = null;
  /** Pools of upstreams that are no longer configured, while a request still uses one of their connections. */
  readonly #retired = new Set<Pool>();
  /** Null: no upstream has been probed. */
  #checks: ReturnType<Balancing["activeChecks"]> | null = null;
  readonly #lastingMemory = new Map<string, ArrayBufferLike>();
  /** The threads of the program, with memory that belongs to no configuration and lives as long as the gateway. */
  readonly lasting: Threads;
  readonly #common = new Map<string, unknown>();
  /** What workers hold together. */
  readonly #counts = new Set<Pick<ThreadCount, "clear">>();
  /** In a worker: failures of upstreams, for the main thread; null elsewhere. */
  readonly failures: FailureCounts | null;
  /** Requests in flight of all workers; null without workers. */
  readonly inFlight: ThreadCount | null = null;
  /** Client connections of all workers; null without workers. */
  readonly connections: WorkerConnections | null = null;
  readonly healthTools: HealthTools;
  /** Rate counters in the memory of this program; null: there is no limiter yet. */
  limits: MemoryCounters | null = null;
  /** Null: nothing outlives the program. */
  readonly state: StateKeeper | null;
  /** In the main thread, once an upstream has been taken out: see `taken_out.ts`. */
  takenOut: { applied(): void } | null = null;
  #inUse: InUse | null = null;
  #isActive = false;

  /** `lookUps`: default: those of the system. `features`: default: none. */
  constructor(
    clock: Clock,
    log: Log,
    lookUps: RuntimeLookUps = {},
    threads = ALONE,
    features: UsedFeatures = NO_FEATURES,
    state: StateKeeper | null = null,
  ) {
    this.clock = clock;
    this.#features = features;
    this.threads = threads;
    this.state = state;
    this.failures = isWorker(threads) ? new features.workers.FailureReports() : null;
    this.lasting = { ...threads, memory: (name, bytes) => this.#memory(name, bytes, this.#lastingMemory) };
    const changes = new Int32Array(this.lasting.memory("changes of health", Int32Array.BYTES_PER_ELEMENT));
    const make: HealthTools["make"] = (options, memory) => features.balancing.healthOf(options, memory, this.failures);
    this.healthTools = { clock, log, changes, make };
    if (threads.count > 1) {
      this.inFlight = this.count("requests in flight", features.workers.SharedCount);
      this.connections = new features.workers.SharedConnections(this.lasting);
    }
    this.#lookUps = lookUps;
    this.log = log;
  }

  /** For one snapshot, to be filled while it is compiled. */
  inUse(dnsTtlMs: number, maxClientShare = 1): InUse {
    return {
      pools: new Map(),
      upstreamSets: new Map(),
      limiters: new Set(),
      shared: null,
      pluginState: new Map(),
      memory: new Map(),
      hasForeignPlugins: false,
      units: new Set(),
      dnsTtlMs,
      maxClientShare,
    };
  }

  /** Adds what a unit of a snapshot uses. */
  include(unit: InUse, whole: InUse): void {
    for (const [service, pools] of unit.pools) whole.pools.set(service, pools);
    for (const [service, plan] of unit.upstreamSets) whole.upstreamSets.set(service, plan);
    for (const key of unit.limiters) whole.limiters.add(key);
    for (const [name, kept] of unit.pluginState) whole.pluginState.set(name, kept);
    for (const [name, memory] of unit.memory) whole.memory.set(name, memory);
    whole.units.add(unit);
  }

  /**
   * The pool of one upstream of one service: the existing one, or a new one, which is added to `pools`. Throws when its
   * TLS settings cannot be used.
   */
  pool(service: string, options: PoolOptions, maxConnections: number, pools: PlannedPools): Pool {
    // All that the pool holds of a configuration, whatever options there are; `dial` leads to host and port alone.
    const key = JSON.stringify({ ...options, dial: null, tls: options.tls?.identity });
    // Two upstreams of a service may have one address: they share its pool.
    const share = shareOf(maxConnections, this.threads);
    const known = pools.get(key) ?? this.#inUse?.pools.get(service)?.get(key);
    const pool = known?.pool ?? this.#newPool(options, share);
    pools.set(key, { pool, maxConnections: share });
    return pool;
  }

  /** The targets of an SRV record, which are looked up while an active configuration names it. */
  record(name: string): TargetsRecord {
    const { clock, log } = this;
    const { lookUpService } = this.#lookUps;
    this.#records ??= new this.#features.outbound.ServiceRecords({
      clock,
      log,
      ...(lookUpService && { lookUpService }),
    });
    // Its targets come later, and may be names: memory that threads share is made while a configuration is compiled.
    this.#openHostNames();
    return this.#records.record(name);
  }

  /** A host name, which is looked up while an active configuration uses it. */
  hostName(host: string): HostName {
    return this.#openHostNames().name(host)!;
  }

  #openHostNames(): HostNames {
    const { clock, log } = this;
    const { lookup } = this.#lookUps;
    const memory = (bytes: number) => this.lasting.memory("names with several addresses", bytes);
    return (this.#names ??= new this.#features.outbound.Names({ clock, log, memory, ...(lookup && { lookup }) }));
  }

  /** The upstreams of one service: the existing ones, or none yet. */
  upstreamSet(service: string): UpstreamSet {
    return this.#inUse?.upstreamSets.get(service)?.upstreamSet ?? new UpstreamSet(service);
  }

  /** What there is by this name, which is made when it is first asked for, and is there as long as the gateway. */
  common<T>(name: string, make: () => T): T {
    if (!this.#common.has(name)) this.#common.set(name, make());
    return this.#common.get(name) as T;
  }

  /** A count over all workers, as long as the gateway. */
  count<T extends Pick<ThreadCount, "clear">>(name: string, Count: new (threads: Threads, name: string) => T): T {
    return this.common(`count ${name}`, () => {
      const count = new Count(this.lasting, name);
      this.#counts.add(count);
      return count;
    });
  }

  /** `make`: without workers. */
  counters(make: NonNullable<ToolCode["memoryCounters"]>): MemoryCounters {
    const { clock, threads, state } = this;
    const shared = () => this.#features.workers.workerCounters(clock, threads, state?.quotas.secret);
    return (this.limits ??= threads.count === 1 ? make(clock, state?.quotas.secret) : shared());
  }

  /** The state that a plugin instance keeps under `key`: the existing one if it has the same settings, or a new one. */
  keep<T extends KeptState>(key: string, settings: string, make: () => T, inUse: InUse): T {
    const name = `${key} ${settings}`;
    const kept = inUse.pluginState.get(name) ?? this.#inUse?.pluginState.get(name) ?? make();
    inUse.pluginState.set(name, kept);
    // Of an instance in force that asks for it late.
    if (this.#inUse?.units.has(inUse)) this.#inUse.pluginState.set(name, kept);
    return kept as T;
  }

  /**
   * Memory that all threads of the program share: what there is by this name, or new memory, all zero. `known`: see
   * `GiveMemory`.
   */
  memory(name: string, bytes: number, inUse: InUse, known?: ArrayBufferLike | null): ArrayBufferLike {
    // What a worker keeps may have been replaced: the main thread says what all have.
    const kept = isWorker(this.threads) ? null : known === undefined ? this.#inUse?.memory.get(name) : known;
    return this.#memory(name, bytes, inUse.memory, kept);
  }

  #memory(
    name: string,
    bytes: number,
    memories: Map<string, ArrayBufferLike>,
    kept?: ArrayBufferLike | null,
  ): ArrayBufferLike {
    const memory = memories.get(name) ?? kept ?? this.threads.memory(name, bytes);
    memories.set(name, memory);
    return memory;
  }

  /** All memory that the threads of the program share under a configuration. */
  sharedMemory({ memory }: InUse): ReadonlyMap<string, ArrayBufferLike> {
    return new Map([...this.#lastingMemory, ...memory]);
  }

  /** In the main thread: a worker is dead. Gives back what it held of every limit. `id` and `worker`: see `Threads`. */
  forget(id: number, worker: number): void {
    for (const each of this.#counts) each.clear(worker);
    this.connections?.clear(worker);
    this.shared?.shared.forget(worker);
    this.limits?.repair?.(id);
  }

  /** Closes the state that was created for a snapshot that does not come into force. */
  abandon(inUse: InUse): void {
    this.limits?.abandon(inUse.limiters);
    void closePluginState(inUse, this.#inUse);
    this.#forgetUnused();
  }

  /**
   * Puts a snapshot into force: what it uses stays, the rest is released. In one turn, so all that can be made before
   * is made with the snapshot, and what is the same as before is left as it is.
   */
  apply(inUse: InUse): void {
    const before = this.#inUse;
    const changed = Array.from(inUse.upstreamSets).filter(([name, plan]) => before?.upstreamSets.get(name) !== plan);
    for (const [, { following }] of changed) following?.refresh();
    this.#inUse = inUse;
    this.#forgetRetired();
    for (const [service, pools] of before?.pools ?? []) this.#retire(pools, inUse.pools.get(service));
    const former = before?.maxClientShare === inUse.maxClientShare ? before.pools : null;
    for (const [service, pools] of inUse.pools) this.#limit(pools, former?.get(service));
    for (const [service, plan] of before?.upstreamSets ?? []) {
      if (inUse.upstreamSets.get(service) === plan) continue;
      plan.following?.leave();
      if (inUse.upstreamSets.has(service)) continue;
      plan.upstreamSet.close();
      this.#checks?.apply(plan.upstreamSet, null);
      this.#names?.retain([], undefined, plan.upstreamSet);
    }
    for (const [, plan] of changed) {
      this.#applyPlans(plan);
      plan.following?.follow();
    }
    this.takenOut?.applied();
    if (this.#isActive) this.#start(changed);
    this.limits?.apply?.(inUse.memory);
    this.limits?.retire(inUse.limiters);
    void closePluginState(before, inUse);
  }

  /**
   * In the place of the endpoints of one service in force come others: `plan` has them already. In this turn; nothing
   * else of the configuration is looked at.
   */
  replace(plan: UpstreamSetPlan, pools: PlannedPools): void {
    const inForce = this.#inUse!.pools.get(plan.upstreamSet.service)!;
    this.#forgetRetired();
    this.#retire(inForce, pools);
    this.#limit(pools, inForce);
    for (const key of inForce.keys()) if (!pools.has(key)) inForce.delete(key);
    for (const [key, pool] of pools) inForce.set(key, pool);
    this.#applyPlans(plan);
    this.takenOut?.applied();
    if (this.#isActive) this.#startService(plan);
  }

  #forgetRetired(): void {
    for (const pool of this.#retired) if (pool.leases.leased === 0) this.#retired.delete(pool);
  }

  /** Closes connections that are not used to what `next` has no longer; the others close after their last request. */
  #retire(before: PlannedPools, next: PlannedPools | undefined): void {
    if (before === next) return;
    for (const [key, { pool }] of before) {
      if (next?.has(key)) continue;
      pool.retire();
      if (pool.leases.leased > 0) this.#retired.add(pool);
    }
  }

  #limit(pools: PlannedPools, before: PlannedPools | undefined): void {
    if (before === pools) return;
    const { maxClientShare } = this.#inUse!;
    for (const [key, { pool, maxConnections }] of pools)
      if (before?.get(key)?.maxConnections !== maxConnections) pool.limitTo(maxConnections, maxClientShare);
  }

  #applyPlans(plan: UpstreamSetPlan): void {
    const { balancing } = this.#features.loaded;
    if (balancing === undefined) plan.upstreamSet.apply(plan.plans, plan.breaker);
    else balancing.applyPlans(plan.upstreamSet, plan, this.healthTools, this.failures === null);
  }

  /** From now on names are resolved and upstreams probed: a configuration that is only checked causes no traffic. */
  activate(): void {
    this.#isActive = true;
    if (this.#inUse !== null) this.#start(this.#inUse.upstreamSets);
  }

  /** See `InUse`. */
  get shared(): GatewayCounters | null {
    return this.#inUse?.shared ?? null;
  }

  /** In the order of the configuration. */
  get upstreamSets(): readonly UpstreamSet[] {
    return Array.from(this.#inUse?.upstreamSets.values() ?? [], ({ upstreamSet }) => upstreamSet);
  }

  /** The SRV records of the configuration in force that have no current answer, by service. */
  get unresolved(): readonly { readonly service: string; readonly record: TargetsRecord }[] {
    return Array.from(this.#inUse?.upstreamSets ?? []).flatMap(([service, { following }]) =>
      (following?.records ?? [])
        .filter(({ state }) => state === "old" || state === "none")
        .map((record) => ({ service, record })),
    );
  }

  /** Of the configuration in force. */
  upstreamsOf(service: string): UpstreamSetPlan | undefined {
    return this.#inUse?.upstreamSets.get(service);
  }

  peer(service: string, id: string): Peer | undefined {
    return this.#inUse?.upstreamSets.get(service)?.upstreamSet.withId(id);
  }

  /** Closes the state that plugin instances keep. Resolves when all of it is closed. */
  async closePluginState(): Promise<void> {
    const closing = closePluginState(this.#inUse, null);
    this.#inUse?.pluginState.clear();
    await closing;
  }

  /** Closes every connection to every upstream, and ends all probes and look-ups. */
  destroy(): void {
    this.limits?.close();
    this.#names?.close();
    this.#records?.close();
    for (const { upstreamSet, following } of this.#inUse?.upstreamSets.values() ?? []) {
      following?.leave();
      this.#checks?.apply(upstreamSet, null);
      upstreamSet.close();
    }
    for (const pools of this.#inUse?.pools.values() ?? []) for (const { pool } of pools.values()) pool.destroy();
    for (const pool of this.#retired) pool.destroy();
    this.#retired.clear();
  }

  /** `changed`: the services whose upstreams may be others than those it was last called with. */
  #start(changed: Iterable<readonly [service: string, plan: UpstreamSetPlan]>): void {
    const { upstreamSets, shared, dnsTtlMs } = this.#inUse!;
    // The main thread of workers serves nobody, and needs neither shared counters nor upstreams but those that it
    // checks.
    if (this.#isServing) shared?.start();
    for (const [, plan] of changed) this.#startService(plan);
    this.#names?.retain([], dnsTtlMs);
    const records = Array.from(upstreamSets.values(), ({ following }) => following?.records ?? []).flat();
    this.#records?.retain(records, dnsTtlMs);
    this.#forgetUnused();
  }

  /** Names that only configurations have that are not in force. */
  #forgetUnused(): void {
    this.#names?.forgetUnused();
    this.#records?.forgetUnused();
  }

  get #isServing(): boolean {
    return this.threads.worker >= 0;
  }

  /** Looks up the names of one service, and checks its upstreams. */
  #startService({ upstreamSet, checks, following }: UpstreamSetPlan): void {
    const pools = this.#inUse!.pools.get(upstreamSet.service)?.values() ?? [];
    const used = this.#isServing
      ? Array.from(pools, ({ pool }) => pool)
      : Array.from(checks?.dials.keys() ?? [], ({ pool }) => pool);
    const names = used.flatMap(({ options: { name, address } }) => (address === undefined ? (name ?? []) : []));
    this.#names?.retain([...(following?.names ?? []), ...names], this.#inUse!.dnsTtlMs, upstreamSet);
    // In a worker: the main thread checks.
    if (isWorker(this.threads)) return;
    if (checks !== null) this.#checks ??= this.#features.balancing.activeChecks(this.clock);
    this.#checks?.apply(upstreamSet, checks);
  }

  #withName(options: PoolOptions): PoolOptions {
    const { proxy, host, address } = options;
    if (proxy !== undefined || isIP(host) !== 0) return options;
    return { ...options, name: address === undefined ? this.hostName(host) : this.#openHostNames().at(host, address) };
  }

  #newPool(options: PoolOptions, maxConnections: number): Pool {
    const { clock, writeBatch } = this;
    const named = this.#withName(options);
    if (named.protocol === "http" || named.protocol === "https")
      return new Http1Pool({ ...named, writeBatch }, maxConnections, clock);
    return this.#features.http2.http2Pool(named, maxConnections, clock);
  }
}

/**
 * The connections to an upstream that a worker may have: its share of what the configuration allows, and at least one.
 */
function shareOf(maxConnections: number, { worker, count }: Threads): number {
  return Math.max(1, Math.floor(maxConnections / count) + (worker < maxConnections % count ? 1 : 0));
}

/**
 * Closes the state that `inUse` has and `other` has not. A plugin that throws on closing must not keep others from
 * being closed.
 */
function closePluginState(inUse: InUse | null, other: InUse | null): Promise<unknown> {
  const closing = Array.from(inUse?.pluginState ?? []).filter(
    ([name, value]) => other?.pluginState.get(name) !== value,
  );
  return Promise.allSettled(closing.map(async ([, value]) => value.close()));
}
