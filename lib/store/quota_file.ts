/**
 * Keeps the counts of quotas in a file, which is replaced at most half a second after a count has changed, and at the
 * end. It has no names of callers, but hashes of them, and the key of these hashes.
 */
import { createHash, hash, randomInt } from "node:crypto";
import { PERIODS } from "../base/calendar.ts";
import type { Clock, Timer } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { StateProblem, type StateFolder } from "../base/state_folder.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import type { CallerShard } from "./callers.ts";
import {
  BUCKETS,
  CELL,
  CHAIN,
  HASH,
  LAST,
  CALLER_NAME as WINDOW_NAME,
  NEWER,
  OLDER,
  OVERFLOW,
  USED,
  WINDOWS,
} from "./cells.ts";
import type { CallerTable, QuotaTableOptions, QuotaTables, HashSecret } from "./caller_tables.ts";
import type { SharedCallerShard } from "./shared_callers.ts";
import { LIFE_S, markOf, planOfQuota, tableOptions } from "./quotas.ts";

const NAME = "quotas";
const FORMAT = "edge-gateway quotas 1";
const SAVE_MS = 500;
/** How often a failure is logged while it lasts. */
const QUIET_MS = 60_000;
/**
 * Of each caller: both halves of its hash, the number of its period, what it has used, and the time of its last
 * request.
 */
const RECORD_BYTES = 32;
/** Of one piece of the file. */
const PIECE_BYTES = 2_048 * RECORD_BYTES;
/** Buckets that are read without a pause. */
const BUCKETS_OF_STEP = 256;

type Per = QuotaTableOptions["per"];

/** What a window of a caller is named for each period. */
const WINDOW_NAMES: ReadonlyMap<number, Per> = new Map(
  PERIODS.map((per) => [planOfQuota(tableOptions({ per, maxCallers: 1 })).names[0]!, per]),
);

interface Header {
  readonly format: string;
  readonly secret: HashSecret;
  readonly tables: readonly { readonly key: string; readonly per: Per; readonly callers: number }[];
}

export class QuotaFile implements QuotaTables {
  /** Of the hashes of callers: the same after each start. */
  readonly secret: HashSecret;
  readonly #folder: StateFolder;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #tables = new Map<string, CallerTable>();
  /** Of quotas that no configuration has had since the start, by period and key: they may come back, for `LIFE_S`. */
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

