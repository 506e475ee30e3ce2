/**
 * Finds callers by name, and keeps them in the order in which they were last admitted: a hash table with chains and a linked list.
 */
import { hashName, type Secret } from "./caller_hash.ts";

/** A slot: the callers admitted before and after this one, the next one in its chain, its block, both halves of its name's hash. */
const OLDER = 0;
const NEWER = 1;
const CHAIN = 2;
const BLOCK = 3;
const HASH = 4;
const FIELDS = 6;
const FEWEST = 4;

/** Callers have the slots from 1 to `size`, without gaps. Slot 0 links the caller admitted last and the one admitted first. */
export class CallerTable {
  /** Most memory for a caller, in bytes: while the table is doubled, there are three slots and three chains for each. */
  static readonly BYTES = 3 * 4 * (FIELDS + 1);

  readonly #secret: Secret;
  /** Of the name that was looked for last. */
  readonly #hash = new Int32Array(2);
  #size = 0;
  #slots = new Int32Array(FEWEST * FIELDS);
  /** The first slot of each chain; 0 ends a chain. */
  #chains = new Int32Array(FEWEST);

  constructor(secret: Secret) {
    this.#secret = secret;
  }

  get size(): number {
    return this.#size;
  }

  /** The caller who was not admitted for the longest time; 0 when there is nobody. */
  get oldest(): number {
    return this.#slots[NEWER]!;
  }

  /** The caller who was admitted last; 0 when there is nobody. */
  get newest(): number {
    return this.#slots[OLDER]!;
  }

  block(slot: number): number {
    return this.#slots[slot * FIELDS + BLOCK]!;
  }

  setBlock(slot: number, block: number): void {
    this.#slots[slot * FIELDS + BLOCK] = block;
  }

  /** The slot of a caller, or 0. */
  find(name: string): number {
    const slots = this.#slots;
    hashName(name, this.#secret, this.#hash);
    const first = this.#hash[0]!;
    const second = this.#hash[1]!;
    let slot = this.#chains[first & (this.#chains.length - 1)]!;
    for (; slot !== 0; slot = slots[slot * FIELDS + CHAIN]!) {
      if (slots[slot * FIELDS + HASH] === first && slots[slot * FIELDS + HASH + 1] === second) return slot;
    }
    return 0;
  }

  /** A slot for the caller who was just looked for and not found: the newest of all. */
  add(): number {
    if (this.#size + 1 === this.#chains.length) this.#resize(2 * this.#chains.length);
    const slot = ++this.#size;
    this.#slots.set(this.#hash, slot * FIELDS + HASH);
    this.#enchain(slot);
    this.#link(this.newest, slot);
    this.#link(slot, 0);
    return slot;
  }

  /** Makes a caller the newest of all. */
  touch(slot: number): void {
    const newer = this.#slots[slot * FIELDS + NEWER]!;
    if (newer === 0) return;
    this.#link(this.#slots[slot * FIELDS + OLDER]!, newer);
    this.#link(this.newest, slot);
    this.#link(slot, 0);
  }

  /** Forgets a caller. Returns the slot of the caller who moves to the free slot, the last one: it may be the same. */
  remove(slot: number): number {
    const slots = this.#slots;
    const last = this.#size--;
    this.#redirect(slot, slots[slot * FIELDS + CHAIN]!);
    this.#link(slots[slot * FIELDS + OLDER]!, slots[slot * FIELDS + NEWER]!);
    if (last !== slot) {
      this.#redirect(last, slot);
      slots.copyWithin(slot * FIELDS, last * FIELDS, (last + 1) * FIELDS);
      this.#link(slots[slot * FIELDS + OLDER]!, slot);
      this.#link(slot, slots[slot * FIELDS + NEWER]!);
    }
    if (4 * last < this.#chains.length && this.#chains.length > FEWEST) this.#resize(this.#chains.length / 2);
    return last;
  }

  #link(older: number, newer: number): void {
    this.#slots[older * FIELDS + NEWER] = newer;
    this.#slots[newer * FIELDS + OLDER] = older;
  }

  #chainOf(slot: number): number {
    return this.#slots[slot * FIELDS + HASH]! & (this.#chains.length - 1);
  }

  #enchain(slot: number): void {
    const chain = this.#chainOf(slot);
    this.#slots[slot * FIELDS + CHAIN] = this.#chains[chain]!;
    this.#chains[chain] = slot;
  }

  /** What points to this slot in its chain points to another one from now on. */
  #redirect(slot: number, to: number): void {
    const chain = this.#chainOf(slot);
    let at = this.#chains[chain]!;
    if (at === slot) {
      this.#chains[chain] = to;
      return;
    }
    while (this.#slots[at * FIELDS + CHAIN] !== slot) at = this.#slots[at * FIELDS + CHAIN]!;
    this.#slots[at * FIELDS + CHAIN] = to;
  }

  #resize(capacity: number): void {
    const before = this.#slots;
    this.#slots = new Int32Array(capacity * FIELDS);
    this.#slots.set(before.length < this.#slots.length ? before : before.subarray(0, this.#slots.length));
    this.#chains = new Int32Array(capacity);
    for (let slot = 1; slot <= this.#size; slot++) this.#enchain(slot);
  }
}
