/**
 * Keeps rate counters in this process: sliding windows, exact up to 64 requests, in bounded memory.
 * Who a caller is, and what a refusal looks like, is the plugin's affair.
 *
 * A window of a caller is a ring of at most 64 marks. A mark stands for `batch` admissions, where batch = ceil(limit / 64), and bears
 * the time of the latest of them. So a mark leaves the window with its youngest admission: the count errs towards refusing, by at
 * most batch - 1 < limit / 64, and never towards admitting. For limits up to 64 a mark is one admission and the count is exact.
 * Every mark but the newest is full, so that one number, how full the newest is, gives the count of a whole ring.
 *
 * All that is remembered of a caller stands in one block: with many callers a decision costs what the memory takes to answer,
 * and objects that refer to one another are asked for one after the other.
 */
import { randomInt } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { Blocks, within } from "./blocks.ts";
import type { Counters, Decision, Limiter, LimiterOptions, Window } from "./counters.ts";
import { countOf, MOST_INTS, Name, type Secret } from "./caller_hash.ts";
import { Places } from "./caller_index.ts";
import { atLeast, MOST_MARKS, regrouped, ringBits, type Ring } from "./window_marks.ts";

export interface MemoryLimiter extends Limiter {
  decide(caller: string): Decision;
}

export interface MemoryCounters extends Counters {
  limiter(key: string, options: LimiterOptions): MemoryLimiter;
  /** Forgets the limiters that no configuration asks for any more, once all their callers' windows have run out. */
  retire(keysInUse: ReadonlySet<string>): void;
  /** How much is remembered now. */
  readonly size: { readonly limiters: number; readonly callers: number };
  /** The same for each limiter, by its key, and how many decisions were made for callers without a place of their own. */
  tables(): Iterable<readonly [key: string, table: { readonly callers: number; readonly shared: number }]>;
}

/** `limiter` gives a view of its key's ledger: a new view with other windows leaves older views as they were until it is asked. */
export function memoryCounters(clock: Clock, secret: Secret = [randomInt(2 ** 32) | 0, randomInt(2 ** 32) | 0]): MemoryCounters {
  const ledgers = new Map<string, Ledger>();
  return {
    limiter(key, options) {
      let ledger = ledgers.get(key);
      if (ledger === undefined) ledgers.set(key, (ledger = new Ledger(options.windows, secret)));
      else ledger.use(options.windows);
      return new View(clock, ledger, options.maxCallers);
    },
    retire(keysInUse) {
      const now = clock.now();
      for (const [key, ledger] of ledgers) if (!keysInUse.has(key) && ledger.runOut(now)) ledgers.delete(key);
    },
    get size() {
      let callers = 0;
      for (const ledger of ledgers.values()) callers += ledger.places.callers;
      return { limiters: ledgers.size, callers };
    },
    *tables() {
      for (const [key, { places, shared }] of ledgers) yield [key, { callers: places.callers, shared }] as const;
    },
  };
}

/** The most memory that a caller may take, in bytes: every window full, and the longest name. */
export function bytesOfCaller(windows: readonly Window[]): number {
  const inRings = windows.reduce((sum, { limit }) => sum + (1 << ringBits(limit)), 0);
  return 8 * (WINDOWS + 2 * windows.length + inRings + Math.ceil(MOST_INTS / 2) + 1) + Places.BYTES;
}

/** Windows with what follows from them. */
class Plan {
  readonly windows: readonly Window[];
  /** Admissions per mark, by window. */
  readonly batch: readonly number[];
  readonly longestMs: number;

  constructor(windows: readonly Window[]) {
    this.windows = windows;
    this.batch = windows.map((window) => Math.ceil(window.limit / MOST_MARKS));
    this.longestMs = Math.max(...windows.map((window) => window.ms));
  }

  has(windows: readonly Window[]): boolean {
    const same = (a: Window, b: Window | undefined) => b !== undefined && a.name === b.name && a.limit === b.limit && a.ms === b.ms;
    return windows.length === this.windows.length && windows.every((window, i) => same(window, this.windows[i]));
  }
}

/**
 * A block, in numbers of eight bytes: the time of the last admission; the caller's place; two numbers per window: its ring (size as
 * an exponent of two, index of the oldest mark, how many), and how full the newest mark is; then per window a ring of times. The
 * name ends where the block ends. So all that a decision reads begins where it is known to, and is fetched at one time.
 */
