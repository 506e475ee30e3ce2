/**
 * The marks of one window of a caller, outside the block that keeps them: how many there can be, and what they become when limits change or
 * callers are counted together. What a mark is, is said in `memory.ts`.
 */

/** Most marks of a window: limits up to this one are counted exactly. */
export const MOST_MARKS = 64;

export interface Ring {
  /** Oldest mark first. */
  readonly times: readonly number[];
  /** Admissions of the newest mark; every other one is full. */
  readonly newest: number;
}

/** The least power of two that so many marks fit in, as an exponent; there are never more than MOST_MARKS. */
export function ringBits(marks: number): number {
  let bits = 0;
  while (1 << bits < Math.min(marks, MOST_MARKS)) bits++;
  return bits;
}

/** The newest `limit` admissions of a ring in marks of `before`, in marks of `batch`. */
export function regrouped(ring: Ring, before: number, limit: number, batch: number): Ring {
  const times: number[] = [];
  let newest = batch;
  const length = ring.times.length;
  let skip = Math.max(0, (length - 1) * before + ring.newest - limit);
  for (let i = 0; i < length; i++) {
    const time = ring.times[i]!;
    const admissions = i === length - 1 ? ring.newest : before;
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

/**
 * The marks of a caller who has used at least what either of two callers has, at every moment until the last mark leaves the window, and as
 * little more as marks of `batch` admissions can tell: the k-th newest admission is the later one of both k-th newest. `a` itself where `b`
 * adds nothing to it.
 */
export function atLeast(a: Ring, b: Ring, batch: number): Ring {
  const total = Math.max(admissions(a, batch), admissions(b, batch));
  const length = Math.ceil(total / batch);
  const newest = total - Math.max(0, length - 1) * batch;
  let isSame = length === a.times.length && newest === a.newest;
  const times: number[] = [];
  for (let i = 0; i < length; i++) {
    // A mark bears the time of its latest admission. The newest mark begins with admission 0, the one before it with admission `newest`.
    const first = i === length - 1 ? 0 : newest + (length - 2 - i) * batch;
    times.push(Math.max(timeOf(a, first, batch), timeOf(b, first, batch)));
    isSame &&= times[i] === a.times[i];
  }
  return isSame ? a : { times, newest };
}

function admissions({ times, newest }: Ring, batch: number): number {
  return times.length === 0 ? 0 : (times.length - 1) * batch + newest;
}

/** When the admission was that `back` newer ones followed. */
function timeOf({ times, newest }: Ring, back: number, batch: number): number {
  const marks = back < newest ? 0 : 1 + Math.floor((back - newest) / batch);
  return times[times.length - 1 - marks] ?? -Infinity;
}
