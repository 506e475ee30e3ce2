/**
 * Remembers the callers of one limiter in memory that threads may share: a table in cells of one size, which the garbage collector does
 * not scan. A thread can die between any two of its writes; `repair` then makes the table whole again.
 */
import { hash } from "node:crypto";
import { acquire, isLockedBy, release } from "../base/lock.ts";
import type { LimiterOptions, Window } from "./counters.ts";
import { batchOf, marksOf, merged, type History } from "./marks.ts";

/** A cell: 10 words of 32 bits, or 5 numbers of 64. Its first word has nothing to do with the others: it is the first caller of a chain. */
const WORDS = 10;
const NUMBERS = WORDS / 2;
const BUCKET = 0;
/** A caller: the next one in its chain, those admitted before and after it, its first window, how long it is remembered (in seconds), both halves of its name's hash. */
const CHAIN = 1;
const OLDER = 2;
const NEWER = 3;
export const WINDOWS = 4;
export const LIFE = 5;
const HASH = 6;
/** Number: the time of the last admission. */
export const LAST = 4;
/** A window of a caller: the next one, the hash of its name, the first and the last cell of its marks, where they begin in the first one. */
export const NEXT = 1;
export const NAME = 2;
const FIRST = 3;
const END = 4;
const BEGIN = 5;
/** Numbers: admissions, and how many of them a mark counts. */
export const USED = 3;
export const BATCH = 4;
/** Four marks of a window: the next four, and their numbers. */
const MARKS = 1;
const IN_CELL = 4;

/** The first cell of a shard is the overflow, a caller that also links the newest caller to the oldest. Then come two cells of data: */
const HEADER = 1;
const LOCK = 1;
/** Cells that were ever taken, the first free one, how many of them are free. */
const TAKEN = 2;
const FREE = 3;
const FREED = 4;
const SIZE = 5;
const BUCKETS = 6;
/** Number: decisions that were made by the overflow. */
const SHARED = 4;
/** Of the whole table, in its first shard: the number of shards, of parts in use, and the secret. */
const INFO = 2;
const SHARDS = 1;
const PARTS = 2;
const SECRET = 3;
const RESERVED = 3;

/** Cells of a page of ordinary memory, as an exponent of two; of the first one at first. */
const PAGE_BITS = 11;
const FEWEST = 16;
const MOST_SHARDS = 64;
/** Callers of a shard, at least: with fewer there is one shard. */
const SHARD_CALLERS = 256;
/** One decision may convert eleven callers, and rewrite the overflow. */
const SPARE_CALLERS = 16;
/** Buckets that are searched for a caller. */
const MOST_EMPTY = 64;

/** The most cells that a caller may take: a window's first and last cell may have room that is not used. */
function cellsOf(windows: readonly Window[]): number {
  return windows.reduce((sum, { limit }) => sum + 1 + Math.ceil((marksOf(limit) + IN_CELL - 1) / IN_CELL), 1);
}

/** The most memory that a caller may take, in bytes, with every window full. */
export function bytesOfCaller(windows: readonly Window[]): number {
  return 4 * WORDS * cellsOf(windows);
}

/** Memory for so many callers with every window full, in bytes. */
export function bytesOf({ windows, maxCallers }: LimiterOptions, shards: number): number {
  return 4 * WORDS * shards * (RESERVED + (Math.ceil(maxCallers / shards) + SPARE_CALLERS) * cellsOf(windows));
}

/** With fewer callers there is one lock less to wait for than there are threads, at most: that costs more than it gains. */
export function shardsFor(maxCallers: number): number {
  return Math.max(1, Math.min(MOST_SHARDS, 2 ** Math.floor(Math.log2(maxCallers / SHARD_CALLERS))));
}

