/**
 * Compares the conditions of routes: whether those of two routes can hold for the same request.
 */
import { compileConditions, type Condition, type Conditions, type Holds } from "../http/conditions.ts";

/** One condition of a route. */
export interface PlacedCondition {
  /** Of place and name: equal for conditions on the same values of a request. */
  readonly key: string;
  readonly place: keyof Conditions;
  /** Of a header in lower case. */
  readonly name: string;
  readonly wanted: Condition;
}

/** All conditions; none for undefined. */
export function listOf(conditions: Conditions | undefined): readonly PlacedCondition[] {
  if (conditions === undefined) return NONE;
  return placesOf(conditions).map(([place, written]) => {
    const name = place === "headers" ? written.toLowerCase() : written;
    return { key: `${place} ${name}`, place, name, wanted: conditions[place][written] as Condition };
  });
}

const NONE: readonly PlacedCondition[] = [];

type NamedPlace = readonly [place: keyof Conditions, name: string];

/** Each condition, with its name as written. */
export function placesOf(conditions: { readonly [Place in keyof Conditions]?: object | undefined }): readonly NamedPlace[] {
  return PLACES.flatMap((place) => Object.keys(conditions[place] ?? {}).map((name) => [place, name] as const));
}

/** "header X-Version and query parameter beta", without the values, which may be secret. */
export function namesOf(places: readonly NamedPlace[]): string {
  const texts = places.map(([place, name]) => `${WORDS[place]} ${name}`);
  return texts.length < 2 ? texts.join() : `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)}`;
}

const WORDS = { headers: "header", query: "query parameter", cookies: "cookie" };
const PLACES = ["headers", "query", "cookies"] as const;

/**
 * Whether one request can fulfil both, as far as that can be told: not if a name must be absent for one and present for the other, or must
 * have different values. A request with several values of one name is left aside. Two patterns can hold at once, unless both list their texts:
 * `^(?:a|b)$`.
 */
export function canMeet(a: readonly PlacedCondition[], b: readonly PlacedCondition[]): boolean {
  return a.every(({ key, wanted }) => b.every((other) => other.key !== key || valuesMeet(wanted, other.wanted)));
}

function valuesMeet(a: Condition, b: Condition): boolean {
  if (a === null || b === null || (typeof a === "string" && typeof b === "string")) return a === b;
  const [texts, others] = [textsOf(a), textsOf(b)];
  if (texts !== null) return texts.some((text) => (others === null ? fits(b, text) : others.includes(text)));
  return others === null || others.some((text) => fits(a, text));
}

/** Whether a value fulfils a condition. */
export function fits(wanted: Condition, value: string): boolean {
  if (typeof wanted === "string" || wanted === null) return wanted === value;
  return wanted === true || known(wanted).holds(["a", value], "");
}

/** All texts that fulfil a condition; null: unknown. `^(?:v1|v2\.0)$` is "v1" and "v2.0". */
function textsOf(wanted: Condition): readonly string[] | null {
  if (typeof wanted === "string") return [wanted];
  return wanted === null || wanted === true ? null : known(wanted).texts;
}

type Pattern = Extract<Condition, object>;

interface Known {
  readonly holds: Holds;
  readonly texts: readonly string[] | null;
}

/** Each pattern is compiled once: a thousand routes of one path are compared in pairs. */
function known(pattern: Pattern): Known {
  const found = KNOWN.get(pattern);
  if (found !== undefined) return found;
  const listed = LISTED.exec(pattern.matches);
  const texts = listed === null ? null : listed[1]!.split("|").map((text) => text.replace(/\\(.)/g, "$1"));
  const made = { holds: compileConditions({ headers: { a: pattern }, query: {}, cookies: {} }), texts };
  KNOWN.set(pattern, made);
  return made;
}

const KNOWN = new WeakMap<Pattern, Known>();

/** Characters without a meaning in patterns, and the escapes of those with one, except "|". */
const LISTED = /^\^\((?:\?:)?((?:[^\\^$.*+?()[\]{}]|\\[\\^$.*+?()[\]{}/-])*)\)\$$/;
