/**
 * The connections to one upstream: a keep-alive agent for each of its addresses, used in turn, and leases that hold the number of
 * connections under `max_connections`. What is sent over them is `forward_wire.ts` and `forward.ts`; the addresses are `addresses.ts`'s.
 *
 * The agents make all connections. Those of `forward.ts` they keep themselves; those of `forward_wire.ts` are kept here, since an agent
 * hands a socket it keeps to its own kind of request only.
 */
import http from "node:http";
import https from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { WriteBatch } from "../base/write_batch.ts";
import { Fault } from "../base/errors.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import { ReadBuffer } from "./read_buffer.ts";
import { towards, type Address, type Name } from "./addresses.ts";
import { tlsOptions, type UpstreamTls } from "./tls.ts";
import { WaitQueue } from "./wait_queue.ts";
import { DeadlineTimer } from "../base/deadline_timer.ts";

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
  /** What plain connections are read into, the same for every pool of a gateway; default: one of its own. */
  readonly inlet?: ReadBuffer;
  /** With what requests leave, the same for every pool of a gateway; default: with those of this pool. */
  readonly writeBatch?: WriteBatch;
}

/** The way to one address. */
class AddressPool implements ConnectionOwner {
  /** Undefined: to what the first look-up gives, or wherever node's own leads where there is no name. */
  readonly address: Address | undefined;
  agent: http.Agent | null = null;
  /** Those of `forward_wire.ts`, in use or not. */
  readonly connections = new Set<Connection>();
  /** Those of them that are not in use; the last is used next. */
  readonly idle: Connection[] = [];
  /** Of the last TLS connection, to be taken up by the next. */
  session: Buffer | undefined;

  constructor(address: Address | undefined) {
    this.address = address;
  }

  get isInUse(): boolean {
    return this.connections.size > this.idle.length || (this.agent !== null && Object.keys(this.agent.sockets).length > 0);
  }

  gone(connection: Connection): void {
    this.connections.delete(connection);
    const at = this.idle.lastIndexOf(connection);
    if (at >= 0) this.idle.splice(at, 1);
  }

  closeIdle(which: (socket: Socket) => boolean): void {
    for (const connection of [...this.idle]) if (which(connection.socket)) connection.socket.destroy();
    if (this.agent !== null) for (const socket of socketsOf(this.agent.freeSockets)) if (which(socket)) socket.destroy();
  }

  destroy(): void {
    for (const { socket } of this.connections) socket.destroy();
    this.agent?.destroy();
  }
}

export class Pool {
  readonly options: PoolOptions;
  /** Common to all agents. */
  readonly #agentOptions: https.AgentOptions;
  readonly inlet: ReadBuffer;
  readonly writeBatch: WriteBatch;
  /** The deadlines of all exchanges of `forward_wire.ts`. */
  readonly watch: DeadlineTimer;
  #ways: readonly AddressPool[] = [new AddressPool(undefined)];
  #turn = 0;
  /** To addresses that have left, while connections of theirs are in use. */
  readonly #left = new Set<AddressPool>();
  /** Connections of agents in use that are not to be used again. */
  readonly #leaving = new WeakSet<Duplex>();
  #unfollow: (() => void) | null = null;
  #maxConnections: number;
  #leased = 0;
  #state: "open" | "retired" | "destroyed" = "open";
  readonly #waiting: WaitQueue<true>;

