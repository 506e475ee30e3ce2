/**
 * The upstreams of one service across reloads: which of them can be used, and the service's circuit breaker and retry
 * budget.
 */
import { ignore, type Fault } from "../base/errors.ts";
import type { Reply } from "../http/reply.ts";
import type {
  Address,
  BreakerSettings,
  WeighedUpstream,
  CircuitBreaker,
  HealthMemory,
  HealthSettings,
  LatePlace,
  RetryLimit,
  UpstreamHealth,
} from "./contracts.ts";
import { isUpstreams } from "./faults.ts";
import type { PoolOptions } from "./connect.ts";
import type { Leases } from "./leases.ts";
import type { OwnHeaders } from "./own_headers.ts";
import type { Http1Pool } from "./pool.ts";
import type { Try, UpstreamDestination } from "./try.ts";

/** The connections to one upstream: HTTP/1.1 or HTTP/2. */
export type Pool = Http1Pool | Http2Pool;

export interface Http2Pool extends Pick<Http1Pool, "open" | "keepsIdle" | "limitTo" | "retire" | "destroy"> {
  readonly leases: Pick<Leases<unknown>, "leased" | "waiting" | "maxConnections">;
  readonly options: PoolOptions;
  readonly forward: (attempt: Try<any>) => Promise<Reply>;
}

/** One upstream of one service while the gateway runs, across reloads. */
export class Peer implements UpstreamDestination<Pool>, WeighedUpstream {
  readonly id: string;
  readonly host: string;
  readonly port: number;
  readonly authority: string;
  readonly pool: Pool;
  /** Whether it can be used. A reload may replace it. */
  health: UpstreamHealth;
  /** As configured, or 0 while it is taken out; 0: no new requests. A reload may change it. */
  weight = 1;
  /** The id of the upstream of the configuration whose endpoint it is. `apply` sets it. */
  upstream: string;
  /**
   * What the administrator has said, by which id, its own or that of its upstream, and the configured weight; null:
   * nothing. `UpstreamSet.weigh` sets it.
   */
  takenOut: (TakenOutState & { readonly as: string; readonly weight: number }) | null = null;
  /** As configured; null: none. A reload may change it. */
  group: string | null = null;
  /** It gets requests only while none of a lower rank is usable. `applyHealth` sets it. */
  rank = 0;
  /** Its `request_headers`, as configured; null: none. `applyHealth` sets them. */
  ownHeaders: OwnHeaders | null = null;
  turn = 0;
  /** What it is called in metrics: its id, or a name that it shares with others. */
  label: string;
  /** In the main thread of several: requests in progress and open connections of all workers. */
  readonly ofWorkers = { load: 0, open: 0 };

  constructor(id: string, pool: Pool, health: UpstreamHealth = ALWAYS_USABLE) {
    const { host, port } = pool.options;
    this.id = this.label = this.upstream = id;
    this.host = host;
    this.port = port;
    this.authority = authorityOf(pool.options);
    this.pool = pool;
    this.health = health;
  }

  /** Whether it gets requests only while no upstream of rank 0 is usable. */
  get isBackup(): boolean {
    return this.rank > 0;
  }

  get weightNow(): number {
    return this.weight * this.health.share;
  }

  get load(): number {
    return this.pool.leases.leased + this.pool.leases.waiting;
  }

  /** As `load`, of all threads. */
  get inFlight(): number {
    return this.load + this.ofWorkers.load;
  }

  brokeOff(fault: Fault): void {
    // A timeout in the middle of a body may be the client's fault, if it does not read.
    if (isUpstreams(fault) && fault.code !== "upstream_timeout") this.health.countFailure(fault.message);
  }
}

/** How an administrator has taken an upstream out, and since when, in milliseconds since 1970; null: not known. */
interface TakenOutState {
  readonly state: "drain" | "eject";
  readonly since: number | null;
}

/** What endpoints are called in metrics that have no name of their own there. */
export const OTHERS = "other";

/** The health of an upstream without which its service has none: it is neither checked nor ejected. */
export const ALWAYS_USABLE: UpstreamHealth = {
  usable: true,
  ejected: false,
  share: 1,
  failureStatuses: null,
  configure: ignore,
  countAnswer: ignore,
  countFailure: ignore,
  close: ignore,
  report: { state: "unknown", since: null, reason: null, until: null },
};

