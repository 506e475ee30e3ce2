/**
 * Finds where values stand in the text of a configuration that has been accepted, whose document is not kept.
 */
import { atOnce } from "../base/time_slices.ts";
import type { Path, Position } from "./json.ts";
import { positionsIn, withoutMark } from "./json_parser.ts";
import type { ConfigSource } from "./source.ts";
import { endSteps } from "./value_text.ts";

/** The places of values, or of their nearest ancestors, in a text without errors; null where there is no text. */
export function placesIn(source: ConfigSource, paths: readonly Path[]): readonly (Position | null)[] {
  if ("value" in source) return paths.map(() => null);
  const text = withoutMark(source.text);
  return offsetsIn(text, paths).map(positionsIn(text));
}

export function placeInText(source: ConfigSource, path: Path): Position | null {
  return placesIn(source, [path])[0]!;
}

/**
 * The offsets of the values at these paths of a text without errors, or of their nearest ancestors that exist. In one
 * pass, without a document, which takes many times the memory of its text.
 */
function offsetsIn(text: string, paths: readonly Path[]): readonly number[] {
  const offsets = paths.map(() => -1);
  const endOfValue = (from: number) => atOnce(endSteps(text, from));
  /** `asked`: the paths that lead through this value. Returns its end. */
  const visit = (from: number, asked: readonly number[], depth: number): number => {
    for (const i of asked) offsets[i] = from;
    const [isObject, isArray] = [text[from] === "{", text[from] === "["];
    const steps = new Map<string | number, number[]>();
    for (const i of asked) {
      const step = paths[i]![depth];
      if (step === undefined || (isArray && typeof step !== "number")) continue;
      const key = isArray ? step : String(step);
      const below = steps.get(key);
      if (below === undefined) steps.set(key, [i]);
      else below.push(i);
    }
    if (steps.size === 0 || !(isObject || isArray)) return endOfValue(from);
    let at = afterSpace(text, from + 1);
    for (let n = 0; text[at] !== "]" && text[at] !== "}"; n++) {
      let step: string | number = n;
      if (isObject) {
        const end = endOfValue(at);
        step = JSON.parse(text.slice(at, end)) as string;
        at = afterSpace(text, afterSpace(text, end) + 1);
      }
      const below = steps.get(step);
      const end = below === undefined ? endOfValue(at) : visit(at, below, depth + 1);
      at = afterSpace(text, end);
      if (text[at] === ",") at = afterSpace(text, at + 1);
    }
    return at + 1;
  };
  visit(afterSpace(text, 0), [...paths.keys()], 0);
  return offsets;
}

function afterSpace(text: string, offset: number): number {
  let at = offset;
  while (SPACES.includes(text[at] ?? "-")) at++;
  return at;
}

const SPACES = " \n\r\t";
