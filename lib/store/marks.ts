/**
 * The marks of a window, which stand for admissions, and how they change with the limit.
 *
 * A window of a caller has at most 64 marks. A mark counts `batch` admissions, where batch = ceil(limit / 64), and
 * stores the time of the latest one; only the newest mark may count fewer. A mark expires with its latest admission, so
 * the limiter may refuse up to batch - 1 < limit / 64 requests too many, and never admits one too many. For limits up
 * to 64 the count is exact.
 */
import { hash } from "node:crypto";
import type { LimiterOptions, Window } from "./counters.ts";

/** Most marks of a window: limits up to this one are counted exactly. */
const MAX_MARKS = 64;
/** See `Callers`. */
export const MARKS_OF_CELL = 4;

export function batchOf(limit: number): number {
  return Math.ceil(limit / MAX_MARKS);
}

/** How many marks a window can have. */
export function marksOf(limit: number): number {
  return Math.ceil(limit / batchOf(limit));
}

/** The admissions in one window. */
export interface History {
  /** Of each mark, the oldest first. */
  readonly times: readonly number[];
  /** Admissions. */
  readonly used: number;
  readonly batch: number;
}

/**
 * A history that has, at every moment from now on, at least as many admissions in the window as each of the given ones,
 * up to the limit, and as few more as marks can express: its k-th newest admission is the latest of all k-th newest.
 */
export function merged(limit: number, histories: readonly History[]): History {
  const batch = batchOf(limit);
  const used = Math.min(limit, Math.max(0, ...histories.map((history) => history.used)));
  const times: number[] = [];
  for (let end = 0; end < used;) {
    end = Math.min(used, end + batch);
    times.push(Math.max(...histories.map((history) => timeOf(history, used - end))));
  }
  return { times, used, batch };
}

/** The time of the admission that `newer` others followed. */
function timeOf({ times, used, batch }: History, newer: number): number {
  return newer < used ? times[Math.floor((used - 1 - newer) / batch)]! : -Infinity;
}

/** The most cells that a caller may take. */
export function cellsOf(windows: readonly Window[]): number {
  return windows.reduce(
    (sum, { limit }) => sum + 1 + Math.ceil((marksOf(limit) + MARKS_OF_CELL - 1) / MARKS_OF_CELL),
    1,
  );
}

export type Plan = ReturnType<typeof planOf>;

/** What a limiter decides by, and values derived from that. */
export function planOf({ windows, maxCallers }: LimiterOptions) {
  return {
    windows,
    maxCallers,
    /** Their hashes. */
    names: windows.map(({ name }) => hash("sha256", name, "buffer").readInt32LE()),
    /** Admissions per mark, by window. */
    batches: windows.map(({ limit }) => batchOf(limit)),
    /** How long a caller is remembered, in seconds: the longest window. */
    life: Math.ceil(Math.max(...windows.map(({ ms }) => ms)) / 1000),
    /** The most cells that a caller may take. */
    cells: cellsOf(windows),
  };
}
