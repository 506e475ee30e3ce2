/**
 * Keeps rate counters in this process: sliding windows, exact up to 64 requests, in bounded memory.
 * Who a caller is, and what a refusal looks like, is the plugin's affair.
 *
 * A window of a caller is a ring of at most 64 marks. A mark stands for `batch` admissions, where batch = ceil(limit / 64), and bears
 * the time of the latest of them. So a mark leaves the window with its youngest admission: the count errs towards refusing, by at
 * most batch - 1 < limit / 64, and never towards admitting. For limits up to 64 a mark is one admission and the count is exact.
 * Every mark but the newest is full, so that one number, how full the newest is, gives the count of a whole ring.
 */
import { hash } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import type { Counters, Decision, Limiter, LimiterOptions, Window } from "./counters.ts";

const MOST_MARKS = 64;

export interface MemoryLimiter extends Limiter {
  decide(caller: string): Decision;
}

export interface MemoryCounters extends Counters {
  limiter(key: string, options: LimiterOptions): MemoryLimiter;
  /** Forgets the limiters that no configuration asks for any more, once all their callers' windows have run out. */
  retire(keysInUse: ReadonlySet<string>): void;
  /** How much is remembered now. */
  readonly size: { readonly limiters: number; readonly callers: number };
}

/** `limiter` gives a view of its key's ledger: a new view with other windows leaves older views as they were until it is asked. */
export function memoryCounters(clock: Clock): MemoryCounters {
  const ledgers = new Map<string, Ledger>();
  return {
    limiter(key, options) {
      let ledger = ledgers.get(key);
      if (ledger === undefined) ledgers.set(key, (ledger = new Ledger(options.windows)));
      else ledger.use(options.windows);
      return new View(clock, ledger, options.maxCallers);
    },
    retire(keysInUse) {
      const now = clock.now();
      for (const [key, ledger] of ledgers) if (!keysInUse.has(key) && ledger.runOut(now)) ledgers.delete(key);
    },
    get size() {
      let callers = 0;
      for (const ledger of ledgers.values()) callers += ledger.callers.size;
      return { limiters: ledgers.size, callers };
    },
  };
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
 * What is remembered of one caller; also a link of the ledger's list.
 *
 * `marks` is one flat array of numbers, so that a quiet caller costs two small objects (under 300 bytes with key and map entry):
 * [time of the last admission; then two per window: where its marks are (index of the oldest * 128 + how many) and how full the
 * newest is; then per window a ring of times]. All rings of a caller have one size, a power of two that doubles when one is full.
 */
class Caller {
  readonly key: string;
  /** By which the marks are to be read; an older one than the ledger's until the caller is next seen. */
  plan: Plan;
  marks: number[];
  previous: Caller = this;
  next: Caller = this;

  constructor(key: string, plan: Plan, marks: number[]) {
    this.key = key;
    this.plan = plan;
    this.marks = marks;
  }
}

/** All callers of one plugin instance, in a ring of links ordered by last admission: the first is the first whose windows run out. */
class Ledger {
  readonly callers = new Map<string, Caller>();
  plan: Plan;
  /**
   * What callers without a place of their own are counted in together. A caller who gets a place begins with what stands here,
   * since it may have been him: so moving there buys no quota. On an ordinary day nothing stands here.
   */
  readonly overflow: Caller;
  /** The link between last and first. */
  readonly #ends: Caller;

  constructor(windows: readonly Window[]) {
    this.plan = new Plan(windows);
    this.overflow = new Caller("", this.plan, blankMarks(windows.length, 1));
    this.#ends = new Caller("", this.plan, []);
  }

  use(windows: readonly Window[]): void {
    if (!this.plan.has(windows)) this.plan = new Plan(windows);
  }

  /** Forgets a few callers whose windows have run out: two, so that a decision, which adds at most one, always gains ground. */
  forget(now: number, longestMs: number): void {
    for (let i = 0; i < 2; i++) {
      const first = this.#ends.next;
      if (first === this.#ends || now - first.marks[0]! < longestMs) return;
      unlink(first);
      this.callers.delete(first.key);
    }
  }

  /** A place for a caller who had none. */
  add(name: string): Caller {
    const key = copied(name);
    const { plan, marks } = this.overflow;
    const caller = new Caller(key, plan, resized(marks, plan.windows.length, ringSize(longestRing(marks, plan.windows.length))));
    this.callers.set(key, caller);
    return caller;
  }

  /** Puts the caller last: he was just admitted. */
  touch(caller: Caller): void {
    const ends = this.#ends;
    if (ends.previous === caller) return;
    unlink(caller);
    caller.previous = ends.previous;
    caller.next = ends;
    ends.previous.next = caller;
    ends.previous = caller;
  }

  /** Whether nobody's windows hold anything any more. */
  runOut(now: number): boolean {
    const last = this.#ends.previous;
    const gone = (caller: Caller) => now - caller.marks[0]! >= caller.plan.longestMs;
    return (last === this.#ends || gone(last)) && gone(this.overflow);
  }
}

function unlink(caller: Caller): void {
  caller.previous.next = caller.next;
  caller.next.previous = caller.previous;
  caller.previous = caller.next = caller;
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
    const key = name.length > LONGEST_KEY ? shortened(name) : name;
    // Whoever is not known is judged by the overflow; only if that admits him does he get a place, or share it.
    let caller = ledger.callers.get(key) ?? ledger.overflow;
    if (caller.plan !== plan) convert(caller, plan);
    if (this.#look(caller.marks, now)) {
      if (caller === ledger.overflow && ledger.callers.size < this.#maxCallers) caller = ledger.add(key);
      this.#record(caller, now);
      if (caller !== ledger.overflow) ledger.touch(caller);
    }
    return this.#decision;
  }

  /** Drops the marks that have left their windows, and fills in the decision. Whether every window admits one more. */
  #look(marks: number[], now: number): boolean {
    const { windows, batch } = this.#plan;
    const decision = this.#decision;
    const count = windows.length;
    const size = sizeOfRings(marks, count);
    decision.retryMs = 0;
    for (let w = 0, meta = 1, ring = 1 + 2 * count; w < count; w++, meta += 2, ring += size) {
      const window = windows[w]!;
      let oldest = marks[meta]! >> 7;
      let length = marks[meta]! & 127;
      while (length > 0 && now - marks[ring + oldest]! >= window.ms) {
        oldest = (oldest + 1) & (size - 1);
        length--;
      }
      marks[meta] = (oldest << 7) | length;
      const used = length === 0 ? 0 : (length - 1) * batch[w]! + marks[meta + 1]!;
      const resetMs = length === 0 ? 0 : window.ms - (now - marks[ring + oldest]!); // in this order it cannot round to 0
      decision.remaining[w] = window.limit - used;
      decision.resetMs[w] = resetMs;
      if (used >= window.limit && resetMs > decision.retryMs) decision.retryMs = resetMs;
    }
    return (decision.admitted = decision.retryMs === 0);
  }

  /** Counts one admission in every window, and the decision with it. */
  #record(caller: Caller, now: number): void {
    const { windows, batch } = this.#plan;
    const decision = this.#decision;
    const count = windows.length;
    let marks = caller.marks;
    let size = sizeOfRings(marks, count);
    for (let w = 0; w < count; w++) {
      const meta = 1 + 2 * w;
      const length = marks[meta]! & 127;
      const topUp = length > 0 && marks[meta + 1]! < batch[w]!;
      if (!topUp && length === size) {
        size *= 2;
        caller.marks = marks = resized(marks, count, size);
      }
      const newest = topUp ? length - 1 : length;
      const oldest = marks[meta]! >> 7;
      marks[1 + 2 * count + w * size + ((oldest + newest) & (size - 1))] = now;
      marks[meta] = (oldest << 7) | (newest + 1);
      marks[meta + 1] = topUp ? marks[meta + 1]! + 1 : 1;
      decision.remaining[w]!--;
      // Untouched before, or its only mark was moved to now: the oldest mark is this one.
      if (newest === 0) decision.resetMs[w] = windows[w]!.ms;
    }
    marks[0] = now;
  }
}

/** Longer names are kept as their hash, so that a caller cannot choose how much memory he costs. */
const LONGEST_KEY = 64;

function shortened(name: string): string {
  return "#" + hash("sha256", name, "base64url");
}

/**
 * The same text in memory of its own. V8 keeps a string that was cut out of another, or joined, as a reference to its parts: an
 * address out of an X-Forwarded-For of 16 kB would keep all 16 kB (measured) for as long as the caller is remembered.
 */
function copied(text: string): string {
  const copy = Buffer.from(text, "latin1").toString("latin1");
  return copy === text ? copy : Buffer.from(text, "utf16le").toString("utf16le");
}

function blankMarks(windows: number, size: number): number[] {
  // Filled with a fraction first, so that the array is one of plain doubles from the start and stays of one kind.
  const marks = new Array<number>(1 + windows * (2 + size)).fill(-0.5);
  marks[0] = -Infinity;
  marks.fill(0, 1, 1 + 2 * windows);
  return marks;
}

function sizeOfRings(marks: readonly number[], windows: number): number {
  return (marks.length - 1) / windows - 2;
}

function longestRing(marks: readonly number[], windows: number): number {
  let longest = 0;
  for (let w = 0; w < windows; w++) longest = Math.max(longest, marks[1 + 2 * w]! & 127);
  return longest;
}

/** The least power of two that `marks` marks fit in. */
function ringSize(marks: number): number {
  let size = 1;
  while (size < marks) size *= 2;
  return size;
}

/** A copy of the marks in rings of another size. */
function resized(marks: readonly number[], windows: number, size: number): number[] {
  const copy = blankMarks(windows, size);
  const before = sizeOfRings(marks, windows);
  copy[0] = marks[0]!;
  for (let w = 0; w < windows; w++) {
    const meta = 1 + 2 * w;
    const oldest = marks[meta]! >> 7;
    const length = marks[meta]! & 127;
    const from = 1 + 2 * windows + w * before;
    const to = 1 + 2 * windows + w * size;
    for (let i = 0; i < length; i++) copy[to + i] = marks[from + ((oldest + i) & (before - 1))]!;
    copy[meta] = length;
    copy[meta + 1] = marks[meta + 1]!;
  }
  return copy;
}

/**
 * Rewrites a caller's marks for other windows, matched by name: the newest admissions up to the new limit are kept, in batches of
 * the new size. An admission's time only ever moves later (to that of the latest in its batch), so a reload refills nothing. What
 * stood beyond a lowered limit is gone, though: should the limit be raised again within the window, it is not remembered.
 */
function convert(caller: Caller, plan: Plan): void {
  const before = caller.plan.windows.map((window) => window.name);
  const rings = plan.windows.map((window, w) => regrouped(caller, before.indexOf(window.name), window.limit, plan.batch[w]!));
  const count = plan.windows.length;
  const size = ringSize(Math.max(...rings.map((ring) => ring.times.length)));
  const marks = blankMarks(count, size);
  marks[0] = caller.marks[0]!;
  rings.forEach(({ times, newest }, w) => {
    marks[1 + 2 * w] = times.length;
    marks[2 + 2 * w] = newest;
    times.forEach((time, i) => (marks[1 + 2 * count + w * size + i] = time));
  });
  caller.plan = plan;
  caller.marks = marks;
}

/** The newest `limit` admissions of one of the caller's windows (none when w < 0), in marks of `batch`. */
function regrouped({ plan, marks }: Caller, w: number, limit: number, batch: number): { times: number[]; newest: number } {
  const times: number[] = [];
  let newest = batch;
  if (w < 0) return { times, newest };
  const count = plan.windows.length;
  const size = sizeOfRings(marks, count);
  const oldest = marks[1 + 2 * w]! >> 7;
  const length = marks[1 + 2 * w]! & 127;
  let skip = Math.max(0, (length - 1) * plan.batch[w]! + marks[2 + 2 * w]! - limit);
  for (let i = 0; i < length; i++) {
    const time = marks[1 + 2 * count + w * size + ((oldest + i) & (size - 1))]!;
    const admissions = i === length - 1 ? marks[2 + 2 * w]! : plan.batch[w]!;
    let left = admissions - Math.min(skip, admissions);
    skip -= admissions - left;
    while (left > 0) {
      if (newest === batch) {
        times.push(time);
        newest = 0;
      }
      const taken = Math.min(left, batch - newest);
      newest += taken;
      left -= taken;
      times[times.length - 1] = time;
    }
  }
  return { times, newest };
}
