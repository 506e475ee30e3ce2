/**
 * Counts requests in this program: sliding windows, exact up to 64 requests, in bounded memory, which its threads may share.
 */
import { randomInt } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { BATCH, bytesOf, CallerTable, NAME, NEXT, Plan, shardsFor, USED, WINDOWS, LAST, LIFE, type Callers, type Secret } from "./callers.ts";
import type { Decision, GiveMemory, Limiter, LimiterOptions } from "./counters.ts";

export type MemoryCounters = ReturnType<typeof memoryCounters>;

/** `owner` marks the locks of this thread in memory that it shares: `Threads.id`. */
export function memoryCounters(clock: Clock, secret: Secret = [randomInt(2 ** 32) | 0, randomInt(2 ** 32) | 0], owner = 1) {
  const all = new Map<string, CallerTable>();

  /** The table of a key in shared memory, with as many parts as the options need, or as threads use. */
  function sharedTable(key: string, options: LimiterOptions, memory: GiveMemory): CallerTable {
    const known = all.get(key);
    const shards = shardsFor(options.maxCallers);
    const part = memory(`rate limit ${key} 0`, bytesOf(options, shards), known?.part(0));
    // Another thread may have forgotten the limiter meanwhile, and made it again.
    const table = known?.part(0) === part ? known : new CallerTable(secret, { part, shards, owner });
    const needed = bytesOf(options, table.shards.length) / part.byteLength;
    for (let n = 1; n < Math.max(needed, table.partsInUse); n++) table.setPart(n, memory(`rate limit ${key} ${n}`, part.byteLength, table.part(n)));
    return table;
  }

  return {
    /** Limiters of one key share its callers, whatever their windows. Without `memory`, only this thread has them. */
    limiter(key: string, options: LimiterOptions, memory?: GiveMemory): MemoryLimiter {
      const table = memory === undefined ? (all.get(key) ?? new CallerTable(secret)) : sharedTable(key, options, memory);
      all.set(key, table);
      return new MemoryLimiter(clock, table, options);
    },
    /** Forgets the limiters that no configuration asks for any more, once all their callers' windows have run out. */
    retire(keysInUse: ReadonlySet<string>): void {
      const now = clock.now();
      for (const [key, table] of all) if (!keysInUse.has(key) && table.hasRunOut(now)) all.delete(key);
    },
    /** Frees the locks of a thread that has ended, and repairs what it was about to change. */
    repair(dead: number): void {
      for (const { shards } of all.values()) for (const shard of shards) shard.repair(dead);
    },
    /** How much is remembered now. */
    get size(): { readonly limiters: number; readonly callers: number } {
      let callers = 0;
      for (const { size } of all.values()) callers += size;
      return { limiters: all.size, callers };
    },
    /** The callers of each limiter, by its key, and how many decisions were made for callers without a place of their own. */
    *tables() {
      for (const [key, { size, shared }] of all) yield [key, { callers: size, shared }] as const;
    },
  };
}

/** How many callers a full limiter checks to forget one. If nine in ten could not be forgotten, it would still find one in most cases. */
const CANDIDATES = 8;
/** Share of a limit beyond which a caller is not forgotten. */
const MOST_EVICTED = 0.5;

export class MemoryLimiter implements Limiter {
  readonly #clock: Clock;
  readonly #table: CallerTable;
  readonly #plan: Plan;
  readonly #maxCallers: number;
  readonly #decision: { admitted: boolean; remaining: number[]; resetMs: number[]; retryMs: number };

  constructor(clock: Clock, table: CallerTable, { windows, maxCallers }: LimiterOptions) {
    this.#clock = clock;
    this.#table = table;
    this.#plan = new Plan(windows, table.capacity);
    this.#maxCallers = maxCallers;
    const zeros = () => windows.map(() => 0);
    this.#decision = { admitted: true, remaining: zeros(), resetMs: zeros(), retryMs: 0 };
  }

