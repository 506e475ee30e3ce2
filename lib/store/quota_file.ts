/**
 * Keeps the counts of quotas in a file, which is replaced at most half a second after a count has changed, and at the end. It has no names of
 * callers, but hashes of them, and the key of these hashes.
 */
import { hash, randomInt } from "node:crypto";
// Node's own function: the tests of an embedder may replace the global one to stop time.
import { setImmediate } from "node:timers";
import { PERIODS } from "../base/calendar.ts";
import type { Clock, Timer } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { StateProblem, type StateFolder } from "../base/state_folder.ts";
import type { Callers } from "./callers.ts";
import { HASH, LAST, NAME as WINDOW_NAME, NEWER, OLDER, OVERFLOW, USED, WINDOWS } from "./cells.ts";
import type { KeptOptions, KeptTables } from "./costs.ts";
import type { CallerTable, Secret } from "./memory.ts";
import type { SharedCallers } from "./shared_callers.ts";
import { LIFE_S, markOf, planOfQuota, tableOptions } from "./quotas.ts";

const NAME = "quotas";
const FORMAT = "edge-gateway quotas 1";
const SAVE_MS = 500;
/** How often a failure is logged while it lasts. */
const QUIET_MS = 60_000;
/** Of each caller: both halves of its hash, the number of its period, what it has used, and the time of its last request. */
const RECORD_BYTES = 32;

type Per = KeptOptions["per"];

/** What a window of a caller is named for each period. */
const WINDOW_NAMES = PERIODS.map((per) => [per, planOfQuota(tableOptions({ per, maxCallers: 1 })).names[0]!] as const);

interface Header {
  readonly format: string;
  readonly secret: Secret;
  readonly tables: readonly { readonly key: string; readonly per: Per; readonly callers: number }[];
}

export class QuotaFile implements KeptTables {
  /** Of the hashes of callers: the same after each start. */
  readonly secret: Secret;
  /** Writes that have failed. */
  errors = 0;
  readonly #folder: StateFolder;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #tables = new Map<string, CallerTable>();
  /** Of quotas that no configuration has had since the start, by period and key: they may come back. */
  readonly #others = new Map<string, { readonly key: string; readonly per: Per; readonly records: Buffer }>();
  #timer: Timer | null = null;
  #saved = "";
  #saving: Promise<void> = Promise.resolve();
  #quietUntil = -Infinity;

  /** Throws a `StateProblem` for a file that is damaged. */
  constructor(folder: StateFolder, clock: Clock, log: Log) {
    this.#folder = folder;
    this.#clock = clock;
    this.#log = log;
    const content = folder.read(NAME);
    const header = content === null ? null : this.#read(content);
    this.secret = header?.secret ?? [randomInt(2 ** 32) | 0, randomInt(2 ** 32) | 0];
    this.#timer = clock.after(SAVE_MS, () => void this.save().then(() => this.#timer?.restart()));
  }

  keep(key: string, table: CallerTable, options: KeptOptions): void {
    const isUnused = this.#tables.get(key) !== table;
    this.#tables.set(key, table);
    const name = `${options.per} ${key}`;
    const others = this.#others.get(name);
    this.#others.delete(name);
    if (others !== undefined && isUnused) this.#fill(table, others.records, options);
  }

