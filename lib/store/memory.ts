/**
 * Counts requests in this process: sliding windows, exact up to 64 requests, in bounded memory.
 */
import { randomInt } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { LAST, USED, type Plan } from "./block_pool.ts";
import type { Secret } from "./caller_hash.ts";
import { Callers, OVERFLOW } from "./callers.ts";
import type { Decision, Limiter, LimiterOptions } from "./counters.ts";

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
      for (const { size } of all.values()) callers += size;
      return { limiters: all.size, callers };
    },
    /** The callers of each limiter, by its key, and how many decisions were made for callers without a slot of their own. */
    *tables() {
      for (const [key, { size, shared }] of all) yield [key, { callers: size, shared }] as const;
    },
  };
}

/** How many callers a full limiter looks at to forget one. Were nine in ten of no use, it would still find one more often than not. */
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
    let slot = callers.find(name);
    const hasRoom = this.#look(slot, now);
    if (this.#decision.admitted) {
      if (slot === OVERFLOW && (callers.size < this.#maxCallers || this.#evict(now))) slot = callers.add();
      else if (!hasRoom) callers.widen(slot);
      // The slot's block is the one that was opened last, whatever happened above.
      this.#record(now);
      callers.touch(slot);
    }
    if (slot === OVERFLOW) callers.shared++;
    return this.#decision;
  }

  /**
   * Forgets, of a few callers, the one who has used the smallest share of a limit, so that a flood of new callers does not lock others out.
   * No caller is forgotten who has used more than half of a limit: new callers start with what a forgotten one has used, and at least half of
   * each limit is to be left to them. Returns false when nobody is forgotten. The decision is about the overflow afterwards, as before.
   */
  #evict(now: number): boolean {
    const callers = this.#callers;
    // A caller who has used no more than new callers start with loses nothing: no better candidate is looked for.
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
        // Every mark but the newest stands for a whole batch.
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