  decide(name: string): Decision {
    const callers = this.#table.shard(name);
    callers.enter();
    try {
      // Read here: the marks of a window are in the order of their times.
      const now = this.#clock.now();
      callers.makeRoom(now, this.#plan);
      // An unknown caller is judged by the overflow, and gets a place, or shares the overflow, only if that admits the request.
      let caller = callers.find();
      this.#look(callers, caller, now);
      if (this.#decision.admitted) {
        if (caller === callers.overflow && (this.#table.size < this.#maxCallers || this.#evict(callers, now))) caller = callers.add(this.#plan);
        this.#record(callers, caller, now);
        if (caller !== callers.overflow) callers.touch(caller);
      }
      if (caller === callers.overflow) callers.countShared();
    } finally {
      callers.leave();
    }
    return this.#decision;
  }

  /**
   * Samples a few callers and evicts the one that has used the smallest share of a limit, so that a flood of new callers does not lock
   * others out. A caller that has used more than half of a limit is never evicted: new callers start with the usage of evicted ones, and
   * must have at least half of each limit left. Returns false when no caller was evicted. `#decision` is about the overflow, before and after.
   */
  #evict(callers: Callers, now: number): boolean {
    // A caller who has used no more than the usage that new callers start with loses nothing: the search ends.
    const enough = this.#share();
    let victim = callers.overflow;
    let least = MOST_EVICTED;
    for (let i = 0; i < CANDIDATES && callers.size > 0 && (victim === callers.overflow || least > enough); i++) {
      const caller = callers.any();
      this.#look(callers, caller, now);
      const used = this.#share();
      if (used > least || (used === least && victim !== callers.overflow)) continue;
      least = used;
      victim = caller;
    }
    if (victim !== callers.overflow) callers.evict(victim, this.#plan);
    this.#look(callers, callers.overflow, now);
    return victim !== callers.overflow;
  }

  /** How much of a limit is used by the caller whom the decision is about, from 0 to 1; of the limit of which it is most. */
  #share(): number {
    const { remaining } = this.#decision;
    let most = 0;
    for (let w = 0; w < remaining.length; w++) most = Math.max(most, 1 - remaining[w]! / this.#plan.windows[w]!.limit);
    return most;
  }

  /** Drops the marks of a caller that have left their windows, and fills in the decision. */
  #look(callers: Callers, caller: number, now: number): void {
    const { windows, names, batches } = this.#plan;
    const table = this.#table;
    const decision = this.#decision;
    decision.retryMs = 0;
    let window = table.word(caller, WINDOWS);
    for (let w = 0; w < windows.length; w++) {
      const { limit, ms } = windows[w]!;
      if (window === 0 || table.word(window, NAME) !== names[w] || table.number(window, BATCH) !== batches[w] || table.number(window, USED) > limit) {
        callers.convert(caller, this.#plan);
        return this.#look(callers, caller, now);
      }
      const used = callers.expire(window, now, ms);
      const resetMs = used === 0 ? 0 : ms - (now - callers.oldest); // in this order it cannot round to 0
      decision.remaining[w] = limit - used;
      decision.resetMs[w] = resetMs;
      if (used >= limit && resetMs > decision.retryMs) decision.retryMs = resetMs;
      window = table.word(window, NEXT);
    }
    if (window !== 0) {
      callers.convert(caller, this.#plan);
      return this.#look(callers, caller, now);
    }
    decision.admitted = decision.retryMs === 0;
  }

  /** Counts one admission in every window of a caller, and the decision with it. */
  #record(callers: Callers, caller: number, now: number): void {
    const { windows, life } = this.#plan;
    const table = this.#table;
    const decision = this.#decision;
    table.setNumber(caller, LAST, now);
    table.setWord(caller, LIFE, life);
    let window = table.word(caller, WINDOWS);
    for (let w = 0; w < windows.length; w++) {
      // Untouched before, or its only mark was moved to now: the oldest mark is this one.
      if (callers.record(window, now)) decision.resetMs[w] = windows[w]!.ms;
      decision.remaining[w]!--;
      window = table.word(window, NEXT);
    }
  }
}
