/**
 * The conditions of routes: their field of the configuration, what the route table needs of them, and whether those of
 * two routes can hold for the same request.
 */
import { examplePattern } from "../base/linear_pattern.ts";
import { CONDITIONS } from "../config/conditions.ts";
import type { Service } from "../config/model.ts";
import type { FeatureFields } from "../config/feature_fields.ts";
import type { Condition, Conditions, Holds, PlainCondition } from "../http/condition_types.ts";
import { compileConditions, isNegated, schemeOf } from "../http/conditions.ts";
import { dashed } from "../http/headers.ts";
import type { PlacedCondition, RouteConditions, SampleStates } from "./contracts.ts";

export const fields: FeatureFields = { schemas: { match: CONDITIONS } };

/** Throws an Error for a pattern that `linearPattern` refuses. */
export function routeConditions(written: Conditions): RouteConditions {
  return { written, list: placedConditions(written), holds: compileConditions(written) };
}

/** As trailers they would reach the upstream behind another route. */
export function matchedHeaders(services: readonly Service[]): ReadonlySet<string> | undefined {
  const names = services.flatMap(({ routes }) => routes.flatMap(({ match }) => Object.keys(match?.headers ?? {})));
  return names.length === 0 ? undefined : new Set(names.map(dashed));
}

export function placedConditions(conditions: Conditions): readonly PlacedCondition[] {
  return placesOf(conditions).map(([place, written]) => {
    const name = place === "headers" ? written.toLowerCase() : written;
    // One is the other's absence: a request has one of both.
    const wanted = place === "scheme" ? written === "https" || null : plainest(conditions[place][written]!);
    return {
      key: place === "scheme" ? place : `${place} ${name}`,
      place,
      name,
      wanted,
      statesAgainst: statesFor,
    };
  });
}

type NamedPlace = readonly [place: keyof Conditions, name: string];

/** Each condition, with its name as written. */
export function placesOf({
  scheme,
  ...named
}: { readonly [Place in NamedPlaces]?: object | undefined } & {
  readonly scheme?: Conditions["scheme"] | undefined;
}): readonly NamedPlace[] {
  const places = PLACES.flatMap((place) => Object.keys(named[place] ?? {}).map((name) => [place, name] as const));
  return scheme === undefined ? places : [...places, ["scheme", schemeOf(scheme)]];
}

/** What is not absent is present. */
function plainest(wanted: Condition): Condition {
  if (!isNegated(wanted) || typeof wanted.not === "string") return wanted;
  if (wanted.not === null) return true;
  return wanted.not === true ? null : wanted;
}

/** "header X-Version and query parameter beta", without the values, which may be secret. */
export function namesOf(places: readonly NamedPlace[]): string {
  const texts = places.map(([place, name]) => `${WORDS[place]} ${name}`);
  return texts.length < 2 ? texts.join() : `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)}`;
}

const WORDS = { headers: "header", query: "query parameter", cookies: "cookie", scheme: "scheme" };
const PLACES = ["headers", "query", "cookies"] as const;
type NamedPlaces = (typeof PLACES)[number];

/**
 * Whether one request can fulfil both, as far as that can be told: not if a name must be absent for one and present for
 * the other, or must have different values. A request with several values of one name is left aside. Two patterns can
 * hold at once, unless both list their texts (`^(?:a|b)$`), or one is the other's negation.
 */
export function canMeet(a: readonly PlacedCondition[], b: readonly PlacedCondition[]): boolean {
  return a.every(({ key, wanted }) => b.every((other) => other.key !== key || valuesMeet(wanted, other.wanted)));
}

function valuesMeet(a: Condition, b: Condition): boolean {
  if (holdsAbsent(a) && holdsAbsent(b)) return true;
  if (a === null || b === null) return false;
  if (typeof a === "string" && typeof b === "string") return a === b;
  const [texts, others] = [textsOf(a), textsOf(b)];
  if (texts !== null) return texts.some((text) => (others === null ? fits(b, text) : others.includes(text)));
  return others === null ? !isNegationOf(a, b) && !isNegationOf(b, a) : others.some((text) => fits(a, text));
}

/** Of a name that is absent. */
function holdsAbsent(wanted: Condition): boolean {
  return wanted === null || isNegated(wanted);
}

function isNegationOf(a: Condition, b: Condition): boolean {
  return isNegated(a) && isSame(a.not, b);
}

function isSame(a: PlainCondition, b: Condition): boolean {
  if (typeof a !== "object" || a === null) return a === b;
  return typeof b === "object" && b !== null && "matches" in b && a.matches === b.matches;
}

