/**
 * The common base of HTTP/1.1 and HTTP/2 connection pools of one upstream: leases, the queue for them, TLS and
 * addresses.
 */
import { DeadlineTimer, type Clock, type Timer } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import { Fault } from "../base/errors.ts";
import type { Call } from "../http/exchange.ts";
import type { Address, ConnectTarget, TlsToUpstreams } from "./contracts.ts";
import { connect } from "./connect.ts";

/**
 * All that a pool holds of a configuration, besides what can be set anew: `Runtime` makes another pool when one of them
 * changes.
 */
export interface ConnectionPoolOptions extends ConnectTarget {
  /** "h2": over TLS, negotiated by ALPN. "h2c": without TLS, by prior knowledge (RFC 9113 §3.3). */
  readonly protocol: "http" | "https" | "h2" | "h2c";
  /** How long an unused connection is kept, in milliseconds. */
  readonly keepaliveIdleMs: number;
  /** For "https" and "h2", and only for them. */
  readonly tls?: TlsToUpstreams;
}

interface Waiter<Lease> {
  readonly grant: (lease: Lease) => void;
  readonly refuse: (fault: Fault) => void;
  readonly timer: Timer;
}

/** A lease is the right to one request at a time: on a connection (HTTP/1.1), or on a stream of one (HTTP/2). */
export abstract class ConnectionPool<Lease, Options extends ConnectionPoolOptions = ConnectionPoolOptions> {
  readonly options: Options;
  /** The deadlines of all requests over these connections. */
  readonly deadlines: DeadlineTimer;
  readonly clock: Clock;
  protected state: "open" | "retired" | "destroyed" = "open";
  protected readonly connect: ReturnType<TlsToUpstreams["connector"]>;
  leased = 0;
  waiting = 0;
  /** How many leases each client has, by `Call.holder`. */
  readonly held = new Map<string, number>();
  /**
   * The requests that wait, by client. Clients with less than their share take turns; the requests of one client are
   * served in their order.
   */
  readonly #waiters = new Map<string, Set<Waiter<Lease>>>();
  maxConnections: number;
  #clientShare = 1;
  #unfollow: (() => void) | null = null;

  /** Throws when the client certificate and its key do not fit. */
  constructor(options: Options, maxConnections: number, clock: Clock) {
    const { protocol, tls } = options;
    this.options = options;
    this.clock = clock;
    this.deadlines = new DeadlineTimer(clock);
    this.maxConnections = maxConnections;
    this.connect =
      tls === undefined
        ? (address, more) => connect(options, null, address, more)
        : tls.connector(options, protocol === "h2" ? ["h2"] : undefined);
  }

  /**
   * Also with a reload. `clientShare`: of the places, what the requests of one client have at one time, at least one
   * place; 1: all.
   */
  limitTo(maxConnections: number, clientShare: number): void {
    this.maxConnections = maxConnections;
    this.#clientShare = clientShare;
    this.grant();
  }

  /** Most leases at one time. */
  protected get places(): number {
    return this.maxConnections;
  }

  /** All connections, unused ones included. */
  abstract get open(): number;

  /**
   * A lease for `client` (see `Call.holder`), to be ended with `release`; null: `waitForLease` has to be called. Never
   * `except`.
   */
  tryLease(client: string, except: Lease | null = null): Lease | null {
    // Waiting requests have priority.
    return (this.waiting > 0 && this.#nextClient() !== null) || this.#hasShare(client)
      ? null
      : this.#lease(client, except);
  }

  #lease(client: string, except: Lease | null): Lease | null {
    const lease = this.take(except);
    if (lease === null) return null;
    this.leased++;
    this.held.set(client, (this.held.get(client) ?? 0) + 1);
    return lease;
  }

  /** Whether it holds all that one client may. */
  #hasShare(client: string): boolean {
    return client !== "" && (this.held.get(client) ?? 0) >= mostOfClient(this.places, this.#clientShare);
  }

