/**
 * Compares two texts line by line (Myers, "An O(ND) Difference Algorithm", 1986) within a bound of time and memory.
 */

interface DiffLine {
  readonly kind: "same" | "removed" | "added";
  readonly text: string;
  /** The number of the line in the old and in the new text, from 1; null: it is not in that text. */
  readonly before: number | null;
  readonly after: number | null;
}

/** Consecutive lines: changes with the lines around them. */
export type Hunk = readonly DiffLine[];

/**
 * Differences further apart than this are shown as one; the steps kept for the way back need memory of the square of
 * it.
 */
const MAX_DISTANCE = 1000;
/** Lines that are compared at most. */
const MAX_STEPS = 400_000;
const CONTEXT = 3;

/**
 * Empty: the texts are the same. Where they differ too much for a shortest answer, everything from the first to the
 * last difference is replaced.
 */
export function textDiff(before: string, after: string): readonly Hunk[] {
  const [old, next] = [before.split("\n"), after.split("\n")];
  return hunksOf(differences(old, next), old, next);
}

/** `base` with the changes of both texts; null where both have changed the same lines or lines beside each other. */
export function merged(base: string, mine: string, theirs: string): string | null {
  const lines = base.split("\n");
  const changesOf = (text: string) => {
    const next = text.split("\n");
    return differences(lines, next).map(({ x, toX, y, toY }) => ({ x, toX, added: next.slice(y, toY) }));
  };
  const changes = [...changesOf(mine), ...changesOf(theirs)].sort((a, b) => a.x - b.x);
  const parts: (readonly string[])[] = [];
  let at = 0;
  for (const [i, { x, toX, added }] of changes.entries()) {
    if (i > 0 && x <= at) return null;
    parts.push(lines.slice(at, x), added);
    at = toX;
  }
  return [...parts, lines.slice(at)].flat().join("\n");
}

function differences(old: readonly string[], next: readonly string[]): readonly Block[] {
  let start = 0;
  const least = Math.min(old.length, next.length);
  while (start < least && old[start] === next[start]) start += 1;
  if (start === old.length && start === next.length) return [];
  let end = 0;
  while (end < least - start && old[old.length - 1 - end] === next[next.length - 1 - end]) end += 1;
  const numbers = new Map<string, number>();
  const numbered = (lines: readonly string[]) =>
    lines
      .slice(start, lines.length - end)
      .map((line) => numbers.get(line) ?? (numbers.set(line, numbers.size), numbers.size - 1));
  const pairs = samePairs(numbered(old), numbered(next)).map(([x, y]) => [x + start, y + start] as const);
  return blocksOf([...pairs, [old.length - end, next.length - end]], start);
}

/** The lines that both have, as pairs of places in both; none if it would take too long to find them. */
function samePairs(a: readonly number[], b: readonly number[]): readonly (readonly [number, number])[] {
  const most = Math.min(a.length + b.length, MAX_DISTANCE);
  // How far each diagonal (x - y) reaches, and for each distance a copy of it from before.
  const reach = new Int32Array(2 * most + 3);
  const trace: Int32Array[] = [];
  let steps = 0;
  for (let distance = 0; distance <= most; distance++) {
    trace.push(reach.slice(most + 1 - distance, most + 2 + distance));
    for (let diagonal = -distance; diagonal <= distance; diagonal += 2) {
      const at = most + 1 + diagonal;
      let x =
        diagonal === -distance || (diagonal !== distance && reach[at - 1]! < reach[at + 1]!)
          ? reach[at + 1]!
          : reach[at - 1]! + 1;
      const from = x;
      while (x < a.length && x - diagonal < b.length && a[x] === b[x - diagonal]) x += 1;
      reach[at] = x;
      steps += x - from + 1;
      if (x >= a.length && x - diagonal >= b.length) return pairsOf(trace, a.length, b.length);
    }
    if (steps > MAX_STEPS) break;
  }
  return [];
}

/** Goes back from the end, one distance after the other. */
function pairsOf(trace: readonly Int32Array[], width: number, height: number): readonly (readonly [number, number])[] {
  const pairs: (readonly [number, number])[] = [];
  let [x, y] = [width, height];
  for (let distance = trace.length - 1; distance >= 0; distance--) {
    // Its middle is the diagonal 0, as far as the distance before had come.
    const reach = trace[distance]!;
    const diagonal = x - y;
    const at = distance + diagonal;
    const isDown = diagonal === -distance || (diagonal !== distance && reach[at - 1]! < reach[at + 1]!);
    const fromX = distance === 0 ? 0 : isDown ? reach[at + 1]! : reach[at - 1]!;
    const startX = distance === 0 ? 0 : isDown ? fromX : fromX + 1;
    while (x > startX) pairs.push([--x, --y]);
    if (distance > 0) [x, y] = [fromX, fromX - (isDown ? diagonal + 1 : diagonal - 1)];
  }
  return pairs.reverse();
}

/** Lines of the old text from `x` to `toX` are replaced by those of the new one from `y` to `toY`. */
interface Block {
  readonly x: number;
  readonly toX: number;
  readonly y: number;
  readonly toY: number;
}

/** `pairs`: of the same lines from `start` on, the last of them behind the last difference. */
function blocksOf(pairs: readonly (readonly [number, number])[], start: number): readonly Block[] {
  const blocks: Block[] = [];
  let [x, y] = [start, start];
  for (const [toX, toY] of pairs) {
    if (toX > x || toY > y) blocks.push({ x, toX, y, toY });
    [x, y] = [toX + 1, toY + 1];
  }
  return blocks;
}

function hunksOf(blocks: readonly Block[], old: readonly string[], next: readonly string[]): readonly Hunk[] {
  const hunks: DiffLine[][] = [];
  for (const [i, { x, toX, y, toY }] of blocks.entries()) {
    const last = blocks[i - 1];
    const isNear = last !== undefined && x - last.toX <= 2 * CONTEXT;
    if (!isNear) hunks.push([]);
    const lines = hunks.at(-1)!;
    const addSame = (from: number, to: number, shift: number) => {
      for (let at = from; at < to; at++)
        lines.push({ kind: "same", text: old[at]!, before: at + 1, after: at + 1 + shift });
    };
    addSame(isNear ? last.toX : Math.max(x - CONTEXT, 0), x, y - x);
    for (let at = x; at < toX; at++) lines.push({ kind: "removed", text: old[at]!, before: at + 1, after: null });
    for (let at = y; at < toY; at++) lines.push({ kind: "added", text: next[at]!, before: null, after: at + 1 });
    const following = blocks[i + 1];
    if (following === undefined || following.x - toX > 2 * CONTEXT)
      addSame(toX, Math.min(toX + CONTEXT, old.length), toY - toX);
  }
  return hunks;
}
