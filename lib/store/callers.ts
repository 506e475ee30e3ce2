/**
 * Remembers the callers of one limiter: a table in cells of one size, which the garbage collector does not scan. Its
 * writes are in such an order that a thread can die between any two of them where threads share the memory, see
 * `SharedCallerShard`.
 */
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
  HASH,
  LAST,
  LIFE,
  MARKS,
  CALLER_NAME,
  NEWER,
  NEXT,
  OLDER,
  OVERFLOW,
  RESERVED,
  SIZE,
  TAKEN,
  USED,
  WINDOWS,
} from "./cells.ts";
import type { Window } from "./counters.ts";
import { cellsOf, MARKS_OF_CELL, merged, type History, type Plan } from "./marks.ts";

/** Memory that can grow has so many words at first. */
const FEWEST_WORDS = 16 * CELL;
/** Of all tables that no caller has been in: read, never written. Of 10,000 routes few may ever be asked for. */
const UNUSED = new Int32Array(FEWEST_WORDS);
const UNUSED_NUMBERS = numbersIn(UNUSED);
/** Before the first turn. */
const NO_HASH = new Int32Array(2);
/** Tries to find any caller. */
const TRIES = 64;

/** The most memory that a caller may take, in bytes: with every window full. */
export function bytesOfCaller(windows: readonly Window[]): number {
  return 4 * CELL * cellsOf(windows);
}

/** A table in memory that grows. */
export class CallerShard {
  words: Int32Array;
  numbers: Float64Array;
  /** Both halves of the hash of the name of the caller of this turn. */
  #hash: Int32Array = NO_HASH;
  #dice = 1;

  /** Default: memory of its own, from the first caller on. */
  constructor(words: Int32Array = UNUSED) {
    this.words = words;
    this.numbers = words === UNUSED ? UNUSED_NUMBERS : numbersIn(words);
  }

  /** Begins a turn, for the caller whose name has this hash, which must stay until it ends. */
  enter(hashed: Int32Array): void {
    if (this.words[TAKEN] === 0) {
      if (this.words === UNUSED) this.#use(new Int32Array(FEWEST_WORDS));
      this.words[BUCKETS] = 1;
      this.words[TAKEN] = RESERVED;
    }
    this.#hash = hashed;
  }

  /** Ends the turn. */
  leave(): void {}

  /** Milliseconds until all windows of all callers are empty. */
  restMs(now: number): number {
    return Math.max(
      ...[this.words[OLDER]!, OVERFLOW].map(
        (caller) => 1000 * this.words[caller + LIFE]! + this.numbers[caller / 2 + LAST]! - now,
      ),
    );
  }

