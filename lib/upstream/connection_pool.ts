/**
 * What the connections to one upstream have in common over HTTP/1.1 and HTTP/2: leases, the queue for them, TLS and addresses.
 */
import type { Socket } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { DeadlineTimer, type Clock, type Timer } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";
import type { Address } from "./addresses.ts";
import { connect, type ConnectTarget } from "./connect.ts";
import { tlsOptions, type UpstreamTls } from "./tls.ts";

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
  /** First come, first served. */
  readonly #waiting = new Set<Waiter<Lease>>();
  #maxConnections: number;
  #leased = 0;
  #unfollow: (() => void) | null = null;

  /** Throws when the client certificate and its key do not fit. */
  constructor(options: Options, maxConnections: number, clock: Clock) {
    const { protocol, host, tls } = options;
    this.options = options;
    this.clock = clock;
    this.deadlines = new DeadlineTimer(clock);
    this.#maxConnections = maxConnections;
    this.#tls = protocol === "http" || protocol === "h2c" ? null : tlsOptions(host, tls);
    if (protocol === "h2") this.#tls!.ALPNProtocols = ["h2"];
  }

  /** Most connections at one time; a reload may change it. */
  get maxConnections(): number {
    return this.#maxConnections;
  }

  set maxConnections(value: number) {
    this.#maxConnections = value;
    this.grant();
  }

  /** Requests under way. */
  get leased(): number {
    return this.#leased;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** All connections, unused ones included. */
  abstract get open(): number;

  /** Waits for a lease. Rejects with `upstream_saturated` after `ms` milliseconds. */
  waitForLease(ms: number, onAbort: (run: () => void) => void): Promise<Lease> {
    if (this.state === "destroyed") return Promise.reject(shuttingDown());
    return new Promise((resolve, reject) => {
      const refuse = (fault: Fault) => {
        if (!this.#waiting.delete(waiter)) return;
        waiter.timer.cancel();
        reject(fault);
      };
      const timer = this.clock.after(ms, () => {
        const why = `max_connections ${this.#maxConnections}, ${this.#leased} requests under way`;
        refuse(new Fault("upstream_saturated", `no connection became free within ${ms} ms (${why})`));
      });
      const waiter: Waiter<Lease> = { grant: resolve, refuse, timer };
      this.#waiting.add(waiter);
      onAbort(() => {
        if (this.#waiting.has(waiter)) refuse(new Fault("upstream_saturated", "the client disconnected while waiting for a connection"));
      });
    });
  }

  /** Ends one lease. */
  release(): void {
    this.#leased--;
    // A microtask later: a request whose time to wait is over at this moment is refused by then.
    if (this.#waiting.size > 0) queueMicrotask(() => this.grant());
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
    for (const { refuse } of [...this.#waiting]) refuse(shuttingDown());
    this.closeAll(shuttingDown());
  }

  /** Closes the unused connections. */
  abstract dropIdle(): void;

  protected abstract closeAll(fault: Fault): void;

  /** Gives a lease, to be counted by `countLease`; null when there is none. */
  protected abstract take(): Lease | null;

  /** The name has these addresses now. */
  protected abstract readdress(addresses: readonly Address[]): void;

  protected countLease(): void {
    this.#leased++;
  }

  /** Gives free leases to the requests that have waited longest. */
  protected grant(): void {
    for (const waiter of this.#waiting) {
      const lease = this.take();
      if (lease === null) return;
      this.#waiting.delete(waiter);
      waiter.timer.cancel();
      waiter.grant(lease);
    }
  }

  /** Of the name; empty where there is none, or no answer yet. Followed from the first use on: some pools never come into use. */
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
