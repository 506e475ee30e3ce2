/**
 * Stores a limiter's state per caller in typed arrays, which the garbage collector does not scan: blocks hold the marks of each window,
 * and a table finds a caller by the hash of its name.
 *
 * A window of a caller has at most 64 marks. A mark counts `batch` admissions, where batch = ceil(limit / 64), and stores the time of
 * the latest one; only the newest mark may count fewer. A mark expires with its latest admission, so the limiter may refuse up to
 * batch - 1 < limit / 64 requests too many, and never admits one too many. For limits up to 64 the count is exact.
 */
import { hash } from "node:crypto";
import type { Window } from "./counters.ts";

/** Most marks of a window: limits up to this one are counted exactly. */
const MOST_MARKS = 64;

export function batchOf(limit: number): number {
  return Math.ceil(limit / MOST_MARKS);
}

/** How many marks a window can have. */
export function marksOf(limit: number): number {
  return Math.ceil(limit / batchOf(limit));
}

/** The admissions in one window. */
export interface History {
  /** Of each mark, the oldest first. */
  readonly times: ArrayLike<number>;
  /** Admissions. */
  readonly used: number;
  readonly batch: number;
}

/**
 * A history that has, at every moment from now on, at least as many admissions in the window as each of the given ones, up to the limit,
 * and as few more as marks can express: its k-th newest admission is the latest of all k-th newest.
 */
export function merged({ limit }: Pick<Window, "limit">, histories: readonly History[]): History {
  const batch = batchOf(limit);
  const used = Math.min(limit, Math.max(0, ...histories.map((history) => history.used)));
  const times: number[] = [];
  for (let end = 0; end < used; ) {
    end = Math.min(used, end + batch);
    times.push(Math.max(...histories.map((history) => timeOf(history, used - end))));
  }
  return { times, used, batch };
}

/** The time of the admission that `newer` others followed. */
function timeOf({ times, used, batch }: History, newer: number): number {
  return newer < used ? times[Math.floor((used - 1 - newer) / batch)]! : -Infinity;
}

/** Windows, and values derived from them. */
export class Plan {
  readonly windows: readonly Window[];
  /** Admissions per mark, by window. */
  readonly batches: readonly number[];
  readonly longestMs: number;
  /** By room: blocks of the pool at i have room for 2^i marks a window, or as many as the window can have. */
  readonly #pools: BlockPool[] = [];

  constructor(windows: readonly Window[]) {
    this.windows = windows;
    this.batches = windows.map(({ limit }) => batchOf(limit));
    this.longestMs = Math.max(...windows.map(({ ms }) => ms));
  }

  has(windows: readonly Window[]): boolean {
    return JSON.stringify(windows) === JSON.stringify(this.windows);
  }

  /** The pool whose blocks have room for one more admission in each window than were `used`. */
  poolFor(used: readonly number[]): BlockPool {
    let bits = 0;
    const fits = (count: number, w: number) => Math.floor(count / this.batches[w]!) < 1 << bits;
    while (1 << bits < MOST_MARKS && !used.every(fits)) bits++;
    return (this.#pools[bits] ??= new BlockPool(this, 1 << bits));
  }
}

/** A block: the time of the last admission, the caller's slot; how many admissions each window holds; then the marks of each window. */
export const LAST = 0;
export const SLOT = 1;
export const USED = 2;

/** The most memory that the block of a caller may take, in bytes. */
export function mostBytesOf(windows: readonly Window[]): number {
  return 8 * windows.reduce((sum, { limit }) => sum + 1 + marksOf(limit), USED);
}

/** Numbers in a page, at most: 64 kB. */
const PAGE = 8_192;
/** Blocks in the first page at first, and slots in the table, so that a limiter with few callers costs little. */
const FEWEST = 4;

/** Blocks of one size, without gaps: with gaps, a few remaining callers could keep every page that a flood of callers once filled. */
export class BlockPool {
  readonly plan: Plan;
  /** Room for marks in each window. */
  readonly room: number;
  /** The offset in a block of each window's marks. */
  readonly marksAt: readonly number[];
  readonly #size: number;
  /** Blocks of a page, as an exponent of two. */
  readonly #bits: number;
  readonly #pages: Float64Array[] = [];
  #count = 0;

  constructor(plan: Plan, room: number) {
    this.plan = plan;
    this.room = room;
    const marksAt: number[] = [];
    let size = USED + plan.windows.length;
    for (const { limit } of plan.windows) {
      marksAt.push(size);
      size += Math.min(room, marksOf(limit));
    }
    this.marksAt = marksAt;
    this.#size = size;
    this.#bits = Math.floor(Math.log2(PAGE / size));
  }

  /** The page of a block. */
  page(block: number): Float64Array {
    return this.#pages[block >> this.#bits]!;
  }

  /** The offset of a block in its page. */
  start(block: number): number {
    return (block & ((1 << this.#bits) - 1)) * this.#size;
  }

  /** A block with anything in it. */
  take(): number {
    const block = this.#count++;
    const page = this.page(block);
    if (page === undefined) this.#pages.push(new Float64Array(this.#size * (block === 0 ? FEWEST : 1 << this.#bits)));
    else if (this.start(block) === page.length) {
      // The first page, which grows as it fills.
      this.#pages[0] = new Float64Array(2 * page.length);
      this.#pages[0].set(page);
    }
    return block;
  }

  /** Takes a block back, and moves the last one into its place. Returns the slot whose block is there now. */
  give(block: number): number {
    const last = --this.#count;
    const page = this.page(block);
    const to = this.start(block);
    page.set(this.page(last).subarray(this.start(last), this.start(last) + this.#size), to);
    // An empty page stays until half of the one before is free too: taking and giving at its edge must not cost an allocation each time.
    if (last === 0) this.#pages.length = 0;
    else if (last <= (this.#pages.length - 1.5) * (1 << this.#bits)) this.#pages.pop();
    return page[to + SLOT]!;
  }
}

/** A slot: the callers admitted before and after this one, the next one in its chain, its block, both halves of its name's hash. */
const OLDER = 0;
const NEWER = 1;
const CHAIN = 2;
const BLOCK = 3;
const HASH = 4;
const FIELDS = 6;

/** Callers have the slots from 1 to `size`, without gaps. Slot 0 links the caller admitted last and the one admitted first. */
export class CallerTable {
  /** Most memory for a caller, in bytes: while the table is doubled, there are three slots and three chains for each. */
  static readonly BYTES = 3 * 4 * (FIELDS + 1);

  readonly #secret: Secret;
  /** Of the name of the last search. */
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

  /** The least recently admitted caller; 0 when the table is empty. */
  get oldest(): number {
    return this.#slots[NEWER]!;
  }

  /** The most recently admitted caller; 0 when the table is empty. */
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

  /** A slot for the caller of the last search, which found none: the newest of all. */
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

  /** Replaces the link to this slot in its hash chain by a link to the slot `to`. */
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
