/**
 * JSON Schema, draft 2020-12, as far as `request_validation` takes it: compiled once, when the configuration is read, where every keyword
 * that is not known is an error; then run over values, reporting everything that is wrong with them. Where values come from is the kind's.
 *
 * What clients send takes time in proportion to its length: patterns never backtrack (`linear_pattern.ts`), and what a schema asks for in
 * all, `$ref` and choices multiplied, has an upper bound. Long work pauses, so that the event loop serves others meanwhile: a check returns
 * nothing when it is done, or a promise of that once it has had to pause.
 */
import { suggest } from "../base/suggest.ts";
import { describeNode, type Json, type JsonNode, type Path } from "../config/json.ts";
import { INVALID, report, type CheckContext, type Invalid, type JsonSchema, type Schema } from "../config/schema.ts";
import { FORMATS } from "./json_formats.ts";
import { andThen, countOf, eachOf, type Check, type Done, type Run } from "./json_run.ts";
import { escaped } from "./json_text.ts";
import { linearPattern, type LinearPattern, type Meter } from "./linear_pattern.ts";

export interface CompiledSchema {
  /** Adds what is wrong with the value to `run`. Throws, or rejects with, a `TooMuchWork`. */
  readonly check: (value: unknown, run: Run) => Done;
  /** What texts may stand for in the property of this name: values of a query or header are texts. */
  readonly shapeOf: (name: string) => Shape;
  /** The schema as it is written. */
  readonly written: Json;
}

export interface Shape {
  /** Null: any. */
  readonly types: readonly string[] | null;
  readonly itemTypes: readonly string[] | null;
}

/** A field of a configuration that holds a JSON Schema. References to secrets are not resolved in it. */
export function jsonSchemaField(describe: string): Schema<CompiledSchema, boolean | { readonly [keyword: string]: unknown }> {
  return {
    expects: "a JSON Schema",
    describe,
    kinds: ["object", "boolean"],
    check(node, at, context): CompiledSchema | Invalid {
      if (node.kind !== "object" && node.kind !== "boolean") return report(context, at, node, `expected a JSON Schema, found ${describeNode(node)}`);
      const before = context.issues.length;
      const check = new Compiler(node, at, context).whole();
      if (context.issues.length > before) return INVALID;
      return { check: (value, run) => check(value, "", run), shapeOf: shapesOf(node), written: plain(node) };
    },
    show: plain,
    jsonSchema: (): JsonSchema => ({ description: describe, type: ["object", "boolean"] }),
  };
}

const TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"] as const;
const ARTICLES: Readonly<Record<string, string>> = { null: "null", boolean: "true or false", integer: "an integer", number: "a number", string: "a string", array: "an array", object: "an object" };

