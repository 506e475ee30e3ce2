/**
 * Slows down password guessing: after five failed logins an address must pause, twice as long after each further
 * failure; and all addresses together have fifty failures and one more every half minute, except for networks from
 * which somebody has logged in.
 */
import type { Clock } from "../base/clock.ts";

interface Entry {
  /** `clock.now()` at which the last failure will be forgotten. */
  clearAt: number;
  /** `clock.now()`; in the past while no pause is needed. */
  pausedUntil: number;
}

const FREE_FAILURES = 5;
const MAX_PAUSE_MS = 15 * 60_000;
/** Longer than the longest pause, so that the count of an address that keeps guessing never falls. */
const FORGET_MS = 2 * MAX_PAUSE_MS;
/** From this count on every pause has the maximum length: 2^10 s exceeds it. */
const MAX_FAILURES = FREE_FAILURES + 10;

/** Failures that addresses of unknown networks have together, and the time in which one of them is forgotten. */
const FREE_OF_ALL = 50;
const FORGET_OF_ALL_MS = 30_000;
const MAX_NETWORKS = 1_000;

/** Why an address has to wait: for its own failures, or for those of all. */
export interface Pause {
  readonly ms: number;
  readonly because: "address" | "all";
}

/**
 * Failures are forgotten by time alone, one every half hour. So an address makes at most 15 + t / 15 min wrong guesses
 * in a time t, even if it sends right credentials in between.
 */
export class Throttle {
  readonly #clock: Clock;
  readonly #maxEntries: number;
  readonly #entries = new Map<string, Entry>();
  /**
   * Shared by new addresses while all entries are in use: a flood of addresses cannot end a pause, get fresh guesses,
   * or grow memory. It delays logins from other new addresses while it lasts.
   */
  readonly #shared: Entry = { clearAt: 0, pausedUntil: 0 };

  /** `clock.now()` at which the last failure of unknown networks will be forgotten. */
  #allClearAt = 0;
  /**
   * The networks from which somebody has logged in, the last one at the end. Attackers elsewhere must not lock them
   * out.
   */
  readonly #known = new Set<string>();

  constructor(clock: Clock, maxEntries = 10_000) {
    this.#clock = clock;
    this.#maxEntries = maxEntries;
  }

  /**
   * The time until the next attempt of this address is allowed; null: now. `address` identifies one caller, for
   * instance an IPv6 /64, or a device.
   */
  pauseOf(address: string, network: string): Pause | null {
    const now = this.#clock.now();
    const entry = this.#entries.get(address) ?? (this.#entries.size < this.#maxEntries ? null : this.#shared);
    const own = entry === null ? 0 : entry.pausedUntil - now;
    if (own > 0) return { ms: own, because: "address" };
    const ofAll = this.#known.has(network) ? 0 : this.#allClearAt - (FREE_OF_ALL - 1) * FORGET_OF_ALL_MS - now;
    return ofAll > 0 ? { ms: ofAll, because: "all" } : null;
  }

  /**
   * Counts an attempt as failed before it is verified, so that parallel guesses are counted. Returns a function that
   * removes this failure if the attempt was right. Earlier failures stay: another user may have caused them.
   */
  begin(address: string, network: string): () => void {
    const entry = this.#entryFor(address);
    const now = Math.floor(this.#clock.now()); // whole numbers, whose differences are exact
    const { pausedUntil } = entry;
    entry.clearAt = Math.min(Math.max(now, entry.clearAt) + FORGET_MS, now + MAX_FAILURES * FORGET_MS);
    const failures = Math.ceil((entry.clearAt - now) / FORGET_MS);
    // 1 s, 2 s, 4 s, … 15 min.
    const ownPause =
      failures < FREE_FAILURES ? 0 : now + Math.min(1000 * 2 ** (failures - FREE_FAILURES), MAX_PAUSE_MS);
    entry.pausedUntil = ownPause;
    const ofAll = this.#known.has(network) ? 0 : FORGET_OF_ALL_MS;
    this.#allClearAt = Math.max(now, this.#allClearAt) + ofAll;
    return () => {
      entry.clearAt -= FORGET_MS;
      this.#allClearAt -= ofAll;
      // Another address that shares the entry may have failed meanwhile.
      if (entry.pausedUntil === ownPause) entry.pausedUntil = pausedUntil;
      this.remember(network);
    };
  }

  /** Somebody has logged in from this network. */
  remember(network: string): void {
    this.#known.delete(network);
    this.#known.add(network);
    if (this.#known.size > MAX_NETWORKS) for (const oldest of this.#known) return void this.#known.delete(oldest);
  }

  #entryFor(address: string): Entry {
    const known = this.#entries.get(address);
    if (known !== undefined) return known;
    const now = this.#clock.now();
    const entries = this.#entries;
    if (entries.size >= this.#maxEntries)
      for (const [old, { clearAt }] of entries) if (clearAt <= now) entries.delete(old);
    if (entries.size >= this.#maxEntries) return this.#shared;
    const entry: Entry = { clearAt: 0, pausedUntil: 0 };
    entries.set(address, entry);
    return entry;
  }
}
