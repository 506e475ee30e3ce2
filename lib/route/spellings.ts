/**
 * Finds paths with `%2F` in the placeholders of a pattern that match other patterns once each `%2F` is read as "/".
 */
import type { Segment } from "./pattern.ts";
import { isOpen, type PathState, type Ranked } from "./pattern_index.ts";

export interface Spelling {
  readonly path: string;
  /** With each `%2F` read as "/", and `//` merged. */
  readonly decoded: string;
}

export interface SpellingOptions<P extends Ranked> {
  /** How many segments `path` has. */
  readonly length: number;
  /** The longest pattern of the table, in segments. */
  readonly longest: number;
  /** A segment that occurs in no pattern: it stands where no pattern asks for a literal. */
  readonly unused: string;
  /** In front of the first decoded segment. */
  readonly start: PathState<P>;
  readonly steps: Steps;
  /**
   * `winner` is the pattern that wins the decoded path. "refused": for the text of this path; another one with the same
   * winner may be accepted.
   */
  readonly accepts: (winner: P | null, spelling: Spelling) => boolean | "refused";
}

/** How much has been tried by all searches of one proof. */
export interface Steps {
  taken: number;
}

/**
 * The bounds of one search and of all searches together. A search remembers what it has tried, so that most end after
 * segments × segments steps; but to place literals so that no pattern of many wins is a problem (independent set) for
 * which no fast solution is known.
 */
export const MAX_STEPS = 5_000;
export const MAX_STEPS_IN_ALL = 500_000;
/** So many cells of a table take the time of one step. */
const CELLS_PER_STEP = 16;

/**
 * One way to spell the beginning: `part` is the next part, `at` the number of decoded segments, `held` those of the
 * part before its end.
 */
interface Step<P extends Ranked> extends Spelling {
  readonly part: number;
  readonly held: number;
  readonly at: number;
  readonly state: PathState<P>;
}

/**
 * The first path that is accepted; null if there is none, also if `pattern` has no placeholder. The decoded segments
 * are divided among the placeholders in every way; each can hold any number of them, also none: `/%2F`. "undecided"
 * once a bound is reached.
 */
export function findSpelling<P extends Ranked>(
  pattern: readonly Segment[],
  others: readonly (readonly Segment[])[],
  options: SpellingOptions<P>,
): Spelling | null | "undecided" {
  const { length, longest, unused } = options;
  const parts = partsOf(pattern, length);
  if (!parts.some((part) => typeof part === "number")) return null;
  // Longer patterns are open. Segments behind the longest pattern only have to hold the literals.
  const literals = parts.filter((part) => typeof part === "string").length;
  const most = longest + Math.max(1, literals);

  /**
   * The text that the other patterns ask for at this place; null if one ends before it, or if they ask for different
   * texts.
   */
  const fitting = (at: number, text: string | null): string | null => {
    let found = text;
    for (const other of others) {
      const segment = other[at];
      if (segment === undefined && !isOpen(other)) return null;
      if (segment?.kind !== "literal") continue;
      if (found !== null && found !== segment.text) return null;
      found = segment.text;
    }
    return found ?? unused;
  };

  // Whether the other patterns match what the parts from this one on make of the segments from this place on.
  const places = most + literals + 1;
  const cells = (parts.length + 1) * places;
  const cost = Math.ceil(cells / CELLS_PER_STEP);
  if (cost > MAX_STEPS || options.steps.taken + cost > MAX_STEPS_IN_ALL) return "undecided";
  options.steps.taken += cost;
  const fits = new Uint8Array(cells);
  for (let at = places - 1; at >= 0; at--) {
    const ends = others.every((other) => at === other.length || (at > other.length && isOpen(other)));
    fits[parts.length * places + at] = Number(ends);
    for (let part = parts.length - 1; part >= 0; part--) {
      const current = parts[part]!;
      const here = part * places + at;
      if (typeof current === "string")
        fits[here] = at + 1 < places && fitting(at, current) !== null ? fits[here + places + 1]! : 0;
      else fits[here] = fits[here + places]! | (at < most && fitting(at, null) !== null ? fits[here + 1]! : 0);
    }
  }
  if (fits[0] === 0) return null;

  return search({ ...options, parts, most, fitting, fits: (part, at) => fits[part * places + at] === 1 });
}

interface Search<P extends Ranked> extends SpellingOptions<P> {
  readonly parts: readonly (string | number)[];
  readonly most: number;
  readonly fitting: (at: number, text: string | null) => string | null;
  readonly fits: (part: number, at: number) => boolean;
}

function search<P extends Ranked>(options: Search<P>): Spelling | null | "undecided" {
  const { parts, most, fitting, fits, start, steps, accepts } = options;
  const bound = Math.min(steps.taken + MAX_STEPS, MAX_STEPS_IN_ALL);
  // What follows depends on the text of the beginning only where a path was refused for its text.
  for (const remembers of [true, false]) {
    const known = new Set<number>();
    const stack: Step<P>[] = [{ part: 0, held: 0, at: 0, path: "", decoded: "", state: start }];
    let isRefused = false;
    const go = (step: Step<P>) => {
      if (fits(step.part, step.at)) stack.push(step);
    };
    for (let step = stack.pop(); step !== undefined; step = stack.pop()) {
      const { part, held, at, path, decoded, state } = step;
      const name = (state.id * (most + parts.length + 1) + at) * (parts.length + 1) + part;
      if (remembers && known.has(name)) continue;
      known.add(name);
      if (steps.taken >= bound) return "undecided";
      steps.taken++;
      const current = parts[part];
      if (current === undefined) {
        const spelling = { path, decoded: decoded === "" ? "/" : decoded };
        const accepted = accepts(state.winner, spelling);
        if (accepted === true) return spelling;
        isRefused ||= accepted === "refused";
      } else if (typeof current === "string") {
        go({
          part: part + 1,
          held: 0,
          at: at + 1,
          path: `${path}/${current}`,
          decoded: `${decoded}/${current}`,
          state: state.after(current),
        });
      } else {
        const text = at < most ? fitting(at, null) : null;
        if (text !== null)
          go({
            part,
            held: held + 1,
            at: at + 1,
            path: `${path}${held === 0 ? "/" : "%2F"}${text}`,
            decoded: `${decoded}/${text}`,
            state: state.after(text),
          });
        // A "%2F" in every placeholder, so that none is taken for a literal.
        const ended = path + (held === 0 ? "/%2F" : held === 1 ? "%2F" : "") + "/%2F".repeat(current - 1);
        go({ part: part + 1, held: 0, at, path: ended, decoded, state });
      }
    }
    if (!isRefused) return null;
  }
  return null;
}

/** Literals, and the number of placeholders between them. {name*} counts as many as the path's length leaves for it. */
function partsOf(pattern: readonly Segment[], length: number): (string | number)[] {
  const parts: (string | number)[] = [];
  for (const segment of pattern) {
    if (segment.kind === "literal") parts.push(segment.text);
    else {
      const count = segment.kind === "rest" ? length - pattern.length + 1 : 1;
      const before = parts.at(-1);
      if (typeof before === "number") parts[parts.length - 1] = before + count;
      else parts.push(count);
    }
  }
  return parts;
}
