/**
 * Counts requests in this process: sliding windows, exact up to 64 requests, in bounded memory.
 */
import { randomInt } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { CallerTable, LAST, merged, mostBytesOf, Plan, SLOT, USED, type BlockPool, type History, type Secret } from "./caller_storage.ts";
import type { Decision, Limiter, LimiterOptions, Window } from "./counters.ts";

export type MemoryCounters = ReturnType<typeof memoryCounters>;

export function memoryCounters(clock: Clock, secret: Secret = [randomInt(2 ** 32) | 0, randomInt(2 ** 32) | 0]) {
  const all = new Map<string, Callers>();
  return {
    /** Limiters of one key share its callers: a new one with other windows leaves older ones as they were until it is asked. */
    limiter(key: string, { windows, maxCallers }: LimiterOptions): MemoryLimiter {
      let callers = all.get(key);
      if (callers === undefined) all.set(key, (callers = new Callers(windows, secret)));
      else callers.use(windows);
      return new MemoryLimiter(clock, callers, maxCallers);
    },
    /** Forgets the limiters that no configuration asks for any more, once all their callers' windows have run out. */
    retire(keysInUse: ReadonlySet<string>): void {
      const now = clock.now();
      for (const [key, callers] of all) if (!keysInUse.has(key) && callers.hasRunOut(now)) all.delete(key);
    },
    /** How much is remembered now. */
    get size(): { readonly limiters: number; readonly callers: number } {
      let callers = 0;
      for (const { table } of all.values()) callers += table.size;
      return { limiters: all.size, callers };
    },
    /** The callers of each limiter, by its key, and how many decisions were made for callers without a slot of their own. */
    *tables() {
      for (const [key, { table, shared }] of all) yield [key, { callers: table.size, shared }] as const;
    },
  };
}

/** How many callers a full limiter checks to forget one. If nine in ten could not be forgotten, it would still find one in most cases. */
const CANDIDATES = 8;
/** Share of a limit beyond which a caller is not forgotten. */
const MOST_EVICTED = 0.5;

export class MemoryLimiter implements Limiter {
  readonly #clock: Clock;
  readonly #callers: Callers;
  readonly #plan: Plan;
  readonly #maxCallers: number;
  readonly #decision: { admitted: boolean; remaining: number[]; resetMs: number[]; retryMs: number };

  constructor(clock: Clock, callers: Callers, maxCallers: number) {
    this.#clock = clock;
    this.#callers = callers;
    this.#plan = callers.plan;
    this.#maxCallers = maxCallers;
    const zeros = () => this.#plan.windows.map(() => 0);
    this.#decision = { admitted: true, remaining: zeros(), resetMs: zeros(), retryMs: 0 };
  }

  decide(name: string): Decision {
    const now = this.#clock.now();
    const callers = this.#callers;
    callers.forget(now, this.#plan.longestMs);
    // An unknown caller is judged by the overflow, and gets a slot, or shares the overflow, only if that admits the request.
    let slot = callers.table.find(name);
    const hasRoom = this.#look(slot, now);
    if (this.#decision.admitted) {
      if (slot === OVERFLOW && (callers.table.size < this.#maxCallers || this.#evict(now))) slot = callers.add();
      else if (!hasRoom) callers.widen(slot);
      // The slot's block is the one that was opened last, whatever happened above.
      this.#record(now);
      if (slot !== OVERFLOW) callers.table.touch(slot);
    }
    if (slot === OVERFLOW) callers.shared++;
    return this.#decision;
  }

  /**
   * Samples a few callers and evicts the one that has used the smallest share of a limit, so that a flood of new callers does not lock
   * others out. A caller that has used more than half of a limit is never evicted: new callers start with the usage of evicted ones, and
   * must have at least half of each limit left. Returns false when no caller was evicted. `#decision` is about the overflow, before and after.
   */
  #evict(now: number): boolean {
    const callers = this.#callers;
    // A caller who has used no more than the usage that new callers start with loses nothing: the search ends.
    const enough = this.#share();
    let victim = 0;
    let least = MOST_EVICTED;
    for (let i = 0; i < CANDIDATES && (victim === 0 || least > enough); i++) {
      const slot = callers.any();
      this.#look(slot, now);
      const used = this.#share();
      if (used > least || (used === least && victim !== 0)) continue;
      least = used;
      victim = slot;
    }
    if (victim !== 0) callers.evict(victim);
    this.#look(OVERFLOW, now);
    return victim !== 0;
  }

  /** How much of a limit is used by the caller whom the decision is about, from 0 to 1; of the limit of which it is most. */
  #share(): number {
    const { remaining } = this.#decision;
    let most = 0;
    for (let w = 0; w < remaining.length; w++) most = Math.max(most, 1 - remaining[w]! / this.#plan.windows[w]!.limit);
    return most;
  }

  /**
   * Opens a caller's block, drops the marks that have left their windows, and fills in the decision. Returns whether there is room for one
   * more admission.
   */
  #look(slot: number, now: number): boolean {
    const { windows, batches } = this.#plan;
    const decision = this.#decision;
    this.#callers.convert(slot, this.#plan);
    this.#callers.open(slot);
    const { page, at, pool } = this.#callers;
    let hasRoom = true;
    decision.retryMs = 0;
    for (let w = 0; w < windows.length; w++) {
      const { limit, ms } = windows[w]!;
      const marks = at + pool.marksAt[w]!;
      const batch = batches[w]!;
      let used = page[at + USED + w]!;
      const end = marks + Math.ceil(used / batch);
      let first = marks;
      while (first < end && now - page[first]! >= ms) first++;
      if (first > marks) {
        // Every mark except the newest counts a whole batch.
        page[at + USED + w] = used = first === end ? 0 : used - (first - marks) * batch;
        for (let mark = marks; first < end; mark++, first++) page[mark] = page[first]!;
      }
      const resetMs = used === 0 ? 0 : ms - (now - page[marks]!); // in this order it cannot round to 0
      decision.remaining[w] = limit - used;
      decision.resetMs[w] = resetMs;
      if (used >= limit && resetMs > decision.retryMs) decision.retryMs = resetMs;
      if (Math.floor(used / batch) >= pool.room) hasRoom = false;
    }
    decision.admitted = decision.retryMs === 0;
    return hasRoom;
  }

  /** Counts one admission in every window of the open block, and the decision with it. There is room for it. */
  #record(now: number): void {
    const { windows, batches } = this.#plan;
    const decision = this.#decision;
    const { page, at, pool } = this.#callers;
    for (let w = 0; w < windows.length; w++) {
      const used = page[at + USED + w]!;
      const mark = Math.floor(used / batches[w]!);
      page[at + pool.marksAt[w]! + mark] = now;
      page[at + USED + w] = used + 1;
      decision.remaining[w]!--;
      // Untouched before, or its only mark was moved to now: the oldest mark is this one.
      if (mark === 0) decision.resetMs[w] = windows[w]!.ms;
    }
    page[at + LAST] = now;
  }
}

