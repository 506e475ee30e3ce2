/**
 * Finds the known name that is closest to a mistyped one, for "did you mean", in texts and in the options that a program passes.
 */

/** Longer names are not compared: the cost grows with the square of the length. */
const MAX_LENGTH = 64;

/** The closest of `known`; undefined if more than a third of its characters would have to change. */
export function suggest(word: string, known: Iterable<string>): string | undefined {
  if (word.length > MAX_LENGTH) return undefined;
  const wanted = plain(word);
  let nearest: string | undefined;
  let least = Infinity;
  for (const name of known) {
    const candidate = plain(name);
    const length = Math.max(wanted.length, candidate.length);
    if (length > MAX_LENGTH) continue;
    const edits = distance(wanted, candidate);
    if (edits < least && edits < length && edits <= Math.max(1, Math.floor(length / 3))) {
      least = edits;
      nearest = name;
    }
  }
  return nearest;
}

/** All names that options may have. */
export type Names<Options> = Readonly<Record<keyof Options, true>>;

/**
 * Throws a `TypeError` unless `given` is an object without other names; a member that is undefined counts as absent. `what` takes the
 * options. `hints`: what to write in place of names that are likely. Types hold back neither JavaScript nor values that were read from
 * elsewhere.
 */
export function checkNames<Options extends object>(what: string, given: unknown, names: Names<Options>, hints: ReadonlyMap<string, string> = NO_HINTS): asserts given is Options {
  if (typeof given !== "object" || given === null) throw new TypeError(`${what} takes an object with options`);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || Object.hasOwn(names, name)) continue;
    const nearest = suggest(name, Object.keys(names));
    const hint = hints.get(name) ?? (nearest === undefined ? `it has ${Object.keys(names).join(", ")}` : `did you mean "${nearest}"?`);
    throw new TypeError(`${what} has no option "${name}": ${hint}`);
  }
}

const NO_HINTS: ReadonlyMap<string, string> = new Map();

/** Case and separators are how people differ most: `basePath` and `base-path` are `base_path`. */
function plain(word: string): string {
  return word.toLowerCase().replace(/[_\-\s]/g, "");
}

/** Insertions, deletions, substitutions and swaps of neighbours that lead from `a` to `b` (optimal string alignment). */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let above = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let edits = Math.min(above[j]! + 1, row[j - 1]! + 1, above[j - 1]! + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) edits = Math.min(edits, before[j - 2]! + 1);
      row.push(edits);
    }
    before = above;
    above = row;
  }
  return above[b.length]!;
}
