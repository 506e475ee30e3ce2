/**
 * Finds where some values are in a JSON text without errors. A tree of all values with their positions takes twenty
 * times as long.
 */
import type { Path, Position } from "./json.ts";

/** A value that is asked for, or that holds one. */
interface Wanted {
  readonly below: Map<string | number, Wanted>;
  /** Null: the text has no such value. */
  position: Position | null;
}

/** An object or array that is open. */
interface Open {
  readonly wanted: Wanted | undefined;
  /** Of the present value; null: in an object. */
  index: number | null;
  isKeyNext: boolean;
}

/** Tells the position of the value at a path, one of `paths`, or of its nearest ancestor that the text has. */
export function placesIn(input: Buffer | string, paths: Iterable<Path>): (at: Path) => Position | null {
  const text = String(input).replace(/^\uFEFF/, "");
  const root = newWanted();
  for (const path of paths) {
    let wanted = root;
    for (const step of path) {
      const below = wanted.below.get(step) ?? newWanted();
      wanted.below.set(step, below);
      wanted = below;
    }
  }
  scan(text, root);
  const wantedAt = (at: Path) => at.reduce<Wanted | undefined>((wanted, step) => wanted?.below.get(step), root);
  const positionAt = (at: Path): Position | null =>
    wantedAt(at)?.position ?? (at.length === 0 ? null : positionAt(at.slice(0, -1)));
  return positionAt;
}

function newWanted(): Wanted {
  return { below: new Map(), position: null };
}

/** No other character of JSON is below it, outside of strings. */
const SPACE = 32;

/** Gives the values that are wanted their places. */
function scan(text: string, root: Wanted): void {
  const positionOf = positionsIn(text);
  const stack: Open[] = [];
  let value: Wanted | undefined;
  const begin = (wanted: Wanted | undefined, from: number) => {
    value = wanted;
    if (wanted === undefined) return;
    let start = from;
    while (text.charCodeAt(start) <= SPACE) start++;
    // An empty array has no first value.
    if (text[start] !== "]") wanted.position = positionOf(start);
  };
  begin(root, 0);
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (char === '"') {
      const end = endOfString(text, at + 1);
      const open = stack.at(-1);
      if (open?.isKeyNext) {
        open.isKeyNext = false;
        if (open.wanted !== undefined)
          begin(open.wanted.below.get(JSON.parse(text.slice(at, end)) as string), text.indexOf(":", end) + 1);
      }
      at = end - 1;
    } else if (char === "{" || char === "[") {
      const isArray = char === "[";
      stack.push({ wanted: value, index: isArray ? 0 : null, isKeyNext: !isArray });
      begin(isArray ? value?.below.get(0) : undefined, at + 1);
    } else if (char === "}" || char === "]") {
      stack.pop();
    } else if (char === ",") {
      const open = stack.at(-1)!;
      open.isKeyNext = open.index === null;
      begin(open.index === null ? undefined : open.wanted?.below.get(++open.index), at + 1);
    }
  }
}

/** For offsets that grow. A column is a character (code point). */
function positionsIn(text: string): (offset: number) => Position {
  let [from, line, column] = [0, 1, 1];
  return (offset) => {
    for (; from < offset; from++) {
      const code = text.charCodeAt(from);
      if (code === 10) [line, column] = [line + 1, 1];
      else if (code < 0xdc00 || code > 0xdfff) column++; // the second half of a surrogate pair is not counted
    }
    return { line, column };
  };
}

/** Behind the closing quote of a string, whose content begins at `from`. */
export function endOfString(text: string, from: number): number {
  for (let at = text.indexOf('"', from); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = at;
    while (text[escapes - 1] === "\\") escapes--;
    if ((at - escapes) % 2 === 0) return at + 1;
  }
  return text.length;
}
