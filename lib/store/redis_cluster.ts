/**
 * Finds the server of a key: the only one, or the one that has its hash slot in a Cluster
 * (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
 */
import { addressOf } from "../base/ip_address.ts";
import type { Clock, Timer } from "../base/clock.ts";
import { replyProblem, type RedisConnection } from "./redis_connection.ts";
import { command, ErrorReply, type RespValue } from "./resp.ts";

export interface RedisServer {
  readonly host: string;
  readonly port: number;
}

export interface RedisServersOptions {
  /** Of a Cluster: the servers that are asked for the others. */
  readonly servers: readonly RedisServer[];
  /** False: known to be a Cluster only once a server says MOVED. */
  readonly isCluster: boolean;
  readonly clock: Clock;
  readonly connection: (server: RedisServer, changed: () => void) => RedisConnection;
  /** Called when the state of a connection has changed. */
  readonly changed: () => void;
}

export const SLOTS = 16_384;
/** How often the table is read while a server is down or a slot has moved. In milliseconds. */
const REFRESH_MS = 500;

export class RedisServers {
  readonly #options: RedisServersOptions;
  readonly #connections = new Map<string, RedisConnection>();
  /** Addresses by slot; empty where they are not known. */
  #slots: (string | undefined)[] = [];
  #isCluster: boolean;
  #isReading = false;
  #refresh: Timer | null = null;
  #isClosed = false;

  constructor(options: RedisServersOptions) {
    this.#options = options;
    this.#isCluster = options.isCluster;
    for (const server of options.servers) this.#connectionTo(server);
  }

  /** In a Cluster those known so far. */
  get connections(): Iterable<RedisConnection> {
    return this.#connections.values();
  }