/** Windows, and values derived from them. */
export class Plan {
  readonly windows: readonly Window[];
  readonly names: readonly number[];
  /** Admissions per mark, by window. */
  readonly batches: readonly number[];
  /** Length of the longest window in seconds, rounded up. */
  readonly life: number;
  /** Cells that must be free before a decision. */
  readonly spare: number;
  /** Cells that one shard may take. */
  readonly capacity: number;

  constructor(windows: readonly Window[], capacity: number) {
    const result = new Int32Array(2);
    this.windows = windows;
    this.names = windows.map(({ name }) => (hashName(name, [0, 0], result), result[0]!));
    this.batches = windows.map(({ limit }) => batchOf(limit));
    this.life = Math.ceil(Math.max(...windows.map(({ ms }) => ms)) / 1000);
    this.spare = SPARE_CALLERS * cellsOf(windows);
    this.capacity = capacity;
  }
}

/** What a table needs in memory that threads share: its first part, how many shards a new table gets, and the mark of this thread's locks. */
export interface Shared {
  readonly part: ArrayBufferLike;
  readonly shards: number;
  readonly owner: number;
}

/** Cells in pages: pages of ordinary memory are allocated as they are needed, those of shared memory are parts of one size. */
export class CallerTable {
  readonly shards: readonly Callers[];
  /** Of the name of the last search. */
  readonly hash = new Int32Array(2);
  readonly #secret: Secret;
  /** Of one shard in one page. */
  readonly #shardCells: number;
  readonly #bits: number;
  readonly #mask: number;
  readonly #words: Int32Array[] = [];
  readonly #numbers: Float64Array[] = [];