  /** The caller of this turn, or the overflow. */
  find(): number {
    const { words } = this;
    const first = this.#hash[0]!;
    let caller = words[this.#bucket(first)]!;
    while (caller !== 0 && (words[caller + HASH] !== first || words[caller + HASH + 1] !== this.#hash[1]))
      caller = words[caller + CHAIN]!;
    return caller;
  }

  /** A place for the caller of this turn, who was not found. */
  add(plan: Plan): number {
    const caller = this.#take();
    const windows = this.#merged(plan, [OVERFLOW]);
    const { words, numbers } = this;
    words[caller + WINDOWS] = windows;
    words[caller + LIFE] = words[LIFE]!;
    words.set(this.#hash, caller + HASH);
    numbers[caller / 2 + LAST] = numbers[LAST]!;
    if (words[SIZE] === words[BUCKETS]) this.#split();
    words[SIZE]!++;
    this.enlist(caller);
    return caller;
  }

  /** Makes a caller the newest of all. */
  touch(caller: number): void {
    const { words } = this;
    if (words[OLDER] === caller) return;
    this.link(words[caller + OLDER]!, words[caller + NEWER]!);
    this.link(words[OLDER]!, caller);
    this.link(caller, OVERFLOW);
  }

  /**
   * Forgets callers whose windows have run out: two, so that a decision, which adds at most one, always gains ground.
   */
  makeRoom(now: number, { life }: Plan): void {
    const { words, numbers } = this;
    for (let i = 0; i < 2; i++) {
      const oldest = words[NEWER]!;
      if (oldest === OVERFLOW || now - numbers[oldest / 2 + LAST]! < 1000 * Math.max(life, words[oldest + LIFE]!))
        return;
      this.#remove(oldest);
    }
  }

  /** Forgets a caller who is live: the overflow has used at least what the caller has from now on. */
  evict(caller: number, plan: Plan): void {
    const { words, numbers } = this;
    numbers[LAST] = Math.max(numbers[LAST]!, numbers[caller / 2 + LAST]!);
    words[LIFE] = Math.max(words[LIFE]!, words[caller + LIFE]!);
    this.convert(OVERFLOW, plan, [OVERFLOW, caller]);
    this.#remove(caller);
  }

  /** Any caller. There is one. */
  any(): number {
    const { words } = this;
    for (let i = 0; i < TRIES; i++) {
      let caller = words[this.#bucket(this.#random())]!;
      // Any of the first four of a chain, or none: else those in short chains would be chosen more often.
      for (let skip = this.#random() & 3; skip > 0 && caller !== 0; skip--) caller = words[caller + CHAIN]!;
      if (caller !== 0) return caller;
    }
    // Most buckets are empty once `max_callers` is lowered.
    return words[NEWER]!;
  }

  /** Drops the marks that have left their window, which has one. Returns the admissions that are left. */
  expire(window: number, now: number, ms: number): number {
    const { words, numbers } = this;
    const batch = numbers[window / 2 + BATCH]!;
    const before = words[window + FIRST]!;
    let used = numbers[window / 2 + USED]!;
    let first = before;
    let begin = words[window + BEGIN]!;
    do {
      // Every mark except the newest counts a whole batch.
      used = Math.max(0, used - batch);
      begin = used === 0 ? 0 : (begin + 1) % MARKS_OF_CELL;
      if (begin === 0 && used > 0) first = words[first + NEXT]!;
    } while (used > 0 && now - numbers[first / 2 + MARKS + begin]! >= ms);
    // In this order: a part of it counts more admissions, not fewer.
    words[window + FIRST] = first;
    words[window + BEGIN] = begin;
    numbers[window / 2 + USED] = used;
    this.#giveAll(before, first);
    return used;
  }

  /**
   * Counts admissions by the newest mark of a window, or by a new one where that counts a whole batch. Returns the
   * number of the mark.
   */
  count(window: number, time: number, amount: number): number {
    const used = this.numbers[window / 2 + USED]!;
    const mark = Math.floor(used / this.numbers[window / 2 + BATCH]!);
    const place = (this.words[window + BEGIN]! + mark) % MARKS_OF_CELL;
    if (place === 0 && mark > 0 && mark * this.numbers[window / 2 + BATCH]! === used) {
      const cell = this.#take();
      this.words[this.words[window + END]! + NEXT] = cell;
      this.words[window + END] = cell;
    }
    // The time before the count: a thread that dies in between has refused, not admitted, a request too many.
    this.numbers[this.words[window + END]! / 2 + MARKS + place] = time;
    this.numbers[window / 2 + USED] = used + amount;
    return mark;
  }

  /**
   * Gives a caller the windows of a plan, with all that callers have used of windows of their names. The newest
   * admissions up to the new limit are kept. The time of an admission can only become later (that of the latest in its
   * batch), so this admits nothing too early.
   */
  convert(caller: number, plan: Plan, from: readonly number[] = [caller]): void {
    this.#replaceWindows(caller, this.#merged(plan, from));
  }

  /** 32 bits. */
  #random(): number {
    this.#dice = (Math.imul(this.#dice, 1_664_525) + 1_013_904_223) | 0;
    return (this.#dice << 16) | (this.#dice >>> 16); // the lower bits of such a sequence are less random
  }

  protected link(older: number, newer: number): void {
    this.words[older + NEWER] = newer;
    this.words[newer + OLDER] = older;
  }

  /** The word with the first caller of a chain. */
  #bucket(hashed: number): number {
    return (hashed & (this.words[BUCKETS]! - 1)) * CELL;
  }

  /** Makes a caller the newest one, and one that can be found. */
  protected enlist(caller: number): void {
    const { words } = this;
    const bucket = this.#bucket(words[caller + HASH]!);
    this.link(words[OLDER]!, caller);
    this.link(caller, OVERFLOW);
    words[caller + CHAIN] = words[bucket]!;
    words[bucket] = caller;
  }

  /** Doubles the buckets. After each write every caller can be reached. */
  #split(): void {
    const { words } = this;
    const buckets = words[BUCKETS]!;
    for (let bucket = 0; bucket < buckets * CELL; bucket += CELL) {
      // The words that end both lists so far.
      const ends = [bucket, bucket + buckets * CELL];
      for (let caller = words[bucket]!; caller !== 0; caller = words[caller + CHAIN]!) {
        const list = (words[caller + HASH]! & buckets) === 0 ? 0 : 1;
        words[ends[list]!] = caller;
        ends[list] = caller + CHAIN;
      }
      for (const end of ends) words[end] = 0;
    }
    words[BUCKETS] = 2 * buckets;
  }

  #remove(caller: number): void {
    const { words } = this;
    let link = this.#bucket(words[caller + HASH]!);
    while (words[link] !== caller) link = words[link]! + CHAIN;
    words[link] = words[caller + CHAIN]!;
    this.link(words[caller + OLDER]!, words[caller + NEWER]!);
    words[SIZE]!--;
    this.#replaceWindows(caller, 0);
    this.give(caller);
  }

  #replaceWindows(caller: number, windows: number): void {
    const { words } = this;
    const before = words[caller + WINDOWS]!;
    words[caller + WINDOWS] = windows;
    for (let window = before; window !== 0; window = words[window + NEXT]!) this.#giveAll(words[window + FIRST]!, 0);
    this.#giveAll(before, 0);
  }

  /** New windows with all that the callers have used of each. Returns the first one. */
  #merged({ windows, names, batches }: Plan, callers: readonly number[]): number {
    let next = 0;
    for (let w = windows.length - 1; w >= 0; w--) {
      const histories = callers.flatMap((caller) => this.#histories(caller, names[w]!));
      const window = this.#take();
      const cell = this.#take();
      this.words[window + NEXT] = next;
      this.words[window + CALLER_NAME] = names[w]!;
      this.words[window + FIRST] = this.words[window + END] = cell;
      this.words[window + BEGIN] = 0;
      this.numbers[window / 2 + USED] = 0;
      this.numbers[window / 2 + BATCH] = batches[w]!;
      const { times, used, batch } = merged(windows[w]!.limit, histories);
      times.forEach((time, i) => this.count(window, time, Math.min(batch, used - i * batch)));
      next = window;
    }
    return next;
  }

  /** What a caller has used of the window of this name, if anything. */
  #histories(caller: number, name: number): History[] {
    const { words, numbers } = this;
    let window = words[caller + WINDOWS]!;
    while (window !== 0 && words[window + CALLER_NAME] !== name) window = words[window + NEXT]!;
    const used = window && numbers[window / 2 + USED]!;
    if (used === 0) return [];
    const batch = numbers[window / 2 + BATCH]!;
    const times: number[] = [];
    let cell = words[window + FIRST]!;
    for (let place = words[window + BEGIN]!; times.length < Math.ceil(used / batch); place++) {
      if (place > 0 && place % MARKS_OF_CELL === 0) cell = words[cell + NEXT]!;
      times.push(numbers[cell / 2 + MARKS + (place % MARKS_OF_CELL)]!);
    }
    return [{ times, used, batch }];
  }

  #take(): number {
    let cell = this.words[FREE]!;
    if (cell !== 0) {
      this.words[FREE] = this.words[cell + NEXT]!;
      this.words[FREED]! -= CELL;
    } else {
      cell = this.words[TAKEN]!;
      if (cell === this.words.length) this.grow();
      this.words[TAKEN] = cell + CELL;
    }
    this.words[cell + NEXT] = 0;
    return cell;
  }

  protected grow(): void {
    const before = this.words;
    this.#use(new Int32Array(2 * before.length));
    this.words.set(before);
  }

  #use(words: Int32Array): void {
    this.words = words;
    this.numbers = numbersIn(words);
  }

  protected give(cell: number): void {
    this.words[cell + NEXT] = this.words[FREE]!;
    this.words[FREE] = cell;
    this.words[FREED]! += CELL;
  }

  /** Gives the cells of a list, up to this one. */
  #giveAll(from: number, end: number): void {
    for (let cell = from, next; cell !== end; cell = next) {
      next = this.words[cell + NEXT]!;
      this.give(cell);
    }
  }
}

function numbersIn(words: Int32Array): Float64Array {
  return new Float64Array(words.buffer, words.byteOffset, words.length / 2);
}
