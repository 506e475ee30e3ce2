/**
 * The table of the JSON Schema keywords that constrain values: the form of each keyword's value, and its check.
 */
import { linearPattern, type LinearPattern } from "../base/linear_pattern.ts";
import { atOnce } from "../base/time_slices.ts";
import { FORMATS } from "./formats.ts";
import { andThen, countOf, eachOf, resumed, type Check, type Done, type Run } from "./run.ts";
import * as values from "./values.ts";
import { isObject, pointerStep, type InstancePath } from "./values.ts";

/** The schema object that is being compiled. */
export interface Subject {
  readonly schema: Readonly<Record<string, unknown>>;
  /** Paths start at this object. */
  readonly report: (path: InstancePath, message: string) => void;
  readonly expected: (path: InstancePath, expected: string) => false;
  /** Compiles the subschema at this path, for the same value or a part of it. */
  readonly compile: (path: InstancePath, appliesTo: "same value" | "part") => Check;
}

interface Keyword {
  /** Reports a value of the wrong form, and returns false. */
  readonly isValid: (given: any, path: InstancePath, subject: Subject) => boolean;
  /** Absent for a keyword that is evaluated by another keyword. */
  readonly check?: (given: any, subject: Subject, keyword: string) => Check | undefined;
}

type Form = Keyword["isValid"];

const form =
  (expected: string, fits: (given: unknown) => boolean): Form =>
  (given, path, subject) =>
    fits(given) || subject.expected(path, expected);
const NUMBER = form("a number", Number.isFinite);
const POSITIVE = form("a number above 0", (given) => Number.isFinite(given) && (given as number) > 0);
const COUNT = form("an integer ≥ 0", (given) => Number.isSafeInteger(given) && (given as number) >= 0);
const BOOLEAN = form("true or false", (given) => typeof given === "boolean");
const NAMES = form(
  "an array of names",
  (given) => Array.isArray(given) && given.every((name) => typeof name === "string"),
);
const LIST = form("an array with at least one value", (given) => Array.isArray(given) && given.length > 0);
const SCHEMAS = form("an array with at least one schema", (given) => Array.isArray(given) && given.length > 0);
const NAMED_SCHEMAS = form("an object of schemas", isObject);
const FORMAT = form(
  `one of ${Object.keys(FORMATS).join(", ")}`,
  (given) => typeof given === "string" && Object.hasOwn(FORMATS, given),
);
const TYPE = form(
  `one of ${Object.keys(values.TYPE_NAMES).join(", ")}`,
  (given) => typeof given === "string" && Object.hasOwn(values.TYPE_NAMES, given),
);
const TYPES: Form = (given, path, subject) => {
  if (!Array.isArray(given)) return TYPE(given, path, subject);
  return given.length === 0
    ? subject.expected(path, "at least one type")
    : all(given, (each, i) => TYPE(each, [...path, i], subject));
};
const LISTS_OF_NAMES: Form = (given, path, subject) =>
  isObject(given)
    ? all(Object.entries(given), ([name, names]) => NAMES(names, [...path, name], subject))
    : subject.expected(path, "an object of lists of names");
const PATTERN: Form = (given, path, subject) =>
  typeof given === "string" ? isPattern(given, path, subject) : subject.expected(path, "a string");
const PATTERN_SCHEMAS: Form = (given, path, subject) =>
  NAMED_SCHEMAS(given, path, subject) &&
  all(Object.keys(given as object), (source) => isPattern(source, [...path, source], subject));
/** Reported where the subschema is compiled. */
const SCHEMA: Form = () => true;

const ITEMS = firstOf(["prefixItems", "items"], items);
const MEMBERS = firstOf(["properties", "patternProperties", "additionalProperties"], members);