  constructor(secret: Secret, shared?: Shared) {
    const cells = shared === undefined ? 2 ** PAGE_BITS : shared.part.byteLength / (4 * WORDS);
    this.#bits = Math.ceil(Math.log2(cells));
    this.#mask = 2 ** this.#bits - 1;
    this.setPart(0, shared?.part ?? new ArrayBuffer(4 * WORDS * FEWEST));
    if (this.word(INFO, SHARDS) === 0) {
      this.setWord(INFO, SHARDS, shared?.shards ?? 1);
      this.setWord(INFO, SECRET, secret[0]);
      this.setWord(INFO, SECRET + 1, secret[1]);
    }
    const shards = this.word(INFO, SHARDS);
    this.#secret = [this.word(INFO, SECRET), this.word(INFO, SECRET + 1)];
    this.#shardCells = shared === undefined ? Infinity : Math.floor(cells / shards);
    this.shards = Array.from({ length: shards }, (_, i) => new Callers(this, i && i * this.#shardCells, shared?.owner ?? 0));
  }

  part(n: number): ArrayBufferLike | undefined {
    return this.#words[n]?.buffer;
  }

  setPart(n: number, memory: ArrayBufferLike): void {
    this.#words[n] = new Int32Array(memory);
    this.#numbers[n] = new Float64Array(memory);
  }

  /** Further parts in which any thread has cells. */
  get partsInUse(): number {
    return Math.max(this.#words.length, 1 + this.word(INFO, PARTS));
  }

  /** Cells that each shard may take. */
  get capacity(): number {
    return this.#shardCells * this.#words.length;
  }

  /** Callers that are remembered. */
  get size(): number {
    let size = 0;
    for (const shard of this.shards) size += shard.size;
    return size;
  }

  get shared(): number {
    return this.shards.reduce((sum, { shared }) => sum + shared, 0);
  }

  /** Whether all windows of all callers are empty. */
  hasRunOut(now: number): boolean {
    return this.shards.every((shard) => shard.hasRunOut(now));
  }

  /** The shard of a caller. It can be searched for this caller until the next call. */
  shard(name: string): Callers {
    hashName(name, this.#secret, this.hash);
    return this.shards[this.hash[1]! & (this.shards.length - 1)]!;
  }

  /** Frees the locks that a dead thread holds. */
  repair(dead: number): void {
    for (const shard of this.shards) shard.repair(dead);
  }

  word(cell: number, field: number): number {
    return this.#words[cell >> this.#bits]![(cell & this.#mask) * WORDS + field]!;
  }

  setWord(cell: number, field: number, value: number): void {
    this.#words[cell >> this.#bits]![(cell & this.#mask) * WORDS + field] = value;
  }

  number(cell: number, field: number): number {
    return this.#numbers[cell >> this.#bits]![(cell & this.#mask) * NUMBERS + field]!;
  }

  setNumber(cell: number, field: number, value: number): void {
    this.#numbers[cell >> this.#bits]![(cell & this.#mask) * NUMBERS + field] = value;
  }

  words(cell: number): Int32Array {
    return this.#words[cell >> this.#bits]!;
  }

  /** The cell of a shard in its order: each page has as many of them. */
  cell(first: number, place: number): number {
    if (place < this.#shardCells) return first + place;
    const page = Math.floor(place / this.#shardCells);
    return (page << this.#bits) + first + (place - page * this.#shardCells);
  }

  /** Call it when a cell is taken for the first time. */
  extend(cell: number): void {
    const page = cell >> this.#bits;
    const words = this.#words[page];
    if (this.#shardCells !== Infinity) {
      if (page > this.word(INFO, PARTS)) this.setWord(INFO, PARTS, page);
    } else if (words === undefined) this.setPart(page, new ArrayBuffer(4 * WORDS * 2 ** PAGE_BITS));
    else if ((cell & this.#mask) * WORDS === words.length) {
      // The first page, which grows as it fills.
      this.setPart(page, new ArrayBuffer(2 * words.byteLength));
      this.#words[page]!.set(words);
    }
  }
}

/** A shard: an independent table of some of the callers, for the thread that has its lock. */
export class Callers {
  /**
   * A caller that has used at least what each caller without a place of its own has. A caller that gets a place starts with this usage,
   * since it may have caused it: a new place gives no new quota. In normal operation the overflow is empty.
   */
  readonly overflow: number;
  readonly #table: CallerTable;
  /** 0: the memory is not shared. */
  readonly #owner: number;
  readonly #header: number;
  #dice = 1;

  constructor(table: CallerTable, first: number, owner: number) {
    this.#table = table;
    this.overflow = first;
    this.#owner = owner;
    this.#header = first + HEADER;
  }

  get size(): number {
    return this.#get(SIZE);
  }

  /** Decisions that were made by the overflow. */
  get shared(): number {
    return this.#table.number(this.#header, SHARED);
  }

  countShared(): void {
    this.#table.setNumber(this.#header, SHARED, this.shared + 1);
  }

  enter(): void {
    if (this.#owner !== 0) acquire(this.#table.words(this.#header), this.#header * WORDS + LOCK, this.#owner);
    if (this.#get(TAKEN) !== 0) return;
    this.#link(this.overflow, this.overflow);
    this.#set(BUCKETS, 1);
    this.#set(TAKEN, RESERVED);
  }

  leave(): void {
    if (this.#owner !== 0) release(this.#table.words(this.#header), this.#header * WORDS + LOCK);
  }

  hasRunOut(now: number): boolean {
    return [this.overflow, this.#table.word(this.overflow, OLDER)].every((caller) => this.#isOver(caller, now));
  }

  /** The caller whose name was hashed, or the overflow. */
  find(): number {
    const table = this.#table;
    const first = table.hash[0]!;
    const second = table.hash[1]!;
    let caller = table.word(this.#bucket(first), BUCKET);
    for (; caller !== 0; caller = table.word(caller, CHAIN)) {
      if (table.word(caller, HASH) === first && table.word(caller, HASH + 1) === second) return caller;
    }
    return this.overflow;
  }

  /** A place for the caller whose name was hashed, and who was not found. */
  add(plan: Plan): number {
    const table = this.#table;
    const caller = this.#take();
    table.setWord(caller, HASH, table.hash[0]!);
    table.setWord(caller, HASH + 1, table.hash[1]!);
    table.setWord(caller, WINDOWS, this.#merged(plan, [this.overflow]));
    table.setNumber(caller, LAST, table.number(this.overflow, LAST));
    table.setWord(caller, LIFE, table.word(this.overflow, LIFE));
    if (this.size === this.#get(BUCKETS)) this.#split();
    this.#set(SIZE, this.size + 1);
    this.#enlist(caller);
    return caller;
  }

  /** Makes a caller the newest of all. */
  touch(caller: number): void {
    const table = this.#table;
    const newer = table.word(caller, NEWER);
    if (newer === this.overflow) return;
    this.#link(table.word(caller, OLDER), newer);
    this.#link(table.word(this.overflow, OLDER), caller);
    this.#link(caller, this.overflow);
  }

  /** Forgets two callers whose windows have run out, since a decision adds at most one, and others where too few cells are free. */
  makeRoom(now: number, plan: Plan): void {
    const table = this.#table;
    let oldest = table.word(this.overflow, NEWER);
    for (let i = 0; i < 2 && oldest !== this.overflow && this.#isOver(oldest, now); i++) {
      this.#remove(oldest);
      oldest = table.word(this.overflow, NEWER);
    }
    // Only after a reload: callers whose windows had more marks have left less than others may take.
    while (plan.capacity - this.#get(TAKEN) + this.#get(FREED) < plan.spare && oldest !== this.overflow) {
      this.evict(oldest, plan);
      oldest = table.word(this.overflow, NEWER);
    }
  }

  /** Forgets a caller who is live: the overflow has used at least what the caller has from now on. */
  evict(caller: number, plan: Plan): void {
    const table = this.#table;
    table.setNumber(this.overflow, LAST, Math.max(table.number(this.overflow, LAST), table.number(caller, LAST)));
    table.setWord(this.overflow, LIFE, Math.max(table.word(this.overflow, LIFE), table.word(caller, LIFE)));
    this.#replaceWindows(this.overflow, this.#merged(plan, [this.overflow, caller]));
    this.#remove(caller);
  }

  /** Any caller. There is one. */
  any(): number {
    const table = this.#table;
    // With many empty buckets, which fewer `max_callers` leave, the oldest caller will do.
    for (let i = 0; i < MOST_EMPTY; i++) {
      let caller = table.word(this.#bucket(this.#random()), BUCKET);
      // Any of the first four of a chain, or none: else those in short chains would be chosen more often.
      for (let skip = this.#random() & 3; skip > 0 && caller !== 0; skip--) caller = table.word(caller, CHAIN);
      if (caller !== 0) return caller;
    }
    return table.word(this.overflow, NEWER);
  }

  /** Drops the marks that have left their window. Returns the admissions that are left, the oldest of them at `oldest`. */
  expire(window: number, now: number, ms: number): number {
    const table = this.#table;
    const batch = table.number(window, BATCH);
    const before = table.word(window, FIRST);
    let used = table.number(window, USED);
    let first = before;
    let begin = table.word(window, BEGIN);
    this.oldest = table.number(first, MARKS + begin);
    if (used === 0 || now - this.oldest < ms) return used;
    while (used > 0 && now - this.oldest >= ms) {
      // Every mark except the newest counts a whole batch.
      used = Math.max(0, used - batch);
      if (used === 0) begin = 0;
      else if (++begin === IN_CELL) {
        first = table.word(first, NEXT);
        begin = 0;
      }
      this.oldest = table.number(first, MARKS + begin);
    }
    // In this order: half of it counts more admissions, not fewer.
    table.setWord(window, FIRST, first);
    table.setWord(window, BEGIN, begin);
    table.setNumber(window, USED, used);
    this.#giveAll(before, first);
    return used;
  }

  /** The time of the oldest mark of the window that was looked at last. */
  oldest = 0;

  /** Counts one admission. Returns whether its mark is the oldest one. */
  record(window: number, now: number): boolean {
    const table = this.#table;
    const used = table.number(window, USED);
    const batch = table.number(window, BATCH);
    const mark = Math.floor(used / batch);
    const place = table.word(window, BEGIN) + mark;
    let cell = table.word(window, END);
    if (place % IN_CELL === 0 && mark > 0 && mark * batch === used) {
      const next = this.#take();
      table.setWord(cell, NEXT, next);
      table.setWord(window, END, next);
      cell = next;
    }
    table.setNumber(cell, MARKS + (place % IN_CELL), now);
    table.setNumber(window, USED, used + 1);
    return mark === 0;
  }

  /**
   * Rewrites a caller's marks for other windows, matched by name: the newest admissions up to the new limit are kept, in batches of
   * the new size. The time of an admission can only become later (the time of the latest in its batch), so a reload never refills a limit.
   * Admissions beyond a lowered limit are dropped: they do not count if the limit is raised again within the window.
   */
  convert(caller: number, plan: Plan): void {
    const table = this.#table;
    table.setWord(caller, LIFE, Math.max(table.word(caller, LIFE), plan.life));
    this.#replaceWindows(caller, this.#merged(plan, [caller]));
  }

  /** Where a dead thread holds the lock: makes the table whole from what its buckets lead to, and frees the lock. */
  repair(dead: number): void {
    const table = this.#table;
    const words = table.words(this.#header);
    const lock = this.#header * WORDS + LOCK;
    if (!isLockedBy(dead, words, lock)) return;
    const taken = this.#get(TAKEN);
    const buckets = Math.min(2 * this.#get(BUCKETS), taken);
    const used = new Set<number>();
    const callers: number[] = [];
    for (let i = 0; i < buckets; i++) {
      const bucket = table.cell(this.overflow, i);
      for (let caller = table.word(bucket, BUCKET); caller !== 0 && !used.has(caller); caller = table.word(caller, CHAIN)) {
        used.add(caller);
        callers.push(caller);
      }
      table.setWord(bucket, BUCKET, 0);
    }
    this.#link(this.overflow, this.overflow);
    callers.sort((a, b) => table.number(a, LAST) - table.number(b, LAST));
    for (const caller of callers) this.#enlist(caller);
    this.#set(SIZE, callers.length);
    for (const caller of [this.overflow, ...callers]) {
      for (let window = table.word(caller, WINDOWS); window !== 0; window = table.word(window, NEXT)) {
        used.add(window);
        this.#repairMarks(window, used);
      }
    }
    this.#set(FREE, 0);
    this.#set(FREED, 0);
    for (let i = RESERVED; i < taken; i++) if (!used.has(table.cell(this.overflow, i))) this.#give(table.cell(this.overflow, i));
    release(words, lock);
  }

  /** Leaves no more cells than the admissions need, and no more admissions than the cells have marks for. */
  #repairMarks(window: number, used: Set<number>): void {
    const table = this.#table;
    const batch = table.number(window, BATCH);
    const end = table.word(window, BEGIN) + Math.ceil(table.number(window, USED) / batch);
    let cell = table.word(window, FIRST);
    let marks = IN_CELL;
    used.add(cell);
    for (let next = table.word(cell, NEXT); next !== 0 && marks < end; next = table.word(cell, NEXT)) {
      used.add((cell = next));
      marks += IN_CELL;
    }
    table.setWord(cell, NEXT, 0);
    table.setWord(window, END, cell);
    if (end > marks) table.setNumber(window, USED, (marks - table.word(window, BEGIN)) * batch);
  }

  /** Whether all windows of a caller are empty. */
  #isOver(caller: number, now: number): boolean {
    return now - this.#table.number(caller, LAST) >= 1000 * this.#table.word(caller, LIFE);
  }

  #get(field: number): number {
    return this.#table.word(this.#header, field);
  }

  #set(field: number, value: number): void {
    this.#table.setWord(this.#header, field, value);
  }

  /** 32 bits. */
  #random(): number {
    this.#dice = (Math.imul(this.#dice, 1_664_525) + 1_013_904_223) | 0;
    return (this.#dice << 16) | (this.#dice >>> 16); // the lower bits of such a sequence are less random
  }

  #link(older: number, newer: number): void {
    this.#table.setWord(older, NEWER, newer);
    this.#table.setWord(newer, OLDER, older);
  }

  /** The cell that holds the first caller of the chain for a hash. */
  #bucket(first: number): number {
    return this.#table.cell(this.overflow, first & (this.#get(BUCKETS) - 1));
  }

  /** Makes a caller the newest one, and one that can be found. */
  #enlist(caller: number): void {
    const table = this.#table;
    const bucket = this.#bucket(table.word(caller, HASH));
    this.#link(table.word(this.overflow, OLDER), caller);
    this.#link(caller, this.overflow);
    table.setWord(caller, CHAIN, table.word(bucket, BUCKET));
    table.setWord(bucket, BUCKET, caller);
  }

  /** Doubles the buckets. After each write every caller can be reached. */
  #split(): void {
    const table = this.#table;
    const buckets = this.#get(BUCKETS);
    for (let i = 0; i < buckets; i++) {
      const lists = [table.cell(this.overflow, i), table.cell(this.overflow, buckets + i)];
      const fields = [BUCKET, BUCKET];
      for (let caller = table.word(lists[0]!, BUCKET); caller !== 0; caller = table.word(caller, CHAIN)) {
        const list = (table.word(caller, HASH) & buckets) === 0 ? 0 : 1;
        table.setWord(lists[list]!, fields[list]!, caller);
        lists[list] = caller;
        fields[list] = CHAIN;
      }
      for (const list of [0, 1]) table.setWord(lists[list]!, fields[list]!, 0);
    }
    this.#set(BUCKETS, 2 * buckets);
  }

  #remove(caller: number): void {
    const table = this.#table;
    let before = this.#bucket(table.word(caller, HASH));
    let field = BUCKET;
    while (table.word(before, field) !== caller) {
      before = table.word(before, field);
      field = CHAIN;
    }
    table.setWord(before, field, table.word(caller, CHAIN));
    this.#link(table.word(caller, OLDER), table.word(caller, NEWER));
    this.#set(SIZE, this.size - 1);
    this.#replaceWindows(caller, 0);
    this.#give(caller);
  }

  #replaceWindows(caller: number, windows: number): void {
    const table = this.#table;
    const before = table.word(caller, WINDOWS);
    table.setWord(caller, WINDOWS, windows);
    for (let window = before; window !== 0; window = table.word(window, NEXT)) this.#giveAll(table.word(window, FIRST), 0);
    this.#giveAll(before, 0);
  }

  /** New windows with all that the callers have used of each. Returns the first one. */
  #merged({ windows, names }: Plan, callers: readonly number[]): number {
    const table = this.#table;
    let first = 0;
    for (let w = windows.length - 1; w >= 0; w--) {
      const { times, used, batch } = merged(windows[w]!.limit, callers.flatMap((caller) => this.#histories(caller, names[w]!)));
      const window = this.#take();
      table.setWord(window, NEXT, first);
      table.setWord(window, NAME, names[w]!);
      table.setWord(window, BEGIN, 0);
      table.setNumber(window, USED, used);
      table.setNumber(window, BATCH, batch);
      let cell = this.#take();
      table.setWord(window, FIRST, cell);
      for (let i = 0; i < times.length; i++) {
        if (i > 0 && i % IN_CELL === 0) {
          const next = this.#take();
          table.setWord(cell, NEXT, next);
          cell = next;
        }
        table.setNumber(cell, MARKS + (i % IN_CELL), times[i]!);
      }
      table.setWord(window, END, cell);
      first = window;
    }
    return first;
  }

  /** What a caller has used of the window of this name; nothing if there is none. */
  #histories(caller: number, name: number): History[] {
    const table = this.#table;
    let window = table.word(caller, WINDOWS);
    while (window !== 0 && table.word(window, NAME) !== name) window = table.word(window, NEXT);
    if (window === 0) return [];
    const [used, batch] = [table.number(window, USED), table.number(window, BATCH)];
    const times: number[] = [];
    let cell = table.word(window, FIRST);
    let place = table.word(window, BEGIN);
    for (let left = Math.ceil(used / batch); left > 0; left--) {
      times.push(table.number(cell, MARKS + place));
      if (++place < IN_CELL) continue;
      cell = table.word(cell, NEXT);
      place = 0;
    }
    return [{ times, used, batch }];
  }

  #take(): number {
    const table = this.#table;
    let cell = this.#get(FREE);
    if (cell === 0) {
      cell = table.cell(this.overflow, this.#get(TAKEN));
      table.extend(cell);
      this.#set(TAKEN, this.#get(TAKEN) + 1);
    } else {
      this.#set(FREE, table.word(cell, NEXT));
      this.#set(FREED, this.#get(FREED) - 1);
    }
    table.setWord(cell, NEXT, 0);
    return cell;
  }

  #give(cell: number): void {
    this.#table.setWord(cell, NEXT, this.#get(FREE));
    this.#set(FREE, cell);
    this.#set(FREED, this.#get(FREED) + 1);
  }

  /** Gives the cells of a list, up to this one. */
  #giveAll(from: number, end: number): void {
    for (let cell = from; cell !== end; ) {
      const next = this.#table.word(cell, NEXT);
      this.#give(cell);
      cell = next;
    }
  }
}

/** Two numbers of 32 bits. A client that knew them could choose colliding names, to slow look-ups or to use up another caller's limit. */
export type Secret = readonly [number, number];

/** Longer names go through SHA-256 first: a header of 16 kB would take too long here. */
const LONGEST = 64;

/** Writes the two halves of a name's hash to `result`. Two names get the same one with a probability of 2^-64. */
export function hashName(name: string, secret: Secret, result: Int32Array): void {
  // Hashed as UTF-16: in UTF-8 all lone surrogates, which may occur in a JWT's subject, would be equal.
  halfSipHash(name.length > LONGEST ? hash("sha256", Buffer.from(name, "utf16le"), "base64url") : name, secret, result);
}

/**
 * HalfSipHash-1-3 (https://github.com/veorq/SipHash) of a text in UTF-16, two code units a word. The first half is the hash of 32 bits that
 * Linux uses for its tables; the second one comes after three more rounds, as in the variant of 64 bits.
 */
function halfSipHash(text: string, [k0, k1]: Secret, result: Int32Array): void {
  let v0 = k0;
  let v1 = k1;
  let v2 = 0x6c796765 ^ k0;
  let v3 = 0x74656462 ^ k1;
  const last = text.length >> 1;
  for (let i = 0; i < last + 7; i++) {
    let word = 0;
    if (i < last) word = text.charCodeAt(2 * i) | (text.charCodeAt(2 * i + 1) << 16);
    else if (i === last) word = (text.length & 1 ? text.charCodeAt(2 * i) : 0) | (text.length << 25); // with the length in bytes
    else if (i === last + 1) v2 ^= 0xff;
    else if (i === last + 4) {
      result[0] = v1 ^ v3;
      v1 ^= 0xdd;
    }
    v3 ^= word;
    v0 = (v0 + v1) | 0;
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
    v0 = (v0 << 16) | (v0 >>> 16);
    v2 = (v2 + v3) | 0;
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
    v2 = (v2 << 16) | (v2 >>> 16);
    v0 ^= word;
  }
  result[1] = v1 ^ v3;
}