  /** Writes what has changed. Never rejects. */
  save(): Promise<void> {
    return (this.#saving = this.#saving.then(() => this.#save()));
  }

  async close(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    await this.save();
    await this.#folder.close();
  }

  async #save(): Promise<void> {
    const changed = Array.from(this.#tables, ([key, table]) => [key, table.size, ...table.shards.map(newestOf)].join()).join();
    if (changed === this.#saved) return;
    try {
      const tables: Header["tables"][number][] = [];
      const parts: Buffer[] = [];
      const add = (key: string, per: Per, records: Buffer) => {
        tables.push({ key, per, callers: records.length / RECORD_BYTES });
        parts.push(records);
      };
      for (const [key, table] of this.#tables) for (const [per, records] of await this.#records(table)) add(key, per, records);
      for (const { key, per, records } of this.#others.values()) add(key, per, records);
      const header = Buffer.from(`${JSON.stringify({ format: FORMAT, secret: this.secret, tables } satisfies Header)}\n`);
      const rest = Buffer.concat([header, ...parts]);
      await this.#folder.write(NAME, [Buffer.from(`${hash("sha256", rest)}\n`), rest]);
      this.#saved = changed;
      if (this.#quietUntil > -Infinity) this.#log.info("quotas are written again", { folder: this.#folder.path });
      this.#quietUntil = -Infinity;
    } catch (error) {
      this.errors++;
      const now = this.#clock.now();
      if (now < this.#quietUntil) return;
      this.#quietUntil = now + QUIET_MS;
      this.#log.error("quotas cannot be written, and are counted in memory alone", { folder: this.#folder.path, error: messageOf(error) });
    }
  }

  /**
   * By period, a record of each caller, the oldest first, and of the overflow. Callers say themselves what they were counted in: a reload with
   * another period may have been refused, or they have sent nothing since. Shard by shard: no request waits for more than one.
   */
  async #records(table: CallerTable): Promise<(readonly [Per, Buffer])[]> {
    const parts: (readonly [Per, Buffer])[] = [];
    for (let i = 0; i < table.shards.length; i++) {
      let shard = table.shards[i]!;
      // A worker that has died in its turn is repaired soon.
      while ("tryEnter" in shard && !(shard as SharedCallers).tryEnter()) {
        await nextTurn();
        shard = table.shards[i]!;
      }
      try {
        parts.push(...this.#recordsOf(shard));
      } finally {
        shard.leave();
      }
      await nextTurn();
    }
    return PERIODS.map((per) => [per, Buffer.concat(parts.flatMap(([of, records]) => (of === per ? [records] : [])))] as const).filter(([, { length }]) => length > 0);
  }

  #recordsOf(shard: Callers): (readonly [Per, Buffer])[] {
    const { words, numbers } = shard;
    const callers: number[] = [];
    for (let caller = words[NEWER]!; caller !== OVERFLOW; caller = words[caller + NEWER]!) callers.push(caller);
    const used = [...callers, OVERFLOW].filter((caller) => words[caller + WINDOWS] !== 0 && numbers[words[caller + WINDOWS]! / 2 + USED]! > 0);
    return WINDOW_NAMES.map(([per, name]) => [per, this.#written(shard, used.filter((caller) => words[words[caller + WINDOWS]! + WINDOW_NAME] === name))] as const);
  }

  #written(shard: Callers, used: readonly number[]): Buffer {
    const { words, numbers } = shard;
    const ahead = this.#clock.wall() - this.#clock.now();
    const records = Buffer.alloc(used.length * RECORD_BYTES);
    used.forEach((caller, i) => {
      const window = words[caller + WINDOWS]!;
      const at = i * RECORD_BYTES;
      // The overflow has no hash.
      if (caller !== OVERFLOW) {
        records.writeInt32LE(words[caller + HASH]!, at);
        records.writeInt32LE(words[caller + HASH + 1]!, at + 4);
      }
      records.writeDoubleLE(numbers[markOf(shard, window)]!, at + 8);
      records.writeDoubleLE(numbers[window / 2 + USED]!, at + 16);
      records.writeDoubleLE(numbers[caller / 2 + LAST]! + ahead, at + 24);
    });
    return records;
  }

  /** Nobody uses the table yet. */
  #fill(table: CallerTable, records: Buffer, options: KeptOptions): void {
    const plan = planOfQuota(tableOptions(options));
    const ahead = this.#clock.wall() - this.#clock.now();
    for (let at = 0; at < records.length; at += RECORD_BYTES) {
      const hashed = new Int32Array([records.readInt32LE(at), records.readInt32LE(at + 4)]);
      const [period, used, last] = [8, 16, 24].map((from) => records.readDoubleLE(at + from)) as [number, number, number];
      if (last - ahead + 1000 * LIFE_S[options.per] < this.#clock.now()) continue;
      const isOverflow = hashed[0] === 0 && hashed[1] === 0;
      // What new callers start with is that of all shards: their number may be another one now.
      for (const shard of isOverflow ? table.shards : [table.shards[hashed[1]! & (table.shards.length - 1)]!]) {
        shard.enter(hashed);
        try {
          shard.makeRoom(-Infinity, plan);
          if (isOverflow) shard.convert(OVERFLOW, plan);
          const caller = isOverflow ? OVERFLOW : shard.add(plan);
          shard.count(shard.words[caller + WINDOWS]!, period, used);
          shard.numbers[caller / 2 + LAST] = last - ahead;
          if (table.size > options.maxCallers) shard.evict(shard.words[NEWER]!, plan);
        } finally {
          shard.leave();
        }
      }
    }
  }

  #read(content: Buffer): Header {
    const problem = (why: string) => new StateProblem(`${this.#folder.path}/${NAME} ${why}: put a copy in its place, or move it away, and all quotas begin anew`);
    const rest = content.subarray(65);
    if (content.toString("latin1", 0, 65) !== `${hash("sha256", rest)}\n`) throw problem("is damaged");
    const end = rest.indexOf("\n") + 1;
    const header = JSON.parse(rest.toString("utf8", 0, end)) as Header;
    if (header.format !== FORMAT) throw problem(`has the format "${header.format}" of another version`);
    let at = end;
    for (const { key, per, callers } of header.tables) {
      this.#others.set(`${per} ${key}`, { key, per, records: rest.subarray(at, (at += callers * RECORD_BYTES)) });
    }
    return header;
  }
}

/** The last request of the newest caller, and of those without a place: one of them is later after each count. */
function newestOf({ words, numbers }: Callers): string {
  return `${numbers[words[OLDER]! / 2 + LAST]}/${numbers[OVERFLOW / 2 + LAST]}`;
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
