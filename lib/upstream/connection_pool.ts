/**
 * The common base of HTTP/1.1 and HTTP/2 connection pools of one upstream: leases, the queue for them, TLS and addresses.
 */
import type { Socket } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { DeadlineTimer, type Clock, type Timer } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import { Fault } from "../base/errors.ts";
import type { Address } from "./addresses.ts";
import { connect, type ConnectTarget, tlsOptions, type UpstreamTls } from "./connect.ts";

export interface ConnectionPoolOptions extends ConnectTarget {
  readonly protocol: "http" | "https" | "h2" | "h2c";
  /** How long an unused connection is kept, in milliseconds. */
  readonly keepaliveIdleMs: number;
  /** For "https" and "h2". Default: verified against the system's certificates. */
  readonly tls?: UpstreamTls;
}

interface Waiter<Lease> {
  readonly grant: (lease: Lease) => void;
  readonly refuse: (fault: Fault) => void;
  readonly timer: Timer;
}

/** A lease is the right to one request at a time: on a connection (HTTP/1.1), or on a stream of one (HTTP/2). */
export abstract class ConnectionPool<Lease, Options extends ConnectionPoolOptions> {
  readonly options: Options;
  /** The deadlines of all requests over these connections. */
  readonly deadlines: DeadlineTimer;
  readonly clock: Clock;
  protected state: "open" | "retired" | "destroyed" = "open";
  readonly #tls: ConnectionOptions | null;
  /** The last TLS session of each address, to be resumed by the next connection. Without a name it is the pool's own. */
  readonly #tlsSessions = new WeakMap<object, Buffer>();
  /** Requests in progress. */
  leased = 0;
  /** First come, first served. */
  protected readonly waiters = new Set<Waiter<Lease>>();
  protected limit: number;
  #unfollow: (() => void) | null = null;

  /** Throws when the client certificate and its key do not fit. */
  constructor(options: Options, maxConnections: number, clock: Clock) {
    const { protocol, host, tls } = options;
    this.options = options;
    this.clock = clock;
    this.deadlines = new DeadlineTimer(clock);
    this.limit = maxConnections;
    this.#tls = protocol === "http" || protocol === "h2c" ? null : tlsOptions(host, tls);
    if (protocol === "h2") this.#tls!.ALPNProtocols = ["h2"];
  }

  /** Most connections at one time; a reload may change it. */
  get maxConnections(): number {
    return this.limit;
  }

  set maxConnections(value: number) {
    this.limit = value;
    this.grant();
  }

  get waiting(): number {
    return this.waiters.size;
  }

  /** All connections, unused ones included. */
  abstract get open(): number;

  /** Waits for a lease. Rejects with `upstream_saturated` after `ms` milliseconds. */
  waitForLease(ms: number, onAbort: (run: () => void) => void): Promise<Lease> {
    if (this.state === "destroyed") return Promise.reject(shuttingDown());
    return new Promise((resolve, reject) => {
      const refuse = (fault: Fault) => {
        if (!this.waiters.delete(waiter)) return;
        waiter.timer.cancel();
        reject(fault);
      };
      const timer = this.clock.after(ms, () => {
        const why = `max_connections ${this.limit}, ${this.leased} requests in progress`;
        refuse(new Fault("upstream_saturated", `no connection became free within ${ms} ms (${why})`));
      });
      const waiter: Waiter<Lease> = { grant: resolve, refuse, timer };
      this.waiters.add(waiter);
      onAbort(() => {
        if (this.waiters.has(waiter)) refuse(new Fault("upstream_saturated", "the client disconnected while waiting for a connection"));
      });
    });
  }

  /** Ends one lease. */
  abstract release(): void;

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
    for (const { refuse } of [...this.waiters]) refuse(shuttingDown());
    this.closeAll(shuttingDown());
  }

  /** Closes the unused connections. */
  abstract dropIdle(): void;

  protected abstract closeAll(fault: Fault): void;

  /** Gives a lease, counted in `leased`; null when there is none. */
  protected abstract take(): Lease | null;

  /** The name has these addresses now. */
  protected abstract readdress(addresses: readonly Address[]): void;

  readonly #grantNow = entry("a free connection", () => this.grant());

  /** A microtask later: a request whose waiting time ends at this moment has been refused by then. */
  protected grantSoon(): void {
    queueMicrotask(this.#grantNow);
  }

  /** Gives free leases to the requests that have waited longest. */
  protected grant(): void {
    for (const waiter of this.waiters) {
      const lease = this.take();
      if (lease === null) return;
      this.waiters.delete(waiter);
      waiter.timer.cancel();
      waiter.grant(lease);
    }
  }

  /** Of the name; empty where there is none, or no answer yet. Followed from the first use on: some pools are never used. */
  protected get addresses(): readonly Address[] {
    const { name } = this.options;
    if (name === undefined) return NO_ADDRESSES;
    if (this.#unfollow === null && this.state === "open") this.#unfollow = name.onChange(() => this.readdress(name.addresses));
    return name.addresses;
  }

  protected connect(address: Address | undefined, more: object = {}): Socket {
    if (this.#tls === null) return connect(this.options, null, address, more);
    const owner = address ?? this;
    const session = this.#tlsSessions.get(owner);
    const socket = connect(this.options, this.#tls, address, session === undefined ? more : { ...more, session });
    socket.on("session", (ticket: Buffer) => void this.#tlsSessions.set(owner, ticket));
    socket.once("close", (hadError: boolean) => {
      if (hadError) this.#tlsSessions.delete(owner);
    });
    return socket;
  }
}

function shuttingDown(): Fault {
  return new Fault("upstream_unavailable", "the gateway is shutting down");
}

const NO_ADDRESSES: readonly Address[] = [];