  /** "up": every key has a server that answers. */
  get state(): "connecting" | "up" | "down" {
    const needed =
      this.#slots.length === 0
        ? [...this.#connections.values()]
        : [...new Set(this.#slots)].map((address) => this.#connections.get(address ?? ""));
    if (
      needed.length > 0 &&
      needed.every((each) => each?.state === "up") &&
      (this.#slots.length > 0 || !this.#isCluster)
    )
      return "up";
    if (this.#slots.length > 0)
      return needed.some((each) => each === undefined || each.state === "down") ? "down" : "connecting";
    return needed.every((each) => each?.state === "down") ? "down" : "connecting";
  }

  start(): void {
    for (const connection of this.#connections.values()) connection.start();
  }

  /** The connection for a key whose hash tag is `tag`. */
  find(tag: string): RedisConnection {
    const known = this.#slots.length === 0 ? undefined : this.#connections.get(this.#slots[slotOf(tag)] ?? "");
    if (known !== undefined) return known;
    const all = [...this.#connections.values()];
    return all.find(({ state }) => state === "up") ?? all.find(({ state }) => state === "connecting") ?? all[0]!;
  }

  /**
   * The server that a reply leads to: `MOVED 3999 10.0.0.8:6379` for good, `ASK` for this command alone, which then
   * goes behind ASKING.
   * Null: the reply is no such error.
   */
  redirected(reply: ErrorReply, from: RedisConnection): RedisConnection | null {
    const [kind, slot = "", address] = reply.message.split(" ", 3);
    const to = kind === "MOVED" || kind === "ASK" ? serverOf(address ?? "", from) : null;
    // What a server says must not make the table larger, which is walked through.
    const isSlot = /^\d{1,5}$/.test(slot) && Number(slot) < SLOTS;
    if (to === null || !isSlot || this.#isClosed) return null;
    this.#isCluster = true;
    const connection = this.#connectionTo(to);
    connection.start();
    if (kind === "ASK") {
      connection.send({ text: command("ASKING"), answered() {}, failed() {} });
    } else {
      if (this.#slots.length > 0) this.#slots[Number(slot)] = connection.address;
      this.#readSoon();
    }
    return connection;
  }

  close(): void {
    this.#isClosed = true;
    this.#refresh?.cancel();
    for (const connection of this.#connections.values()) connection.close();
  }

  #connectionTo(server: RedisServer): RedisConnection {
    const address = addressOf(server);
    const known = this.#connections.get(address);
    if (known !== undefined) return known;
    const connection = this.#options.connection(server, () => this.#changed(connection));
    this.#connections.set(address, connection);
    return connection;
  }

  #changed(connection: RedisConnection): void {
    if (this.#isClosed) return;
    if (this.#isCluster) {
      if (connection.state === "up" && this.#slots.length === 0) this.#read();
      else if (connection.state === "down") this.#readSoon();
    }
    this.#options.changed();
  }

  /** Reads the table until every slot has a server that answers. */
  #readSoon(): void {
    if (this.#refresh !== null || this.#isClosed) return;
    this.#refresh = this.#options.clock.after(REFRESH_MS, () => {
      this.#refresh = null;
      this.#read();
    });
  }

  #read(): void {
    if (this.#isReading) return;
    const up = [...this.#connections.values()].filter(({ state }) => state === "up");
    // Another one each time: a server that was cut off from the others may have an old table.
    const asked = up[Math.floor(this.#options.clock.now() / REFRESH_MS) % up.length];
    if (asked === undefined) return this.#readSoon();
    this.#isReading = true;
    const read = (reply: RespValue | null) => {
      this.#isReading = false;
      const table = reply === null ? null : readSlots(reply, asked);
      if (table !== null) this.#use(table);
      // A server without slots, as a new one is, has an empty table.
      else if (reply !== null && !(Array.isArray(reply) && reply.length === 0))
        asked.giveUp(replyProblem("CLUSTER SLOTS", reply));
      if (this.state !== "up") this.#readSoon();
    };
    if (!asked.send({ text: command("CLUSTER", "SLOTS"), answered: read, failed: () => read(null) })) read(null);
  }

  #use(table: SlotTable): void {
    if (this.#isClosed) return;
    this.#slots = table.slots;
    const needed = new Set([...this.#options.servers, ...table.servers].map(addressOf));
    for (const server of table.servers) this.#connectionTo(server).start();
    for (const [address, connection] of this.#connections) {
      if (needed.has(address)) continue;
      this.#connections.delete(address);
      connection.close();
    }
    this.#options.changed();
  }
}

interface SlotTable {
  readonly slots: (string | undefined)[];
  /** Primaries only. */
  readonly servers: readonly RedisServer[];
}

/** The reply to CLUSTER SLOTS: `[[0, 5460, ["10.0.0.7", 6379, …], replicas…], …]`. Null when it is anything else. */
function readSlots(reply: RespValue, from: RedisConnection): SlotTable | null {
  if (!Array.isArray(reply)) return null;
  const slots = new Array<string | undefined>(SLOTS).fill(undefined);
  const servers = new Map<string, RedisServer>();
  for (const range of reply as readonly RespValue[]) {
    if (!Array.isArray(range)) return null;
    const [first, last, primary] = range as readonly RespValue[];
    if (typeof first !== "number" || typeof last !== "number" || first < 0 || last >= SLOTS || !Array.isArray(primary))
      return null;
    const [host, port] = primary as readonly RespValue[];
    const server = serverOf(`${typeof host === "string" ? host : ""}:${String(port)}`, from);
    if (server === null) return null;
    servers.set(addressOf(server), server);
    slots.fill(addressOf(server), first, last + 1);
  }
  return servers.size === 0 ? null : { slots, servers: [...servers.values()] };
}

/** "10.0.0.8:6379", "fd00::8:6379"; a server that does not know its own address leaves the host out. */
function serverOf(address: string, from: RedisConnection): RedisServer | null {
  const colon = address.lastIndexOf(":");
  const port = Number(address.slice(colon + 1));
  if (colon === -1 || !Number.isInteger(port) || port < 1 || port > 65_535) return null;
  const host = address.slice(0, colon);
  // It is written to an HTTP proxy, where one leads to Redis.
  if (!HOST.test(host)) return null;
  const own = from.address.slice(0, from.address.lastIndexOf(":")).replace(/^\[|\]$/g, "");
  return { host: host === "" || host === "?" ? own : host, port };
}

const HOST = /^(?:[\w.:%-]*|\?)$/;

/** CRC-16/XMODEM of the hash tag, modulo the number of slots. */
export function slotOf(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : crc << 1;
  }
  return crc % SLOTS;
}