/** The most memory that a caller may take, in bytes, with every window full. The last term: the array of pools, while it grows. */
export function bytesOfCaller(windows: readonly Window[]): number {
  return mostBytesOf(windows) + CallerTable.BYTES + 24;
}

/**
 * The slot of the overflow: at least what each caller without a slot of its own has used. A caller that gets a slot starts
 * with this usage, since it may have caused it: a new slot gives no new quota. In normal operation the overflow is empty.
 */
const OVERFLOW = 0;

/** The usage of the callers of one limiter, kept across changes of its windows. */
class Callers {
  plan: Plan;
  /** Decisions that were made by the overflow. */
  shared = 0;
  /** The block that was opened last: its pool, the page it is in, and where it begins there. Valid until a block is written or dropped. */
  pool!: BlockPool;
  page!: Float64Array;
  at = 0;
  /** Slots by name; 0, where a caller has none, is the overflow. */
  readonly table: CallerTable;
  /** By slot: the pool of its block. The pool has the plan that the block was written with: an older plan until the caller is next seen. */
  readonly #pools: BlockPool[] = [];
  #dice: number;

  constructor(windows: readonly Window[], secret: Secret) {
    this.plan = new Plan(windows);
    this.table = new CallerTable(secret);
    this.#dice = secret[0];
    this.#write(OVERFLOW, this.plan, -Infinity, windows.map(() => NOTHING));
  }

  use(windows: readonly Window[]): void {
    if (!this.plan.has(windows)) this.plan = new Plan(windows);
  }

  /** The slot of any caller. There is one. */
  any(): number {
    this.#dice = (Math.imul(this.#dice, 1_664_525) + 1_013_904_223) | 0;
    return 1 + Math.floor(((this.#dice >>> 0) / 2 ** 32) * this.table.size);
  }

  /** A slot for the caller of the last search, which found none. Its block is opened. */
  add(): number {
    const { plan } = this.#pools[OVERFLOW]!;
    const histories = this.#histories(OVERFLOW);
    const last = this.#last(OVERFLOW);
    const slot = this.table.add();
    this.#write(slot, plan, last, histories);
    return slot;
  }

  open(slot: number): void {
    const block = this.table.block(slot);
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
   * the new size. The time of an admission can only become later (the time of the latest in its batch), so a reload never refills a limit.
   * Admissions beyond a lowered limit are dropped: they do not count if the limit is raised again within the window.
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
      const { oldest } = this.table;
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

  /** Whether all windows of all callers are empty. */
  hasRunOut(now: number): boolean {
    return [this.table.newest, OVERFLOW].every((slot) => now - this.#last(slot) >= this.#pools[slot]!.plan.longestMs);
  }

  #drop(slot: number): void {
    this.#free(slot);
    const moved = this.table.remove(slot);
    const pool = this.#pools.pop()!;
    if (moved === slot) return;
    this.#pools[slot] = pool;
    this.open(slot);
    this.page[this.at + SLOT] = slot;
  }

  #free(slot: number): void {
    const block = this.table.block(slot);
    this.table.setBlock(this.#pools[slot]!.give(block), block);
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
      this.table.setBlock(slot, pool.take());
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