/** Those that say nothing about values. */
const ANNOTATIONS = ["$schema", "$comment", "$defs", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"];
const KEYWORDS = [
  "$ref", "type", "enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern",
  "format", "items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "properties", "required",
  "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties", "dependentRequired", "allOf", "anyOf", "oneOf", "not",
  "if", "then", "else",
];
const KNOWN = new Set([...ANNOTATIONS, ...KEYWORDS]);

type ObjectNode = JsonNode & { kind: "object" };

/** Where the schema stands that is being compiled. */
interface Place {
  readonly at: Path;
  /** The definition (its reference) that is looked into, as far as it still speaks of the same value; null further in. */
  readonly same: string | null;
}

class Compiler {
  readonly #root: JsonNode;
  readonly #at: Path;
  readonly #context: CheckContext;
  readonly #definitions = new Map<string, { check: Check }>();
  /** From reference to reference without a step into the value: a circle would never end. */
  readonly #edges = new Map<string, Set<string>>();

  constructor(root: JsonNode, at: Path, context: CheckContext) {
    this.#root = root;
    this.#at = at;
    this.#context = context;
  }

  whole(): Check {
    const check = this.#reference("#", this.#root, this.#at);
    if (this.#root.kind === "object") {
      const definitions = this.#root.members.get("$defs")?.value;
      if (definitions !== undefined && definitions.kind !== "object") this.#wrong(definitions, [...this.#at, "$defs"], "an object of schemas");
      // Looked at although nobody may refer to them: what is wrong in them is wrong.
      else if (definitions !== undefined) for (const [name, { value }] of definitions.members) this.#reference(`#/$defs/${escaped(name)}`, value, [...this.#at, "$defs", name]);
    }
    for (const reference of this.#edges.keys()) {
      if (this.#leadsTo(reference, reference, new Set())) {
        report(this.#context, this.#at, this.#root, `"$ref" leads in a circle: ${reference} refers to itself before it comes to anything within the value`);
        break;
      }
    }
    return check;
  }

  #leadsTo(from: string, to: string, seen: Set<string>): boolean {
    for (const next of this.#edges.get(from) ?? []) {
      if (next === to) return true;
      if (seen.has(next)) continue;
      seen.add(next);
      if (this.#leadsTo(next, to, seen)) return true;
    }
    return false;
  }

  /** Compiled once, however often it is referred to; by itself too. */
  #reference(name: string, node: JsonNode, at: Path): Check {
    const known = this.#definitions.get(name);
    if (known !== undefined) return (value, pointer, run) => known.check(value, pointer, run);
    const made = { check: NOTHING as Check };
    this.#definitions.set(name, made);
    this.#edges.set(name, new Set());
    made.check = this.#schema(node, { at, same: name });
    return (value, pointer, run) => made.check(value, pointer, run);
  }

  #schema(node: JsonNode, place: Place): Check {
    if (node.kind === "boolean") return node.value ? NOTHING : (_value, at, run) => run.add(at, "may not be there");
    if (node.kind !== "object") {
      this.#wrong(node, place.at, "a schema: an object, true or false");
      return NOTHING;
    }
    this.#checkKeywords(node, place);
    const checks = [
      ...this.#references(node, place),
      ...this.#types(node, place),
      ...this.#literals(node, place),
      ...this.#numbers(node, place),
      ...this.#strings(node, place),
      ...this.#arrays(node, place),
      ...this.#objects(node, place),
      ...this.#choices(node, place),
    ];
    return (value, at, run) => {
      run.spend(costOf(value));
      return run.work.isDue ? run.work.pause().then(() => inTurn(checks, value, at, run, 0)) : inTurn(checks, value, at, run, 0);
    };
  }

  #checkKeywords(node: ObjectNode, { at }: Place): void {
    for (const [keyword, { value, keyPosition }] of node.members) {
      const complain = (message: string) => void this.#context.issues.push({ at: [...at, keyword], message, position: keyPosition });
      if (!KNOWN.has(keyword)) {
        const nearest = suggest(keyword, KEYWORDS);
        complain(`is no keyword that is known here${nearest === undefined ? ` (known: ${KEYWORDS.join(", ")})` : `; did you mean "${nearest}"?`}`);
      } else if (keyword === "$defs" && at.length > this.#at.length) complain("stands at the top of a schema only");
      else if (keyword === "$schema" && (value.kind !== "string" || !/^https:\/\/json-schema\.org\/draft\/2020-12\/schema#?$/.test(value.value))) complain("is not that of draft 2020-12");
    }
  }

  #references(node: ObjectNode, { at, same }: Place): Check[] {
    const found = this.#text(node, "$ref", at);
    if (found === undefined) return [];
    const { text, value } = found;
    const path = pathOf(text);
    const target = path === null ? undefined : targetOf(this.#root, path);
    if (target === undefined || path === null) {
      report(this.#context, [...at, "$ref"], value, `"$ref" leads nowhere: write "#" or "#/$defs/NAME" with a name that is there`);
      return [];
    }
    const name = path.length === 0 ? "#" : `#/$defs/${escaped(String(path[1]))}`;
    if (same !== null) this.#edges.get(same)!.add(name);
    return [this.#reference(name, target, [...this.#at, ...path])];
  }

  #types(node: ObjectNode, { at }: Place): Check[] {
    const given = node.members.get("type")?.value;
    if (given === undefined) return [];
    const items = given.kind === "array" ? given.items : [given];
    const types: string[] = [];
    items.forEach((item, i) => {
      const type = item.kind === "string" ? item.value : "";
      if ((TYPES as readonly string[]).includes(type)) types.push(type);
      else this.#wrong(item, given.kind === "array" ? [...at, "type", i] : [...at, "type"], `one of ${TYPES.join(", ")}`);
    });
    if (items.length === 0) this.#wrong(given, [...at, "type"], "at least one type");
    const expected = types.map((type) => ARTICLES[type]).join(" or ");
    return [
      (value, pointer, run) => {
        if (!types.some((type) => isOfType(value, type))) run.add(pointer, `expected ${expected}, found ${typeOf(value)}`);
      },
    ];
  }

  #literals(node: ObjectNode, { at }: Place): Check[] {
    const checks: Check[] = [];
    const among = (literals: readonly JsonNode[], expected: string) => {
      const set = new Set(literals.map((literal) => canonical(plain(literal))));
      const largest = Math.max(...literals.map((literal) => partsOf(plain(literal), Infinity)));
      checks.push((value, pointer, run) => {
        // Large values are not written out only to see that they are no small one.
        const fits = partsOf(value, largest) <= largest && set.has(canonical(value, run));
        if (!fits) run.add(pointer, `expected ${expected}`);
      });
    };
    const constant = node.members.get("const")?.value;
    if (constant !== undefined) among([constant], shown(constant));
    const choices = node.members.get("enum")?.value;
    if (choices?.kind === "array" && choices.items.length > 0) {
      const few = choices.items.slice(0, 20).map(shown).join(", ");
      among(choices.items, `one of ${few}${choices.items.length > 20 ? ", …" : ""}`);
    } else if (choices !== undefined) this.#wrong(choices, [...at, "enum"], "an array with at least one value");
    return checks;
  }

  #numbers(node: ObjectNode, place: Place): Check[] {
    const checks: Check[] = [];
    const rule = (keyword: string, expected: (limit: number) => string, made: (limit: number) => (value: number, run: Run) => boolean) => {
      const limit = this.#number(node, keyword, place.at);
      if (limit === undefined) return;
      if (keyword === "multipleOf" && limit <= 0) return this.#wrong(node.members.get(keyword)!.value, [...place.at, keyword], "a number above 0");
      const message = `expected ${expected(limit)}`;
      const fits = made(limit);
      checks.push((value, pointer, run) => {
        if (typeof value === "number" && !fits(value, run)) run.add(pointer, message);
      });
    };
    rule("minimum", (limit) => `at least ${limit}`, (limit) => (value) => value >= limit);
    rule("maximum", (limit) => `at most ${limit}`, (limit) => (value) => value <= limit);
    rule("exclusiveMinimum", (limit) => `more than ${limit}`, (limit) => (value) => value > limit);
    rule("exclusiveMaximum", (limit) => `less than ${limit}`, (limit) => (value) => value < limit);
    rule("multipleOf", (limit) => `a multiple of ${limit}`, multiplesOf);
    return checks;
  }

  #strings(node: ObjectNode, { at }: Place): Check[] {
    const checks: Check[] = [];
    this.#count(node, "minLength", at, (least) => (value, pointer, run) => {
      if (typeof value === "string" && characters(value, least) < least) run.add(pointer, `expected at least ${least} character${plural(least)}`);
    }, checks);
    this.#count(node, "maxLength", at, (most) => (value, pointer, run) => {
      if (typeof value === "string" && characters(value, most + 1) > most) run.add(pointer, `expected at most ${most} character${plural(most)}`);
    }, checks);
    const source = this.#text(node, "pattern", at);
    const pattern = source === undefined ? undefined : this.#pattern(source.text, source.value, [...at, "pattern"]);
    if (source !== undefined && pattern !== undefined) {
      const message = `does not match the pattern ${source.text}`;
      checks.push((value, pointer, run) => {
        if (typeof value === "string") return andThen(pattern.test(value, run.work), (matches) => (matches ? undefined : run.add(pointer, message)));
      });
    }
    const named = this.#text(node, "format", at);
    if (named !== undefined) {
      const format = Object.hasOwn(FORMATS, named.text) ? FORMATS[named.text]! : undefined;
      if (format === undefined) this.#wrong(named.value, [...at, "format"], `one of ${Object.keys(FORMATS).join(", ")}`);
      else {
        checks.push((value, pointer, run) => {
          if (typeof value === "string" && !format.fits(value)) run.add(pointer, `expected ${format.expected}`);
        });
      }
    }
    return checks;
  }

  #arrays(node: ObjectNode, place: Place): Check[] {
    const { at } = place;
    const checks: Check[] = [];
    this.#count(node, "minItems", at, (least) => (value, pointer, run) => {
      if (Array.isArray(value) && value.length < least) run.add(pointer, `expected at least ${least} item${plural(least)}, found ${value.length}`);
    }, checks);
    this.#count(node, "maxItems", at, (most) => (value, pointer, run) => {
      if (Array.isArray(value) && value.length > most) run.add(pointer, `expected at most ${most} item${plural(most)}, found ${value.length}`);
    }, checks);
    if (this.#flag(node, "uniqueItems", at)) checks.push(checkUnique);
    const first = this.#list(node, "prefixItems", place);
    const rest = this.#one(node, "items", place);
    if (first.length > 0 || rest !== undefined) {
      const fromItem = (value: readonly unknown[], pointer: string, run: Run, from: number): Done => {
        for (let i = from; i < value.length && !run.isFull; i++) {
          const done = (first[i] ?? rest)?.(value[i], `${pointer}/${i}`, run);
          if (done !== undefined) return done.then(() => fromItem(value, pointer, run, i + 1));
        }
      };
      checks.push((value, pointer, run) => (Array.isArray(value) ? fromItem(value, pointer, run, 0) : undefined));
    }
    const contained = this.#one(node, "contains", place);
    const limits: Check[] = [];
    const least = this.#count(node, "minContains", at, () => NOTHING, limits) ?? 1;
    const most = this.#count(node, "maxContains", at, () => NOTHING, limits) ?? Infinity;
    if (contained !== undefined) {
      checks.push((value, pointer, run) => {
        if (!Array.isArray(value)) return;
        return andThen(countOf(value.length, Infinity, (i) => run.fits(contained, value[i])), (found) => {
          if (found < least) run.add(pointer, `expected at least ${least} item${plural(least)} of the kind that it has to contain, found ${found}`);
          if (found > most) run.add(pointer, `expected at most ${most} item${plural(most)} of the kind that it may contain, found ${found}`);
        });
      });
    }
    return checks;
  }

  #objects(node: ObjectNode, place: Place): Check[] {
    const { at } = place;
    const checks: Check[] = [];
    this.#count(node, "minProperties", at, (least) => (value, pointer, run) => {
      if (isObject(value) && namesOf(value, run).length < least) run.add(pointer, `expected at least ${least} propert${least === 1 ? "y" : "ies"}`);
    }, checks);
    this.#count(node, "maxProperties", at, (most) => (value, pointer, run) => {
      if (isObject(value) && namesOf(value, run).length > most) run.add(pointer, `expected at most ${most} propert${most === 1 ? "y" : "ies"}`);
    }, checks);
    const required = this.#names(node.members.get("required")?.value, [...at, "required"]);
    if (required.length > 0) {
      checks.push((value, pointer, run) => {
        if (!isObject(value)) return;
        for (const name of required) if (!Object.hasOwn(value, name)) run.add(`${pointer}/${escaped(name)}`, "is required");
      });
    }
    checks.push(...this.#dependents(node, at), ...this.#properties(node, place));
    const names = this.#one(node, "propertyNames", place);
    if (names !== undefined) {
      checks.push((value, pointer, run) => {
        if (!isObject(value)) return;
        const given = namesOf(value, run);
        return eachOf(given.length, run, (i) =>
          andThen(run.fits(names, given[i]), (fits) => (fits ? undefined : run.add(`${pointer}/${escaped(given[i]!)}`, "has a name that is not allowed"))),
        );
      });
    }
    return checks;
  }

  #dependents(node: ObjectNode, at: Path): Check[] {
    const given = node.members.get("dependentRequired")?.value;
    if (given === undefined) return [];
    if (given.kind !== "object") {
      this.#wrong(given, [...at, "dependentRequired"], "an object of lists of names");
      return [];
    }
    const rules = [...given.members].map(([name, { value }]) => [name, this.#names(value, [...at, "dependentRequired", name])] as const);
    return [
      (value, pointer, run) => {
        if (!isObject(value)) return;
        for (const [name, others] of rules) {
          if (!Object.hasOwn(value, name)) continue;
          for (const other of others) if (!Object.hasOwn(value, other)) run.add(`${pointer}/${escaped(other)}`, `is required beside ${JSON.stringify(name)}`);
        }
      },
    ];
  }

  #properties(node: ObjectNode, place: Place): Check[] {
    const named = new Map(this.#map(node, "properties", place));
    const patterns = this.#map(node, "patternProperties", place).flatMap(([source, check]) => {
      const at = [...place.at, "patternProperties", source];
      const pattern = this.#pattern(source, (node.members.get("patternProperties")!.value as ObjectNode).members.get(source)!.value, at);
      return pattern === undefined ? [] : [{ pattern, check }];
    });
    const others = this.#one(node, "additionalProperties", place);
    const closed = isFalse(node.members.get("additionalProperties")?.value);
    if (named.size === 0 && patterns.length === 0 && others === undefined) return [];
    const byOthers = (member: unknown, at: string, run: Run): Done => {
      if (closed) run.add(at, "is not a known property");
      else return others?.(member, at, run);
    };
    const byPatterns = (name: string, isKnown: boolean, member: unknown, at: string, run: Run): Done => {
      let known = isKnown;
      const matching = eachOf(patterns.length, run, (i) =>
        andThen(patterns[i]!.pattern.test(name, run.work), (matches) => {
          known ||= matches;
          return matches ? patterns[i]!.check(member, at, run) : undefined;
        }),
      );
      return andThen(matching, () => (known ? undefined : byOthers(member, at, run)));
    };
    const fromName = (names: readonly string[], value: Record<string, unknown>, pointer: string, run: Run, from: number): Done => {
      for (let i = from; i < names.length && !run.isFull; i++) {
        const name = names[i]!;
        const member = value[name];
        const at = `${pointer}/${escaped(name)}`;
        const own = named.get(name);
        let done = own === undefined && patterns.length === 0 ? byOthers(member, at, run) : own?.(member, at, run);
        if (patterns.length > 0) done = andThen(done, () => byPatterns(name, own !== undefined, member, at, run));
        if (done !== undefined) return done.then(() => fromName(names, value, pointer, run, i + 1));
      }
    };
    return [(value, pointer, run) => (isObject(value) ? fromName(namesOf(value, run), value, pointer, run, 0) : undefined)];
  }

  #choices(node: ObjectNode, place: Place): Check[] {
    const checks = [...this.#list(node, "allOf", place)];
    const any = this.#list(node, "anyOf", place);
    if (any.length > 0) {
      checks.push((value, pointer, run) => {
        return andThen(countOf(any.length, 1, (i) => run.fits(any[i]!, value)), (fitting) => {
          if (fitting === 0) run.add(pointer, `fits none of the ${any.length} forms that are allowed`);
        });
      });
    }
    const one = this.#list(node, "oneOf", place);
    if (one.length > 0) {
      checks.push((value, pointer, run) => {
        return andThen(countOf(one.length, Infinity, (i) => run.fits(one[i]!, value)), (fitting) => {
          if (fitting !== 1) run.add(pointer, `fits ${fitting === 0 ? "none" : fitting} of the ${one.length} forms of which it has to fit one`);
        });
      });
    }
    const not = this.#one(node, "not", place);
    if (not !== undefined) {
      checks.push((value, pointer, run) => {
        return andThen(run.fits(not, value), (fits) => (fits ? run.add(pointer, "has a form that is not allowed") : undefined));
      });
    }
    const condition = this.#one(node, "if", place);
    const consequence = this.#one(node, "then", place);
    const otherwise = this.#one(node, "else", place);
    if (condition !== undefined) checks.push((value, pointer, run) => andThen(run.fits(condition, value), (fits) => (fits ? consequence : otherwise)?.(value, pointer, run)));
    else if (consequence !== undefined || otherwise !== undefined) report(this.#context, place.at, node, '"then" and "else" need an "if" beside them');
    return checks;
  }

  /** The schema under a keyword; `same` holds where it speaks of the value itself. */
  #one(node: ObjectNode, keyword: string, { at, same }: Place): Check | undefined {
    const given = node.members.get(keyword)?.value;
    return given === undefined ? undefined : this.#schema(given, { at: [...at, keyword], same: OF_SAME.has(keyword) ? same : null });
  }

  #list(node: ObjectNode, keyword: string, { at, same }: Place): Check[] {
    const given = node.members.get(keyword)?.value;
    if (given === undefined) return [];
    if (given.kind === "array" && given.items.length > 0) {
      return given.items.map((item, i) => this.#schema(item, { at: [...at, keyword, i], same: OF_SAME.has(keyword) ? same : null }));
    }
    this.#wrong(given, [...at, keyword], "an array with at least one schema");
    return [];
  }

  #map(node: ObjectNode, keyword: string, { at }: Place): [string, Check][] {
    const given = node.members.get(keyword)?.value;
    if (given === undefined) return [];
    if (given.kind === "object") return [...given.members].map(([name, { value }]) => [name, this.#schema(value, { at: [...at, keyword, name], same: null })]);
    this.#wrong(given, [...at, keyword], "an object of schemas");
    return [];
  }

  #pattern(source: string, node: JsonNode, at: Path): LinearPattern | undefined {
    const made = linearPattern(source);
    if (typeof made !== "string") return made;
    report(this.#context, at, node, `the pattern ${made}`);
    return undefined;
  }

  #text(node: ObjectNode, keyword: string, at: Path): { readonly text: string; readonly value: JsonNode } | undefined {
    const value = node.members.get(keyword)?.value;
    if (value?.kind === "string") return { text: value.value, value };
    if (value !== undefined) this.#wrong(value, [...at, keyword], "a string");
    return undefined;
  }

  #number(node: ObjectNode, keyword: string, at: Path): number | undefined {
    const value = node.members.get(keyword)?.value;
    if (value?.kind === "number" && Number.isFinite(value.value)) return value.value;
    if (value !== undefined) this.#wrong(value, [...at, keyword], "a number");
    return undefined;
  }

  #count(node: ObjectNode, keyword: string, at: Path, make: (limit: number) => Check, checks: Check[]): number | undefined {
    const value = node.members.get(keyword)?.value;
    if (value === undefined) return undefined;
    if (value.kind === "number" && Number.isSafeInteger(value.value) && value.value >= 0) {
      checks.push(make(value.value));
      return value.value;
    }
    this.#wrong(value, [...at, keyword], "an integer ≥ 0");
    return undefined;
  }

  #flag(node: ObjectNode, keyword: string, at: Path): boolean {
    const value = node.members.get(keyword)?.value;
    if (value !== undefined && value.kind !== "boolean") this.#wrong(value, [...at, keyword], "true or false");
    return value?.kind === "boolean" && value.value;
  }

  #names(node: JsonNode | undefined, at: Path): string[] {
    if (node === undefined) return [];
    if (node.kind === "array" && node.items.every(({ kind }) => kind === "string")) return node.items.map((item) => (item as { value: string }).value);
    this.#wrong(node, at, "an array of names");
    return [];
  }

  #wrong(node: JsonNode, at: Path, expected: string): void {
    report(this.#context, at, node, `expected ${expected}, found ${describeNode(node)}`);
  }
}

