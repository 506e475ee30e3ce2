/**
 * The first of many, as sorting would give them, without sorting all.
 */

/**
 * At most `most` of them, in the order of `compare`; equal ones stay in theirs. Costs one comparison for each that is
 * not among the first.
 */
export function firstsOf<T>(all: Iterable<T>, most: number, compare: (a: T, b: T) => number): T[] {
  const firsts: T[] = [];
  for (const each of all) {
    let place = firsts.length;
    while (place > 0 && compare(each, firsts[place - 1]!) < 0) place--;
    if (place === most) continue;
    firsts.splice(place, 0, each);
    if (firsts.length > most) firsts.pop();
  }
  return firsts;
}