  keep(key: string, table: CallerTable, options: QuotaTableOptions): void {
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

  /** Resolves when all is written, or cannot be. */
  async close(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    await this.save();
  }

  async #save(): Promise<void> {
    const changed = Array.from(this.#tables, ([key, table]) =>
      [key, table.size, ...table.shards.map(newestOf)].join(),
    ).join();
    if (changed === this.#saved) return;
    try {
      await this.#folder.write(NAME, await inSlices(this.#content(), paced()));
      this.#saved = changed;
      if (this.#quietUntil > -Infinity) this.#log.info("quotas are written again", { folder: this.#folder.path });
      this.#quietUntil = -Infinity;
    } catch (error) {
      this.#folder.failures++;
      const now = this.#clock.now();
      if (now < this.#quietUntil) return;
      this.#quietUntil = now + QUIET_MS;
      this.#log.error("quotas cannot be written, and are counted in memory alone", {
        folder: this.#folder.path,
        error: messageOf(error),
      });
    }
  }

  /** In steps, between which others count. */
  *#content(): Generator<void, readonly Buffer[]> {
    const tables: Header["tables"][number][] = [];
    const pieces: Buffer[] = [];
    for (const [key, table] of this.#tables) {
      for (const [per, records] of yield* recordsOf(table, this.#clock)) {
        tables.push({ key, per, callers: records.count });
        pieces.push(...records.pieces());
      }
    }
    for (const [name, { key, per, records }] of this.#others) {
      const lastTimes = Array.from({ length: records.length / RECORD_BYTES }, (_, i) =>
        records.readDoubleLE(i * RECORD_BYTES + 24),
      );
      if (!lastTimes.some((last) => isAlive(per, last, this.#clock.wall()))) {
        this.#others.delete(name);
        continue;
      }
      tables.push({ key, per, callers: records.length / RECORD_BYTES });
      for (let at = 0; at < records.length; at += PIECE_BYTES) pieces.push(records.subarray(at, at + PIECE_BYTES));
    }
    pieces.unshift(
      Buffer.from(`${JSON.stringify({ format: FORMAT, secret: this.secret, tables } satisfies Header)}\n`),
    );
    const digest = createHash("sha256");
    for (const piece of pieces) {
      digest.update(piece);
      yield;
    }
    return [Buffer.from(`${digest.digest("hex")}\n`), ...pieces];
  }

  /** Nobody uses the table yet. */
  #fill(table: CallerTable, records: Buffer, options: QuotaTableOptions): void {
    const plan = planOfQuota(tableOptions(options));
    const ahead = this.#clock.wall() - this.#clock.now();
    const hashed = new Int32Array(2);
    for (const at of inOrder(records)) {
      hashed[0] = records.readInt32LE(at);
      hashed[1] = records.readInt32LE(at + 4);
      const isOverflow = hashed[0] === 0 && hashed[1] === 0;
      const period = records.readDoubleLE(at + 8);
      const used = records.readDoubleLE(at + 16);
      const last = records.readDoubleLE(at + 24) - ahead;
      if (!isAlive(options.per, last, this.#clock.now())) continue;
      // What new callers start with is that of all shards: their number may be another one now.
      for (const shard of isOverflow ? table.shards : [table.shards[hashed[1]! & (table.shards.length - 1)]!]) {
        shard.enter(hashed);
        try {
          shard.makeRoom(-Infinity, plan);
          if (isOverflow) shard.convert(OVERFLOW, plan);
          const known = isOverflow ? OVERFLOW : shard.find();
          const caller = known === OVERFLOW && !isOverflow ? shard.add(plan) : known;
          const window = shard.words[caller + WINDOWS]!;
          shard.count(window, period, isOverflow ? used : used - shard.numbers[window / 2 + USED]!);
          shard.numbers[caller / 2 + LAST] = last;
          if (table.size > options.maxCallers) shard.evict(shard.words[NEWER]!, plan);
        } finally {
          shard.leave();
        }
      }
    }
  }

  #read(content: Buffer): Header {
    const problem = (why: string) =>
      new StateProblem(
        `${this.#folder.path}/${NAME} ${why}: put a copy in its place, or move it away, and all quotas begin anew`,
      );
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
function newestOf({ words, numbers }: CallerShard): string {
  return `${numbers[words[OLDER]! / 2 + LAST]}/${numbers[OVERFLOW / 2 + LAST]}`;
}

/** Whether a caller whose last request was at `last` is remembered: its quota may be configured no longer. */
function isAlive(per: Per, last: number, now: number): boolean {
  return last + 1000 * LIFE_S[per] >= now;
}

/** The records of one period. */
class Records {
  count = 0;
  readonly #pieces: Buffer[] = [];

  add({ words, numbers }: CallerShard, caller: number, mark: number, ahead: number): void {
    const at = (this.count++ * RECORD_BYTES) % PIECE_BYTES;
    if (at === 0) this.#pieces.push(Buffer.alloc(PIECE_BYTES));
    const piece = this.#pieces.at(-1)!;
    // The overflow has no hash.
    if (caller !== OVERFLOW) {
      piece.writeInt32LE(words[caller + HASH]!, at);
      piece.writeInt32LE(words[caller + HASH + 1]!, at + 4);
    }
    piece.writeDoubleLE(numbers[mark]!, at + 8);
    piece.writeDoubleLE(numbers[words[caller + WINDOWS]! / 2 + USED]!, at + 16);
    piece.writeDoubleLE(numbers[caller / 2 + LAST]! + ahead, at + 24);
  }

  pieces(): readonly Buffer[] {
    const rest = (this.count * RECORD_BYTES) % PIECE_BYTES;
    return rest === 0 ? this.#pieces : [...this.#pieces.slice(0, -1), this.#pieces.at(-1)!.subarray(0, rest)];
  }
}

/**
 * Records of all callers, by period, in steps between which others count. No caller is missed: it leaves its bucket
 * only for a later one, when buckets become more, and then has two records, or for the overflow, which is read last.
 * Callers say themselves what they were counted in: a reload with another period may have been refused, or they have
 * sent nothing since.
 */
function* recordsOf(table: CallerTable, clock: Clock): Generator<void, ReadonlyMap<Per, Records>> {
  const now = clock.now();
  const ahead = clock.wall() - now;
  const records = new Map<Per, Records>();
  const add = (shard: CallerShard, caller: number) => {
    const window = shard.words[caller + WINDOWS]!;
    const per =
      window === 0 || shard.numbers[window / 2 + USED]! <= 0
        ? undefined
        : WINDOW_NAMES.get(shard.words[window + WINDOW_NAME]!);
    if (per === undefined || !isAlive(per, shard.numbers[caller / 2 + LAST]!, now)) return;
    if (!records.has(per)) records.set(per, new Records());
    records.get(per)!.add(shard, caller, markOf(shard, window), ahead);
  };
  for (let i = 0; i < table.shards.length; i++) {
    for (let [bucket, isOver] = [0, false]; !isOver;) {
      // Larger memory may have taken its place.
      const shard = table.shards[i]!;
      // A worker that has died in its turn is repaired soon.
      if (!("tryEnter" in shard) || (shard as SharedCallerShard).tryEnter()) {
        const { words } = shard;
        const end = words[BUCKETS]! * CELL;
        for (const pause = bucket + BUCKETS_OF_STEP * CELL; bucket < Math.min(pause, end); bucket += CELL) {
          for (let caller = words[bucket]!; caller !== OVERFLOW; caller = words[caller + CHAIN]!) add(shard, caller);
        }
        isOver = bucket >= end;
        if (isOver) add(shard, OVERFLOW);
        shard.leave();
      }
      yield;
    }
  }
  return records;
}

/**
 * Where records are, by the time of the last request: callers without one are forgotten in this order. The overflow,
 * without a hash, is the last.
 */
function inOrder(records: Buffer): Uint32Array {
  const timeAt = (at: number) =>
    records.readInt32LE(at) === 0 && records.readInt32LE(at + 4) === 0 ? Infinity : records.readDoubleLE(at + 24);
  const times = Float64Array.from({ length: records.length / RECORD_BYTES }, (_, i) => timeAt(i * RECORD_BYTES));
  return Uint32Array.from(times.keys())
    .sort((a, b) => times[a]! - times[b]!)
    .map((i) => i * RECORD_BYTES);
}
