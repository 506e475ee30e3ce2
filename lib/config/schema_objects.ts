/**
 * Schemas of values that contain other values: lists, and objects with fixed fields.
 */
import { suggest } from "../base/suggest.ts";
import { formatPath, nodeFrom, offsetAt, type Json, type JsonNode, type Path } from "./json.ts";
import {
  camel,
  countText,
  define,
  INVALID,
  report,
  reportAt,
  type AnySchema,
  type CheckContext,
  type CheckedList,
  type Described,
  type Infer,
  type InputOf,
  type Invalid,
  type JsonSchema,
  type Schema,
} from "./schema_core.ts";

export interface ArrayOptions extends Described {
  readonly min?: number;
  readonly max?: number;
  /** The field (as configured) that must differ in all items, which are objects; items without it are not compared. */
  readonly unique?: string;
}

export function array<S extends AnySchema>(
  item: S,
  options: ArrayOptions = {},
): Schema<readonly Infer<S>[], readonly InputOf<S>[]> {
  const { min = 0, max = Infinity, unique, describe } = options;
  const schema = define<"array", readonly Infer<S>[], readonly InputOf<S>[]>({
    expects: "an array",
    describe,
    kinds: ["array"],
    secret: item.secret === true,
    check(node, at, context) {
      const known = context.lists?.get(node);
      const { length } = known?.values ?? node.items;
      const before = context.issues.length;
      if (length < min || length > max)
        report(context, at, node, `expected ${countText(min, max, "item")}, found ${length || "none"}`);
      if (known !== undefined) takeOver(known, context);
      const checked = known?.values ?? node.items.map((child, i) => item.check(child, at.concat(i), context));
      const values = checked as readonly (Infer<S> | Invalid)[];
      if (unique !== undefined && length > 1) checkUnique(node.items, values, unique, item, at, context);
      if (context.issues.length > before) return INVALID;
      if (!values.includes(INVALID)) return values as Infer<S>[];
      // What cannot be checked: see `Placeholders`.
      return node.items.every(({ kind }) => kind === "object")
        ? (values.filter((value) => value !== INVALID) as Infer<S>[])
        : INVALID;
    },
    show: (node, lists) => lists?.get(node)?.shown ?? node.items.map((child) => item.show(child, lists)),
    jsonSchema: (definitions) => ({
      type: "array",
      items: item.jsonSchema(definitions),
      ...(min > 0 && { minItems: min }),
      ...(max < Infinity && { maxItems: max }),
    }),
  });
  return { ...schema, item };
}

/** What was found in the items becomes part of what is found in the document. */
function takeOver({ issues, secrets, files }: CheckedList, context: CheckContext): void {
  for (const issue of issues) context.issues.push(issue);
  for (const secret of secrets) context.secrets?.push(secret);
  for (const [path, file] of files) context.files?.set(path, file);
}

/** Compares the resolved names, also derived ones, and reports them as written. */
function checkUnique(
  nodes: readonly JsonNode[],
  values: readonly unknown[],
  key: string,
  item: AnySchema,
  at: Path,
  context: CheckContext,
): void {
  const seen = new Map<unknown, number>();
  const name = camel(key);
  nodes.forEach((node, i) => {
    const memberOf = () => (node.kind === "object" ? node.members.get(key) : undefined);
    const textOf = (member: JsonNode | undefined) => (member?.kind === "string" ? member.value : undefined);
    // An item with other errors still has its name. The members of one without errors may not have been read.
    const value = values[i] === INVALID ? textOf(memberOf()) : (values[i] as Record<string, unknown>)[name];
    if (value === undefined) return;
    const first = seen.get(value);
    if (first === undefined) return void seen.set(value, i);
    const member = memberOf();
    const written = textOf(member);
    const shown = written ?? (item.show(node) as Record<string, Json>)[key];
    const remedy = member === undefined ? `: write its own "${key}"` : "";
    report(
      context,
      [...at, i, key],
      member ?? node,
      `${JSON.stringify(shown)} is already used by ${formatPath([...at, first])}${remedy}`,
    );
  });
}

/** A field that may be omitted. In the output only "optional" fields can be missing. */
export interface MayBeMissing<P, S extends AnySchema> {
  readonly presence: P;
  readonly schema: S;
  /** The default, as written in a configuration. */
  readonly value?: InputOf<S>;
  readonly from?: (siblings: any) => Infer<S> & Json;
}

