/**
 * Turns the schemas of an OpenAPI document (3.0's dialect, and JSON Schema) into those of `request_validation`.
 *
 * What cannot be carried over only ever makes a schema accept more: a constraint is left out, and choices that would
 * then refuse what the document accepts are left out or loosened, too. All of it is noted.
 */
import type { Path } from "../../config/json.ts";
import { FORMATS } from "../../json_schema/formats.ts";
import { KEYWORDS, type Subject } from "../../json_schema/keywords.ts";
import { countValues, described, isObject, isOfType, shortJson } from "../../json_schema/values.ts";
import { freeName, type ImportNotes } from "./source_value.ts";

export type OpenApiSchema = boolean | Readonly<Record<string, unknown>>;

interface Converted {
  readonly schema: OpenApiSchema;
  /** False: it accepts more than the source does. */
  readonly isExact: boolean;
  /** Its values, without those of definitions. */
  readonly size: number;
  readonly uses: readonly string[];
}

/** Most values in one schema with its definitions, and in all of them. */
const MAX_VALUES = 20_000;
const MAX_IN_ALL = 250_000;
/** Of references within references, before they are followed later. */
const MAX_DEPTH = 100;
/**
 * Levels of arrays and objects in a schema and in one of its values: a configuration has at most 100, with the plugin
 * around the schema.
 */
const MAX_LEVELS = 80;
const MAX_LEVELS_OF_VALUE = 5;
/** Of schemas that are searched for read-only properties; further ones are as they are written. */
const MAX_VISITS = 1_000_000;
const NO_NAMES: ReadonlySet<string> = new Set();

export class SchemaReader {
  readonly #document: unknown;
  readonly #notes: ImportNotes;
  /** In 3.0, a `$ref` hides what stands beside it. */
  readonly #isOld: boolean;
  /** By JSON Pointer; null while it is being converted. */
  readonly #definitions = new Map<string, { readonly name: string; converted: Converted | null }>();
  readonly #names = new Map<string, number>();
  /** Definitions found so deep that they are converted later. */
  readonly #later: (() => void)[] = [];
  #total = 0;
  #depth = 0;
  /** Of the schema that is being converted; its levels as they become at most. */
  #levels = 0;
  #size = 0;
  #uses = new Set<string>();
  #visits = 0;
  readonly #checksFormats: boolean;
  /** The read-only ones among the properties of schemas. */
  readonly #readOnly = new Map<object, readonly string[]>();

  constructor(document: unknown, notes: ImportNotes, checksFormats = false) {
    this.#document = document;
    this.#notes = notes;
    this.#checksFormats = checksFormats;
    this.#isOld = isObject(document) && String(document.openapi).startsWith("3.0");
  }

  /** The value of a `$ref` chain, and where it is; undefined, noted, when it leads nowhere. */
  resolve(value: unknown, at: Path): { readonly value: unknown; readonly at: Path } | undefined {
    let found = { value, at };
    for (let hops = 0; isObject(found.value) && typeof found.value.$ref === "string"; hops++) {
      const next = hops < 20 ? this.#target(found.value.$ref) : undefined;
      if (next === undefined) return void this.#notes.add(found.at, LEADS_NOWHERE);
      found = next;
    }
    return found;
  }

