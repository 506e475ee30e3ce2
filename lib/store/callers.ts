/**
 * Remembers what the callers of one limiter have used, across changes of its windows.
 */
import { LAST, mostBytesOf, Plan, SLOT, USED, type BlockPool } from "./block_pool.ts";
import type { Secret } from "./caller_hash.ts";
import { CallerTable } from "./caller_table.ts";
import type { Window } from "./counters.ts";
import { merged, type History } from "./windows.ts";

/** The most memory that a caller may take, in bytes, with every window full. The last term: the array of pools, while it grows. */
export function bytesOfCaller(windows: readonly Window[]): number {
  return mostBytesOf(windows) + CallerTable.BYTES + 24;
}

/**
 * The slot of the overflow: at least what each caller without a slot of its own has used. A caller who gets a slot begins with what stands
 * here, since it may be one of them: so getting a slot buys no quota. On an ordinary day nothing stands here.
 */
export const OVERFLOW = 0;

export class Callers {
  plan: Plan;
  /** Decisions that were made by the overflow. */
  shared = 0;
  /** The block that was opened last: its pool, the page it is in, and where it begins there. Valid until a block is written or dropped. */
  pool!: BlockPool;
  page!: Float64Array;
  at = 0;
  readonly #table: CallerTable;
  /** By slot: where its block is. A pool's plan is that of its blocks' windows: an older one until the caller is next seen. */
  readonly #pools: BlockPool[] = [];
  #dice: number;

  constructor(windows: readonly Window[], secret: Secret) {
    this.plan = new Plan(windows);
    this.#table = new CallerTable(secret);
    this.#dice = secret[0];
    this.#write(OVERFLOW, this.plan, -Infinity, windows.map(() => NOTHING));
  }

  get size(): number {
    return this.#table.size;
  }

  use(windows: readonly Window[]): void {
    if (!this.plan.has(windows)) this.plan = new Plan(windows);
  }

  /** The slot of a caller, or the overflow. */
  find(name: string): number {
    return this.#table.find(name);
  }

  /** The slot of any caller. There is one. */
  any(): number {
    this.#dice = (Math.imul(this.#dice, 1_664_525) + 1_013_904_223) | 0;
    return 1 + Math.floor(((this.#dice >>> 0) / 2 ** 32) * this.size);
  }

  /** A slot for the caller who was just looked for and not found. Its block is opened. */
  add(): number {
    const { plan } = this.#pools[OVERFLOW]!;
    const histories = this.#histories(OVERFLOW);
    const last = this.#last(OVERFLOW);
    const slot = this.#table.add();
    this.#write(slot, plan, last, histories);
    return slot;
  }

  /** The caller was just admitted. */
  touch(slot: number): void {
    if (slot !== OVERFLOW) this.#table.touch(slot);
  }

  open(slot: number): void {
    const block = this.#table.block(slot);
    this.pool = this.#pools[slot]!;
    this.page = this.pool.page(block);
    this.at = this.pool.start(block);
  }

  /** Makes room for one more admission. */
  widen(slot: number): void {
    this.#write(slot, this.#pools[slot]!.plan, this.#last(slot), this.#histories(slot));
  }

  /**
   * Rewrites a caller's marks for other windows, matched by name: the newest admissions up to the new limit are kept, in batches of
   * the new size. An admission's time only ever moves later (to that of the latest in its batch), so a reload refills nothing. What
   * stood beyond a lowered limit is gone, though: should the limit be raised again within the window, it is not remembered.
   */
  convert(slot: number, plan: Plan): void {
    const before = this.#pools[slot]!.plan;
    if (before === plan) return;
    const histories = this.#histories(slot);
    const converted = plan.windows.map((window) => {
      const same = before.windows.findIndex(({ name }) => name === window.name);
      return merged(window, same === -1 ? [] : [histories[same]!]);
    });
    this.#write(slot, plan, this.#last(slot), converted);
  }

  /** Forgets a few callers whose windows have run out: two, so that a decision, which adds at most one, always gains ground. */
  forget(now: number, longestMs: number): void {
    for (let i = 0; i < 2; i++) {
      const { oldest } = this.#table;
      if (oldest === 0 || now - this.#last(oldest) < longestMs) return;
      this.#drop(oldest);
    }
  }

  /** Forgets a caller who is live: the overflow holds at least what the caller has used from now on. Both are written by the same plan. */
  evict(slot: number): void {
    const { plan } = this.#pools[OVERFLOW]!;
    const own = this.#histories(slot);
    const both = this.#histories(OVERFLOW).map((history, w) => merged(plan.windows[w]!, [history, own[w]!]));
    const last = Math.max(this.#last(slot), this.#last(OVERFLOW));
    this.#drop(slot);
    this.#write(OVERFLOW, plan, last, both);
  }

  /** Whether nobody's windows hold anything any more. */
  hasRunOut(now: number): boolean {
    return [this.#table.newest, OVERFLOW].every((slot) => now - this.#last(slot) >= this.#pools[slot]!.plan.longestMs);
  }

  #drop(slot: number): void {
    this.#free(slot);
    const moved = this.#table.remove(slot);
    const pool = this.#pools.pop()!;
    if (moved === slot) return;
    this.#pools[slot] = pool;
    this.open(slot);
    this.page[this.at + SLOT] = slot;
  }

  #free(slot: number): void {
    const block = this.#table.block(slot);
    this.#table.setBlock(this.#pools[slot]!.give(block), block);
  }

  #last(slot: number): number {
    this.open(slot);
    return this.page[this.at + LAST]!;
  }

  #histories(slot: number): History[] {
    this.open(slot);
    const { pool, page, at } = this;
    return pool.plan.batches.map((batch, w) => {
      const used = page[at + USED + w]!;
      const marks = at + pool.marksAt[w]!;
      return { times: page.slice(marks, marks + Math.ceil(used / batch)), used, batch };
    });
  }

  /** Writes the block of a slot, with room for one more admission in each window, and opens it. */
  #write(slot: number, plan: Plan, last: number, histories: readonly History[]): void {
    const pool = plan.poolFor(histories.map(({ used }) => used));
    if (this.#pools[slot] !== pool) {
      if (this.#pools[slot] !== undefined) this.#free(slot);
      this.#pools[slot] = pool;
      this.#table.setBlock(slot, pool.take());
    }
    this.open(slot);
    const { page, at } = this;
    page[at + LAST] = last;
    page[at + SLOT] = slot;
    histories.forEach(({ times, used }, w) => {
      page[at + USED + w] = used;
      page.set(times, at + pool.marksAt[w]!);
    });
  }
}

const NOTHING: History = { times: [], used: 0, batch: 1 };
