/**
 * The conditions of routes: their field of the configuration, what the route table needs of them, and whether those of
 * two routes can hold for the same request.
 */
import { isDeepStrictEqual } from "node:util";
import { examplePattern } from "../base/linear_pattern.ts";
import { CONDITIONS } from "../config/conditions.ts";
import type { Service } from "../config/model.ts";
import type { FeatureFields } from "../config/feature_fields.ts";
import type { Condition, Conditions, Holds, Scheme } from "../http/condition_types.ts";
import { compileConditions } from "../http/conditions.ts";
import { dashed } from "../http/headers.ts";
import type { PlacedCondition, RouteConditions, SampleValue } from "./contracts.ts";

export const fields: FeatureFields = { schemas: { match: CONDITIONS } };

/** Throws an Error for a pattern that `linearPattern` refuses. */
export function routeConditions(written: Conditions): RouteConditions {
  return { written, list: listOf(written), holds: compileConditions(written) };
}

/** As trailers they would reach the upstream behind another route. */
export function matchedHeaders(services: readonly Service[]): ReadonlySet<string> | undefined {
  const names = services.flatMap(({ routes }) => routes.flatMap(({ match }) => Object.keys(match?.headers ?? {})));
  return names.length === 0 ? undefined : new Set(names.map(dashed));
}

export function listOf(conditions: Conditions): readonly PlacedCondition[] {
  return placesOf(conditions).map(([place, written]) => {
    const name = place === "headers" ? written.toLowerCase() : written;
    // One is the other's absence: a request has one of both.
    const wanted = place === "scheme" ? written === "https" || null : conditions[place][written]!;
    return {
      key: place === "scheme" ? place : `${place} ${name}`,
      place,
      name,
      wanted,
      valueAgainst: valueFor,
    };
  });
}

type NamedPlace = readonly [place: keyof Conditions, name: string];

/** Each condition, with its name as written. */
export function placesOf({
  scheme,
  ...named
}: { readonly [Place in NamedPlaces]?: object | undefined } & {
  readonly scheme?: Scheme | undefined;
}): readonly NamedPlace[] {
  const places = PLACES.flatMap((place) => Object.keys(named[place] ?? {}).map((name) => [place, name] as const));
  return scheme === undefined ? places : [...places, ["scheme", scheme]];
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
 * hold at once, unless both list their texts:
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

function valueFor(rivals: readonly Condition[], together: readonly Condition[]): SampleValue | null {
  const [first = true, ...others] = together;
  if (others.some((each) => together.some((other) => !valuesMeet(each, other)))) return null;
  const exact = together.find((each) => typeof each === "string");
  if (exact !== undefined) return { value: exact, isPlain: true };
  const wanted = [first, ...others];
  const listed = others.length === 0 ? [] : wanted.flatMap((each) => textsOf(each) ?? []);
  const examples = [...wanted.map(exampleOf), ...listed];
  const values = [
    ...examples.flatMap((example) => [example, `${example}x`, `x${example}`, `${example}${example}`]),
    ..."0az~",
  ].filter((value) => wanted.every((each) => fits(each ?? true, value)));
  // Every value that fulfils this pattern fulfils the same pattern of another route.
  const avoided = rivals.filter(
    (each) => each !== null && each !== true && !wanted.some((own) => isDeepStrictEqual(each, own)),
  );
  const plain = values.find((value) => !avoided.some((each) => fits(each, value)));
  return { value: plain ?? values[0] ?? examples[0]!, isPlain: plain !== undefined };
}

function exampleOf(wanted: Condition): string {
  return wanted === null || typeof wanted !== "object" ? "x" : (examplePattern(wanted.matches) ?? "");
}

/** Whether a value fulfils a condition. */
function fits(wanted: Condition, value: string): boolean {
  if (typeof wanted === "string" || wanted === null) return wanted === value;
  return wanted === true || known(wanted).holds(["a", value], "", "http");
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