function inTurn(checks: readonly Check[], value: unknown, at: string, run: Run, from: number): Done {
  for (let i = from; i < checks.length && !run.isFull; i++) {
    const done = checks[i]!(value, at, run);
    if (done !== undefined) return done.then(() => inTurn(checks, value, at, run, i + 1));
  }
}

const OF_SAME = new Set(["allOf", "anyOf", "oneOf", "not", "if", "then", "else"]);

const NOTHING: Check = () => {};

/** A `$ref` as a path from the root: `#`, or a definition. Null for all others. */
function pathOf(reference: string): Path | null {
  if (reference === "#") return [];
  if (!reference.startsWith("#/$defs/")) return null;
  try {
    const name = decodeURIComponent(reference.slice(8));
    return name.includes("/") ? null : ["$defs", name.replaceAll("~1", "/").replaceAll("~0", "~")];
  } catch {
    return null;
  }
}

function targetOf(root: JsonNode, path: Path): JsonNode | undefined {
  let found: JsonNode | undefined = root;
  for (const step of path) found = found?.kind === "object" ? found.members.get(String(step))?.value : undefined;
  return found;
}

/** What is said of the types of each property, wherever it holds for all values: not in choices. */
function shapesOf(root: JsonNode): (name: string) => Shape {
  const schemas = alike(root, root);
  const membersOf = (keyword: string) =>
    schemas.flatMap(({ members }) => {
      const map = members.get(keyword)?.value;
      return map?.kind === "object" ? [...map.members].map(([name, { value }]) => [name, value] as const) : [];
    });
  const shape = (node: JsonNode | undefined): Shape => {
    const own = alike(node, root);
    return { types: typesOf(own), itemTypes: typesOf(own.flatMap(({ members }) => alike(members.get("items")?.value, root))) };
  };
  const named = new Map<string, Shape>();
  for (const [name, node] of membersOf("properties")) if ((named.get(name)?.types ?? null) === null) named.set(name, shape(node));
  const patterns = membersOf("patternProperties").map(([source, node]) => ({ pattern: linearPattern(source) as LinearPattern, shape: shape(node) }));
  const others = shape(schemas.map(({ members }) => members.get("additionalProperties")?.value).find((node) => node?.kind === "object"));
  return (name) => named.get(name) ?? patterns.find(({ pattern }) => pattern.test(name, FREE) === true)?.shape ?? others;
}

