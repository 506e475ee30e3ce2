/**
 * The HTTP/1.1 connections to one upstream: unused ones are kept, and its addresses are used in turn.
 */
import type { Socket } from "node:net";
import { DeadlineTimer, type Clock } from "../base/clock.ts";
import { ignore } from "../base/errors.ts";
import { GuardedReadable, type WriteBatch } from "../base/event_loop.ts";
import type { Address } from "./contracts.ts";
import { Connector, readyEvent, shuttingDown, type PoolOptions } from "./connect.ts";
import { Leases } from "./leases.ts";
import { ResponseParser, type AnyResponseParser, type ResponseSink } from "./response_parser.ts";

export interface Http1PoolOptions extends PoolOptions {
  /** Writes the requests of one round of the event loop together. */
  readonly writeBatch: WriteBatch;
}

export class Http1Pool {
  readonly options: Http1PoolOptions;
  /** The deadlines of all requests over these connections. */
  readonly deadlines: DeadlineTimer;
  readonly leases: Leases<true>;
  readonly #connector: Connector;
  /** False once the upstream is no longer configured. */
  keepsIdle = true;
  readonly #connections = new Set<Connection>();
  /** Those that are not in use; of each address the last is used next, so that the others can time out. */
  readonly #idle: Connection[] = [];
  /** Counts connections: whose turn it is among the addresses. */
  #turn = 0;

  /** Throws when the client certificate and its key do not fit. */
  constructor(options: Http1PoolOptions, maxConnections: number, clock: Clock) {
    this.options = options;
    this.deadlines = new DeadlineTimer(clock);
    this.leases = new Leases(maxConnections, clock, () => this.#hasPlace || null);
    this.#connector = new Connector(options, (addresses) => this.#readdress(addresses));
  }

  get #hasPlace(): boolean {
    return this.leases.leased < this.leases.maxConnections;
  }

