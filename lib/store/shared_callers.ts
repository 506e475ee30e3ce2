/**
 * Remembers the callers of one limiter in memory that threads share, in shards, so that threads seldom wait for each
 * other. A thread can die between any two of its writes; `repair` then makes a shard whole again.
 */
import { acquire, isLockedBy, release, tryAcquire } from "../base/lock.ts";
import type { Clock } from "../base/clock.ts";
import { BEFORE, type Threads } from "../base/threads.ts";
import { bytesOfCaller, CallerShard } from "./callers.ts";
import {
  BATCH,
  BEGIN,
  BUCKETS,
  CELL,
  CHAIN,
  END,
  FIRST,
  FREE,
  FREED,
  LAST,
  MARKS,
  NEWER,
  NEXT,
  OVERFLOW,
  RESERVED,
  SIZE,
  TAKEN,
  USED,
  WINDOWS,
} from "./cells.ts";
import type { CallerTable, HashSecret } from "./caller_tables.ts";
import type { Window } from "./counters.ts";
import { MARKS_OF_CELL, type Plan } from "./marks.ts";
import { hashName, memoryCounters, randomSecret } from "./memory.ts";

/** The word of a shard with its lock. */
const LOCK = 11;
/** In the third cell: into how many tables the memory is divided, and the secret of their hashes. */
const SHARDS = 21;
const SECRET = 22;
/**
 * 1: larger memory has taken the place of this shard; the memory has a predecessor that it is still taking the place of
 * (first shard).
 */
const MOVED = 24;
const FOLLOWS = 25;
/** One decision may convert eleven callers, and rewrite the overflow. */
const SPARE_CALLERS = 16;
/** With fewer callers there are fewer shards. */
const FEWEST_OF_SHARD = 256;
/** For each worker: then two of them seldom want the same one. */
const SHARDS_OF_THREAD = 8;
/** There is memory for at least so many. It takes no room before it is used. */
const FEWEST_CALLERS = 1_000;

/** Counters in memory that all threads share: their limiters are given it. */
export function workerCounters(
  clock: Clock,
  threads: Pick<Threads, "id" | "count"> & Partial<Pick<Threads, "worker">>,
  secret = randomSecret(),
) {
  const isMain = (threads.worker ?? -1) < 0;
  /** Where the memory is too small for these options, larger memory takes its place in `apply`. */
  const counters = memoryCounters(
    clock,
    secret,
    (table, key, { windows, maxCallers, callers = maxCallers }, memory) => {
      const name = nameOf(key);
      const known = table as SharedTable | undefined;
      const shards =
        known?.shards.length ??
        Math.min(
          2 ** Math.ceil(Math.log2(SHARDS_OF_THREAD * threads.count)),
          2 ** Math.floor(Math.log2(Math.max(1, maxCallers / FEWEST_OF_SHARD))),
        );
      const bytes =
        shards * bytesOfCallers(Math.ceil(Math.max(Math.min(callers, maxCallers), FEWEST_CALLERS) / shards), windows);
      const isTooSmall = known !== undefined && known.memory.byteLength < bytes;
      const shared = memory!(name, bytes, isTooSmall ? null : known?.memory);
      const tableIn = (buffer: ArrayBufferLike) =>
        SharedTable.in(buffer, { secret, shards, owner: threads.id, isMain });
      const words = new Int32Array(shared);
      if (isMain) words[FOLLOWS] = isTooSmall || known?.isSettled === false ? 1 : 0;
      // What was replaced before this has moved when the next memory is used: every worker moves all before it prepares
      // another configuration.
      const before =
        words[FOLLOWS] === 1 ? memory!(name + BEFORE, 0, isTooSmall ? known.memory : known?.former) : shared;
      // Where another thread has forgotten the limiter and made it again, its memory is another one.
      const now = known?.memory === before || known?.memory === shared ? known : tableIn(before);
      now.prepared = now.memory === shared ? null : tableIn(shared);
      return now;
    },
  );
  const all = counters.all as ReadonlyMap<string, SharedTable>;
  return {
    ...counters,
    /** A configuration comes into force with this memory: what was too small for it is replaced. */
    apply(memory: ReadonlyMap<string, ArrayBufferLike>): void {
      for (const [key, table] of all) table.apply(memory.get(nameOf(key)));
    },
    /** Frees the locks of a thread that has ended, and repairs what it was about to change. */
    repair(dead: number): void {
      for (const table of all.values()) table.repair(dead);
    },
  };
}