  /** `readOnly`: names of properties that other schemas of the same object say are read-only. */
  convert(given: unknown, at: Path, readOnly = NO_NAMES): Converted {
    const [levels, size, uses] = [this.#levels, this.#size, this.#uses];
    [this.#levels, this.#size, this.#uses] = [0, 0, new Set()];
    const { schema, isExact } = this.#schema(given, at, readOnly);
    const converted = { schema, isExact, size: this.#size, uses: [...this.#uses] };
    [this.#levels, this.#size, this.#uses] = [levels, size, uses];
    return converted;
  }

  /** The schema with the definitions that it needs; undefined, noted, when that is too large. */
  whole({ schema, size, uses }: Pick<Converted, "schema" | "size" | "uses">, at: Path): OpenApiSchema | undefined {
    for (let convert = this.#later.pop(); convert !== undefined; convert = this.#later.pop()) convert();
    const used = new Map<string, Converted>();
    let sum = size;
    const queue = [...uses];
    for (let pointer = queue.pop(); pointer !== undefined; pointer = queue.pop()) {
      const definition = this.#definitions.get(pointer)!;
      if (used.has(definition.name)) continue;
      used.set(definition.name, definition.converted!);
      queue.push(...definition.converted!.uses);
      if ((sum += definition.converted!.size) > MAX_VALUES) break;
    }
    if (sum > MAX_VALUES || this.#total + sum > MAX_IN_ALL) {
      return void this.#notes.add(
        at,
        `the schema is too large: at most ${MAX_VALUES} values each, and ${MAX_IN_ALL} in all`,
      );
    }
    this.#total += sum;
    if (used.size === 0) return schema;
    return {
      ...(schema as object),
      $defs: Object.fromEntries([...used].map(([name, converted]) => [name, converted.schema])),
    };
  }

  #target(reference: string): { readonly value: unknown; readonly at: Path } | undefined {
    if (!reference.startsWith("#")) return undefined;
    const at: (string | number)[] = [];
    let value: unknown = this.#document;
    try {
      for (const step of reference.slice(1).split("/").slice(1)) {
        const name = decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
        if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return undefined;
        at.push(Array.isArray(value) ? Number(name) : name);
        value = (value as Record<string, unknown>)[name];
      }
    } catch {
      return undefined;
    }
    return { value, at };
  }

  #reference(
    reference: string,
    at: Path,
    readOnly: ReadonlySet<string>,
  ): { readonly schema: OpenApiSchema; readonly isExact: boolean } {
    const found = this.#target(reference);
    if (found === undefined) return this.#loose(at, LEADS_NOWHERE);
    const names = this.#optionalIn(found.value, readOnly);
    const key = names.length === 0 ? reference : `${reference} without ${JSON.stringify(names)}`;
    let definition = this.#definitions.get(key);
    if (definition === undefined) {
      const name = freeName(String(found.at.at(-1) ?? "document").replace(/[^\w.-]/g, "_"), this.#names);
      const added = (definition = { name, converted: null as Converted | null });
      this.#definitions.set(key, added);
      const convert = () => void (added.converted = this.convert(found.value, found.at, new Set(names)));
      if (this.#depth > MAX_DEPTH) this.#later.push(convert);
      else convert();
    }
    this.#uses.add(key);
    return { schema: { $ref: `#/$defs/${definition.name}` }, isExact: definition.converted?.isExact ?? false };
  }

  #loose(at: Path, message: string): { readonly schema: OpenApiSchema; readonly isExact: false } {
    this.#notes.add(at, message);
    return { schema: true, isExact: false };
  }

  #schema(given: unknown, at: Path, outer = NO_NAMES): { readonly schema: OpenApiSchema; readonly isExact: boolean } {
    this.#size++;
    if (typeof given === "boolean") return { schema: given, isExact: true };
    if (!isObject(given))
      return this.#loose(at, `expected a schema, found ${described(given)}: every value is accepted`);
    if (this.#levels > MAX_LEVELS) return this.#loose(at, "the schema is nested too deep: every value is accepted");
    const isReference = typeof given.$ref === "string";
    if (isReference && this.#isOld) return this.#within(0, () => this.#reference(given.$ref as string, at, outer));
    const made: Record<string, unknown> = {};
    const inexact = new Set<string>();
    const readOnly = new Set([...outer, ...this.#readOnlyIn(given, "all")]);
    // What one choice says is read-only may be required by another.
    const ofChoices = new Set([...outer, ...this.#readOnlyIn(given, "always")]);
    for (const [keyword, value] of Object.entries(modern(given, readOnly))) {
      if (ANNOTATIONS.has(keyword) || keyword.startsWith("x-")) continue;
      if (keyword === "format" && !this.#checksFormats) {
        if (typeof value === "string" && Object.hasOwn(FORMATS, value)) this.#notes.add([...at, keyword], UNCHECKED);
        continue;
      }
      // `oneOf` may become an `anyOf` within an `allOf`, and what may be null a choice.
      const levels = (SUBSCHEMAS.has(keyword) ? 1 : keyword === "oneOf" ? 4 : 2) + (given.nullable === true ? 2 : 0);
      const names = CHOICES.has(keyword) ? ofChoices : readOnly;
      if (!this.#keyword(keyword, value, { made, names }, [...at, keyword], levels)) inexact.add(keyword);
    }
    this.#noteImpossible(made, at);
    loosen(made, inexact);
    const isOnlyReference =
      isReference && Object.keys(made).length === 1 && (made.allOf as OpenApiSchema[]).length === 1;
    return asNullable(
      isOnlyReference ? (made.allOf as OpenApiSchema[])[0]! : made,
      given.nullable === true,
      inexact.size === 0,
    );
  }

  /** Adds the keyword to `made`, with subschemas that are `levels` below it. Returns whether that is exact. */
  #keyword(
    keyword: string,
    value: unknown,
    { made, names }: { readonly made: Record<string, unknown>; readonly names: ReadonlySet<string> },
    at: Path,
    levels: number,
  ): boolean {
    const isValue = keyword === "enum" || keyword === "const";
    if (isValue && isDeeper(value, MAX_LEVELS_OF_VALUE))
      return (this.#notes.add(at, "the value is nested too deep: it is not checked"), false);
    this.#size += isValue ? countValues(value, MAX_VALUES) : 1;
    if (!this.#isUsable(keyword, value, at)) return keyword === "format";
    return this.#within(levels, () => {
      if (keyword === "$ref" || LISTS.has(keyword)) {
        const parts =
          keyword === "$ref"
            ? [this.#reference(value as string, at, names)]
            : (value as unknown[]).map((each, i) =>
                this.#schema(each, [...at, i], IN_PLACE.has(keyword) ? names : NO_NAMES),
              );
        const name = keyword === "$ref" ? "allOf" : keyword;
        made[name] = [
          ...((name === "allOf" && (made.allOf as OpenApiSchema[])) || []),
          ...parts.map(({ schema }) => schema),
        ];
        return parts.every((part) => part.isExact);
      }
      if (keyword === "properties" || keyword === "patternProperties") {
        const parts = Object.entries(value as object).map(
          ([name, each]) => [name, this.#schema(each, [...at, name])] as const,
        );
        made[keyword] = Object.fromEntries(parts.map(([name, { schema }]) => [name, schema]));
        return parts.every(([, part]) => part.isExact);
      }
      const part = SUBSCHEMAS.has(keyword) ? this.#schema(value, at, IN_PLACE.has(keyword) ? names : NO_NAMES) : null;
      if (part === null || part.isExact || !NEGATIVE.has(keyword)) made[keyword] = part === null ? value : part.schema;
      return part?.isExact ?? true;
    });
  }

  /** Whether `request_validation` has the keyword with such a value; noted if not. */
  #isUsable(keyword: string, value: unknown, at: Path): boolean {
    if (keyword === "then" || keyword === "else") return true;
    if (keyword === "$ref") return typeof value === "string" || (this.#notes.add(at, LEADS_NOWHERE), false);
    let why: string | undefined;
    const subject = {
      schema: {},
      report: (_path: Path, message: string) => void (why = message),
      expected: () => false,
    } as unknown as Subject;
    if (Object.hasOwn(KEYWORDS, keyword) && KEYWORDS[keyword]!.isValid(value, [keyword], subject)) return true;
    if (keyword === "format" && STORED_FORMATS.has(value)) return false;
    const form =
      keyword === "format" ? `the format ${described(value)} is unknown` : `"${keyword}" has a value of the wrong form`;
    this.#notes.add(
      at,
      `${why ?? (Object.hasOwn(KEYWORDS, keyword) ? form : `request_validation has no "${keyword}"`)}: it is ` +
        `not checked`,
    );
    return false;
  }

  #within<T>(levels: number, convert: () => T): T {
    this.#depth++;
    this.#levels += levels;
    try {
      return convert();
    } finally {
      this.#depth--;
      this.#levels -= levels;
    }
  }

  /** Of YAML 1.1, `enum: [DE, NO]` is "DE" and false. */
  #noteImpossible({ type, enum: values }: Record<string, unknown>, at: Path): void {
    if (type === undefined || !Array.isArray(values)) return;
    const types = [type].flat() as string[];
    for (const [i, value] of values.entries()) {
      if (value !== null && !types.some((each) => isOfType(value, each)))
        this.#notes.add(
          [...at, "enum", i],
          `${shortJson(value, 40)} is never valid, since "type" is ${JSON.stringify(type)}: ` +
            `YAML 1.1 reads NO, on and 1.10 as false, true and 1.1: quote it, or convert as YAML 1.2`,
        );
    }
  }

  /**
   * The read-only properties of the object that the schema describes, also by what it refers to; "always": not by one
   * of several choices. In requests, `required` does not hold for them (OpenAPI 3.0.3, Schema Object).
   */
  #readOnlyIn(schema: unknown, which: "all" | "always"): string[] {
    return this.#inPlace(schema, which).flatMap((each) => this.#ownReadOnly(each));
  }

  /** Those of `names` that the schema requires, and does not itself say are read-only. */
  #optionalIn(schema: unknown, names: ReadonlySet<string>): string[] {
    if (names.size === 0) return [];
    const required = this.#inPlace(schema, "all").flatMap((each) => each.required ?? []);
    const own = new Set(this.#readOnlyIn(schema, "all"));
    return [...new Set(required as string[])].filter((name) => names.has(name) && !own.has(name)).sort();
  }

  /** The schema, and those that describe the same value: its parts, and what they refer to. */
  #inPlace(schema: unknown, which: "all" | "always"): readonly Readonly<Record<string, unknown>>[] {
    const found = new Set<Readonly<Record<string, unknown>>>();
    const queue = [schema];
    while (queue.length > 0) {
      const each = queue.pop();
      if (!isObject(each) || found.has(each) || ++this.#visits > MAX_VISITS) continue;
      found.add(each);
      if (typeof each.$ref === "string") queue.push(this.#target(each.$ref)?.value);
      for (const keyword of IN_PLACE)
        if (which === "all" || !CHOICES.has(keyword)) queue.push(...[each[keyword]].flat());
    }
    return [...found];
  }

  #ownReadOnly(schema: Readonly<Record<string, unknown>>): readonly string[] {
    if (!isObject(schema.properties)) return [];
    const known = this.#readOnly.get(schema);
    if (known !== undefined) return known;
    const names = Object.entries(schema.properties).flatMap(([name, property]) =>
      this.#inPlace(property, "always").some(({ readOnly }) => readOnly === true) ? [name] : [],
    );
    this.#readOnly.set(schema, names);
    return names;
  }
}

const UNCHECKED = '"format" is an annotation: values are not checked for it, unless you import with --check-formats';
/** They describe the same value as the schema that they are in. */
const IN_PLACE = new Set(["allOf", "anyOf", "oneOf", "then", "else"]);
const CHOICES = new Set(["anyOf", "oneOf", "then", "else"]);
const LEADS_NOWHERE =
  '"$ref" leads to nothing in this document: join documents to one first, as with "npx @redocly/cli bundle"';
const LISTS = new Set(["allOf", "anyOf", "oneOf", "prefixItems"]);
const SUBSCHEMAS = new Set(["items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"]);
/** If these subschemas accept more, the schema accepts less. */
const NEGATIVE = new Set(["not", "if"]);
/** Keywords that constrain nothing. */
const ANNOTATIONS = new Set([
  "$schema",
  "$comment",
  "$id",
  "$anchor",
  "$defs",
  "definitions",
  "title",
  "description",
  "default",
  "example",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly",
  "nullable",
  "xml",
  "externalDocs",
  "discriminator",
  "contentMediaType",
  "contentEncoding",
]);
/** Formats that say how a number or text is stored. */
const STORED_FORMATS = new Set<unknown>(["int32", "int64", "float", "double", "password", "byte", "binary"]);

function isDeeper(value: unknown, levels: number): boolean {
  return (
    typeof value === "object" &&
    value !== null &&
    (levels === 0 || Object.values(value).some((each) => isDeeper(each, levels - 1)))
  );
}

/** The keywords of OpenAPI 3.0 and of old drafts as those of draft 2020-12. */
function modern(
  given: Readonly<Record<string, unknown>>,
  readOnly: ReadonlySet<string>,
): Readonly<Record<string, unknown>> {
  const { exclusiveMinimum, exclusiveMaximum, minimum, maximum, items, required, ...rest } = given;
  const bound = (value: unknown, limit: unknown) => (value === true ? limit : value === false ? undefined : value);
  const changed = {
    minimum: exclusiveMinimum === true ? undefined : minimum,
    maximum: exclusiveMaximum === true ? undefined : maximum,
    exclusiveMinimum: bound(exclusiveMinimum, minimum),
    exclusiveMaximum: bound(exclusiveMaximum, maximum),
    // Draft 4: a list of schemas, item by item.
    [Array.isArray(items) ? "prefixItems" : "items"]: items,
    required: Array.isArray(required) ? required.filter((name) => !readOnly.has(name)) : required,
  };
  return Object.fromEntries(Object.entries({ ...rest, ...changed }).filter(([, value]) => value !== undefined));
}

/** Takes out what refuses more once another part of the schema accepts more: the keywords of `inexact`. */
function loosen(made: Record<string, unknown>, inexact: ReadonlySet<string>): void {
  const { oneOf, anyOf } = made;
  if (inexact.has("oneOf") && oneOf !== undefined) {
    delete made.oneOf;
    if (anyOf === undefined) made.anyOf = oneOf;
    else made.allOf = [...((made.allOf as OpenApiSchema[] | undefined) ?? []), { anyOf: oneOf }];
  }
  if (inexact.has("contains")) delete made.maxContains;
  if (made.if === undefined) {
    delete made.then;
    delete made.else;
  }
  // A property whose pattern is left out would count as an additional one.
  if (inexact.has("patternProperties") && made.patternProperties === undefined) delete made.additionalProperties;
}

/** `nullable` of OpenAPI 3.0: null is accepted, too. */
function asNullable(
  schema: OpenApiSchema,
  isNullable: boolean,
  isExact: boolean,
): { readonly schema: OpenApiSchema; readonly isExact: boolean } {
  if (!isNullable || typeof schema === "boolean") return { schema, isExact };
  const others = ["enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "$ref"].filter(
    (keyword) => schema[keyword] !== undefined,
  );
  if (typeof schema.type === "string" && others.length === 0)
    return { schema: { ...schema, type: [schema.type, "null"] }, isExact };
  if (typeof schema.type === "string" && others.join() === "enum") {
    return {
      schema: { ...schema, type: [schema.type, "null"], enum: [...new Set([...(schema.enum as unknown[]), null])] },
      isExact,
    };
  }
  return { schema: { anyOf: [{ type: "null" }, schema] }, isExact };
}
