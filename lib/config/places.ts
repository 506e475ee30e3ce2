/**
 * Finds where values stand in the text of a configuration that has been accepted, whose document is not kept.
 */
import { atOnce } from "../base/time_slices.ts";
import type { Path, Position } from "./json.ts";
import { pass, withoutMark } from "./json_parser.ts";
import type { ConfigSource } from "./source.ts";
import { endSteps } from "./value_text.ts";

/** The places of values, or of their nearest ancestors, in a text without errors; null where there is no text. */
export function placesIn(source: ConfigSource, paths: readonly Path[]): readonly (Position | null)[] {
  return atOnce(placeSteps(source, paths));
}

/** The same in steps of about a millisecond, for `inSlices`. */
export function* placeSteps(
  source: ConfigSource,
  paths: readonly Path[],
): Generator<void, readonly (Position | null)[]> {
  if ("value" in source) return paths.map(() => null);
  const text = withoutMark(source.text);
  const offsets = yield* offsetSteps(text, paths);
  const places = yield* positionSteps(text, offsets);
  return offsets.map((offset) => places.get(offset) ?? null);
}

export function placeInText(source: ConfigSource, path: Path): Position | null {
  return placesIn(source, [path])[0]!;
}

/** Members that are passed over in a step: less than a millisecond of work, but for one that is longer. */
const MEMBERS_OF_A_STEP = 256;
const CHARACTERS_OF_A_STEP = 100_000;

/**
 * The offsets of the values at these paths of a text without errors, or of their nearest ancestors that exist. In one
 * pass, without a document, which takes many times the memory of its text.
 */
function* offsetSteps(text: string, paths: readonly Path[]): Generator<void, readonly number[]> {
  const offsets = paths.map(() => -1);
  let passed = 0;
  /** `asked`: the paths that lead through this value. Returns its end. */
  function* visit(from: number, asked: readonly number[], depth: number): Generator<void, number> {
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
    if (steps.size === 0 || !(isObject || isArray)) return yield* endOfValue(text, from);
    let at = afterSpace(text, from + 1);
    for (let n = 0; text[at] !== "]" && text[at] !== "}"; n++) {
      if (++passed % MEMBERS_OF_A_STEP === 0) yield;
      let step: string | number = n;
      if (isObject) {
        const end = yield* endSteps(text, at);
        step = JSON.parse(text.slice(at, end)) as string;
        at = afterSpace(text, afterSpace(text, end) + 1);
      }
      const below = steps.get(step);
      const end = yield* below === undefined ? endOfValue(text, at) : visit(at, below, depth + 1);
      at = afterSpace(text, end);
      if (text[at] === ",") at = afterSpace(text, at + 1);
    }
    return at + 1;
  }
  yield* visit(afterSpace(text, 0), [...paths.keys()], 0);
  return offsets;
}

/** Behind the value that begins at `from`. */
function* endOfValue(text: string, from: number): Generator<void, number> {
  WORD.lastIndex = from;
  return WORD.test(text) ? WORD.lastIndex : yield* endSteps(text, from);
}

/** A number, true, false or null. */
const WORD = /[\w.+-]+/y;

function* positionSteps(text: string, offsets: readonly number[]): Generator<void, ReadonlyMap<number, Position>> {
  const places = new Map<number, Position>();
  const place = { line: 1, column: 1 };
  let at = 0;
  for (const offset of [...offsets].sort((a, b) => a - b)) {
    for (; at < offset; yield) {
      const end = Math.min(offset, at + CHARACTERS_OF_A_STEP);
      pass(text, at, end, place);
      at = end;
    }
    places.set(offset, { ...place });
  }
  return places;
}

function afterSpace(text: string, offset: number): number {
  let at = offset;
  while (SPACES.includes(text[at] ?? "-")) at++;
  return at;
}

const SPACES = " \n\r\t";
