/**
 * Divides a line of JSON into pieces to be coloured and marked. A line needs no other one: a JSON string ends with its
 * line.
 */

export interface LineMark {
  /** Columns from 0; `to` is behind the last one. */
  readonly from: number;
  readonly to: number;
  readonly kind: "error" | "warning" | "found" | "current";
}

interface Piece {
  readonly text: string;
  /** Space-separated: "key error". "" for brackets, commas and space. */
  readonly kinds: string;
}

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"?(?=(\s*:)?)|-?\d[\w.+-]*|[A-Za-z_$][\w$-]*/g;
/** Longer lines are shown without colours. */
export const MAX_COLOURED = 5_000;

export function piecesOf(line: string, marks: readonly LineMark[]): readonly Piece[] {
  const tokens: { readonly from: number; readonly to: number; readonly kind: string }[] = [];
  for (const match of line.length > MAX_COLOURED ? [] : line.matchAll(TOKEN)) {
    const kind = match[0].startsWith('"') ? (match[1] === undefined ? "text" : "key") : "atom";
    tokens.push({ from: match.index, to: match.index + match[0].length, kind });
  }
  const all = [...tokens, ...marks];
  const cuts = [...new Set([0, line.length, ...all.flatMap(({ from, to }) => [from, to])])]
    .filter((at) => at >= 0 && at <= line.length)
    .sort((a, b) => a - b);
  return cuts.slice(1).map((end, i) => {
    const start = cuts[i]!;
    const kinds = all.filter(({ from, to }) => from < end && to > start).map(({ kind }) => kind);
    return { text: line.slice(start, end), kinds: [...new Set(kinds)].join(" ") };
  });
}
