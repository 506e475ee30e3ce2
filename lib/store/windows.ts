/**
 * Counts admissions in sliding windows by marks: what a mark stands for, and what marks become when limits change or callers are merged.
 *
 * A window of a caller has at most 64 marks. A mark stands for `batch` admissions, where batch = ceil(limit / 64), and bears the time of
 * the latest of them; only the newest mark may stand for fewer. So a mark leaves the window with its youngest admission: the count errs
 * towards refusing, by at most batch - 1 < limit / 64, and never towards admitting. For limits up to 64 the count is exact.
 */
import type { Window } from "./counters.ts";

/** Most marks of a window: limits up to this one are counted exactly. */
export const MOST_MARKS = 64;

export function batchOf(limit: number): number {
  return Math.ceil(limit / MOST_MARKS);
}

/** How many marks a window can have. */
export function marksOf(limit: number): number {
  return Math.ceil(limit / batchOf(limit));
}

/** What was admitted in one window. */
export interface History {
  /** Of each mark, the oldest first. */
  readonly times: ArrayLike<number>;
  /** Admissions. */
  readonly used: number;
  readonly batch: number;
}

/**
 * A history that has, at every moment from now on, at least as many admissions in the window as each of the given ones, up to the limit,
 * and as few more as marks can tell: its k-th newest admission is the latest of all k-th newest.
 */
export function merged({ limit }: Pick<Window, "limit">, histories: readonly History[]): History {
  const batch = batchOf(limit);
  const used = Math.min(limit, Math.max(0, ...histories.map((history) => history.used)));
  const times: number[] = [];
  for (let end = 0; end < used; ) {
    end = Math.min(used, end + batch);
    times.push(Math.max(...histories.map((history) => timeOf(history, used - end))));
  }
  return { times, used, batch };
}

/** When the admission was that `newer` ones followed. */
function timeOf({ times, used, batch }: History, newer: number): number {
  return newer < used ? times[Math.floor((used - 1 - newer) / batch)]! : -Infinity;
}