/** In the order in which a value is checked; `$ref` goes before all of them. */
export const KEYWORDS: Readonly<Record<string, Keyword>> = {
  type: { isValid: TYPES, check: type },
  const: { isValid: () => true, check: (given) => equals([given], values.shortJson(given, 80)) },
  enum: { isValid: LIST, check: enumeration },
  minimum: { isValid: NUMBER, check: (limit) => numbers(`at least ${limit}`, (value) => value >= limit) },
  maximum: { isValid: NUMBER, check: (limit) => numbers(`at most ${limit}`, (value) => value <= limit) },
  exclusiveMinimum: { isValid: NUMBER, check: (limit) => numbers(`more than ${limit}`, (value) => value > limit) },
  exclusiveMaximum: { isValid: NUMBER, check: (limit) => numbers(`less than ${limit}`, (value) => value < limit) },
  multipleOf: { isValid: POSITIVE, check: (step) => numbers(`a multiple of ${step}`, values.isMultipleOf(step)) },
  minLength: {
    isValid: COUNT,
    check: (limit) => size("least", limit, "character", "characters", (value) => lengthOf(value, limit)),
  },
  maxLength: {
    isValid: COUNT,
    check: (limit) => size("most", limit, "character", "characters", (value) => lengthOf(value, limit + 1)),
  },
  pattern: { isValid: PATTERN, check: pattern },
  format: { isValid: FORMAT, check: format },
  minItems: {
    isValid: COUNT,
    check: (limit) => size("least", limit, "item", "items", (value) => (Array.isArray(value) ? value.length : null)),
  },
  maxItems: {
    isValid: COUNT,
    check: (limit) => size("most", limit, "item", "items", (value) => (Array.isArray(value) ? value.length : null)),
  },
  uniqueItems: { isValid: BOOLEAN, check: (given) => (given === true ? checkUnique : undefined) },
  prefixItems: { isValid: SCHEMAS, check: ITEMS },
  items: { isValid: SCHEMA, check: ITEMS },
  contains: { isValid: SCHEMA, check: contains },
  minContains: { isValid: COUNT },
  maxContains: { isValid: COUNT },
  minProperties: { isValid: COUNT, check: (limit) => size("least", limit, "property", "properties", propertyCount) },
  maxProperties: { isValid: COUNT, check: (limit) => size("most", limit, "property", "properties", propertyCount) },
  required: {
    isValid: NAMES,
    check: (names) => objects((value, pointer, run) => requireAll(names, value, pointer, run, "is required")),
  },
  dependentRequired: { isValid: LISTS_OF_NAMES, check: dependentRequired },
  properties: { isValid: NAMED_SCHEMAS, check: MEMBERS },
  patternProperties: { isValid: PATTERN_SCHEMAS, check: MEMBERS },
  additionalProperties: { isValid: SCHEMA, check: MEMBERS },
  propertyNames: { isValid: SCHEMA, check: propertyNames },
  allOf: { isValid: SCHEMAS, check: allOf },
  anyOf: { isValid: SCHEMAS, check: anyOf },
  oneOf: { isValid: SCHEMAS, check: oneOf },
  not: { isValid: SCHEMA, check: not },
  if: { isValid: SCHEMA, check: conditional },
  then: { isValid: needsIf, check: withoutIf },
  else: { isValid: needsIf, check: withoutIf },
};

function isPattern(source: string, path: InstancePath, subject: Subject): boolean {
  const compiled = linearPattern(source);
  if (typeof compiled === "string") subject.report(path, `the pattern ${compiled}`);
  return typeof compiled !== "string";
}

function needsIf(_given: unknown, _path: InstancePath, subject: Subject): boolean {
  if (subject.schema.if === undefined) subject.report([], '"then" and "else" need an "if" beside them');
  return true;
}

/** Reports the schema errors of a "then" or "else" without an "if". */
function withoutIf(_given: unknown, { schema, compile }: Subject, keyword: string): undefined {
  if (schema.if === undefined) compile([keyword], "same value");
}

/** Like `every`, but looks at each: all errors are reported at once. */
function all<T>(list: readonly T[], fits: (each: T, i: number) => boolean): boolean {
  return list.map(fits).every(Boolean);
}

/** One check for several keywords: made for the first of them that the schema has. */
function firstOf(keywords: readonly string[], make: (subject: Subject) => Check) {
  return (_given: unknown, subject: Subject, keyword: string): Check | undefined => {
    const first = keywords.find((each) => subject.schema[each] !== undefined);
    return first === keyword ? make(subject) : undefined;
  };
}

function type(given: string | readonly string[]): Check {
  const types = [given].flat();
  const expected = types.map((name) => values.TYPE_NAMES[name]).join(" or ");
  return (value, pointer, run) => {
    if (!types.some((name) => values.isOfType(value, name)))
      run.add(pointer, `expected ${expected}, found ${values.typeName(value)}`);
  };
}

function enumeration(choices: readonly unknown[]): Check {
  const shown = choices.slice(0, 20).map((each) => values.shortJson(each, 80));
  return equals(choices, `one of ${shown.join(", ")}${choices.length > 20 ? ", …" : ""}`);
}

function equals(allowed: readonly unknown[], expected: string): Check {
  const simple = new Set(allowed.filter((each) => !isComposite(each)));
  const composite = allowed.filter(isComposite);
  const texts = new Set(composite.map((each) => atOnce(values.canonical(each, null))));
  const largest = composite.reduce<number>((most, each) => Math.max(most, values.countValues(each, Infinity)), 0);
  const compare = (isEqual: boolean, pointer: string, run: Run) =>
    isEqual ? undefined : run.add(pointer, `expected ${expected}`);
  return (value, pointer, run) => {
    if (!isComposite(value)) return compare(simple.has(value), pointer, run);
    if (largest === 0) return compare(false, pointer, run);
    // Avoids serialising a large value to compare it with small ones.
    const room = { left: largest };
    return andThen(resumed(values.canonical(value, run.work, room), run.work), (text) =>
      compare(room.left >= 0 && texts.has(text), pointer, run),
    );
  };
}

