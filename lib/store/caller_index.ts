/**
 * Finds the block of a caller by his name, and keeps all callers in the order in which they were last admitted.
 * What else stands in a block is the ledger's affair.
 *
 * A place is a caller's number in a small array of links. Places have no gaps, and the array fits into a processor's nearer caches
 * where the blocks do not: putting a caller last writes to three places, and to no other caller's block.
 */
import { within, type Blocks } from "./blocks.ts";
import type { Name } from "./caller_hash.ts";

/** No caller's: the link between the last and the first. */
const ENDS = 0;

/** A place in `cells`: the places before and after it, the block, and the hash of the name. */
const CELL = 4;
const PREVIOUS = 0;
const NEXT = 1;
const BLOCK = 2;
const HASH = 3;
const FEWEST = 4;

export class Places {
  /** Most memory for a caller, in bytes: a place, and 8/3 numbers of the table; while they are doubled, three times as much. */
  static readonly BYTES = 4 * 3 * CELL + 4 * 8;

  readonly #blocks: Blocks<unknown>;
  /** Where in a block, in numbers of four bytes, its place is written. */
  readonly #placeAt: number;
  #cells = new Int32Array(FEWEST * CELL);
  #callers = 0;
  /**
   * Pairs of hash and block, 0 for nobody. A pair stands where its hash says, or behind that with no gap between. At most three
   * quarters are in use.
   */
  #table = new Int32Array(2 * FEWEST);

  constructor(blocks: Blocks<unknown>, placeAt: number) {
    this.#blocks = blocks;
    this.#placeAt = placeAt;
  }

  get callers(): number {
    return this.#callers;
  }

  /** The block of the caller who was not admitted for the longest time; 0 when there is nobody. */
  get first(): number {
    return this.#cells[this.#cells[NEXT]! * CELL + BLOCK]!;
  }

  /** The block of the caller who was admitted last; 0 when there is nobody. */
  get last(): number {
    return this.#cells[this.#cells[PREVIOUS]! * CELL + BLOCK]!;
  }

  /** The block of the caller at a place, from 1 to `callers`. */
  blockAt(place: number): number {
    return this.#cells[place * CELL + BLOCK]!;
  }

  /** The block of a caller, or 0. */
  find(name: Name): number {
    const table = this.#table;
    const mask = table.length - 1;
    for (let i = (name.hash << 1) & mask; ; i = (i + 2) & mask) {
      const block = table[i + 1]!;
      if (block === 0 || (table[i] === name.hash && this.#bears(block, name))) return block;
    }
  }

  /** Makes a caller, who was not there, the last of all. */
  add(name: Name, block: number): void {
    const place = this.#callers + 1;
    if ((place + 1) * CELL > this.#cells.length) this.#resizeCells(2 * this.#cells.length);
    if (8 * place > 3 * this.#table.length) this.#resizeTable(2 * this.#table.length);
    this.#callers = place;
    this.#cells[place * CELL + HASH] = name.hash;
    this.#setBlock(place, block);
    this.#enter(place);
    this.#join(this.#cells[PREVIOUS]!, place);
    this.#join(place, ENDS);
  }

  /** Makes a caller the last of all: he was just admitted. */
  touch(block: number): void {
    const cells = this.#cells;
    const place = this.#placeOf(block);
    const next = cells[place * CELL + NEXT]!;
    if (next === ENDS) return;
    this.#join(cells[place * CELL + PREVIOUS]!, next);
    this.#join(cells[PREVIOUS]!, place);
    this.#join(place, ENDS);
  }

  /** Another block, with the same name, is the caller's from now on. */
  replace(block: number, by: number): void {
    const place = this.#placeOf(block);
    this.#table[this.#indexOf(place) + 1] = by;
    this.#setBlock(place, by);
  }

  /** Forgets a caller. Whose place was the last number gets the one that is free. */
  remove(block: number): void {
    const cells = this.#cells;
    const place = this.#placeOf(block);
    this.#leave(place);
    this.#join(cells[place * CELL + PREVIOUS]!, cells[place * CELL + NEXT]!);
    const last = this.#callers--;
    if (last !== place) {
      cells.copyWithin(place * CELL, last * CELL, (last + 1) * CELL);
      this.#setBlock(place, cells[place * CELL + BLOCK]!);
      this.#join(cells[place * CELL + PREVIOUS]!, place);
      this.#join(place, cells[place * CELL + NEXT]!);
    }
    if (4 * CELL * last < cells.length && cells.length > FEWEST * CELL) this.#resizeCells(cells.length / 2);
    if (16 * last < this.#table.length && this.#table.length > 2 * FEWEST) this.#resizeTable(this.#table.length / 2);
  }

  /** Whether a name stands at the end of a block. Since its last number tells its length, no longer one can end like it. */
  #bears(block: number, { ints, count }: Name): boolean {
    const page = this.#blocks.page(block);
    const at = 2 * (within(block) + page.size) - count;
    for (let i = count - 1; i >= 0; i--) if (page.ints[at + i] !== ints[i]) return false;
    return true;
  }

  #placeOf(block: number): number {
    return this.#blocks.page(block).ints[2 * within(block) + this.#placeAt]!;
  }

  #setBlock(place: number, block: number): void {
    this.#cells[place * CELL + BLOCK] = block;
    this.#blocks.page(block).ints[2 * within(block) + this.#placeAt] = place;
  }

  #join(previous: number, next: number): void {
    this.#cells[previous * CELL + NEXT] = next;
    this.#cells[next * CELL + PREVIOUS] = previous;
  }

  /** Where in the table the block of a place stands. */
  #indexOf(place: number): number {
    const table = this.#table;
    const mask = table.length - 1;
    const block = this.#cells[place * CELL + BLOCK]!;
    let i = (this.#cells[place * CELL + HASH]! << 1) & mask;
    while (table[i + 1] !== block) i = (i + 2) & mask;
    return i;
  }

  #enter(place: number): void {
    const table = this.#table;
    const mask = table.length - 1;
    const hash = this.#cells[place * CELL + HASH]!;
    let i = (hash << 1) & mask;
    while (table[i + 1] !== 0) i = (i + 2) & mask;
    table[i] = hash;
    table[i + 1] = this.#cells[place * CELL + BLOCK]!;
  }

  #leave(place: number): void {
    const table = this.#table;
    const mask = table.length - 1;
    let gap = this.#indexOf(place);
    // Whoever stands behind the gap, and further from where his hash says than from the gap, moves into it.
    for (let i = (gap + 2) & mask; table[i + 1] !== 0; i = (i + 2) & mask) {
      const fromHash = (i - (table[i]! << 1)) & mask;
      if (fromHash < ((i - gap) & mask)) continue;
      table[gap] = table[i]!;
      table[gap + 1] = table[i + 1]!;
      gap = i;
    }
    table[gap + 1] = 0;
  }

  #resizeCells(length: number): void {
    const before = this.#cells;
    this.#cells = new Int32Array(length);
    this.#cells.set(before.length < length ? before : before.subarray(0, length));
  }

  #resizeTable(length: number): void {
    this.#table = new Int32Array(length);
    for (let place = 1; place <= this.#callers; place++) this.#enter(place);
  }
}
