/**
 * Keeps what is remembered of callers in blocks of numbers, in large pages that no garbage collector walks.
 */
import type { Window } from "./counters.ts";
import { batchOf, marksOf, MOST_MARKS } from "./windows.ts";

/** Windows with what follows from them. */
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
/** Blocks in the first page at first, so that a limiter with few callers costs little. */
const FEWEST = 4;

/** Blocks of one size. They have no gaps: were gaps left, a few callers who stay could keep every page that a flood once filled. */
export class BlockPool {
  readonly plan: Plan;
  /** Room for marks in each window, where it can have so many. */
  readonly room: number;
  /** Where in a block the marks of each window begin. */
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

  /** Where in its page a block begins. */
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
