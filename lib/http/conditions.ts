/**
 * Decides whether a request fulfils configured conditions on its headers, its query, its cookies and its scheme.
 */
import { boundedPattern } from "../base/linear_pattern.ts";
import type { Condition, Conditions, Holds, PlainCondition, Scheme } from "./condition_types.ts";
import { findCookie } from "./cookies.ts";
import { sameName, UNKNOWN_VALUE, type HeaderList } from "./headers.ts";

export interface ConditionTest {
  readonly place: keyof Conditions;
  readonly name: string;
  readonly holds: Holds;
}

/** Whether all conditions hold. Throws an Error for a pattern that `linearPattern` refuses. */
export function compileConditions(conditions: Conditions): Holds {
  const tests = conditionTests(conditions).map(({ holds }) => holds);
  return (headers, query, scheme) => {
    for (const holds of tests) if (!holds(headers, query, scheme)) return false;
    return true;
  };
}

/**
 * One test for each condition, the cheapest first: the scheme, headers by exact value, presence of headers, query,
 * cookies, patterns.
 */
export function conditionTests(conditions: Conditions): readonly ConditionTest[] {
  const tests: (ConditionTest & { readonly cost: number })[] = PLACES.flatMap((place) =>
    Object.entries(conditions[place]).map(([name, wanted]) => ({
      place,
      name,
      holds: testOf(place, name, wanted),
      cost: costOf(place, wanted),
    })),
  );
  if (conditions.scheme !== undefined) {
    const wanted = schemeOf(conditions.scheme);
    tests.push({ place: "scheme", name: wanted, holds: (_headers, _query, scheme) => scheme === wanted, cost: -1 });
  }
  return tests.sort((a, b) => a.cost - b.cost);
}

/** Of two schemes, what is not one is the other. */
export function schemeOf(wanted: NonNullable<Conditions["scheme"]>): Scheme {
  if (typeof wanted === "string") return wanted;
  return wanted.not === "http" ? "https" : "http";
}

export function isNegated(wanted: Condition): wanted is { readonly not: PlainCondition } {
  return typeof wanted === "object" && wanted !== null && "not" in wanted;
}

const PLACES = ["headers", "query", "cookies"] as const;
type NamedPlace = (typeof PLACES)[number];

function costOf(place: NamedPlace, wanted: Condition): number {
  if (isNegated(wanted)) return costOf(place, wanted.not);
  if (typeof wanted === "object" && wanted !== null) return 4;
  return place === "headers" ? (typeof wanted === "string" ? 0 : 1) : place === "query" ? 2 : 3;
}

function testOf(place: NamedPlace, name: string, wanted: Condition): Holds {
  if (!isNegated(wanted)) return plainTest(place, name, wanted, true);
  const fails = plainTest(place, name, wanted.not, false);
  return (headers, query, scheme) => !fails(headers, query, scheme);
}

/** `fitsUnknown`: whether a value that is not known yet is taken for one that fits; see `UNKNOWN_VALUE`. */
function plainTest(place: NamedPlace, name: string, wanted: PlainCondition, fitsUnknown: boolean): Holds {
  if (wanted === null) {
    const isPresent = searchOf(place, name, ANY);
    return (headers, query) => !isPresent(headers, query);
  }
  if (wanted === true) return searchOf(place, name, ANY);
  if (typeof wanted === "object") return patternTest(place, name, wanted.matches, fitsUnknown);
  if (place !== "query")
    return searchOf(place, name, (value) => (value === UNKNOWN_VALUE ? fitsUnknown : value === wanted));
  const bytes = Buffer.from(wanted);
  return searchOf(place, name, (raw) => decodesTo(raw, 0, raw.length, bytes));
}

/** Gets values of the query as they were sent. */
type Fits = (value: string) => boolean;
const ANY: Fits = () => true;

type Search = (headers: HeaderList, query: string) => boolean;

/** Whether one of the values of this name fits. */
function searchOf(place: NamedPlace, name: string, fits: Fits): Search {
  if (place === "query") {
    const bytes = Buffer.from(name);
    return (_headers, query) => hasParameter(query, bytes, fits);
  }
  if (place === "cookies") {
    const read = (value: string) => fits(value) || null;
    return (headers) => findCookie(headers, name, read) !== null;
  }
  const lower = name.toLowerCase();
  return (headers) => {
    for (let i = 0; i < headers.length; i += 2) if (sameName(headers[i]!, lower) && fits(headers[i + 1]!)) return true;
    return false;
  };
}

/** "?a&a=1&&b" has two values of "a": "" and "1". */
function hasParameter(query: string, name: Buffer, fits: Fits): boolean {
  for (let start = 1; start < query.length;) {
    let equals = start;
    while (equals < query.length && query.charCodeAt(equals) !== EQUALS && query.charCodeAt(equals) !== AMPERSAND)
      equals++;
    let end = equals;
    while (end < query.length && query.charCodeAt(end) !== AMPERSAND) end++;
    if (decodesTo(query, start, equals, name) && fits(query.slice(equals + 1, end))) return true;
    start = end + 1;
  }
  return false;
}

/**
 * Whether a part of a query is this text in UTF-8, once it is decoded. Ends at the first difference; invalid text costs
 * nothing.
 */
function decodesTo(query: string, start: number, end: number, wanted: Buffer): boolean {
  let length = 0;
  for (let i = start; i < end; i++) {
    let code = query.charCodeAt(i);
    if (code === PLUS) code = SPACE;
    else if (code === PERCENT && HEX_PAIR.test(query.slice(i + 1, i + 3))) {
      code = parseInt(query.slice(i + 1, i + 3), 16);
      i += 2;
    }
    if (wanted[length++] !== code) return false;
  }
  return length === wanted.length;
}

function patternTest(place: NamedPlace, name: string, source: string, fitsUnknown: boolean): Holds {
  const pattern = boundedPattern(source);
  const search = searchOf(place, name, (value) =>
    value === UNKNOWN_VALUE ? fitsUnknown : pattern.test(place === "query" ? decoded(value) : value),
  );
  return (headers, query) => {
    pattern.begin();
    return search(headers, query);
  };
}

/** Bytes that are not UTF-8 become U+FFFD. */
function decoded(raw: string): string {
  if (!ENCODED.test(raw)) return raw;
  const bytes = raw
    .replaceAll("+", " ")
    .replace(/%([0-9A-Fa-f]{2})/g, (_escape, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  return Buffer.from(bytes, "latin1").toString();
}

const ENCODED = /[+%\x80-\xff]/;
const HEX_PAIR = /^[0-9A-Fa-f]{2}$/;
const SPACE = 0x20;
const PERCENT = 0x25;
const AMPERSAND = 0x26;
const PLUS = 0x2b;
const EQUALS = 0x3d;
