/**
 * Slows guessing down: after five failures an address has to pause, twice as long after each further one.
 * What an attempt is, and what a pausing address is told, is left to `login.ts`.
 */
import type { Clock } from "../base/clock.ts";

export interface Throttle {
  /** Milliseconds until the next attempt of this address is looked at; 0 when it may come now. */
  pausedFor(address: string): number;
  /**
   * Counts an attempt as failed before it is looked at, so that parallel guesses do not slip through. Returns a function that takes
   * this one failure back, for an attempt that was right. Earlier failures stay: somebody else may have made them.
   */
  begin(address: string): () => void;
}

/**
 * Time alone forgets failures: one every half hour. In any time t an address makes at most 15 + t / 15 min wrong guesses, however it
 * spreads them, and whatever right credentials come from it in between.
 *
 * `address` is what counts as one caller, an IPv6 /64 for instance. `most` bounds how many are remembered.
 */
export function createThrottle(clock: Clock, most = 10_000): Throttle {
  const entries = new Map<string, Entry>();
  // When all places are taken by live entries, new addresses share this one: a flood neither frees anyone of a pause, nor buys
  // fresh guesses, nor grows memory. It does hold up logins from elsewhere while it lasts.
  const shared: Entry = { clearAt: 0, pausedUntil: 0 };

  return {
    pausedFor(address) {
      const entry = entries.get(address) ?? (entries.size < most ? null : shared);
      return entry === null ? 0 : Math.max(0, entry.pausedUntil - clock.now());
    },
    begin(address) {
      const entry = entryFor(address);
      const now = Math.floor(clock.now()); // in whole numbers, of which differences are exact
      const { pausedUntil } = entry;
      entry.clearAt = Math.min(Math.max(now, entry.clearAt) + FORGET_MS, now + MOST_FAILURES * FORGET_MS);
      const failures = Math.ceil((entry.clearAt - now) / FORGET_MS);
      const ownPause = failures < FREE_FAILURES ? 0 : now + pauseAfter(failures);
      entry.pausedUntil = ownPause;
      return () => {
        entry.clearAt -= FORGET_MS;
        // Of several addresses that share an entry, another one may have failed meanwhile.
        if (entry.pausedUntil === ownPause) entry.pausedUntil = pausedUntil;
      };
    },
  };

  function entryFor(address: string): Entry {
    const known = entries.get(address);
    if (known !== undefined) return known;
    const now = clock.now();
    if (entries.size >= most) for (const [old, { clearAt }] of entries) if (clearAt <= now) entries.delete(old);
    if (entries.size >= most) return shared;
    const entry: Entry = { clearAt: 0, pausedUntil: 0 };
    entries.set(address, entry);
    return entry;
  }
}

interface Entry {
  /** `clock.now()` at which the last failure will be forgotten. */
  clearAt: number;
  /** `clock.now()`; in the past while failures are free. */
  pausedUntil: number;
}

const FREE_FAILURES = 5;
const LONGEST_PAUSE_MS = 15 * 60_000;
/** Longer than the longest pause, so that the count of an address that goes on guessing does not fall. */
const FORGET_MS = 2 * LONGEST_PAUSE_MS;
/** From here on every pause is the longest one: 2^10 s is more. */
const MOST_FAILURES = FREE_FAILURES + 10;

/** 1 s, 2 s, 4 s, … 15 min. */
function pauseAfter(failures: number): number {
  return Math.min(1000 * 2 ** (failures - FREE_FAILURES), LONGEST_PAUSE_MS);
}