/** Names are as short as a query or a line of the head. */
const FREE: Meter = { spend() {}, isDue: false, pause: () => Promise.resolve() };

/** The schema and all others that the same value has to fit as well. */
function alike(node: JsonNode | undefined, root: JsonNode, found = new Set<ObjectNode>()): ObjectNode[] {
  if (node?.kind !== "object" || found.has(node)) return [...found];
  found.add(node);
  const reference = node.members.get("$ref")?.value;
  const path = reference?.kind === "string" ? pathOf(reference.value) : null;
  if (path !== null) alike(targetOf(root, path), root, found);
  const all = node.members.get("allOf")?.value;
  if (all?.kind === "array") for (const each of all.items) alike(each, root, found);
  return [...found];
}

function typesOf(schemas: readonly ObjectNode[]): readonly string[] | null {
  const given = schemas.map(({ members }) => members.get("type")?.value).find((node) => node !== undefined);
  if (given === undefined) return null;
  return (given.kind === "array" ? given.items : [given]).flatMap((item) => (item.kind === "string" ? [item.value] : []));
}

function plain(node: JsonNode): Json {
  switch (node.kind) {
    case "array":
      return node.items.map(plain);
    case "object":
      return Object.fromEntries([...node.members].map(([key, { value }]) => [key, plain(value)]));
    case "null":
    case "other":
      return null;
    default:
      return node.value;
  }
}