const LAST = 0;
/** In numbers of four bytes. */
const PLACE = 2;
const WINDOWS = 2;

function ringOf(bits: number, oldest: number, length: number): number {
  return (bits << 14) | (oldest << 7) | length;
}

const NOBODY = new Int32Array(0);
/** How many callers a full limiter looks at to forget one. Were nine in ten of no use, it would still find one more often than not. */
const CANDIDATES = 8;
/** Share of a limit beyond which a caller is not forgotten. */
const MOST_EVICTED = 0.5;

/** All callers of one plugin instance. */
class Ledger {
  /** The kind of a block is the plan its windows are written by: an older one than the ledger's until the caller is next seen. */
  readonly blocks = new Blocks<Plan>();
  readonly places = new Places(this.blocks, PLACE);
  plan: Plan;
  /**
   * At least what each caller without a place of his own has used. A caller who gets a place begins with what stands here, since it may
   * have been him: so moving there buys no quota. On an ordinary day nothing stands here.
   */
  overflow: number;
  /** Decisions that were made by it. */
  shared = 0;
  /** The name that was looked for last. */
  readonly #name: Name;
  #dice: number;

  constructor(windows: readonly Window[], secret: Secret) {
    this.plan = new Plan(windows);
    this.#name = new Name(secret);
    this.#dice = secret[0];
    this.overflow = this.#write(this.plan, -Infinity, NOBODY, windows.map(() => ({ times: [], newest: 0 })));
  }

  use(windows: readonly Window[]): void {
    if (!this.plan.has(windows)) this.plan = new Plan(windows);
  }