/** An array or an object. */
function isComposite(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function numbers(expected: string, fits: (value: number, run: Run) => boolean): Check {
  return (value, pointer, run) => {
    if (typeof value === "number" && !fits(value, run)) run.add(pointer, `expected ${expected}`);
  };
}

/** `sizeOf` returns null for values of another type. */
function size(
  bound: "least" | "most",
  limit: number,
  one: string,
  many: string,
  sizeOf: (value: unknown, run: Run) => number | null,
): Check {
  return (value, pointer, run) => {
    const found = sizeOf(value, run);
    if (found === null || (bound === "least" ? found >= limit : found <= limit)) return;
    run.add(
      pointer,
      `expected at ${bound} ${limit} ${limit === 1 ? one : many}${one === "item" ? `, found ${found}` : ""}`,
    );
  };
}

function lengthOf(value: unknown, enough: number): number | null {
  return typeof value === "string" ? values.countCharacters(value, enough) : null;
}

function propertyCount(value: unknown, run: Run): number | null {
  return isObject(value) ? run.work.namesOf(value).length : null;
}

function pattern(source: string): Check {
  const compiled = linearPattern(source) as LinearPattern;
  return (value, pointer, run) => {
    if (typeof value !== "string") return undefined;
    return andThen(compiled.test(value, run.work), (matches) =>
      matches ? undefined : run.add(pointer, `does not match the pattern ${source}`),
    );
  };
}

function format(name: string): Check {
  const { expected, fits } = FORMATS[name]!;
  return (value, pointer, run) => {
    if (typeof value === "string" && !fits(value)) run.add(pointer, `expected ${expected}`);
  };
}

const checkUnique: Check = (value, pointer, run) => {
  if (!Array.isArray(value)) return;
  const simple = new Map<unknown, number>();
  const composite = new Map<unknown, number>();
  const isRepeated = (seen: Map<unknown, number>, key: unknown, i: number) => {
    const first = seen.get(key);
    if (first === undefined) seen.set(key, i);
    else run.add(`${pointer}/${i}`, `is the same as item ${first}`);
    return first !== undefined;
  };
  const repeats = countOf(value.length, 1, (i) => {
    const item: unknown = value[i];
    if (isComposite(item)) {
      const text = resumed(values.canonical(item, run.work), run.work);
      return typeof text === "string"
        ? isRepeated(composite, text, i)
        : text.then((later) => isRepeated(composite, later, i));
    }
    run.work.spendOn(item);
    return run.work.isDue ? run.work.pause().then(() => isRepeated(simple, item, i)) : isRepeated(simple, item, i);
  });
  return andThen(repeats, () => {});
};

function items({ schema, compile }: Subject): Check {
  const first = ((schema.prefixItems ?? []) as unknown[]).map((_item, i) => compile(["prefixItems", i], "part"));
  const rest = schema.items === undefined || schema.items === true ? undefined : compile(["items"], "part");
  const last = rest === undefined ? first.length : Infinity;
  return (value, pointer, run) =>
    Array.isArray(value)
      ? eachOf(Math.min(value.length, last), run, (i) => (first[i] ?? rest)!(value[i], `${pointer}/${i}`, run))
      : undefined;
}

function contains(_given: unknown, { schema, compile }: Subject): Check {
  const contained = compile(["contains"], "part");
  const least = (schema.minContains ?? 1) as number;
  const most = (schema.maxContains ?? Infinity) as number;
  const expected = (limit: number, verb: string, found: number) =>
    `${limit} item${limit === 1 ? "" : "s"} of the kind that it ${verb} contain, found ${found}`;
  return (value, pointer, run) => {
    if (!Array.isArray(value)) return;
    return andThen(
      countOf(value.length, Infinity, (i) => run.fits(contained, value[i])),
      (found) => {
        if (found < least) run.add(pointer, `expected at least ${expected(least, "has to", found)}`);
        if (found > most) run.add(pointer, `expected at most ${expected(most, "may", found)}`);
      },
    );
  };
}

function objects(check: (value: Readonly<Record<string, unknown>>, pointer: string, run: Run) => Done): Check {
  return (value, pointer, run) => (isObject(value) ? check(value, pointer, run) : undefined);
}

function requireAll(names: readonly string[], value: object, pointer: string, run: Run, message: string): void {
  run.work.spend(names.length >> 2);
  for (const name of names) if (!Object.hasOwn(value, name)) run.add(`${pointer}/${pointerStep(name)}`, message);
}

function dependentRequired(given: Readonly<Record<string, readonly string[]>>): Check {
  const rules = Object.entries(given);
  return objects((value, pointer, run) => {
    run.work.spend(rules.length >> 2);
    for (const [name, others] of rules) {
      if (Object.hasOwn(value, name))
        requireAll(others, value, pointer, run, `is required beside ${JSON.stringify(name)}`);
    }
  });
}

/** `properties`, `patternProperties`, and `additionalProperties` for the remaining properties. */
function members({ schema, compile }: Subject): Check {
  const namesIn = (keyword: string) => Object.keys(schema[keyword] ?? {});
  const named = new Map(namesIn("properties").map((name) => [name, compile(["properties", name], "part")]));
  const patterns = namesIn("patternProperties").map((source) => {
    return { pattern: linearPattern(source) as LinearPattern, check: compile(["patternProperties", source], "part") };
  });
  const others = schema.additionalProperties === undefined ? undefined : compile(["additionalProperties"], "part");
  const unknown: Check = (_value, at, run) => run.add(at, "is not a known property");
  const additional = schema.additionalProperties === false ? unknown : others;
  const byPatterns = (name: string, isNamed: boolean, member: unknown, at: string, run: Run): Done => {
    let isKnown = isNamed;
    const matching = eachOf(patterns.length, run, (i) =>
      andThen(patterns[i]!.pattern.test(name, run.work), (matches) => {
        isKnown ||= matches;
        return matches ? patterns[i]!.check(member, at, run) : undefined;
      }),
    );
    return andThen(matching, () => (isKnown ? undefined : additional?.(member, at, run)));
  };
  return objects((value, pointer, run) => {
    const names = run.work.namesOf(value);
    return eachOf(names.length, run, (i) => {
      const name = names[i]!;
      const own = named.get(name);
      if (own === undefined && patterns.length === 0 && additional === undefined) return run.step();
      const at = `${pointer}/${pointerStep(name)}`;
      if (patterns.length === 0) return (own ?? additional)!(value[name], at, run);
      return andThen(own?.(value[name], at, run), () => byPatterns(name, own !== undefined, value[name], at, run));
    });
  });
}

function propertyNames(_given: unknown, { compile }: Subject): Check {
  const check = compile(["propertyNames"], "part");
  return objects((value, pointer, run) => {
    const names = run.work.namesOf(value);
    return eachOf(names.length, run, (i) =>
      andThen(run.fits(check, names[i]), (fits) => {
        if (!fits) run.add(`${pointer}/${pointerStep(names[i]!)}`, "has a name that is not allowed");
      }),
    );
  });
}

function allOf(given: readonly unknown[], { compile }: Subject): Check {
  const all = given.map((_schema, i) => compile(["allOf", i], "same value"));
  return (value, pointer, run) => eachOf(all.length, run, (i) => all[i]!(value, pointer, run));
}

function anyOf(given: readonly unknown[], { compile }: Subject): Check {
  const forms = given.map((_schema, i) => compile(["anyOf", i], "same value"));
  return (value, pointer, run) =>
    andThen(
      countOf(forms.length, 1, (i) => run.fits(forms[i]!, value)),
      (fitting) => {
        if (fitting === 0) run.add(pointer, `fits none of the ${forms.length} forms that are allowed`);
      },
    );
}

function oneOf(given: readonly unknown[], { compile }: Subject): Check {
  const forms = given.map((_schema, i) => compile(["oneOf", i], "same value"));
  return (value, pointer, run) =>
    andThen(
      countOf(forms.length, Infinity, (i) => run.fits(forms[i]!, value)),
      (fitting) => {
        if (fitting !== 1)
          run.add(
            pointer,
            `fits ${fitting === 0 ? "none" : fitting} of the ${forms.length} forms of which it has to fit one`,
          );
      },
    );
}

function not(_given: unknown, { compile }: Subject): Check {
  const check = compile(["not"], "same value");
  return (value, pointer, run) =>
    andThen(run.fits(check, value), (fits) => {
      if (fits) run.add(pointer, "has a form that is not allowed");
    });
}

function conditional(_given: unknown, { schema, compile }: Subject): Check {
  const condition = compile(["if"], "same value");
  const consequence = schema.then === undefined ? undefined : compile(["then"], "same value");
  const otherwise = schema.else === undefined ? undefined : compile(["else"], "same value");
  return (value, pointer, run) =>
    andThen(run.fits(condition, value), (fits) => (fits ? consequence : otherwise)?.(value, pointer, run));
}
