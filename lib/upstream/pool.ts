/**
 * The connections to one upstream: a keep-alive agent for each of its addresses, used in turn, and leases that hold the number of
 * connections under `max_connections`. What is sent over them is `forward.ts`; the addresses are `resolve.ts`'s.
 */
import http from "node:http";
import https from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";
import { towards, type Address, type Name } from "./resolve.ts";
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
  /** The addresses of `host`, if it is a name; default: every connection has it looked up by node. */
  readonly name?: Name;
}

/** The way to one address; undefined: to what the first look-up gives, or wherever node's own leads where there is no name. */
interface Way {
  readonly address: Address | undefined;
  agent: http.Agent | null;
}

export class Pool {
  readonly options: PoolOptions;
  /** Common to all agents. */
  readonly #agentOptions: https.AgentOptions;
  #ways: readonly Way[] = [{ address: undefined, agent: null }];
  #turn = 0;
  /** Agents of addresses that have left, while connections of theirs are in use. */
  readonly #left = new Set<http.Agent>();
  /** Connections in use that are not to be used again. */
  readonly #leaving = new WeakSet<Duplex>();
  #unfollow: (() => void) | null = null;
  #maxConnections: number;
  #leased = 0;
  #state: "open" | "retired" | "destroyed" = "open";
  readonly #waiting: WaitingLine<true>;

  /** Throws when the client certificate and its key do not fit. */
  constructor(options: PoolOptions, maxConnections: number, clock: Clock) {
    this.options = options;
    this.#maxConnections = maxConnections;
    this.#waiting = new WaitingLine(clock, () => this.#lease() || null);
    const { protocol, host, keepaliveIdleMs, tls } = options;
    this.#agentOptions = {
      // Leases bound the number of sockets, so the agent's own queue, which cannot be left, is never used. Last in, first out keeps
      // few sockets warm and lets the rest run out.
      keepAlive: true,
      maxSockets: Infinity,
      maxFreeSockets: Infinity,
      scheduling: "lifo",
      timeout: keepaliveIdleMs,
      ...(protocol === "https" ? tlsOptions(host, tls) : {}),
    };
  }

  /** The agent whose turn it is, for one request made at once: the addresses of the upstream are used one after the other. */
  get agent(): http.Agent {
    if (this.#turn >= this.#ways.length) this.#turn = 0;
    const agent = this.#ways[this.#turn++]!.agent ?? this.#open();
    forgetEnded(agent);
    return agent;
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

  /** All connections: those in use, and those kept for later. */
  get open(): number {
    let open = this.#leased;
    for (const { agent } of this.#ways) if (agent !== null) open += socketsOf(agent.freeSockets).length;
    return open;
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
    for (const { agent } of this.#ways) if (agent !== null) closeIdle(agent, () => true);
  }

  /** The upstream is no longer configured: idle connections close now, the others when their exchange ends. */
  retire(): void {
    if (this.#state === "open") this.#state = "retired";
    this.#unfollow?.();
    this.dropIdle();
  }

  /** Closes every connection, used or not, and lets nobody wait for one. */
  destroy(): void {
    this.#state = "destroyed";
    this.#unfollow?.();
    this.#waiting.refuse(() => new Fault("upstream_unavailable", "the gateway is shutting down"));
    for (const { agent } of this.#ways) agent?.destroy();
    for (const agent of this.#left) agent.destroy();
  }

  #lease(): boolean {
    if (this.#leased >= this.#maxConnections || this.#state === "destroyed") return false;
    this.#leased++;
    return true;
  }

  /** The agent of the way whose turn it just was, and which has none yet. */
  #open(): http.Agent {
    const { name } = this.options;
    // From its first use on, for a pool may be made for a configuration that never comes into force.
    if (name !== undefined && this.#unfollow === null && this.#state === "open") {
      this.#unfollow = name.onChange(() => this.#move(name.addresses));
      this.#move(name.addresses);
    }
    const way = this.#ways[this.#turn - 1]!;
    return (way.agent ??= this.#createAgent(way.address));
  }

  /** The upstream has these addresses now: what leads to others is used no more. */
  #move(addresses: readonly Address[]): void {
    if (addresses.length === 0) return;
    const before = this.#ways;
    this.#ways = addresses.map((address) => before.find((way) => way.address === address) ?? { address, agent: null });
    const known = new Set<string | undefined>(addresses.map(({ address }) => address));
    for (const agent of this.#left) if (!isInUse(agent)) this.#left.delete(agent);
    for (const way of before) {
      if (way.agent === null) continue;
      const stays = this.#ways.includes(way);
      // Where its own address was out of reach, a connection of an agent that stays leads to another one.
      const leaves = (socket: Socket) => !stays || !known.has(socket.remoteAddress);
      closeIdle(way.agent, leaves);
      for (const socket of socketsOf(way.agent.sockets)) if (leaves(socket)) this.#leaving.add(socket);
      if (!stays && isInUse(way.agent)) this.#left.add(way.agent);
    }
  }

  #createAgent(address: Address | undefined): http.Agent {
    const { protocol, name } = this.options;
    const options = { ...this.#agentOptions, ...towards(name, address) };
    const agent = protocol === "https" ? new https.Agent(options) : new http.Agent(options);
    // node's documentation says boolean, its types say void.
    const keep = agent.keepSocketAlive.bind(agent) as unknown as (socket: Duplex) => boolean;
    const reuse = agent.reuseSocket.bind(agent);
    const close = function (this: Duplex) {
      this.destroy();
    };
    agent.keepSocketAlive = (socket: Duplex) => {
      if (this.#state !== "open" || this.#leaving.has(socket) || !keep(socket)) return false;
      // Its request was given up before it was connected. Newer Nodes would keep it, and whoever gets it next would take it for connected.
      if ((socket as Socket).connecting) return false;
      // Bytes on an idle connection answer no question: a second response, or the answer to a request smuggled past us. Left in the
      // socket they would become the reply to whoever leases it next. Newer Nodes watch for them, and for the end, themselves.
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

/** An agent hears of the end of an idle connection by its `close`, some turns of the event loop late, and would hand it out until then. */
function forgetEnded({ freeSockets }: http.Agent): void {
  const lists = freeSockets as NodeJS.Dict<Socket[]>;
  for (const name in lists) {
    const sockets = lists[name]!;
    // The last is the one that is handed out next.
    while (sockets.length > 0 && !sockets[sockets.length - 1]!.writable) sockets.pop()!.destroy();
    if (sockets.length === 0) delete lists[name];
  }
}

function closeIdle(agent: http.Agent, which: (socket: Socket) => boolean): void {
  for (const socket of socketsOf(agent.freeSockets)) if (which(socket)) socket.destroy();
}

function isInUse(agent: http.Agent): boolean {
  return Object.keys(agent.sockets).length > 0;
}

/** A copy: sockets that are closed leave the agent's own lists. */
function socketsOf(lists: NodeJS.ReadOnlyDict<Socket[]>): Socket[] {
  return Object.values(lists).flatMap((sockets) => sockets ?? []);
}
