/**
 * Lists the paths with `%2F` in the placeholders of a pattern that match other patterns once each `%2F` is read as "/".
 */
import { isOpen, type Segment } from "./pattern.ts";

export interface Spelling {
  readonly path: string;
  /** With each `%2F` read as "/", and `//` merged. */
  readonly decoded: string;
}

export interface SpellingOptions {
  /** How many segments `path` has. */
  readonly length: number;
  /** The longest pattern of the table, in segments. */
  readonly longest: number;
  /** A segment that occurs in no pattern: it stands where no pattern asks for a literal. */
  readonly unused: string;
}

/**
 * One path for each way to divide the decoded segments among the placeholders, each of which can hold any number of them, also none: `/%2F`.
 * Empty if `pattern` has no placeholder.
 */
export function* spellings(pattern: readonly Segment[], others: readonly (readonly Segment[])[], { length, longest, unused }: SpellingOptions): Generator<Spelling> {
  const parts = partsOf(pattern, length);
  // Longer patterns are open. Segments behind the longest pattern only have to hold the literals.
  const most = longest + Math.max(1, parts.filter((part) => typeof part === "string").length);

  function* from(part: number, held: number, at: number, path: string, decoded: string): Generator<Spelling> {
    const current = parts[part];
    if (current === undefined) {
      if (others.every((other) => at === other.length || (at > other.length && isOpen(other)))) yield { path, decoded: decoded === "" ? "/" : decoded };
    } else if (typeof current === "string") {
      if (fitting(at, current) !== null) yield* from(part + 1, 0, at + 1, `${path}/${current}`, `${decoded}/${current}`);
    } else {
      // A "%2F" in every placeholder, so that none is taken for a literal.
      const ended = path + (held === 0 ? "/%2F" : held === 1 ? "%2F" : "") + "/%2F".repeat(current - 1);
      yield* from(part + 1, 0, at, ended, decoded);
      const text = at < most ? fitting(at, null) : null;
      if (text !== null) yield* from(part, held + 1, at + 1, `${path}${held === 0 ? "/" : "%2F"}${text}`, `${decoded}/${text}`);
    }
  }

  /** The text that the other patterns ask for at this place; null if one ends before it, or if they ask for different texts. */
  function fitting(at: number, text: string | null): string | null {
    let found = text;
    for (const other of others) {
      const segment = other[at];
      if (segment === undefined && !isOpen(other)) return null;
      if (segment?.kind !== "literal") continue;
      if (found !== null && found !== segment.text) return null;
      found = segment.text;
    }
    return found ?? unused;
  }

  if (parts.some((part) => typeof part === "number")) yield* from(0, 0, 0, "", "");
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