  /** A lease for `client` (see `Call.holder`); null: none is free, and `leases.wait` has to be called. */
  tryLease(client: string): true | null {
    if (!this.leases.mayHave(client) || !this.#hasPlace) return null;
    this.leases.add(client);
    return true;
  }

  /**
   * Returns a connection for one request that holds a lease: the most recently used one to the next address, or a new
   * one. The caller returns it with `giveBack` or destroys it. An upgrade always gets a new connection, whose socket
   * can be handed over. `clientAddress`: of the request; with `proxyProtocol` a connection serves one of them. Throws
   * Node's error when connecting cannot start.
   */
  connection(use: "exchange" | "upgrade" = "exchange", clientAddress = ""): Connection {
    const { name, protocol, proxyProtocol } = this.options;
    const address = name === undefined ? undefined : this.#nextAddress();
    const client = proxyProtocol === undefined ? null : clientAddress;
    if (use === "upgrade") return this.#open(address, client, false);
    const idle = this.#idle;
    for (let i = idle.length - 1; i >= 0; i--) {
      const kept = idle[i]!;
      if (kept.address !== address || kept.client !== client) continue;
      if (i === idle.length - 1) idle.pop();
      else idle.splice(i, 1);
      if (kept.isUsable) return kept;
      kept.socket.destroy();
    }
    return this.#open(address, client, protocol === "http");
  }

  /** Undefined before the first look-up. */
  #nextAddress(): Address | undefined {
    const { addresses } = this.#connector;
    return addresses.length === 0 ? undefined : addresses[this.#turn++ % addresses.length];
  }

  giveBack(connection: Connection): void {
    connection.leave();
    const isKept = this.keepsIdle && connection.isUsable && connection.parser.keepsFor !== 0;
    // It still counts as leased.
    if (isKept && this.open <= this.leases.maxConnections) this.#idle.push(connection);
    else connection.socket.destroy();
  }

  /** Also with a reload; `clientShare`: see `Leases`. */
  limitTo(maxConnections: number, clientShare: number): void {
    this.leases.limitTo(maxConnections, clientShare);
    this.leases.grant();
    this.#makeRoom();
  }

  /** Connections that are not in use count as well: the one that has been unused for longest is closed first. */
  #makeRoom(): void {
    while (this.#idle.length > 0 && this.open > this.leases.maxConnections) this.#idle.shift()!.socket.destroy();
  }

  /** All connections, unused ones included. */
  get open(): number {
    return this.leases.leased + this.#idle.length;
  }

  /**
   * Also called after an unused connection proved dead: the others are as old, and probably dead too. `client`: of that
   * connection, and only its own are dropped; default: all are.
   */
  dropIdle(client?: string | null): void {
    for (const connection of [...this.#idle])
      if (client === undefined || connection.client === client) connection.socket.destroy();
  }

  /** The upstream is no longer configured: unused connections close now, the others after their last request. */
  retire(): void {
    this.keepsIdle = false;
    this.#connector.close();
    this.dropIdle();
  }

  /** Closes every connection and refuses all requests that wait for one. */
  destroy(): void {
    this.keepsIdle = false;
    this.#connector.close();
    this.leases.refuseAll(shuttingDown());
    for (const { socket } of this.#connections) socket.destroy();
  }

  #readdress(addresses: readonly Address[]): void {
    if (addresses.length === 0) return;
    const reachable = new Set<string | undefined>(addresses.map(({ address }) => address));
    for (const connection of this.#connections) {
      const { address, socket } = connection;
      // A connection opened after a failed address may have reached another address.
      if (address !== undefined && addresses.includes(address) && reachable.has(socket.remoteAddress)) continue;
      connection.isLeaving = true;
      if (this.#idle.includes(connection)) socket.destroy();
    }
  }

  /** `lendsBytes`: Node reads into the memory that all share, which must be used or copied before the next read. */
  #open(address: Address | undefined, client: string | null, lendsBytes: boolean): Connection {
    this.#makeRoom();
    const read = (bytes: number, buffer: Buffer) => {
      connection.read(buffer.subarray(0, bytes));
      return true;
    };
    const more = {
      ...(lendsBytes && { onread: { buffer: READ_MEMORY, callback: read } }),
      ...(client !== null && { client }),
    };
    const socket = this.#connector.open(address, more);
    const connection: Connection = new Connection(socket, this.options.keepaliveIdleMs, {
      address,
      client,
      lendsBytes,
    });
    this.#connections.add(connection);
    socket.once("close", () => {
      this.#connections.delete(connection);
      const at = this.#idle.lastIndexOf(connection);
      if (at >= 0) this.#idle.splice(at, 1);
    });
    return connection;
  }
}

export interface ConnectionUser {
  connected(): void;
  /** Some of the response has arrived, and the connection is still in use. */
  received(): void;
  /** The response is not valid. */
  invalid(why: string): void;
  /** Bytes have arrived, and no response is awaited. */
  unasked(): void;
  /** The upstream has closed its side without an error. */
  endOfConnection(): void;
  /** Not a byte either way for as long as `setSilence` says. */
  silent(): void;
  /** `guardWrites` was called, and nothing more can be written; what the upstream sent before is still read. */
  writeFailed(error: NodeJS.ErrnoException): void;
  /** The connection has broken; `closed` comes next. */
  failed(error: NodeJS.ErrnoException): void;
  closed(): void;
}

export class Connection {
  readonly socket: Socket;
  /** Whether the bytes that its user gets are overwritten afterwards. */
  readonly lendsBytes: boolean;
  /** The address it was opened for; undefined: the first that a look-up gives. */
  readonly address: Address | undefined;
  /** The address of the client whose requests alone it serves; null: it serves all. */
  readonly client: string | null;
  parser: AnyResponseParser;
  /** Whether it has served a request before the present one. */
  isReused = false;
  /** In use, but not to be used again: the upstream no longer has its address. */
  isLeaving = false;
  isConnected = false;
  /**
   * Whether what arrives belongs to the response: some of the request has been sent, or nothing has been on this
   * connection before, and the response is not complete.
   */
  awaitsResponse = false;
  /** The present request; null while it is unused. */
  user: ConnectionUser | null = null;
  readonly #idleMs: number;
  #silenceMs = 0;
  #writeDone: WriteDone | null = null;
  #writeFailed = false;
  readonly #listeners: readonly (readonly [string, (argument: unknown) => void])[];

  /** `idleMs`: how long it is kept without being used, in milliseconds; 0: for ever. */
  constructor(
    socket: Socket,
    idleMs: number,
    { address, client, lendsBytes }: Pick<Connection, "address" | "client" | "lendsBytes">,
  ) {
    this.socket = socket;
    this.address = address;
    this.client = client;
    this.lendsBytes = lendsBytes;
    this.parser = new ResponseParser();
    this.#idleMs = idleMs;
    this.#listeners = [
      [readyEvent(socket), () => this.#connected()],
      ["data", (chunk) => this.read(chunk as Buffer)],
      ["end", () => (this.user === null ? socket.destroy() : this.user.endOfConnection())],
      ["timeout", () => (this.user === null ? socket.destroy() : this.user.silent())],
      ["error", (error) => this.user?.failed(error as NodeJS.ErrnoException)],
      ["close", () => this.#closed()],
    ];
    for (const [event, listener] of this.#listeners) socket.on(event, listener);
    this.setSilence(idleMs);
  }

  /**
   * Whether another request can be sent: an end or unasked bytes that have arrived are known here before their events.
   */
  get isUsable(): boolean {
    const { socket } = this;
    return socket.writable && !socket.destroyed && !this.isLeaving && !this.#writeFailed && socket.readableLength === 0;
  }

  read(chunk: Buffer): void {
    const { user } = this;
    // These bytes answer no request: a second response, or the response to a smuggled request. Accepted, or left in the
    // socket, they would be the response to the next request.
    if (!this.awaitsResponse) return user === null ? void this.socket.destroy() : user.unasked();
    const invalid = this.parser.feed(chunk);
    if (invalid !== null) user?.invalid(invalid);
    else this.user?.received();
  }

  /** The response to `method` comes next. `Parser`: see `ForwardOptions`. */
  beginResponse(method: string, sink: ResponseSink, Parser: new () => AnyResponseParser = ResponseParser): void {
    if (!(this.parser instanceof Parser)) this.parser = new Parser();
    this.parser.begin(method, sink);
    // The first bytes of a new connection may be its refusal.
    this.awaitsResponse = !this.isReused;
  }

  /** The request is over: the connection has no user, and times out if it gets none. */
  leave(): void {
    this.user = null;
    this.awaitsResponse = false;
    this.isReused = true;
    const { keepsFor } = this.parser;
    this.setSilence(this.#idleMs === 0 ? (keepsFor === Infinity ? 0 : keepsFor) : Math.min(this.#idleMs, keepsFor));
    // Paused by its last reader, it would not report its end.
    if (this.socket.isPaused()) this.socket.resume();
  }

  /** Closes it; its user is not called any more. */
  end(): void {
    this.user = null;
    this.awaitsResponse = false;
    this.socket.destroy();
  }

  /** Its user is called when nothing has moved for `ms` milliseconds; 0: never. */
  setSilence(ms: number): void {
    if (ms === this.#silenceMs) return;
    this.#silenceMs = ms;
    this.socket.setTimeout(ms);
  }

  /**
   * From now on an error of a write does not close the socket at once, as Node does, together with all that has arrived
   * and is unread: an upstream that answers an upload early and closes would never be heard. Its end, or another error,
   * comes when that is read.
   */
  guardWrites(): void {
    const { socket } = this;
    if (this.#writeDone !== null) return;
    this.#writeDone = ignore;
    const write = socket._write.bind(socket);
    const writev = socket._writev!.bind(socket);
    socket._write = (chunk, encoding, done) => write(chunk, encoding, this.#beginWrite(done));
    socket._writev = (chunks, done) => writev(chunks, this.#beginWrite(done));
  }

  /** A stream makes one write at a time. */
  #beginWrite(done: WriteDone): WriteDone {
    this.#writeDone = done;
    return this.#wrote;
  }

  readonly #wrote = (error?: Error | null): void => {
    const done = this.#writeDone!;
    if (error == null || this.user === null) return done(error);
    this.#writeFailed = true;
    done();
    this.user.writeFailed(error);
  };

  /** Hands the paused socket over to its next owner, after an upgrade to a protocol other than HTTP. */
  detach(): Socket {
    const { socket } = this;
    this.user = null;
    for (const [event, listener] of this.#listeners) socket.removeListener(event, listener);
    socket.setTimeout(0);
    socket.pause();
    return socket;
  }

  #connected(): void {
    this.isConnected = true;
    this.user?.connected();
  }

  #closed(): void {
    this.user?.closed();
    this.parser.close?.();
  }
}

type WriteDone = (error?: Error | null) => void;

/** The body of a response while it is received: it pauses its connection while it is not read. */
export class ResponseBody extends GuardedReadable {
  readonly #connection: Connection;
  readonly #givenUp: () => void;
  #isComplete = false;

  constructor(connection: Connection, givenUp: () => void) {
    super();
    this.#connection = connection;
    this.#givenUp = givenUp;
    // An error that comes when no reader listens must not end the process.
    this.on("error", ignore);
  }

  deliver(bytes: Buffer): void {
    const isRead =
      this.readableFlowing === true &&
      this.readableLength === 0 &&
      this.readableDidRead &&
      this.readableEncoding === null;
    // As `push` has it for a reader that has read all before, without looking for more in a later tick.
    if (isRead && !this.destroyed) this.emit("data", bytes);
    else if (!this.push(bytes)) this.#connection.socket.pause();
  }

  complete(): void {
    this.#isComplete = true;
    this.push(null);
  }

  override _read(): void {
    if (!this.#isComplete) this.#connection.socket.resume();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#isComplete) {
      this.#isComplete = true;
      this.#givenUp();
    }
    done(error);
  }
}

/**
 * What all plain connections read into. Twice Node's size: a response of 64 KiB and its head are one read, and then one
 * write to the client.
 */
const READ_MEMORY = Buffer.allocUnsafeSlow(128 * 1024);
