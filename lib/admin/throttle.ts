/**
 * Slows guessing down: after five failures an address has to pause, twice as long after each further one.
 * What an attempt is, and what a pausing address is told, is left to `login.ts`.
 */
import type { Clock } from "../base/clock.ts";

export interface Throttle {
  /** Milliseconds until the next attempt of this address is looked at; 0 when it may come now. */
  pausedFor(address: string): number;
  /** Counts an attempt as failed before it is looked at, so that parallel guesses do not slip through. */
  begin(address: string): void;
  /** The attempt was right: what was counted is forgotten. */
  succeed(address: string): void;
}

/** `address` is what counts as one caller, an IPv6 /64 for instance. `most` bounds how many are remembered. */
export function createThrottle(clock: Clock, most = 10_000): Throttle {
  // In the order of the last attempt, oldest first.
  const entries = new Map<string, Entry>();
  // When all places are taken by live entries, new addresses share this one: a flood neither frees anyone of a pause, nor buys
  // fresh guesses, nor grows memory. It does hold up logins from elsewhere while it lasts.
  let shared: Entry | null = null;

  const find = (address: string) => entries.get(address) ?? (entries.size < most ? null : shared);

  return {
    pausedFor(address) {
      forgetQuiet();
      return Math.max(0, (find(address)?.pausedUntil ?? 0) - clock.now());
    },
    begin(address) {
      forgetQuiet();
      const failures = (find(address)?.failures ?? 0) + 1;
      const now = clock.now();
      const entry: Entry = { failures, lastAttempt: now, pausedUntil: failures < FREE_FAILURES ? 0 : now + pauseAfter(failures) };
      if (entries.delete(address) || entries.size < most) entries.set(address, entry);
      else shared = entry;
    },
    succeed(address) {
      if (!entries.delete(address)) shared = null;
    },
  };

  function forgetQuiet(): void {
    const quietSince = clock.now() - FORGET_MS;
    for (const [address, entry] of entries) {
      if (entry.lastAttempt > quietSince) break;
      entries.delete(address);
    }
    if (shared !== null && shared.lastAttempt <= quietSince) shared = null;
  }
}

interface Entry {
  readonly failures: number;
  /** `clock.now()`. */
  readonly lastAttempt: number;
  /** `clock.now()`; 0 while failures are free. */
  readonly pausedUntil: number;
}

const FREE_FAILURES = 5;
const LONGEST_PAUSE_MS = 15 * 60_000;
/** An hour beyond the longest pause: waiting to be forgotten never pays for a guesser. */
const FORGET_MS = 60 * 60_000 + LONGEST_PAUSE_MS;

/** 1 s, 2 s, 4 s, … 15 min. */
function pauseAfter(failures: number): number {
  return Math.min(1000 * 2 ** (failures - FREE_FAILURES), LONGEST_PAUSE_MS);
}