type Presence = "optional" | "defaulted" | "derived";
export type Field = AnySchema | MayBeMissing<Presence, AnySchema>;
export type Fields = Readonly<Record<string, Field>>;

export function optional<S extends AnySchema>(schema: S): MayBeMissing<"optional", S> {
  return { presence: "optional", schema };
}

/** The default is written like a configured value, and checked like one. */
export function withDefault<S extends AnySchema>(schema: S, value: InputOf<S>): MayBeMissing<"defaulted", S> {
  return { presence: "defaulted", schema, value };
}

/**
 * The default is made from the other fields, under their configured names: checked values for the code, shown values
 * for display.
 */
export function derived<S extends AnySchema>(
  schema: S,
  from: (siblings: any) => Infer<S> & Json,
): MayBeMissing<"derived", S> {
  return { presence: "derived", schema, from };
}

type Camel<K> = K extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : K & string;
type SchemaOf<F> = F extends { readonly presence: string; readonly schema: infer S } ? S : F;
type Simplify<T> = { [K in keyof T]: T[K] };

export type ObjectOut<F> = Simplify<
  {
    readonly [K in keyof F as F[K] extends { readonly presence: "optional" } ? never : Camel<K>]: Infer<SchemaOf<F[K]>>;
  } & {
    readonly [K in keyof F as F[K] extends { readonly presence: "optional" } ? Camel<K> : never]?: Infer<
      SchemaOf<F[K]>
    >;
  }
>;
export type ObjectIn<F> = Simplify<
  { readonly [K in keyof F as F[K] extends { readonly presence: string } ? never : K]: InputOf<SchemaOf<F[K]>> } & {
    readonly [K in keyof F as F[K] extends { readonly presence: string } ? K : never]?:
      InputOf<SchemaOf<F[K]>> | undefined;
  }
>;

export interface ObjectOptions<F> extends Described {
  /**
   * Checks the fields together, once each is valid; `report` gets the message and the path of the field, as configured.
   */
  readonly refine?: (
    value: ObjectOut<F>,
    report: (message: string, ...under: Path) => void,
    context: CheckContext,
  ) => void;
  /** Keys that are allowed and ignored. */
  readonly ignoreKeys?: readonly string[];
}

/** Only named fields. In: snake_case as configured; out: camelCase. */
export function object<const F extends Fields>(
  fields: F,
  options: ObjectOptions<F> = {},
): Schema<ObjectOut<F>, ObjectIn<F>> {
  const { ignoreKeys = [], describe, refine } = options;
  const plan = Object.entries(fields).map(([key, field]) => planned(key, field));
  const known = new Set([...Object.keys(fields), ...ignoreKeys]);
  const schemas = new Map(plan.map(({ key, schema }) => [key, schema]));
  const derivedKeys = plan.flatMap(({ key, from }) => (from === undefined ? [] : key));
  const defined = define<"object", ObjectOut<F>, ObjectIn<F>>({
    expects: "an object",
    describe,
    kinds: ["object"],
    secret: plan.some((field) => field.schema.secret === true),
    check(node, at, context) {
      const before = context.issues.length;
      const { members } = node;
      for (const key of members.keys())
        if (!known.has(key))
          reportAt(context, [...at, key], members.get(key)!.keyOffset, () => unknownField(key, Object.keys(fields)));
      const out: Record<string, unknown> = {};
      let isInvalid = false;
      for (const { key, name, presence, schema, value, common } of plan) {
        const member = members.get(key);
        if (member === undefined) {
          if (common !== undefined) out[name] = common === EMPTY ? [] : common;
          else if (presence === "defaulted")
            out[name] = schema.check(nodeFrom(value, node.offset), at.concat(key), context);
          // Keeps its place until its siblings are known.
          else if (presence === "derived") out[name] = undefined;
          else if (presence === "required")
            report(context, [...at, key], node, `is required (${schema.describe ?? schema.expects})`);
        } else out[name] = schema.check(member, at.concat(key), context);
        if (out[name] !== INVALID) continue;
        // An optional object that cannot be checked, see `Placeholders`, counts as absent.
        if (presence === "optional" && schema.kinds.includes("object")) delete out[name];
        else isInvalid = true;
      }
      if (isInvalid || context.issues.length > before) return INVALID;
      if (derivedKeys.some((key) => !members.has(key))) derive(plan, out, members);
      let isOpen = false;
      const reportIt = (message: string, ...under: Path) => {
        // It may be about a text in place of a value, see `readReferences`.
        if (context.sources.placeholders?.isAt([...at, ...under])) isOpen = true;
        else reportAt(context, [...at, ...under], offsetAt(node, under), message);
      };
      refine?.(out as ObjectOut<F>, reportIt, context);
      return isOpen || context.issues.length > before ? INVALID : (out as ObjectOut<F>);
    },
    show(node, lists) {
      const shown: Record<string, Json> = {};
      for (const { key, schema, presence, shownDefault } of plan) {
        const member = node.members.get(key);
        if (member !== undefined) shown[key] = schema.show(member, lists);
        else if (shownDefault !== undefined) shown[key] = shownDefault;
        else if (presence === "derived") shown[key] = null; // keeps its place until its siblings are known
      }
      for (const { key, from } of plan) if (from !== undefined && !node.members.has(key)) shown[key] = from(shown);
      return shown;
    },
    jsonSchema(definitions) {
      const properties: Record<string, JsonSchema> = Object.fromEntries(ignoreKeys.map((key) => [key, {}]));
      for (const { key, schema, presence, value } of plan) {
        properties[key] = { ...schema.jsonSchema(definitions), ...(presence === "defaulted" && { default: value }) };
      }
      const required = plan.filter(({ presence }) => presence === "required").map(({ key }) => key);
      return { type: "object", properties, ...(required.length > 0 && { required }), additionalProperties: false };
    },
  });
  return { ...defined, fields: schemas };
}

