/**
 * Finds where values stand in the text of a configuration that has been accepted, whose document is not kept.
 */
import { atOnce } from "../base/time_slices.ts";
import type { Path, Position } from "./json.ts";
import { passBytes } from "./positions.ts";
import type { ConfigSource } from "./source.ts";
import { afterMark, afterSpace, BRACE, BRACKET, COMMA, END_BRACE, END_BRACKET, endSteps } from "./value_text.ts";

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
  const bytes = typeof source.text === "string" ? Buffer.from(source.text) : source.text;
  const offsets = yield* offsetSteps(bytes, paths);
  const places = yield* positionSteps(bytes, offsets);
  return offsets.map((offset) => places.get(offset) ?? null);
}

export function placeInText(source: ConfigSource, path: Path): Position | null {
  return placesIn(source, [path])[0]!;
}

/** Members that are passed over in a step: less than a millisecond of work, but for one that is longer. */
const MEMBERS_OF_A_STEP = 256;
const BYTES_OF_A_STEP = 100_000;

/**
 * The offsets of the values at these paths of a text without errors, or of their nearest ancestors that exist. In one
 * pass, without a document, which takes many times the memory of its text.
 */
function* offsetSteps(bytes: Buffer, paths: readonly Path[]): Generator<void, readonly number[]> {
  const offsets = paths.map(() => -1);
  let passed = 0;
  /** `asked`: the paths that lead through this value. Returns its end. */
  function* visit(from: number, asked: readonly number[], depth: number): Generator<void, number> {
    for (const i of asked) offsets[i] = from;
    const [isObject, isArray] = [bytes[from] === BRACE, bytes[from] === BRACKET];
    const steps = new Map<string | number, number[]>();
    for (const i of asked) {
      const step = paths[i]![depth];
      if (step === undefined || (isArray && typeof step !== "number")) continue;
      const key = isArray ? step : String(step);
      const below = steps.get(key);
      if (below === undefined) steps.set(key, [i]);
      else below.push(i);
    }
    if (steps.size === 0 || !(isObject || isArray)) return yield* endSteps(bytes, from);
    let at = afterSpace(bytes, from + 1);
    for (let n = 0; bytes[at] !== END_BRACKET && bytes[at] !== END_BRACE; n++) {
      if (++passed % MEMBERS_OF_A_STEP === 0) yield;
      let step: string | number = n;
      if (isObject) {
        const end = yield* endSteps(bytes, at);
        step = JSON.parse(bytes.toString("utf8", at, end)) as string;
        at = afterSpace(bytes, afterSpace(bytes, end) + 1);
      }
      const below = steps.get(step);
      const end = yield* below === undefined ? endSteps(bytes, at) : visit(at, below, depth + 1);
      at = afterSpace(bytes, end);
      if (bytes[at] === COMMA) at = afterSpace(bytes, at + 1);
    }
    return at + 1;
  }
  yield* visit(afterSpace(bytes, afterMark(bytes)), [...paths.keys()], 0);
  return offsets;
}

function* positionSteps(bytes: Buffer, offsets: readonly number[]): Generator<void, ReadonlyMap<number, Position>> {
  const places = new Map<number, Position>();
  const place = { line: 1, column: 1 };
  let at = afterMark(bytes);
  for (const offset of [...offsets].sort((a, b) => a - b)) {
    for (; at < offset; yield) {
      const end = Math.min(offset, at + BYTES_OF_A_STEP);
      passBytes(bytes, at, end, place);
      at = end;
    }
    places.set(offset, { ...place });
  }
  return places;
}