function isFalse(node: JsonNode | undefined): boolean {
  return node?.kind === "boolean" && !node.value;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isOfType(value: unknown, type: string): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return isObject(value);
    case "integer":
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "boolean") return String(value);
  return ARTICLES[typeof value]!;
}

function shown(node: JsonNode): string {
  const text = JSON.stringify(plain(node));
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}

/** Steps of work: long texts are not read for the price of a short one. */
function costOf(value: unknown): number {
  return typeof value === "string" || Array.isArray(value) ? 1 + (value.length >> 4) : 1;
}

function namesOf(value: object, run: Run | undefined): string[] {
  const names = Object.keys(value);
  if (run !== undefined) for (const name of names) run.spend(costOf(name));
  return names;
}

/** How many values there are in it, itself counted; more than `enough` are not counted to their end. */
function partsOf(value: unknown, enough: number): number {
  if (typeof value !== "object" || value === null) return 1;
  let parts = 1;
  for (const name in value) {
    parts += partsOf((value as Record<string, unknown>)[name], enough - parts);
    if (parts > enough) break;
  }
  return parts;
}

/** Equal values as equal texts (JSON Schema Core §4.2.2): members of an object have no order. */
function canonical(value: unknown, run?: Run): string {
  run?.spend(costOf(value));
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item, run)).join(",")}]`;
  if (isObject(value)) {
    const members = namesOf(value, run).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key], run)}`);
    return `{${members.join(",")}}`;
  }
  // JSON would call what is beyond all numbers (1e400) null; of -0 both make 0.
  return typeof value === "number" ? String(value) : JSON.stringify(value);
}