/** Fills in the derived fields that are not configured. */
function derive(
  plan: readonly ReturnType<typeof planned>[],
  out: Record<string, unknown>,
  members: ReadonlyMap<string, JsonNode>,
): void {
  const siblings: Record<string, unknown> = {};
  for (const { key, name } of plan) if (name in out) siblings[key] = out[name];
  for (const { key, name, from } of plan) if (from !== undefined && !members.has(key)) out[name] = from(siblings);
}

/** Computed once per field, since a large configuration has thousands of objects. */
function planned(key: string, field: Field) {
  const planned: MayBeMissing<Presence | "required", AnySchema> =
    "presence" in field ? field : { presence: "required", schema: field };
  // Frozen, since all configurations share the value: a change by an embedder would affect other gateways.
  const shownDefault =
    planned.presence === "defaulted" ? frozen(planned.schema.show(nodeFrom(planned.value))) : undefined;
  return { key, name: camel(key), shownDefault, common: commonDefault(planned), ...planned };
}

/** For an empty list: each object has its own. */
const EMPTY = Symbol("an empty list");

/**
 * The checked default, where that depends on nothing else: a large configuration has thousands of objects that leave
 * the field out. Undefined: it is checked where it is needed.
 */
function commonDefault({ presence, schema, value }: MayBeMissing<Presence | "required", AnySchema>): unknown {
  const isKeyword = typeof value === "string" && schema.kinds.includes("number");
  const isEmpty = Array.isArray(value) && value.length === 0;
  const isCommon = typeof value === "boolean" || typeof value === "number" || isKeyword || isEmpty;
  if (presence !== "defaulted" || !isCommon) return undefined;
  const checked = schema.check(nodeFrom(value), [], { issues: [], sources: NO_SOURCES });
  if (checked === INVALID) return undefined;
  return isEmpty ? EMPTY : checked;
}

const NO_SOURCES: CheckContext["sources"] = {
  environment: {},
  folder: "",
  readFile: (path) => {
    throw new Error(`a default has no files: ${path}`);
  },
};

function unknownField(key: string, known: readonly string[]): string {
  const nearest = suggest(key, known);
  return (
    `is not a known ` +
    `field${nearest === undefined ? ` (known here: ${known.join(", ")})` : `; did you mean "${nearest}"?`}`
  );
}

/** Freezes a value deeply. */
function frozen(value: Json): Json {
  if (typeof value !== "object" || value === null) return value;
  for (const item of Object.values(value)) frozen(item);
  return Object.freeze(value);
}
