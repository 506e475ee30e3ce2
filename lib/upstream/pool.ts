/**
 * The HTTP/1.1 connections to one upstream: unused ones are kept for each of its addresses, and the addresses are used in turn.
 */
import type { Clock } from "../base/clock.ts";
import { WriteBatch } from "../base/write_batch.ts";
import { LentBody } from "../http/lent_body.ts";
import type { Address } from "./addresses.ts";
import { Connection } from "./connection.ts";
import { ConnectionPool, type ConnectionPoolOptions } from "./connection_pool.ts";

export interface PoolOptions extends ConnectionPoolOptions {
  readonly protocol: "http" | "https";
  /** What plain connections are read into. Default: a buffer of this pool's own. */
  readonly readBuffer?: ReadBuffer;
  /** Sends the requests of one turn together. Default: those of this pool. */
  readonly writeBatch?: WriteBatch;
}

interface AddressPool {
  /** Undefined: the first address that a look-up gives. */
  readonly address: Address | undefined;
  /** Unused connections; the last is used next, so that the others can time out. */
  readonly idle: Connection[];
}

export class Pool extends ConnectionPool<true, PoolOptions> {
  readonly readBuffer: ReadBuffer;
  readonly writeBatch: WriteBatch;
  /** In use or not. */
  readonly #connections = new Set<Connection>();
  #pools: readonly AddressPool[] = [{ address: undefined, idle: [] }];
  /** The addresses that `#pools` is made from. */
  #addresses: readonly Address[] = [];
  #turn = 0;

  /** Throws when the client certificate and its key do not fit. */
  constructor(options: PoolOptions, maxConnections: number, clock: Clock) {
    super(options, maxConnections, clock);
    this.readBuffer = options.readBuffer ?? new ReadBuffer();
    this.writeBatch = options.writeBatch ?? new WriteBatch();
  }

  /** Takes the right to one connection, to be ended with `release`; false if all are in use and `waitForLease` has to be called. */
  tryLease(): boolean {
    // Requests that wait go first.
    return this.waiting === 0 && this.take() !== null;
  }

  /**
   * A connection for one request that holds a lease: the one used last to the address whose turn it is, or a new one. It comes back by
   * `giveBack`, or is destroyed. For an upgrade it is a new one, whose socket can be read by its next owner. Throws what Node throws when
   * it cannot begin to connect.
   */
  connection(use: "exchange" | "upgrade" = "exchange"): Connection {
    const pool = this.#next();
    if (use === "upgrade") return this.#open(pool, false);
    for (let kept = pool.idle.pop(); kept !== undefined; kept = pool.idle.pop()) {
      if (kept.isUsable) return kept;
      kept.socket.destroy();
    }
    return this.#open(pool, this.options.protocol === "http");
  }

  /** The request on it is over: the connection is kept for the next one if it can be. */
  giveBack(connection: Connection): void {
    connection.leave();
    if (this.state !== "open" || !connection.isUsable || connection.keepsFor === 0) connection.socket.destroy();
    else connection.idle.push(connection);
  }

  override get open(): number {
    let open = this.leased;
    for (const { idle } of this.#pools) open += idle.length;
    return open;
  }

  /** Also called after an unused connection proved dead: the others are as old, and likely dead too. */
  override dropIdle(): void {
    for (const { idle } of this.#pools) for (const { socket } of [...idle]) socket.destroy();
  }

  protected override closeAll(): void {
    for (const { socket } of this.#connections) socket.destroy();
  }

  protected override take(): true | null {
    if (this.leased >= this.maxConnections || this.state === "destroyed") return null;
    this.countLease();
    return true;
  }

  #next(): AddressPool {
    const { addresses } = this;
    if (addresses !== this.#addresses) this.readdress(addresses);
    if (this.#turn >= this.#pools.length) this.#turn = 0;
    return this.#pools[this.#turn++]!;
  }

  protected override readdress(addresses: readonly Address[]): void {
    this.#addresses = addresses;
    if (addresses.length === 0) return;
    const before = this.#pools;
    this.#pools = addresses.map((address) => before.find((pool) => pool.address === address) ?? { address, idle: [] });
    const staying = new Set(this.#pools.map(({ idle }) => idle));
    const reachable = new Set<string | undefined>(addresses.map(({ address }) => address));
    for (const connection of [...this.#connections]) {
      // A connection whose own address was out of reach leads to another one.
      if (staying.has(connection.idle) && reachable.has(connection.socket.remoteAddress)) continue;
      connection.isLeaving = true;
      if (connection.idle.includes(connection)) connection.socket.destroy();
    }
  }

  /** `lendsBytes`: Node reads into the read buffer. */
  #open({ address, idle }: AddressPool, lendsBytes: boolean): Connection {
    const read = (bytes: number, buffer: Buffer) => {
      connection.read(buffer.subarray(0, bytes));
      return true;
    };
    const socket = this.connect(address, lendsBytes ? { onread: { buffer: this.readBuffer.buffer, callback: read } } : {});
    const connection: Connection = new Connection(socket, this.options.keepaliveIdleMs, idle, lendsBytes);
    this.#connections.add(connection);
    socket.once("close", () => {
      this.#connections.delete(connection);
      const at = idle.lastIndexOf(connection);
      if (at >= 0) idle.splice(at, 1);
    });
    return connection;
  }
}

/** Twice what Node reads at a time: a response of 64 KiB and its head come in one read, and are then one write to the client. */
const BUFFER_BYTES = 128 * 1024;
/** Unused copies that are kept: 2 MiB. */
const MOST_FREE = 16;

/** The memory that responses over plain connections are read into, shared by all of them: a buffer for each read would be garbage. */
export class ReadBuffer {
  #buffer: Buffer | null = null;
  readonly #free: Buffer[] = [];

  /** Made for the first connection. What is read into it has to be used or copied before the next read. */
  get buffer(): Buffer {
    return (this.#buffer ??= Buffer.allocUnsafeSlow(BUFFER_BYTES));
  }

  /** A complete body that lies in `buffer`, copied into memory that is used again when the body has been sent. */
  lend(bytes: Buffer): LentBody {
    const copy = this.#free.pop() ?? Buffer.allocUnsafeSlow(BUFFER_BYTES);
    copy.set(bytes);
    return new LentBody(copy.subarray(0, bytes.length), () => {
      if (this.#free.length < MOST_FREE) this.#free.push(copy);
    });
  }
}
