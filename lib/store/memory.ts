/**
 * Counts requests in this program: sliding windows, exact up to 64 requests, in bounded memory. What its threads share
 * is `shared_callers.ts`.
 */
import { hash, randomInt } from "node:crypto";
import { LONGEST_TIMER_MS, type Clock, type Timer } from "../base/clock.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import { CallerShard } from "./callers.ts";
import {
  BATCH,
  BEGIN,
  FIRST,
  LAST,
  LIFE,
  MARKS,
  CALLER_NAME,
  NEXT,
  OVERFLOW,
  SHARED,
  SIZE,
  USED,
  WINDOWS,
} from "./cells.ts";
import type { CallerTable, HashSecret } from "./caller_tables.ts";
import type { Decision, GiveMemory, Limiter, LimiterOptions } from "./counters.ts";
import { planOf, type Plan } from "./marks.ts";

/** Makes the table of a limiter, or returns the known one. */
export type TableOf = (
  known: CallerTable | undefined,
  key: string,
  options: LimiterOptions,
  memory: GiveMemory | undefined,
) => CallerTable;

/** Without `tableOf` only this thread has the callers. */
export function memoryCounters(
  clock: Clock,
  secret = randomSecret(),
  tableOf: TableOf = (known) => known ?? new LocalTable(secret),
) {
  const all = new Map<string, CallerTable>();
  /** Of a configuration that is not in force yet. */
  const prepared = new Set<string>();
  let timer: Timer | null = null;
  /** What is under way, and no longer once another one begins. */
  let retiring: Generator<void, void> | null = null;
  function* retireSteps(keysInUse: ReadonlySet<string>): Generator<void, void> {
    const own = retiring;
    let next = Infinity;
    for (const [key, table] of all) {
      yield;
      if (retiring !== own) return;
      if (keysInUse.has(key) || prepared.has(key)) continue;
      const now = clock.now();
      const rest = Math.max(...table.shards.map((callers) => callers.restMs(now)));
      if (rest <= 0) all.delete(key);
      else next = Math.min(next, rest);
    }
    if (next === Infinity) return;
    timer = clock.after(Math.min(Math.ceil(next), LONGEST_TIMER_MS), () => {
      retiring = retireSteps(keysInUse);
      void inSlices(retiring, paced());
    });
  }
  return {
    all: all as ReadonlyMap<string, CallerTable>,
    /** Limiters of one key share its callers, whatever their windows. */
    limiter(key: string, options: LimiterOptions, memory?: GiveMemory): MemoryLimiter {
      const table = tableOf(all.get(key), key, options, memory);
      all.set(key, table);
      prepared.add(key);
      return new MemoryLimiter(clock, table, options);
    },
    /**
     * Forgets limiters that no configuration has once their windows have run out: now, in slices, and again whenever
     * those of another one may have.
     */
    retire(keysInUse: ReadonlySet<string>): void {
      for (const key of keysInUse) prepared.delete(key);
      timer?.cancel();
      retiring = retireSteps(keysInUse);
      void inSlices(retiring, paced());
    },
    /** The configuration that was to use them does not come into force. */
    abandon(keys: ReadonlySet<string>): void {
      for (const key of keys) prepared.delete(key);
    },
    close(): void {
      timer?.cancel();
      retiring = null;
    },
    /**
     * The callers of each limiter, by its key, and how many decisions were made for callers without a place of their
     * own.
     */
    *tables() {
      const shared = (shards: readonly CallerShard[]) => shards.reduce((sum, { numbers }) => sum + numbers[SHARED]!, 0);
      for (const [key, { size, shards }] of all) yield [key, { callers: size, shared: shared(shards) }] as const;
    },
  };
}

/**
 * How many callers a full limiter checks to forget one. If nine in ten could not be forgotten, it would still find one
 * in most cases.
 */
const CANDIDATES = 8;
/** Share of a limit beyond which a caller is not forgotten. */
const MAX_EVICTED = 0.5;

export class MemoryLimiter implements Limiter {
  protected readonly clock: Clock;
  protected readonly table: CallerTable;
  protected readonly plan: Plan;
  protected readonly decision: { admitted: boolean; remaining: number[]; resetMs: number[]; retryMs: number };

  constructor(clock: Clock, table: CallerTable, options: LimiterOptions, plan = planOf(options)) {
    this.clock = clock;
    this.table = table;
    this.plan = plan;
    const zeros = () => options.windows.map(() => 0);
    this.decision = { admitted: true, remaining: zeros(), resetMs: zeros(), retryMs: 0 };
  }

  decide(name: string): Decision {
    const callers = this.table.enter(name);
    try {
      // Read here: the marks of a window are in the order of their times.
      const now = this.clock.now();
      callers.makeRoom(now, this.plan);
      // An unknown caller is judged by the overflow, and gets a place, or shares the overflow, only if that admits the
      // request.
      let caller = callers.find();
      this.look(callers, caller, now);
      if (this.decision.admitted) caller = this.admit(callers, caller, now, 1);
      if (caller === OVERFLOW) callers.numbers[SHARED]!++;
    } finally {
      callers.leave();
    }
    return this.decision;
  }

  /** Counts for the caller, who gets a place if there is one. Returns it. */
  protected admit(callers: CallerShard, caller: number, now: number, cost: number): number {
    const isNew = caller === OVERFLOW && (this.table.size < this.plan.maxCallers || this.evict(callers, now));
    const placed = isNew ? callers.add(this.plan) : caller;
    this.record(callers, placed, now, cost);
    if (placed !== OVERFLOW) callers.touch(placed);
    return placed;
  }