  /** Throws when the client certificate and its key do not fit. */
  constructor(options: PoolOptions, maxConnections: number, clock: Clock) {
    this.options = options;
    this.#maxConnections = maxConnections;
    this.watch = new DeadlineTimer(clock);
    this.#waiting = new WaitQueue(clock, () => this.#lease() || null);
    const { protocol, host, keepaliveIdleMs, tls, inlet = new ReadBuffer(), writeBatch = new WriteBatch() } = options;
    this.inlet = inlet;
    this.writeBatch = writeBatch;
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
    const way = this.#next();
    const agent = (way.agent ??= this.#createAgent(way.address));
    forgetEnded(agent);
    return agent;
  }

  /**
   * A connection for one exchange, which holds a lease: of those to the address whose turn it is the one used last, else a new one. It
   * comes back by `giveBack`, or is destroyed. For an upgrade it is a new one, whose socket somebody else can go on reading. Throws what
   * node throws when it cannot even begin.
   */
  connection(use: "exchange" | "upgrade" = "exchange"): Connection {
    const way = this.#next();
    if (use === "upgrade") return this.#connect(way, false);
    for (let kept = way.idle.pop(); kept !== undefined; kept = way.idle.pop()) {
      if (kept.isUsable) return kept;
      kept.socket.destroy();
    }
    return this.#connect(way, this.options.protocol === "http");
  }

  /** Its exchange is over, and another one can be sent over it: kept, unless nobody will want it. */
  giveBack(connection: Connection): void {
    const way = connection.home as AddressPool;
    connection.leave();
    if (this.#state !== "open" || !connection.isUsable || connection.parser.keepsFor === 0) connection.socket.destroy();
    else way.idle.push(connection);
  }

  /** A connection of an agent in use is not to be used again. */
  leave(socket: Duplex): void {
    this.#leaving.add(socket);
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
    for (const { agent, idle } of this.#ways) open += idle.length + (agent === null ? 0 : socketsOf(agent.freeSockets).length);
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
    for (const way of this.#ways) way.closeIdle(() => true);
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
    for (const way of [...this.#ways, ...this.#left]) way.destroy();
  }

  #lease(): boolean {
    if (this.#leased >= this.#maxConnections || this.#state === "destroyed") return false;
    this.#leased++;
    return true;
  }

  /** The way whose turn it is. */
  #next(): AddressPool {
    const { name } = this.options;
    // From its first use on, for a pool may be made for a configuration that never comes into force.
    if (name !== undefined && this.#unfollow === null && this.#state === "open") {
      this.#unfollow = name.onChange(() => this.#move(name.addresses));
      this.#move(name.addresses);
    }
    if (this.#turn >= this.#ways.length) this.#turn = 0;
    return this.#ways[this.#turn++]!;
  }

  /** The upstream has these addresses now: what leads to others is used no more. */
  #move(addresses: readonly Address[]): void {
    if (addresses.length === 0) return;
    const before = this.#ways;
    this.#ways = addresses.map((address) => before.find((way) => way.address === address) ?? new AddressPool(address));
    const known = new Set<string | undefined>(addresses.map(({ address }) => address));
    for (const way of this.#left) if (!way.isInUse) this.#left.delete(way);
    for (const way of before) {
      const stays = this.#ways.includes(way);
      // Where its own address was out of reach, a connection of a way that stays leads to another one.
      const leaves = (socket: Socket) => !stays || !known.has(socket.remoteAddress);
      way.closeIdle(leaves);
      for (const connection of way.connections) if (leaves(connection.socket)) connection.isLeaving = true;
      if (way.agent !== null) for (const socket of socketsOf(way.agent.sockets)) if (leaves(socket)) this.#leaving.add(socket);
      if (!stays && way.isInUse) this.#left.add(way);
    }
  }

  /** `lendsBytes`: node reads into the inlet. */
  #connect(way: AddressPool, lendsBytes: boolean): Connection {
    const { protocol, host, port, name, keepaliveIdleMs } = this.options;
    const agent = (way.agent ??= this.#createAgent(way.address));
    const read = (bytes: number, inlet: Buffer) => {
      connection.read(inlet.subarray(0, bytes));
      return true;
    };
    const options = {
      ...this.#agentOptions,
      ...towards(name, way.address),
      host,
      port,
      noDelay: true,
      keepAliveInitialDelay: 1000,
      // The connection's own affair.
      timeout: 0,
      ...(protocol === "https" ? { session: way.session } : {}),
      ...(lendsBytes ? { onread: { buffer: this.inlet.buffer, callback: read } } : {}),
    };
    // node's types ask for what only its own requests have.
    const connect = agent.createConnection.bind(agent) as unknown as (options: object) => Socket;
    const socket = connect(options);
    const connection: Connection = new Connection(socket, protocol === "https" ? "secureConnect" : "connect", keepaliveIdleMs, way, lendsBytes);
    way.connections.add(connection);
    if (protocol === "https") {
      socket.on("session", (session: Buffer) => void (way.session = session));
      socket.once("close", (hadError: boolean) => {
        if (hadError) way.session = undefined;
      });
    }
    return connection;
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

/** A copy: sockets that are closed leave the agent's own lists. */
function socketsOf(lists: NodeJS.ReadOnlyDict<Socket[]>): Socket[] {
  return Object.values(lists).flatMap((sockets) => sockets ?? []);
}