  release(client: string): void {
    const left = this.held.get(client)! - 1;
    if (left > 0) this.held.set(client, left);
    else this.held.delete(client);
    this.leased--;
    // A microtask later: a request whose waiting time ends at this moment has been refused by then.
    if (this.waiting > 0) queueMicrotask(this.#grantNow);
  }

  /** Waits for a lease. Rejects with `upstream_saturated` after `ms` milliseconds. */
  waitForLease(call: Pick<Call, "holder" | "onAbort">, ms: number): Promise<Lease> {
    const client = call.holder;
    if (this.state === "destroyed") return Promise.reject(shuttingDown());
    return new Promise((resolve, reject) => {
      const refuse = (fault: Fault) => {
        if (this.#leave(client, waiter)) reject(fault);
      };
      const timer = this.clock.after(ms, () => {
        const { maxConnections, leased } = this;
        const own = this.#hasShare(client) ? `, ${this.held.get(client)} of this client, which are its share` : "";
        refuse(
          new Fault(
            "upstream_saturated",
            `no connection became free within ${ms} ms (max_connections ${maxConnections}, ` +
              `${leased} requests in progress${own})`,
          ),
        );
      });
      const waiter: Waiter<Lease> = { grant: resolve, refuse, timer };
      const own = this.#waiters.get(client);
      if (own === undefined) this.#waiters.set(client, new Set([waiter]));
      else own.add(waiter);
      this.waiting++;
      call.onAbort(() =>
        refuse(new Fault("upstream_saturated", "the client disconnected while waiting for a connection")),
      );
    });
  }

  /** False: it waits no more. */
  #leave(client: string, waiter: Waiter<Lease>): boolean {
    const own = this.#waiters.get(client);
    if (own === undefined || !own.delete(waiter)) return false;
    if (own.size === 0) this.#waiters.delete(client);
    this.waiting--;
    waiter.timer.cancel();
    return true;
  }

  /**
   * The client whose request is granted next; null: all that wait have their share. At most as many clients as places
   * have theirs.
   */
  #nextClient(): string | null {
    for (const client of this.#waiters.keys()) if (!this.#hasShare(client)) return client;
    return null;
  }

  /** The upstream is no longer configured: unused connections close now, the others after their last request. */
  retire(): void {
    if (this.state === "open") this.state = "retired";
    this.#unfollow?.();
    this.dropIdle();
  }

  /** Closes every connection and refuses all requests that wait for one. */
  destroy(): void {
    this.state = "destroyed";
    this.#unfollow?.();
    for (const own of [...this.#waiters.values()]) for (const { refuse } of [...own]) refuse(shuttingDown());
    this.closeAll(shuttingDown());
  }

  abstract dropIdle(): void;

  protected abstract closeAll(fault: Fault): void;

  /** A free lease; null when there is none. */
  protected abstract take(except: Lease | null): Lease | null;

  protected abstract readdress(addresses: readonly Address[]): void;

  readonly #grantNow = entry("a free connection", () => this.grant());

  protected grant(): void {
    for (let client = this.#nextClient(); client !== null; client = this.#nextClient()) {
      const lease = this.#lease(client, null);
      if (lease === null) return;
      const own = this.#waiters.get(client)!;
      const waiter = own.values().next().value!;
      this.#leave(client, waiter);
      // The other requests of this client come after those of other clients.
      if (this.#waiters.delete(client)) this.#waiters.set(client, own);
      waiter.grant(lease);
    }
  }

  /**
   * Of the name; empty where there is none, or no answer yet. Followed from the first use on: some pools are never
   * used.
   */
  protected get addresses(): readonly Address[] {
    const { name } = this.options;
    if (name === undefined) return NO_ADDRESSES;
    if (this.#unfollow === null && this.state === "open")
      this.#unfollow = name.onChange(() => this.readdress(name.addresses));
    return name.addresses;
  }
}

export function isSecure(protocol: ConnectionPoolOptions["protocol"]): boolean {
  return protocol === "https" || protocol === "h2";
}

/** How many places one client may hold at one time. */
export function mostOfClient(places: number, share: number): number {
  // 0.29 of 100 would be 28.
  return share === 1 ? Infinity : Math.max(1, Math.floor(places * share + 1e-6));
}

function shuttingDown(): Fault {
  return new Fault("upstream_unavailable", "the gateway is shutting down");
}

const NO_ADDRESSES: readonly Address[] = [];
