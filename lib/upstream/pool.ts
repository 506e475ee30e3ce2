/**
 * The connections to one upstream: a keep-alive agent, and leases that hold their number under `max_connections`.
 * What is sent over them is `forward.ts`.
 */
import http from "node:http";
import https from "node:https";
import type { Duplex } from "node:stream";
import type { Clock, Timer } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";

export interface PoolOptions {
  readonly protocol: "http" | "https";
  readonly host: string;
  readonly port: number;
  /** How long an unused connection is kept, in milliseconds. */
  readonly keepaliveIdleMs: number;
}

interface Waiter {
  readonly grant: () => void;
  readonly refuse: (fault: Fault) => void;
  readonly timer: Timer;
}

export class Pool {
  readonly options: PoolOptions;
  readonly agent: http.Agent;
  #maxConnections: number;
  #leased = 0;
  #state: "open" | "retired" | "destroyed" = "open";
  readonly #waiting = new Set<Waiter>();
  readonly #clock: Clock;

  constructor(options: PoolOptions, maxConnections: number, clock: Clock) {
    this.options = options;
    this.#maxConnections = maxConnections;
    this.#clock = clock;
    this.agent = this.#createAgent();
  }

  /** Most connections at one time; a reload may change it. */
  get maxConnections(): number {
    return this.#maxConnections;
  }

  set maxConnections(value: number) {
    this.#maxConnections = value;
    this.#grantNext();
  }

  /** Connections in use; those kept for later do not count. */
  get leased(): number {
    return this.#leased;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * Takes the right to use one connection; false when all are taken and `waitForLease` has to be called. Every lease ends with
   * `release()`.
   */
  tryLease(): boolean {
    // Who waits goes first, also in the moment between a release and the grant.
    return this.#waiting.size === 0 && this.#lease();
  }

  /** Waits for a lease, first come first served. Rejects with `upstream_saturated` after `ms` milliseconds. */
  waitForLease(ms: number, onAbort: (run: () => void) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#state === "destroyed") return reject(new Fault("upstream_unavailable", "the gateway is shutting down"));
      const giveUp = (fault: Fault) => {
        if (!this.#waiting.delete(waiter)) return;
        waiter.timer.cancel();
        reject(fault);
      };
      const waiter: Waiter = {
        grant: resolve,
        refuse: giveUp,
        timer: this.#clock.after(ms, () =>
          giveUp(new Fault("upstream_saturated", `no connection became free within ${ms} ms (max_connections ${this.#maxConnections})`)),
        ),
      };
      this.#waiting.add(waiter);
      onAbort(() => giveUp(new Fault("upstream_saturated", "the client went away while waiting for a connection")));
    });
  }

  /** Gives a lease back. */
  release(): void {
    this.#leased--;
    // A microtask later the agent has put the socket back among the free ones, and the next in line can have it.
    if (this.#waiting.size > 0) queueMicrotask(() => this.#grantNext());
  }

  /** Closes the connections nobody uses: after one of them proved dead, its siblings are likely dead too. */
  dropIdle(): void {
    for (const sockets of Object.values(this.agent.freeSockets)) {
      for (const socket of [...(sockets ?? [])]) socket.destroy();
    }
  }

  /** The upstream is no longer configured: idle connections close now, the others when their exchange ends. */
  retire(): void {
    if (this.#state === "open") this.#state = "retired";
    this.dropIdle();
  }

  /** Closes every connection, used or not, and lets nobody wait for one. */
  destroy(): void {
    this.#state = "destroyed";
    for (const waiter of this.#waiting) waiter.refuse(new Fault("upstream_unavailable", "the gateway is shutting down"));
    this.agent.destroy();
  }

  #lease(): boolean {
    if (this.#leased >= this.#maxConnections || this.#state === "destroyed") return false;
    this.#leased++;
    return true;
  }

  #grantNext(): void {
    for (const waiter of this.#waiting) {
      if (!this.#lease()) return;
      this.#waiting.delete(waiter);
      waiter.timer.cancel();
      waiter.grant();
    }
  }

  #createAgent(): http.Agent {
    const { protocol, keepaliveIdleMs } = this.options;
    const kind = protocol === "https" ? https.Agent : http.Agent;
    // Leases bound the number of sockets, so the agent's own queue, which cannot be left, is never used. Last in, first out keeps
    // few sockets warm and lets the rest run out.
    const agent = new kind({ keepAlive: true, maxSockets: Infinity, maxFreeSockets: Infinity, scheduling: "lifo", timeout: keepaliveIdleMs });
    // node's documentation says boolean, its types say void.
    const keep = agent.keepSocketAlive.bind(agent) as unknown as (socket: Duplex) => boolean;
    const reuse = agent.reuseSocket.bind(agent);
    const close = function (this: Duplex) {
      this.destroy();
      // Out of the agent's hands at once: it would still hand out a destroyed socket in this very turn of the event loop.
      this.emit("agentRemove");
    };
    agent.keepSocketAlive = (socket: Duplex) => {
      if (this.#state !== "open" || !keep(socket)) return false;
      // Bytes on an idle connection answer no question: a second response, or the answer to a request smuggled past us. Left in the
      // socket they would become the reply to whoever leases it next.
      socket.on("data", close);
      return true;
    };
    agent.reuseSocket = (socket: Duplex, request: http.ClientRequest) => {
      socket.removeListener("data", close);
      reuse(socket, request);
    };
    return agent;
  }
}