function nameOf(key: string): string {
  return `rate limit ${key}`;
}

/** Memory for so many callers, in bytes. */
function bytesOfCallers(count: number, windows: readonly Window[]): number {
  return 4 * RESERVED + (count + SPARE_CALLERS) * bytesOfCaller(windows);
}

export class SharedTable implements CallerTable {
  /** A power of two. */
  readonly #list: SharedCallerShard[];
  readonly #secret: HashSecret;
  /** Of the name of the last search. */
  readonly #hash = new Int32Array(2);
  /** In force, or about to be: every shard moves to it. */
  memory: ArrayBufferLike;
  /** Larger memory of a configuration that is not in force yet. */
  prepared: SharedTable | null = null;
  /** Larger memory to which other threads move the shards, or have moved them. */
  #successors: readonly SharedCallerShard[] = [];
  /** The main thread takes no locks. */
  readonly #isMain: boolean;

  private constructor(memory: ArrayBufferLike, secret: HashSecret, list: SharedCallerShard[], isMain: boolean) {
    this.memory = memory;
    this.#secret = secret;
    this.#list = list;
    this.#isMain = isMain;
  }

  /** The first thread that sees the memory, all zero, divides it. */
  static in(
    memory: ArrayBufferLike,
    {
      secret,
      shards,
      owner,
      isMain,
    }: { readonly secret: HashSecret; readonly shards: number; readonly owner: number; readonly isMain: boolean },
  ): SharedTable {
    const words = new Int32Array(memory);
    if (words[SHARDS] === 0) words.set([shards, ...secret], SHARDS);
    const length = words.length / words[SHARDS]!;
    const list = Array.from(
      { length: words[SHARDS]! },
      (_, i) => new SharedCallerShard(words.subarray(i * length, (i + 1) * length), owner),
    );
    return new SharedTable(memory, [words[SECRET]!, words[SECRET + 1]!], list, isMain);
  }