const checkUnique: Check = (value, at, run) => {
  if (!Array.isArray(value)) return;
  const seen = new Map<string, number>();
  let isOver = false;
  return eachOf(value.length, run, (i) => {
    if (isOver) return;
    const text = canonical(value[i], run);
    const first = seen.get(text);
    if (first === undefined) seen.set(text, i);
    else {
      isOver = true;
      run.add(`${at}/${i}`, `is the same as item ${first}`);
    }
    if (run.work.isDue) return run.work.pause();
  });
};

/** Multiples of decimals are meant as they are written: 0.3 is a multiple of 0.1. */
function multiplesOf(step: number): (value: number, run: Run) => boolean {
  if (Number.isInteger(step)) return (value) => value % step === 0;
  const [stepDigits, stepExponent] = decimal(step);
  const scale = Number(`1e${-stepExponent}`);
  return (value, run) => {
    if (!Number.isFinite(value)) return false;
    // Up to fifteen digits a number is one decimal and no other (IEEE 754): it has no more places than the step, or is none of its multiples.
    if (stepExponent >= -15 && Math.abs(value * scale) < 1e15) {
      const digitsOfValue = Math.round(value * scale);
      return digitsOfValue / scale === value && digitsOfValue % Number(stepDigits) === 0;
    }
    run.spend(50);
    const [digits, exponent] = decimal(value);
    const least = Math.min(exponent, stepExponent);
    return (digits * 10n ** BigInt(exponent - least)) % (stepDigits * 10n ** BigInt(stepExponent - least)) === 0n;
  };
}

/** The shortest decimal that is this number: all its digits, and the power of ten that they count. */
function decimal(value: number): readonly [digits: bigint, exponent: number] {
  const [mantissa = "", exponent = "0"] = String(value).split("e");
  const [whole = "", fraction = ""] = mantissa.split(".");
  return [BigInt(whole + fraction), Number(exponent) - fraction.length];
}

/** Characters are code points; counted only as far as it matters. */
function characters(text: string, enough: number): number {
  if (text.length < enough || text.length > enough * 2) return text.length;
  let count = 0;
  for (let i = 0; i < text.length; i += text.codePointAt(i)! > 0xffff ? 2 : 1) count++;
  return count;
}

function plural(count: number): string {
  return count === 1 ? "" : "s";
}