  /**
   * Samples a few callers and evicts the one that has used the smallest share of a limit, so that a flood of new
   * callers does not lock others out. A caller that has used more than half of a limit is never evicted: new callers
   * start with the usage of evicted ones, and must have at least half of each limit left. Returns false when no caller
   * was evicted. `decision` is about the overflow, before and after.
   */
  protected evict(callers: CallerShard, now: number): boolean {
    // A caller who has used no more than the usage that new callers start with loses nothing: the search ends.
    const enough = this.share();
    let victim = OVERFLOW;
    let least = MAX_EVICTED;
    for (let i = 0; i < CANDIDATES && callers.words[SIZE]! > 0 && (victim === OVERFLOW || least > enough); i++) {
      const caller = callers.any();
      this.look(callers, caller, now);
      const used = this.share();
      if (used > least || (used === least && victim !== OVERFLOW)) continue;
      least = used;
      victim = caller;
    }
    if (victim !== OVERFLOW) callers.evict(victim, this.plan);
    this.look(callers, OVERFLOW, now);
    return victim !== OVERFLOW;
  }

  /**
   * How much of a limit is used by the caller whom the decision is about, from 0 to 1; of the limit of which it is
   * most.
   */
  protected share(): number {
    const { remaining } = this.decision;
    let most = 0;
    for (let w = 0; w < remaining.length; w++) most = Math.max(most, 1 - remaining[w]! / this.plan.windows[w]!.limit);
    return most;
  }

  /** Drops the marks of a caller that have left their windows, and fills in the decision. */
  protected look(callers: CallerShard, caller: number, now: number): void {
    const { windows, names, batches } = this.plan;
    const { words, numbers } = callers;
    const decision = this.decision;
    decision.retryMs = 0;
    let window = words[caller + WINDOWS]!;
    let w = 0;
    for (; w < windows.length; w++) {
      const { limit, ms } = windows[w]!;
      let used = numbers[window / 2 + USED]!;
      if (
        window === 0 ||
        words[window + CALLER_NAME] !== names[w] ||
        numbers[window / 2 + BATCH] !== batches[w] ||
        used > limit
      )
        break;
      let oldest = numbers[words[window + FIRST]! / 2 + MARKS + words[window + BEGIN]!]!;
      if (used > 0 && now - oldest >= ms) {
        used = callers.expire(window, now, ms);
        oldest = numbers[words[window + FIRST]! / 2 + MARKS + words[window + BEGIN]!]!;
      }
      const resetMs = used === 0 ? 0 : ms - (now - oldest); // in this order it cannot round to 0
      decision.remaining[w] = limit - used;
      decision.resetMs[w] = resetMs;
      if (used >= limit && resetMs > decision.retryMs) decision.retryMs = resetMs;
      window = words[window + NEXT]!;
    }
    decision.admitted = decision.retryMs === 0;
    if (w === windows.length && window === 0) return;
    // The caller was last seen with other windows.
    callers.convert(caller, this.plan);
    this.look(callers, caller, now);
  }

  /** Counts one admission in every window of a caller, and the decision with it. The cost is for limiters of costs. */
  protected record(callers: CallerShard, caller: number, now: number, _cost: number): void {
    const { windows, life } = this.plan;
    const decision = this.decision;
    callers.words[caller + LIFE] = life;
    callers.numbers[caller / 2 + LAST] = now;
    let window = callers.words[caller + WINDOWS]!;
    for (let w = 0; w < windows.length; w++) {
      // Untouched before, or its only mark was moved to now: the oldest mark is this one.
      if (callers.count(window, now, 1) === 0) decision.resetMs[w] = windows[w]!.ms;
      decision.remaining[w]!--;
      window = callers.words[window + NEXT]!;
    }
  }
}

/** Of the caller whose turn it is: a turn ends before the next one begins. */
const HASHED = new Int32Array(2);

/** A table of one shard. */
export class LocalTable implements CallerTable {
  readonly #callers = new CallerShard();
  readonly #secret: HashSecret;

  constructor(secret: HashSecret) {
    this.#secret = secret;
  }

  get shards() {
    return [this.#callers];
  }

  get size() {
    return this.#callers.words[SIZE]!;
  }

  enter(name: string) {
    hashName(name, this.#secret, HASHED);
    this.#callers.enter(HASHED);
    return this.#callers;
  }
}

export function randomSecret(): HashSecret {
  return [randomInt(2 ** 32) | 0, randomInt(2 ** 32) | 0];
}

/** Longer names go through SHA-256 first: a header of 16 kB would take too long here. */
const LONGEST = 64;

/**
 * Writes the two halves of a name's hash. As UTF-16: in UTF-8 all lone surrogates, which may occur in a JWT's subject,
 * would be equal.
 */
export function hashName(name: string, secret: HashSecret, result: Int32Array): void {
  halfSipHash(name.length > LONGEST ? hash("sha256", Buffer.from(name, "utf16le"), "base64url") : name, secret, result);
}

/**
 * HalfSipHash-1-3 (https://github.com/veorq/SipHash) of a text in UTF-16, two code units a word. The first half is the
 * hash of 32 bits that Linux uses for its tables; the second one comes after three more rounds, as in the variant of 64
 * bits.
 */
function halfSipHash(text: string, [k0, k1]: HashSecret, result: Int32Array): void {
  let v0 = k0;
  let v1 = k1;
  let v2 = 0x6c796765 ^ k0;
  let v3 = 0x74656462 ^ k1;
  const last = text.length >> 1;
  for (let i = 0; i < last + 7; i++) {
    let word = 0;
    if (i < last) word = text.charCodeAt(2 * i) | (text.charCodeAt(2 * i + 1) << 16);
    else if (i === last)
      word = (text.length & 1 ? text.charCodeAt(2 * i) : 0) | (text.length << 25); // with the length in bytes
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
