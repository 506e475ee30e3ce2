/**
 * The keywords of JSON Schema that constrain values: each rule turns one of them, with the keywords that go with it, into a check.
 */
import { FORMATS } from "./formats.ts";
import { andThen, countOf, eachOf, type Check, type Done, type Run } from "./run.ts";
import type { SchemaReader } from "./schema_reader.ts";
import { canonical, countCharacters, countValues, isMultipleOf, isObject, isOfType, pointerStep, shortJson, typeName, TYPE_NAMES } from "./values.ts";

/** Nothing where the schema does not have the keyword, or has it with a wrong value, which it then reports. */
type Rule = (schema: SchemaReader) => Check | undefined;

export const KEYWORDS: readonly string[] = [
  "$ref", "type", "enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern",
  "format", "items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "properties", "required",
  "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties", "dependentRequired", "allOf", "anyOf", "oneOf", "not",
  "if", "then", "else",
];

/** In the order in which a value is checked; `$ref` goes before all of them. */
export const RULES: readonly Rule[] = [
  type,
  (schema) => (schema.value("const") === undefined ? undefined : equals([schema.value("const")], shortJson(schema.value("const"), 80))),
  enumeration,
  numberRule("minimum", (limit) => [`at least ${limit}`, (value) => value >= limit]),
  numberRule("maximum", (limit) => [`at most ${limit}`, (value) => value <= limit]),
  numberRule("exclusiveMinimum", (limit) => [`more than ${limit}`, (value) => value > limit]),
  numberRule("exclusiveMaximum", (limit) => [`less than ${limit}`, (value) => value < limit]),
  numberRule("multipleOf", (step) => [`a multiple of ${step}`, isMultipleOf(step)]),
  sizeRule("Length", ["character", "characters"], (value, least, most) => (typeof value === "string" ? countCharacters(value, least, most) : null)),
  pattern,
  format,
  sizeRule("Items", ["item", "items"], (value) => (Array.isArray(value) ? value.length : null)),
  (schema) => (schema.boolean("uniqueItems") === true ? checkUnique : undefined),
  items,
  contains,
  sizeRule("Properties", ["property", "properties"], (value, _least, _most, run) => (isObject(value) ? run.namesOf(value).length : null)),
  required,
  dependentRequired,
  properties,
  propertyNames,
  (schema) => allOf(schema.subschemas("allOf", "same value")),
  choice("anyOf", 1, (fitting, of) => (fitting === 0 ? `fits none of the ${of} forms that are allowed` : null)),
  choice("oneOf", Infinity, (fitting, of) => (fitting === 1 ? null : `fits ${fitting === 0 ? "none" : fitting} of the ${of} forms of which it has to fit one`)),
  not,
  conditional,
];

function type(schema: SchemaReader): Check | undefined {
  const given = schema.value("type");
  if (given === undefined) return undefined;
  const types = [given].flat() as string[];
  types.forEach((name, i) => {
    if (typeof name !== "string" || !Object.hasOwn(TYPE_NAMES, name)) schema.expected(`one of ${Object.keys(TYPE_NAMES).join(", ")}`, "type", ...(Array.isArray(given) ? [i] : []));
  });
  if (types.length === 0) return schema.expected("at least one type", "type");
  const expected = types.map((name) => TYPE_NAMES[name]).join(" or ");
  return (value, pointer, run) => {
    if (!types.some((name) => isOfType(value, name))) run.add(pointer, `expected ${expected}, found ${typeName(value)}`);
  };
}

function enumeration(schema: SchemaReader): Check | undefined {
  const choices = schema.value("enum");
  if (choices === undefined) return undefined;
  if (!Array.isArray(choices) || choices.length === 0) return schema.expected("an array with at least one value", "enum");
  const shown = choices.slice(0, 20).map((each) => shortJson(each, 80)).join(", ");
  return equals(choices, `one of ${shown}${choices.length > 20 ? ", …" : ""}`);
}

function equals(allowed: readonly unknown[], expected: string): Check {
  const texts = new Set(allowed.map((each) => canonical(each)));
  const largest = Math.max(...allowed.map((each) => countValues(each, Infinity)));
  return (value, pointer, run) => {
    // A large value is not written out only to find that it is not a small one.
    const isEqual = countValues(value, largest) <= largest && texts.has(canonical(value, run));
    if (!isEqual) run.add(pointer, `expected ${expected}`);
  };
}

