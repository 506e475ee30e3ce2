/**
 * Counts what the workers of a program hold together. Each worker writes its own part and adds up all parts, so that a
 * limit is never exceeded, and what a dead worker held is forgotten by clearing its part.
 */
import { randomBytes } from "node:crypto";
import { mix } from "./mix.ts";
import type { Threads } from "./threads.ts";

/** One count over all workers. */
export class SharedCount {
  /** One word for the main thread and for each worker, side by side: adding up 64 of them reads few cache lines. */
  readonly #parts: Int32Array;
  readonly #own: number;

  constructor({ worker, count, memory }: Threads, name: string) {
    this.#parts = new Int32Array(memory(name, (1 + count) * Int32Array.BYTES_PER_ELEMENT));
    this.#own = 1 + worker;
  }

  get total(): number {
    let sum = 0;
    for (let i = 0; i < this.#parts.length; i++) sum += Atomics.load(this.#parts, i);
    return sum;
  }

  /** Of the worker with this number. */
  of(worker: number): number {
    return Atomics.load(this.#parts, 1 + worker);
  }

  /** Counts `amount` more; false if that would be more than `most`, at most 2^30, 0 being no limit. */
  take(most: number, amount = 1): boolean {
    for (;;) {
      // First its own, then the sum: of two workers that do this at the same time, at least one sees the other.
      Atomics.add(this.#parts, this.#own, amount);
      if (most === 0 || this.total <= most) return true;
      this.give(amount);
      // Where several compete for the last one, the last to take its own back finds room and tries again.
      if (this.total + amount > most) return false;
    }
  }

  give(amount = 1): void {
    Atomics.sub(this.#parts, this.#own, amount);
  }

  /** The worker with this number is dead. */
  clear(worker: number): void {
    Atomics.store(this.#parts, 1 + worker, 0);
  }
}

/** Slots of one worker's table. */
const SLOTS = 2 ** 17;
/** A table never fills up beyond this, so that a search finds an empty slot soon. */
const MAX_SLOTS = 0.75 * SLOTS;
/** A slot: its state, then the two words of its key. */
const SLOT_WORDS = 3;
const TABLE_WORDS = SLOTS * SLOT_WORDS;
/** The seed of the hash stands before the tables. */
const HEADER_WORDS = 1;

/** States of a slot. Searches end at an empty one and pass over one that is left; 1 + n: its key is held n times. */
const EMPTY = 0;
const LEFT = 1;

/** `take` found the limit reached. */
export const REFUSED = -1;
/** There is no slot for the key: it is not counted, and not limited. */
export const NO_SLOT = -2;

/**
 * A count for each key over all workers, exact for 98,304 keys held by a worker at the same time; a further one is not
 * limited. A key is two 32-bit integers. Each worker has a hash table with linear probing, which only it writes and all
 * read; 1.5 MiB of address space, of which memory is used only where there are keys.
 */
export class SharedCounts {
  readonly #words: Int32Array;
  readonly #worker: number;
  readonly #count: number;
  /** The same in all workers. Without it, clients could choose addresses that make searches long. */
  readonly seed: number;
  /** Slots of the own table that are not empty. */
  #used = 0;

  constructor({ worker, count, memory }: Threads, name: string) {
    this.#words = new Int32Array(memory(name, (HEADER_WORDS + count * TABLE_WORDS) * Int32Array.BYTES_PER_ELEMENT));
    this.#worker = worker;
    this.#count = count;
    Atomics.compareExchange(this.#words, 0, 0, randomBytes(4).readInt32LE());
    this.seed = Atomics.load(this.#words, 0);
  }

  /**
   * Counts one more for the key. Returns what `give` needs, or `REFUSED` if that would be more than `most`, 0 being no
   * limit.
   */
  take(high: number, low: number, most: number): number {
    for (;;) {
      // As in `SharedCount.take`.
      const at = this.#slot(high, low);
      if (at === NO_SLOT) return at;
      Atomics.add(this.#words, at, 1);
      if (most === 0 || this.total(high, low) <= most) return at;
      this.give(at);
      if (this.total(high, low) >= most) return REFUSED;
    }
  }

  give(at: number): void {
    if (at === NO_SLOT) return;
    if (Atomics.sub(this.#words, at, 1) - 1 === LEFT) this.#clean(at);
  }

  total(high: number, low: number): number {
    let sum = 0;
    for (let worker = 0; worker < this.#count; worker++) {
      const at = this.#find(worker, high, low);
      // Another worker may be emptying the slot just now.
      if (at >= 0) sum += Math.max(0, Atomics.load(this.#words, at) - LEFT);
    }
    return sum;
  }

  /** The worker with this number is dead. */
  clear(worker: number): void {
    const first = firstWord(worker);
    this.#words.fill(0, first, first + TABLE_WORDS);
  }

  /** The slot of the key in the own table; a new one where there is none yet. */
  #slot(high: number, low: number): number {
    // The main thread serves nobody.
    if (this.#worker < 0) return NO_SLOT;
    const found = this.#find(this.#worker, high, low);
    if (found >= 0) return found;
    const at = -1 - found;
    const words = this.#words;
    if (words[at] === EMPTY) {
      if (this.#used >= MAX_SLOTS) return NO_SLOT;
      this.#used++;
    }
    words[at + 1] = high;
    words[at + 2] = low;
    // Only now: whoever sees the state sees the key.
    Atomics.store(words, at, LEFT);
    return at;
  }

  /** The index of the key in a worker's table; -1 - i if it is not there, i being where it could be. */
  #find(worker: number, high: number, low: number): number {
    const words = this.#words;
    const first = firstWord(worker);
    let free = -1;
    for (let slot = this.#hash(high, low); ; slot++) {
      const at = first + (slot % SLOTS) * SLOT_WORDS;
      const state = Atomics.load(words, at);
      if (state === EMPTY) return -1 - (free < 0 ? at : free);
      if (words[at + 1] === high && words[at + 2] === low) return at;
      if (state === LEFT && free < 0) free = at;
    }
  }

  /** Empties a slot that is left, and those before it, unless a search has to go on behind it. */
  #clean(at: number): void {
    const words = this.#words;
    const first = firstWord(this.#worker);
    const neighbour = (from: number, steps: number) =>
      first + ((from - first + steps * SLOT_WORDS + TABLE_WORDS) % TABLE_WORDS);
    if (words[neighbour(at, 1)] !== EMPTY) return;
    for (let i = at; words[i] === LEFT; i = neighbour(i, -1)) {
      Atomics.store(words, i, EMPTY);
      this.#used--;
    }
  }

  #hash(high: number, low: number): number {
    return mix(mix(high ^ this.seed) ^ low) % SLOTS;
  }
}

function firstWord(worker: number): number {
  return HEADER_WORDS + worker * TABLE_WORDS;
}