/** For the Host header: without the port if that is the scheme's default (RFC 9110 §4.2.1). */
export function authorityOf({
  host,
  port,
  protocol,
}: {
  readonly host: string;
  readonly port: number;
  readonly protocol: string;
}): string {
  const name = host.includes(":") ? `[${host}]` : host;
  return port === (protocol === "https" || protocol === "h2" ? 443 : 80) ? name : `${name}:${port}`;
}

/**
 * One server of a service: an upstream of its configuration, a target of one that is an SRV record, or an address of
 * one that is a name.
 */
export interface UpstreamEndpoint extends Standing {
  readonly id: string;
  readonly host: string;
  readonly port: number;
  /** Of `host`, which it is reached at. Default: all that it has. */
  readonly address?: Address;
}

/** Which requests an endpoint gets, and with what. */
interface Standing {
  /** The id of the upstream whose endpoint it is. Default: its own. */
  readonly upstream?: string;
  /** What it was called before, in cookies of sticky sessions. Default: nothing else. */
  readonly formerId?: string;
  /** 0: no new requests. */
  readonly weight: number;
  /** It gets requests only while none of a lower rank is usable. Default 0. */
  readonly rank?: number;
  readonly group?: string | undefined;
  readonly requestHeaders?: Readonly<Record<string, string>> | undefined;
}

/** One upstream of a service as it is to be from `apply` on. */
export interface UpstreamPlan extends Standing {
  readonly peer: Peer;
  /** Null: it is always usable. */
  readonly health: HealthSettings | null;
  /** Where threads share its health. Default: there is one thread, or it is there already. */
  readonly memory?: HealthMemory | LatePlace | null;
}

export class UpstreamSet {
  readonly service: string;
  #byId: ReadonlyMap<string, Peer> = new Map();
  /**
   * What the administrator has said, by the id of an upstream of the configuration, or of an endpoint, which may not be
   * there yet. It stays over reloads. See `taken_out.ts`.
   */
  readonly takenOut = new Map<string, TakenOutState>();
  /** Null: no circuit breaker is configured. */
  breaker: CircuitBreaker | null = null;
  /** Null: no retries were configured. */
  budget: RetryLimit | null = null;

  constructor(service: string) {
    this.service = service;
  }

  /** In the order of the configuration. */
  get peers(): readonly Peer[] {
    return Array.from(this.#byId.values());
  }

  /** The present peer with this id. */
  withId(id: string): Peer | undefined {
    return this.#byId.get(id);
  }

  /**
   * The present peer with this id and these connections, or a new one, which counts from `apply` on. New connections to
   * the same place, because of a renewed certificate for instance, do not make an upstream healthy.
   */
  peer(id: string, pool: Pool): Peer {
    const { protocol, host, port } = pool.options;
    const before = this.#byId.get(id);
    if (before?.pool === pool) return before;
    const isSame =
      before !== undefined && before.host === host && before.port === port && before.pool.options.protocol === protocol;
    return new Peer(id, pool, isSame ? before.health : undefined);
  }

  /**
   * Puts a configuration into force, but for the health of upstreams that have settings for it: `applyHealth` does.
   * What is taken out stays so, wherever its id leads to now, and whatever endpoints it has.
   */
  apply(
    plans: readonly UpstreamPlan[],
    breaker: { readonly breaker: CircuitBreaker; readonly settings: BreakerSettings } | null,
  ): void {
    const before = this.#byId;
    this.#byId = new Map(plans.map(({ peer }) => [peer.id, peer]));
    const staying = new Set(plans.map(({ peer }) => peer.health));
    for (const { health } of before.values()) if (!staying.has(health)) health.close();
    for (const { peer, upstream = peer.id, weight, group = null, health } of plans) {
      peer.upstream = upstream;
      this.weigh(peer, weight);
      peer.group = group;
      if (health !== null) continue;
      peer.health.close();
      peer.health = ALWAYS_USABLE;
    }
    this.breaker = breaker?.breaker ?? null;
    breaker?.breaker.configure(breaker.settings);
  }

  /** Gives a peer its configured weight, or 0 while it is taken out. */
  weigh(peer: Peer, weight: number): void {
    const as = this.takenOut.has(peer.id) ? peer.id : peer.upstream;
    const out = this.takenOut.get(as);
    peer.takenOut = out === undefined ? null : { ...out, as, weight };
    peer.weight = out === undefined ? weight : 0;
  }

  /** The service is no longer configured. */
  close(): void {
    for (const peer of this.peers) peer.health.close();
  }
}
