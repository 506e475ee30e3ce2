/**
 * The connections to one upstream: a keep-alive agent, and leases that hold their number under `max_connections`.
 * What is sent over them is `forward.ts`.
 */
import http from "node:http";
import https from "node:https";
import type { Duplex } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";
import { tlsOptions, type UpstreamTls } from "./tls.ts";
import { WaitingLine } from "./waiting.ts";

export interface PoolOptions {
  readonly protocol: "http" | "https";
  readonly host: string;
  readonly port: number;
  /** How long an unused connection is kept, in milliseconds. */
  readonly keepaliveIdleMs: number;
  /** For "https"; default: verified against the system's certificates. */
  readonly tls?: UpstreamTls;
}

export class Pool {
  readonly options: PoolOptions;
  readonly agent: http.Agent;
  #maxConnections: number;
  #leased = 0;
  #state: "open" | "retired" | "destroyed" = "open";
  readonly #waiting: WaitingLine<true>;

  constructor(options: PoolOptions, maxConnections: number, clock: Clock) {
    this.options = options;
    this.#maxConnections = maxConnections;
    this.#waiting = new WaitingLine(clock, () => this.#lease() || null);
    this.agent = this.#createAgent();
  }

  /** Most connections at one time; a reload may change it. */
  get maxConnections(): number {
    return this.#maxConnections;
  }

  set maxConnections(value: number) {
    this.#maxConnections = value;
    this.#waiting.grant();
  }

  /** Connections in use; those kept for later do not count. */
  get leased(): number {
    return this.#leased;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /**
   * Takes the right to use one connection; false when all are taken and `waitForLease` has to be called. Every lease ends with
   * `release()`.
   */
  tryLease(): boolean {
    // Who waits goes first, also in the moment between a release and the grant.
    return this.#waiting.length === 0 && this.#lease();
  }

  /** Waits for a lease, first come first served. Rejects with `upstream_saturated` after `ms` milliseconds. */
  async waitForLease(ms: number, onAbort: (run: () => void) => void): Promise<void> {
    if (this.#state === "destroyed") throw new Fault("upstream_unavailable", "the gateway is shutting down");
    await this.#waiting.wait(ms, onAbort, () => `max_connections ${this.#maxConnections}`);
  }

  /** Gives a lease back. */
  release(): void {
    this.#leased--;
    // A microtask later the agent has put the socket back among the free ones, and the next in line can have it.
    if (this.#waiting.length > 0) queueMicrotask(() => this.#waiting.grant());
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
    this.#waiting.refuse(() => new Fault("upstream_unavailable", "the gateway is shutting down"));
    this.agent.destroy();
  }

  #lease(): boolean {
    if (this.#leased >= this.#maxConnections || this.#state === "destroyed") return false;
    this.#leased++;
    return true;
  }

  #createAgent(): http.Agent {
    const { protocol, host, keepaliveIdleMs, tls } = this.options;
    // Leases bound the number of sockets, so the agent's own queue, which cannot be left, is never used. Last in, first out keeps
    // few sockets warm and lets the rest run out.
    const options: http.AgentOptions = { keepAlive: true, maxSockets: Infinity, maxFreeSockets: Infinity, scheduling: "lifo", timeout: keepaliveIdleMs };
    const agent = protocol === "https" ? new https.Agent({ ...options, ...tlsOptions(host, tls) }) : new http.Agent(options);
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