  get shards(): readonly SharedCallerShard[] {
    for (let i = 0; i < this.#successors.length; i++)
      if (this.#list[i]!.words[MOVED] === 1) this.#list[i] = this.#successors[i]!;
    return this.#list;
  }

  get size(): number {
    let size = 0;
    for (const { words } of this.shards) size += words[SIZE]!;
    return size;
  }

  enter(name: string): SharedCallerShard {
    hashName(name, this.#secret, this.#hash);
    const shard = this.#hash[1]! & (this.#list.length - 1);
    const callers = this.#list[shard]!;
    callers.enter(this.#hash);
    if (callers.words[MOVED] === 0) return callers;
    // Another thread already serves under the next configuration, which this one has prepared.
    callers.leave();
    const { prepared } = this;
    const successor = prepared === null ? this.#successors[shard]! : prepared.#list[shard]!;
    successor.enter(this.#hash);
    return (this.#list[shard] = successor);
  }

  /** Whether all shards are in the memory in force. */
  get isSettled(): boolean {
    return this.shards.every(({ words }) => words.buffer === this.memory);
  }

  /**
   * What the memory in force takes, or has taken, the place of, as long as a shard is in it; then the memory in force
   * itself.
   */
  get former(): ArrayBufferLike {
    return (this.shards.find(({ words }) => words.buffer !== this.memory) ?? this.shards[0]!).words.buffer;
  }

  /** The prepared memory takes the place of the former. A worker moves all shards; the main thread learns of it. */
  apply(inForce: ArrayBufferLike | undefined): void {
    if (this.prepared === null || this.prepared.memory !== inForce) return;
    const { memory, shards } = this.prepared;
    this.prepared = null;
    // What was replaced before has moved by now.
    this.#successors.forEach((callers, i) => (this.#list[i] = callers));
    this.#successors = shards;
    this.memory = memory;
    if (!this.#isMain) for (const [i, callers] of this.#list.entries()) callers.moveTo(shards[i]!);
  }

  repair(dead: number): void {
    for (const callers of [...this.shards, ...this.#successors]) callers.repair(dead);
  }
}

/** An independent table in memory that cannot grow, for the thread that has its lock. */
export class SharedCallerShard extends CallerShard {
  readonly #owner: number;

  /** `owner`: see `acquire`. */
  constructor(words: Int32Array, owner: number) {
    super(words);
    this.#owner = owner;
  }

  override enter(hashed: Int32Array): void {
    acquire(this.words, LOCK, this.#owner);
    super.enter(hashed);
  }

  /** Begins a turn for no caller, unless another thread has one. */
  tryEnter(): boolean {
    return tryAcquire(this.words, LOCK, this.#owner);
  }

  override leave(): void {
    release(this.words, LOCK);
  }

  override makeRoom(now: number, plan: Plan): void {
    super.makeRoom(now, plan);
    const { words } = this;
    // Only after a reload, where more callers, or callers with more marks, are allowed than before.
    while (
      words.length - words[TAKEN]! + words[FREED]! < SPARE_CALLERS * CELL * plan.cells &&
      words[NEWER] !== OVERFLOW
    )
      this.evict(words[NEWER]!, plan);
  }

  /** A larger copy would admit too much, and its lock would stay taken for the other threads. */
  protected override grow(): never {
    throw new RangeError("the memory of the limiter is too small for its windows");
  }

  /**
   * Copies all to larger memory, which no thread enters before this shard says that it has moved. A thread may die
   * meanwhile: another one copies again.
   */
  moveTo({ words: larger }: SharedCallerShard): void {
    const { words } = this;
    acquire(words, LOCK, this.#owner);
    if (words[MOVED] === 0) {
      larger.set(words.subarray(0, LOCK));
      larger.set(words.subarray(TAKEN, SHARDS), TAKEN);
      larger.set(words.subarray(RESERVED, Math.max(RESERVED, words[TAKEN]!)), RESERVED);
      Atomics.store(words, MOVED, 1);
    }
    release(words, LOCK);
  }

  /** Where a dead thread holds the lock: makes the table whole from what its buckets lead to, and frees the lock. */
  repair(dead: number): void {
    const { words, numbers } = this;
    if (!isLockedBy(dead, words, LOCK)) return;
    const found = new Set([OVERFLOW]);
    // The dead thread may have been about to double the buckets.
    const end = Math.min(2 * CELL * words[BUCKETS]!, words[TAKEN]!);
    for (let bucket = 0; bucket < end; bucket += CELL) {
      for (let caller = words[bucket]!; caller !== 0 && !found.has(caller); caller = words[caller + CHAIN]!)
        found.add(caller);
      words[bucket] = 0;
    }
    const callers = [...found].sort((a, b) => numbers[a / 2 + LAST]! - numbers[b / 2 + LAST]!);
    this.link(OVERFLOW, OVERFLOW);
    for (const caller of callers) {
      if (caller !== OVERFLOW) this.enlist(caller);
      for (let window = words[caller + WINDOWS]!; window !== 0; window = words[window + NEXT]!) {
        found.add(window);
        this.#repairMarks(window, numbers[caller / 2 + LAST]!, found);
      }
    }
    words[SIZE] = callers.length - 1;
    words[FREE] = words[FREED] = 0;
    for (let cell = RESERVED; cell < words[TAKEN]!; cell += CELL) if (!found.has(cell)) this.give(cell);
    release(words, LOCK);
  }

  /**
   * Leaves no more cells than the admissions need, no more admissions than the cells have marks for, and no mark after
   * the last admission.
   */
  #repairMarks(window: number, last: number, found: Set<number>): void {
    const { words, numbers } = this;
    const batch = numbers[window / 2 + BATCH]!;
    const needed = words[window + BEGIN]! + Math.ceil(numbers[window / 2 + USED]! / batch);
    let cell = words[window + FIRST]!;
    let marks = MARKS_OF_CELL;
    for (; marks < needed && words[cell + NEXT] !== 0; marks += MARKS_OF_CELL) {
      found.add(cell);
      cell = words[cell + NEXT]!;
    }
    found.add(cell);
    words[cell + NEXT] = 0;
    words[window + END] = cell;
    // A mark that was never written has what its cell held before: a time far ahead would never expire.
    for (let i = cell / 2 + MARKS; i < cell / 2 + MARKS + MARKS_OF_CELL; i++)
      if (!(numbers[i]! <= last)) numbers[i] = last;
    if (needed > marks) numbers[window / 2 + USED] = (marks - words[window + BEGIN]!) * batch;
  }
}