  /** Forgets a few callers whose windows have run out: two, so that a decision, which adds at most one, always gains ground. */
  forget(now: number, longestMs: number): void {
    for (let i = 0; i < 2; i++) {
      const { first } = this.places;
      if (first === 0 || now - this.#last(first) < longestMs) return;
      this.#drop(first);
    }
  }

  /** The block of a caller, or the overflow. */
  find(name: string): number {
    this.#name.read(name);
    return this.places.find(this.#name) || this.overflow;
  }

  /** A block for the caller who was just looked for, and had none. */
  add(): number {
    const { overflow } = this;
    const name = this.#name.ints.subarray(0, this.#name.count);
    const block = this.#write(this.blocks.page(overflow).kind, this.#last(overflow), name, this.#rings(overflow));
    this.places.add(this.#name, block);
    return block;
  }

  /** The place of any caller. There is one. */
  anyPlace(): number {
    this.#dice = (Math.imul(this.#dice, 1_664_525) + 1_013_904_223) | 0;
    return 1 + Math.floor(((this.#dice >>> 0) / 2 ** 32) * this.places.callers);
  }

  /** Forgets a caller who is live: the overflow holds at least what he has used from now on. Both are written by the same plan. */
  evict(block: number): void {
    const { kind } = this.blocks.page(block);
    const own = this.#rings(block);
    const before = this.#rings(this.overflow);
    const merged = before.map((ring, w) => atLeast(ring, own[w]!, kind.batch[w]!));
    const last = Math.max(this.#last(block), this.#last(this.overflow));
    this.#drop(block);
    if (merged.some((ring, w) => ring !== before[w])) this.overflow = this.#replace(this.overflow, kind, merged);
    this.blocks.page(this.overflow).numbers[within(this.overflow) + LAST] = last;
  }

  /** Writes a caller anew, so that there is room for one more mark in each ring. */
  widen(block: number): number {
    return this.#replace(block, this.blocks.page(block).kind, this.#rings(block));
  }

  /**
   * Rewrites a caller's marks for other windows, matched by name: the newest admissions up to the new limit are kept, in batches of
   * the new size. An admission's time only ever moves later (to that of the latest in its batch), so a reload refills nothing. What
   * stood beyond a lowered limit is gone, though: should the limit be raised again within the window, it is not remembered.
   */
  convert(block: number, plan: Plan): number {
    const before = this.blocks.page(block).kind;
    const rings = this.#rings(block);
    const converted = plan.windows.map((window, w) => {
      const same = before.windows.findIndex(({ name }) => name === window.name);
      if (same === -1) return { times: [], newest: 0 };
      return regrouped(rings[same]!, before.batch[same]!, window.limit, plan.batch[w]!);
    });
    return this.#replace(block, plan, converted);
  }

  /** Whether nobody's windows hold anything any more. */
  runOut(now: number): boolean {
    const gone = (block: number) => now - this.#last(block) >= this.blocks.page(block).kind.longestMs;
    const { last } = this.places;
    return (last === 0 || gone(last)) && gone(this.overflow);
  }

  #drop(block: number): void {
    this.places.remove(block);
    this.blocks.give(block, this.#moved);
  }

  #replace(block: number, plan: Plan, rings: readonly Ring[]): number {
    const { ints, size } = this.blocks.page(block);
    const end = 2 * (within(block) + size);
    const name = block === this.overflow ? NOBODY : ints.subarray(end - countOf(ints[end - 1]!), end);
    let at = this.#write(plan, this.#last(block), name, rings);
    this.#moved(block, at);
    this.blocks.give(block, (from, to) => {
      this.#moved(from, to);
      if (from === at) at = to;
    });
    return at;
  }

  readonly #moved = (from: number, to: number): void => {
    if (from === this.overflow) this.overflow = to;
    else this.places.replace(from, to);
  };

  /** A new block with room for one more mark in each ring. */
  #write(plan: Plan, last: number, name: Int32Array, rings: readonly Ring[]): number {
    const bits = rings.map(({ times, newest }, w) => ringBits(times.length + (newest < plan.batch[w]! ? 0 : 1)));
    const inRings = bits.reduce((sum, each) => sum + (1 << each), 0);
    const block = this.blocks.take(plan, WINDOWS + 2 * rings.length + inRings + ((name.length + 1) >> 1));
    const { numbers, ints, size } = this.blocks.page(block);
    const at = within(block);
    numbers[at + LAST] = last;
    ints.set(name, 2 * (at + size) - name.length);
    let meta = at + WINDOWS;
    let ring = meta + 2 * rings.length;
    for (let w = 0; w < rings.length; w++, meta += 2) {
      const { times, newest } = rings[w]!;
      numbers[meta] = ringOf(bits[w]!, 0, times.length);
      numbers[meta + 1] = newest;
      numbers.set(times, ring);
      ring += 1 << bits[w]!;
    }
    return block;
  }

  #rings(block: number): Ring[] {
    const { numbers, kind } = this.blocks.page(block);
    let meta = within(block) + WINDOWS;
    let ring = meta + 2 * kind.windows.length;
    return kind.windows.map(() => {
      const size = 1 << (numbers[meta]! >> 14);
      const oldest = (numbers[meta]! >> 7) & 127;
      const length = numbers[meta]! & 127;
      const newest = numbers[meta + 1]!;
      const times: number[] = [];
      for (let i = 0; i < length; i++) times.push(numbers[ring + ((oldest + i) & (size - 1))]!);
      meta += 2;
      ring += size;
      return { times, newest };
    });
  }

  #last(block: number): number {
    return this.blocks.page(block).numbers[within(block) + LAST]!;
  }
}

class View implements MemoryLimiter {
  readonly #clock: Clock;
  readonly #ledger: Ledger;
  readonly #plan: Plan;
  readonly #maxCallers: number;
  readonly #decision: { admitted: boolean; remaining: number[]; resetMs: number[]; retryMs: number };

  constructor(clock: Clock, ledger: Ledger, maxCallers: number) {
    this.#clock = clock;
    this.#ledger = ledger;
    this.#plan = ledger.plan;
    this.#maxCallers = maxCallers;
    const zeros = () => ledger.plan.windows.map(() => 0);
    this.#decision = { admitted: true, remaining: zeros(), resetMs: zeros(), retryMs: 0 };
  }

  decide(name: string): Decision {
    const now = this.#clock.now();
    const ledger = this.#ledger;
    const plan = this.#plan;
    ledger.forget(now, plan.longestMs);
    // A caller who is not known is judged by the overflow; only if that admits him does he get a place, or share it.
    let block = ledger.find(name);
    if (ledger.blocks.page(block).kind !== plan) block = ledger.convert(block, plan);
    const room = this.#look(block, now);
    if (this.#decision.admitted) {
      const isNew = block === ledger.overflow;
      if (isNew && (ledger.places.callers < this.#maxCallers || this.#evict(now))) block = ledger.add();
      else {
        if (isNew) block = ledger.overflow; // it may have been moved
        if (room === "full") block = ledger.widen(block);
      }
      this.#record(block, now);
      if (block !== ledger.overflow) ledger.places.touch(block);
    }
    if (block === ledger.overflow) ledger.shared++;
    return this.#decision;
  }

  /**
   * Forgets, of a few callers, the one who has used the smallest share of a limit, so that a flood of new callers does not lock others out.
   * No caller is forgotten who has used more than half of a limit: new callers start with what a forgotten one has used, and at least half of
   * each limit is to be left to them. Returns false when nobody is forgotten. The decision is about the overflow afterwards, as before.
   */
  #evict(now: number): boolean {
    const ledger = this.#ledger;
    // Who has used no more than new callers start with loses nothing: no better one is looked for.
    const enough = this.#share();
    let victim = 0;
    let least = MOST_EVICTED;
    for (let i = 0; i < CANDIDATES && (victim === 0 || least > enough); i++) {
      const place = ledger.anyPlace();
      let block = ledger.places.blockAt(place);
      if (ledger.blocks.page(block).kind !== this.#plan) block = ledger.convert(block, this.#plan);
      this.#look(block, now);
      const used = this.#share();
      if (used > least || (used === least && victim !== 0)) continue;
      least = used;
      victim = place;
    }
    if (victim !== 0) ledger.evict(ledger.places.blockAt(victim));
    this.#look(ledger.overflow, now);
    return victim !== 0;
  }

  /** How much of a limit is used by the decision's account, from 0 to 1; of the limit of which it is most. */
  #share(): number {
    const { remaining } = this.#decision;
    let most = 0;
    for (let w = 0; w < remaining.length; w++) most = Math.max(most, 1 - remaining[w]! / this.#plan.windows[w]!.limit);
    return most;
  }

  /** Drops the marks that have left their windows, and fills in the decision. Whether a ring is too small for one more admission. */
  #look(block: number, now: number): "full" | "roomy" {
    const { windows, batch } = this.#plan;
    const decision = this.#decision;
    const { numbers } = this.#ledger.blocks.page(block);
    const count = windows.length;
    let room: "full" | "roomy" = "roomy";
    decision.retryMs = 0;
    let meta = within(block) + WINDOWS;
    for (let w = 0, ring = meta + 2 * count; w < count; w++, meta += 2) {
      const window = windows[w]!;
      const before = numbers[meta]!;
      const newest = numbers[meta + 1]!;
      const bits = before >> 14;
      const size = 1 << bits;
      let oldest = (before >> 7) & 127;
      let length = before & 127;
      while (length > 0 && now - numbers[ring + oldest]! >= window.ms) {
        oldest = (oldest + 1) & (size - 1);
        length--;
      }
      numbers[meta] = ringOf(bits, oldest, length);
      const used = length === 0 ? 0 : (length - 1) * batch[w]! + newest;
      const resetMs = length === 0 ? 0 : window.ms - (now - numbers[ring + oldest]!); // in this order it cannot round to 0
      decision.remaining[w] = window.limit - used;
      decision.resetMs[w] = resetMs;
      if (used >= window.limit && resetMs > decision.retryMs) decision.retryMs = resetMs;
      if (length === size && newest >= batch[w]!) room = "full";
      ring += size;
    }
    decision.admitted = decision.retryMs === 0;
    return room;
  }

  /** Counts one admission in every window, and the decision with it. There is room for it. */
  #record(block: number, now: number): void {
    const { windows, batch } = this.#plan;
    const decision = this.#decision;
    const { numbers } = this.#ledger.blocks.page(block);
    const count = windows.length;
    const at = within(block);
    let meta = at + WINDOWS;
    for (let w = 0, ring = meta + 2 * count; w < count; w++, meta += 2) {
      const before = numbers[meta]!;
      const size = 1 << (before >> 14);
      const oldest = (before >> 7) & 127;
      const length = before & 127;
      const topUp = length > 0 && numbers[meta + 1]! < batch[w]!;
      const newest = topUp ? length - 1 : length;
      numbers[ring + ((oldest + newest) & (size - 1))] = now;
      if (!topUp) numbers[meta] = before + 1;
      numbers[meta + 1] = topUp ? numbers[meta + 1]! + 1 : 1;
      decision.remaining[w]!--;
      // Untouched before, or its only mark was moved to now: the oldest mark is this one.
      if (newest === 0) decision.resetMs[w] = windows[w]!.ms;
      ring += size;
    }
    numbers[at + LAST] = now;
  }
}
