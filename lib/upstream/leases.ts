/**
 * Leases of the connections to one upstream: how many each client has, and which requests wait for one. Who gives them
 * knows the connections (`pool.ts`, `sessions.ts`).
 */
import type { Clock, Timer } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import { Fault } from "../base/errors.ts";
import type { Call } from "../http/exchange.ts";

interface Waiter<Lease> {
  readonly grant: (lease: Lease) => void;
  readonly refuse: (fault: Fault) => void;
  readonly timer: Timer;
}

/** A lease is the right to one request at a time: on a connection (HTTP/1.1), or on a stream of one (HTTP/2). */
export class Leases<Lease> {
  leased = 0;
  waiting = 0;
  /** As configured; the error of a request that has waited in vain names it. */
  maxConnections: number;
  /** Most leases at one time, of which a client has its share. */
  places: number;
  readonly #clock: Clock;
  readonly #take: () => Lease | null;
  #clientShare = 1;
  /** How many leases each client has, by `Call.holder`. */
  readonly byClient = new Map<string, number>();
  /**
   * The requests that wait, by client. Clients with less than their share take turns; the requests of one client are
   * served in their order.
   */
  readonly #waiters = new Map<string, Set<Waiter<Lease>>>();
  /** Why requests that wait are refused; null: they are not. */
  #refusal: Fault | null = null;

  /** `take` gives a free lease to a request that waits; null: there is none. */
  constructor(maxConnections: number, clock: Clock, take: () => Lease | null) {
    this.maxConnections = this.places = maxConnections;
    this.#clock = clock;
    this.#take = take;
  }

  /** `clientShare`: of the places, what the requests of one client have at one time, at least one place; 1: all. */
  limitTo(maxConnections: number, clientShare: number): void {
    this.maxConnections = this.places = maxConnections;
    this.#clientShare = clientShare;
  }

  /** Whether this client may have a lease now: none that may have one waits before it, and it has not all its share. */
  mayHave(client: string): boolean {
    if (this.#refusal !== null || (this.waiting > 0 && this.#nextClient() !== null)) return false;
    return !this.#hasShare(client);
  }

  /** A client has been given a lease. */
  add(client: string): void {
    this.leased++;
    this.byClient.set(client, (this.byClient.get(client) ?? 0) + 1);
  }

  /** A client gives a lease back. */
  release(client: string): void {
    const left = this.byClient.get(client)! - 1;
    if (left > 0) this.byClient.set(client, left);
    else this.byClient.delete(client);
    this.leased--;
    // A microtask later: a request whose waiting time ends at this moment has been refused by then.
    if (this.waiting > 0) queueMicrotask(this.#grantNow);
  }

  /** Waits for a lease. Rejects with `upstream_saturated` after `ms` milliseconds. */
  wait(call: Pick<Call, "holder" | "onAbort">, ms: number): Promise<Lease> {
    const client = call.holder;
    if (this.#refusal !== null) return Promise.reject(this.#refusal);
    return new Promise((resolve, reject) => {
      const refuse = (fault: Fault) => {
        if (this.#leave(client, waiter)) reject(fault);
      };
      const timer = this.#clock.after(ms, () => {
        const { maxConnections, leased } = this;
        const own = this.#hasShare(client) ? `, ${this.byClient.get(client)} of this client, which are its share` : "";
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

  /** Leases may be free that were not: requests that wait get them. */
  grant(): void {
    for (let client = this.#nextClient(); client !== null; client = this.#nextClient()) {
      const lease = this.#take();
      if (lease === null) return;
      this.add(client);
      const own = this.#waiters.get(client)!;
      const waiter = own.values().next().value!;
      this.#leave(client, waiter);
      // The other requests of this client come after those of other clients.
      if (this.#waiters.delete(client)) this.#waiters.set(client, own);
      waiter.grant(lease);
    }
  }

  readonly #grantNow = entry("a free connection", () => this.grant());

  /** Refuses all requests that wait, and all later ones. */
  refuseAll(fault: Fault): void {
    this.#refusal = fault;
    for (const own of [...this.#waiters.values()]) for (const { refuse } of [...own]) refuse(fault);
  }

  /** Whether it holds all that one client may. */
  #hasShare(client: string): boolean {
    return client !== "" && (this.byClient.get(client) ?? 0) >= mostOfClient(this.places, this.#clientShare);
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
}

/** How many places one client may hold at one time. */
export function mostOfClient(places: number, share: number): number {
  // 0.29 of 100 would be 28.
  return share === 1 ? Infinity : Math.max(1, Math.floor(places * share + 1e-6));
}