function numberRule(keyword: string, make: (limit: number) => readonly [expected: string, fits: (value: number, run: Run) => boolean]): Rule {
  return (schema) => {
    const limit = schema.number(keyword);
    if (limit === undefined) return undefined;
    if (keyword === "multipleOf" && limit <= 0) return schema.expected("a number above 0", keyword);
    const [expected, fits] = make(limit);
    return (value, pointer, run) => {
      if (typeof value === "number" && !fits(value, run)) run.add(pointer, `expected ${expected}`);
    };
  };
}

/** `minLength` and `maxLength` and the like. `sizeOf` returns null for values of another type. */
function sizeRule(of: string, [one, many]: readonly [string, string], sizeOf: (value: unknown, least: number, most: number, run: Run) => number | null): Rule {
  return (schema) => {
    const [least = 0, most = Infinity] = [schema.count(`min${of}`), schema.count(`max${of}`)];
    if (least === 0 && most === Infinity) return undefined;
    return (value, pointer, run) => {
      const size = sizeOf(value, least, most, run);
      if (size === null || (size >= least && size <= most)) return;
      const limit = size < least ? least : most;
      run.add(pointer, `expected at ${size < least ? "least" : "most"} ${limit} ${limit === 1 ? one : many}${of === "Items" ? `, found ${size}` : ""}`);
    };
  };
}

function pattern(schema: SchemaReader): Check | undefined {
  const source = schema.text("pattern");
  const compiled = source === undefined ? undefined : schema.pattern(source, "pattern");
  if (compiled === undefined) return undefined;
  const report = (matches: boolean, pointer: string, run: Run) => (matches ? undefined : run.add(pointer, `does not match the pattern ${source}`));
  return (value, pointer, run) =>
    typeof value === "string" ? andThen(compiled.test(value, run.work), (matches) => report(matches, pointer, run)) : undefined;
}

function format(schema: SchemaReader): Check | undefined {
  const name = schema.text("format");
  if (name === undefined) return undefined;
  if (!Object.hasOwn(FORMATS, name)) return schema.expected(`one of ${Object.keys(FORMATS).join(", ")}`, "format");
  const { expected, fits } = FORMATS[name]!;
  return (value, pointer, run) => {
    if (typeof value === "string" && !fits(value)) run.add(pointer, `expected ${expected}`);
  };
}

const checkUnique: Check = (value, pointer, run) => {
  if (!Array.isArray(value)) return;
  const seen = new Map<string, number>();
  let isRepeated = false;
  return eachOf(value.length, run, (i) => {
    if (isRepeated) return;
    const text = canonical(value[i], run);
    const first = seen.get(text);
    if (first === undefined) seen.set(text, i);
    else {
      isRepeated = true;
      run.add(`${pointer}/${i}`, `is the same as item ${first}`);
    }
    if (run.work.isDue) return run.work.pause();
  });
};

function items(schema: SchemaReader): Check | undefined {
  const first = schema.subschemas("prefixItems", "part");
  const rest = schema.subschema("items", "part");
  if (first.length === 0 && rest === undefined) return undefined;
  return (value, pointer, run) =>
    Array.isArray(value) ? eachOf(value.length, run, (i) => (first[i] ?? rest)?.(value[i], `${pointer}/${i}`, run)) : undefined;
}

function contains(schema: SchemaReader): Check | undefined {
  const contained = schema.subschema("contains", "part");
  const least = schema.count("minContains") ?? 1;
  const most = schema.count("maxContains") ?? Infinity;
  if (contained === undefined) return undefined;
  const expected = (limit: number, verb: string, found: number) => `${limit} item${limit === 1 ? "" : "s"} of the kind that it ${verb} contain, found ${found}`;
  return (value, pointer, run) => {
    if (!Array.isArray(value)) return;
    return andThen(countOf(value.length, Infinity, (i) => run.fits(contained, value[i])), (found) => {
      if (found < least) run.add(pointer, `expected at least ${expected(least, "has to", found)}`);
      if (found > most) run.add(pointer, `expected at most ${expected(most, "may", found)}`);
    });
  };
}

