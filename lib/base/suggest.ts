/**
 * Finds the known name that is closest to a mistyped one, for "did you mean".
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

/** Case and separators are how people differ most: `basePath` and `base-path` are `base_path`. */
function plain(word: string): string {
  return word.toLowerCase().replace(/[_\-\s]/g, "");
}

/**
 * Insertions, deletions, substitutions and swaps of neighbours that lead from `a` to `b` (optimal string alignment).
 */
function distance(a: string, b: string): number {
  const rows = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    const above = rows[i - 1]!;
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let edits = Math.min(above[j]! + 1, row[j - 1]! + 1, above[j - 1]! + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        edits = Math.min(edits, rows[i - 2]![j - 2]! + 1);
      row.push(edits);
    }
    rows.push(row);
  }
  return rows[a.length]![b.length]!;
}