/** `statesAgainst` of `PlacedCondition`. */
function statesFor(rivals: readonly Condition[], together: readonly Condition[]): SampleStates {
  const absent = together.every(holdsAbsent) ? [ABSENT] : [];
  // Without the name no condition holds but those that want it to be absent, or not to have a value.
  if (absent.length > 0 && !rivals.some(holdsAbsent)) return { states: absent, isComplete: true };
  const own = valuesFor(rivals, together);
  if (own.values.length === 0) return { states: absent, isComplete: true };
  const { alone, beside, isComplete } = failingNegated(rivals, together);
  const isOwn = (value: string) => together.every((each) => fits(each, value));
  // One of the values has to fulfil `together`.
  const several = beside.flatMap((some) => (some.some(isOwn) ? [some] : own.values.map((value) => [value, ...some])));
  const single = [...own.values, ...alone].map((value) => [value]);
  return { states: distinct([...absent, ...single, ...several]), isComplete: own.isComplete && isComplete };
}

interface FailingValues {
  /** Values that fulfil `together` as well. */
  readonly alone: readonly string[];
  /** Lists of values that may stand beside one that fulfils `together`. */
  readonly beside: readonly (readonly string[])[];
  readonly isComplete: boolean;
}

/** A rival with `not` fails only for what it names, which may be one of several values of the name. */
function failingNegated(rivals: readonly Condition[], together: readonly Condition[]): FailingValues {
  const negated = [...new Map(rivals.filter(isNegated).map(({ not }) => [JSON.stringify(not), not])).values()];
  const denied = together.filter(isNegated);
  const alone: string[] = [];
  let isComplete = negated.length <= MAX_NEGATED;
  let beside: readonly (readonly string[])[] = [ABSENT];
  for (const each of negated.slice(0, MAX_NEGATED)) {
    const both = valuesFor(rivals, [...together, each]);
    const found = denied.length === together.length ? both : valuesFor(rivals, [...denied, each]);
    alone.push(...both.values);
    const more = choicesOf([...both.values, ...found.values], rivals);
    const combined = beside.flatMap((some) => more.map((values) => [...some, ...values]));
    isComplete &&= found.isComplete && combined.length <= MAX_BESIDE;
    beside = combined.slice(0, MAX_BESIDE);
  }
  return { alone, beside, isComplete };
}

/** Each state once, and each of its values. */
function distinct(states: readonly (readonly string[])[]): readonly (readonly string[])[] {
  const sets = states.map((values) => [...new Set(values)]);
  return [...new Map(sets.map((values) => [JSON.stringify(values), values])).values()];
}

/** How many negated conditions of rivals are looked at for one name, and how many combinations of their values. */
const MAX_NEGATED = 32;
const MAX_BESIDE = 64;
const ABSENT: readonly string[] = [];

/** What may stand beside other values: always one that fulfils no rival by its value, else each of them, or none. */
function choicesOf(values: readonly string[], rivals: readonly Condition[]): readonly (readonly string[])[] {
  const byValue = rivals.filter((each) => each !== null && each !== true && !isNegated(each));
  const harmless = values.find((value) => !byValue.some((each) => fits(each, value)));
  return harmless === undefined ? [ABSENT, ...values.map((value) => [value])] : [[harmless]];
}

interface Values {
  readonly values: readonly string[];
  /** Whether every other value fulfils the same rivals by its value as one of these, or more. */
  readonly isComplete: boolean;
}

/** Values of a name that is there. */
function valuesFor(rivals: readonly Condition[], together: readonly Condition[]): Values {
  if (together.some((each) => each === null)) return NONE;
  if (together.some((each, i) => together.some((other, j) => j < i && !valuesMeet(each, other)))) return NONE;
  const isFit = (value: string) => together.every((each) => fits(each, value));
  const listed = together.map(textsOf).find((texts) => texts !== null);
  if (listed !== undefined) return { values: listed.filter(isFit), isComplete: true };
  const examples = [...together, true as const].map(exampleOf);
  const values = [
    ...examples.flatMap((example) => [example, `${example}x`, `x${example}`, `${example}${example}`]),
    ..."0az~",
  ].filter(isFit);
  // Every value that fulfils this pattern fulfils the same pattern of another route.
  const avoided = rivals.filter(
    (each) => each !== null && each !== true && !isNegated(each) && !together.some((own) => isSame(each, own)),
  );
  const plain = values.find((value) => !avoided.some((each) => fits(each, value)));
  return { values: [plain ?? values[0] ?? examples[0]!], isComplete: plain !== undefined };
}

const NONE: Values = { values: [], isComplete: true };

function exampleOf(wanted: Condition): string {
  return typeof wanted === "object" && wanted !== null && "matches" in wanted
    ? (examplePattern(wanted.matches) ?? "")
    : "x";
}

/** Whether a value fulfils a condition. */
function fits(wanted: Condition, value: string): boolean {
  if (isNegated(wanted)) return !fits(wanted.not, value);
  if (typeof wanted === "string" || wanted === null) return wanted === value;
  return wanted === true || known(wanted).holds(["a", value], "", "http");
}

/** All texts that fulfil a condition; null: unknown, or too many. `^(?:v1|v2\.0)$` is "v1" and "v2.0". */
function textsOf(wanted: Condition): readonly string[] | null {
  if (typeof wanted === "string") return [wanted];
  return wanted === null || wanted === true || isNegated(wanted) ? null : known(wanted).texts;
}

type Pattern = Extract<PlainCondition, object>;

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
