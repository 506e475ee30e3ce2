/**
 * The layout of the memory in which a limiter remembers its callers.
 */

/**
 * A cell has 10 words of 32 bits, or 5 numbers of 64, and is named by its first word: `words[cell + NEXT]`,
 * `numbers[cell / 2 + USED]`.
 */
export const CELL = 10;

/**
 * Its first word has nothing to do with the others: it is a bucket, the first caller of a chain, or 0. A caller: the
 * next one in its chain, those admitted before and after it, its first window, its life (see `Plan`), its name's hash.
 */
export const CHAIN = 1;
export const OLDER = 2;
export const NEWER = 3;
export const WINDOWS = 4;
export const LIFE = 5;
export const HASH = 6;
/** Number: the time of the last admission. */
export const LAST = 4;
/**
 * A window of a caller: the next one, the hash of its name, the first and the last cell of its marks, where they begin
 * in the first one.
 */
export const NEXT = 1;
export const CALLER_NAME = 2;
export const FIRST = 3;
export const END = 4;
export const BEGIN = 5;
/** Numbers: admissions, and how many of them a mark counts. */
export const USED = 3;
export const BATCH = 4;
/** Marks of a window: the next cell of them, and their numbers. */
export const MARKS = 1;

/**
 * The first cell is the overflow, a caller that has used at least what each caller without a place of its own has. A
 * caller that gets a place starts with this usage, since it may have caused it: a new place gives no new quota. In
 * normal operation the overflow is empty.
 * It also links the newest caller to the oldest one.
 */
export const OVERFLOW = 0;
/**
 * In the second cell: the first cell that was never taken, the first free cell, words of free cells, callers, buckets.
 */
export const TAKEN = 12;
export const FREE = 13;
export const FREED = 14;
export const SIZE = 15;
export const BUCKETS = 16;
/** Number: decisions that were made by the overflow. */
export const SHARED = 9;
/** The first three cells are for all callers. Words 11 and 21 to 25 are those of `shared_callers.ts`. */
export const RESERVED = 30;