function required(schema: SchemaReader): Check | undefined {
  const names = schema.names("required");
  if (names.length === 0) return undefined;
  return (value, pointer, run) => {
    if (!isObject(value)) return;
    for (const name of names) if (!Object.hasOwn(value, name)) run.add(`${pointer}/${pointerStep(name)}`, "is required");
  };
}

function dependentRequired(schema: SchemaReader): Check | undefined {
  const rules = schema.object("dependentRequired", "an object of lists of names").map(([name]) => [name, schema.names("dependentRequired", name)] as const);
  if (rules.length === 0) return undefined;
  return (value, pointer, run) => {
    if (!isObject(value)) return;
    for (const [name, others] of rules) {
      if (!Object.hasOwn(value, name)) continue;
      for (const other of others) if (!Object.hasOwn(value, other)) run.add(`${pointer}/${pointerStep(other)}`, `is required beside ${JSON.stringify(name)}`);
    }
  };
}

/** `properties`, `patternProperties`, and `additionalProperties` for what neither of them names. */
function properties(schema: SchemaReader): Check | undefined {
  const named = new Map(schema.namedSubschemas("properties"));
  const patterns = schema.namedSubschemas("patternProperties").flatMap(([source, check]) => {
    const compiled = schema.pattern(source, "patternProperties", source);
    return compiled === undefined ? [] : [{ pattern: compiled, check }];
  });
  const others = schema.subschema("additionalProperties", "part");
  if (named.size === 0 && patterns.length === 0 && others === undefined) return undefined;
  const additional: Check | undefined = schema.value("additionalProperties") === false ? (_value, at, run) => run.add(at, "is not a known property") : others;
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
  return (value, pointer, run) => {
    if (!isObject(value)) return;
    const names = run.namesOf(value);
    return eachOf(names.length, run, (i) => {
      const name = names[i]!;
      const at = `${pointer}/${pointerStep(name)}`;
      const own = named.get(name);
      if (patterns.length === 0) return (own ?? additional)?.(value[name], at, run);
      return andThen(own?.(value[name], at, run), () => byPatterns(name, own !== undefined, value[name], at, run));
    });
  };
}

function propertyNames(schema: SchemaReader): Check | undefined {
  const check = schema.subschema("propertyNames", "part");
  if (check === undefined) return undefined;
  return (value, pointer, run) => {
    if (!isObject(value)) return;
    const names = run.namesOf(value);
    return eachOf(names.length, run, (i) =>
      andThen(run.fits(check, names[i]), (fits) => (fits ? undefined : run.add(`${pointer}/${pointerStep(names[i]!)}`, "has a name that is not allowed"))),
    );
  };
}

function allOf(all: readonly Check[]): Check | undefined {
  return all.length === 0 ? undefined : (value, pointer, run) => eachOf(all.length, run, (i) => all[i]!(value, pointer, run));
}

/** `verdict` gets how many of the forms fit, up to `enough`, and returns what is wrong with that number. */
function choice(keyword: string, enough: number, verdict: (fitting: number, of: number) => string | null): Rule {
  return (schema) => {
    const forms = schema.subschemas(keyword, "same value");
    if (forms.length === 0) return undefined;
    return (value, pointer, run) =>
      andThen(countOf(forms.length, enough, (i) => run.fits(forms[i]!, value)), (fitting) => {
        const wrong = verdict(fitting, forms.length);
        if (wrong !== null) run.add(pointer, wrong);
      });
  };
}

function not(schema: SchemaReader): Check | undefined {
  const check = schema.subschema("not", "same value");
  if (check === undefined) return undefined;
  return (value, pointer, run) => andThen(run.fits(check, value), (fits) => (fits ? run.add(pointer, "has a form that is not allowed") : undefined));
}

function conditional(schema: SchemaReader): Check | undefined {
  const condition = schema.subschema("if", "same value");
  const consequence = schema.subschema("then", "same value");
  const otherwise = schema.subschema("else", "same value");
  if (condition !== undefined) {
    return (value, pointer, run) => andThen(run.fits(condition, value), (fits) => (fits ? consequence : otherwise)?.(value, pointer, run));
  }
  return consequence === undefined && otherwise === undefined ? undefined : schema.report([], '"then" and "else" need an "if" beside them');
}
