/**
 * A small language of schemas: one description yields the validator, the defaults, the TypeScript types and the JSON Schema.
 * It knows nothing of gateways: what a configuration holds is `model.ts`, and each plugin's file for its own `config`.
 *
 *   const schema = object({
 *     key: string({ min: 1, describe: "The API key that requests must present." }),
 *     hide_credentials: withDefault(boolean(), false),
 *   });
 *   type Config = Infer<typeof schema>;   // { readonly key: string; readonly hideCredentials: boolean }
 *   type Input = InputOf<typeof schema>;  // { key: string; hide_credentials?: boolean }
 */
import { resolve } from "node:path";
import { suggest } from "../base/suggest.ts";
import { describeKind, describeNode, formatPath, nodeFrom, positionAt, type Issue, type Json, type JsonNode, type Path } from "./json.ts";
import { hasReference, maskLiterals, resolveReferences, whyUnreadable, type Sources } from "./references.ts";

export { formatPath, type Issue, type Json, type JsonNode, type Path } from "./json.ts";

/** What `check` returns for a node that has been reported. */
export const INVALID: unique symbol = Symbol("invalid");
export type Invalid = typeof INVALID;

export interface CheckContext {
  /** Grows: one entry for everything that is wrong. */
  readonly issues: Issue[];
  readonly sources: Sources;
  /** The whole document, for checks that look at what stands around a node; whether that is valid is not known yet. */
  readonly root?: JsonNode;
  /** Grows: the files that the document names, by their absolute paths. */
  readonly files?: Map<string, NamedFile>;
  /** Grows: every text that holds a secret itself, and what is shown in its place to people who may not see it. */
  readonly secrets?: Secret[];
}

export interface Secret {
  readonly at: Path;
  readonly masked: string;
}

export type JsonSchema = { readonly [keyword: string]: unknown };

/** `Out` is what code gets, `In` what a person writes. */
export interface Schema<Out, In = any> {
  /** Completes "expected …". */
  readonly expects: string;
  readonly describe: string | undefined;
  /** The kinds of node that are worth checking in detail. */
  readonly kinds: readonly JsonNode["kind"][];
  /** Reports everything that is wrong into `context.issues`; throws nothing. */
  check(node: JsonNode, at: Path, context: CheckContext): Out | Invalid;
  /** A valid node as plain JSON, defaults filled in, references as they were written. */
  show(node: JsonNode): Json;
  /** JSON Schema, draft 2020-12. Schemas made by `named` go into `definitions` when it is given. */
  jsonSchema(definitions?: Record<string, JsonSchema>): JsonSchema;
  /** Whether a node may hold a secret: then messages tell only of what kind it is. */
  readonly secret?: boolean;
  /** Carries a type, never a value. */
  readonly input?: In;
}

export type Infer<S> = S extends Schema<infer Out, any> ? Out : never;
export type InputOf<S> = S extends Schema<any, infer In> ? In : never;
export type AnySchema = Schema<any, any>;

/** For documentation and editors: one sentence. */
export interface Described {
  readonly describe?: string;
}

export interface StringOptions extends Described {
  readonly min?: number;
  readonly max?: number;
  /** Without flags, so that JSON Schema can carry it. */
  readonly pattern?: RegExp;
  /** Completes "expected …": "a host name or IP address". */
  readonly hint?: string;
  /** Undefined when the text is right, else what to do about it (may be empty). */
  readonly check?: (text: string) => string | undefined;
  /** Output in lower case; checked as written. */
  readonly lowerCase?: boolean;
  /**
   * Whether the text is a secret: no message repeats it, and a masked display shows of it only its references, or what a function leaves of
   * it. Default false.
   */
  readonly secret?: boolean | ((text: string) => string);
}

/** A string, in which references are resolved. A message shows the reference, never the secret. */
export function string(options: StringOptions = {}): Schema<string, string> {
  const { min = 0, max = Infinity, pattern, check, lowerCase = false } = options;
  const mask = typeof options.secret === "function" ? options.secret : maskLiterals;
  const secret = options.secret !== undefined && options.secret !== false;
  const expects = options.hint ?? (min > 0 || max < Infinity ? lengthText(min, max) : "a string");
  const rules = {
    ...(min > 0 && { minLength: min }),
    ...(max < Infinity && { maxLength: max }),
    ...(pattern && { pattern: pattern.source }),
  };
  return define({
    expects,
    describe: options.describe,
    kinds: ["string"],
    secret,
    check(node, at, context) {
      if (node.kind !== "string") return mismatch(expects, node, at, context, "", secret);
      if (secret) conceal(node, at, context, mask);
      const { text, problems } = resolveReferences(node.value, context.sources);
      for (const message of problems) report(context, at, node, message);
      if (problems.length > 0) return INVALID;
      const fits = text.length >= min && text.length <= max && (pattern === undefined || pattern.test(text));
      const remedy = fits ? check?.(text) : "";
      if (remedy === undefined) return lowerCase ? text.toLowerCase() : text;
      // The remedy may quote the text, so it is for texts without secrets only.
      return mismatch(expects, node, at, context, hasReference(node.value) ? "what the reference stands for does not fit" : secret ? "" : remedy, secret);
    },
    show: (node) => (node.kind === "string" ? node.value : null),
    jsonSchema() {
      const reference = { pattern: "\\$\\{(env|file):" };
      return { type: "string", ...(Object.keys(rules).length > 0 && { anyOf: [rules, reference] }) };
    },
  });
}

/** A file that a configuration names: read when the configuration is. */
export interface NamedFile {
  /** Absolute. */
  readonly path: string;
  readonly content: Buffer;
}

export interface FileOptions extends Described {
  /** Completes "expected …": "a certificate in PEM form". */
  readonly hint?: string;
  /** Undefined when the content is right, else what is wrong with it. It must not repeat what the file holds. */
  readonly check?: (content: Buffer) => string | undefined;
}

/** The path of a file, relative to the configuration's folder; a file that cannot be read or is none of its kind is reported here. */
export function file(options: FileOptions = {}): Schema<NamedFile, string> {
  const path = string({ min: 1, hint: "the path of a file" });
  return define({
    expects: options.hint ?? "the path of a file",
    describe: options.describe,
    kinds: ["string"],
    check(node, at, context) {
      const given = path.check(node, at, context);
      if (given === INVALID) return INVALID;
      if (isContent(given)) return report(context, at, node, `expected ${path.expects}, found what a file holds: write it to a file, and name that here`);
      const absolute = resolve(context.sources.folder, given);
      try {
        const content = Buffer.from(context.sources.readFile(absolute));
        const wrong = options.check?.(content);
        if (wrong !== undefined) return report(context, at, node, `${absolute}: ${wrong}`);
        const named = { path: absolute, content };
        context.files?.set(absolute, named);
        return named;
      } catch (error) {
        const shown = node.kind === "string" && hasReference(node.value) ? node.value : absolute;
        return report(context, at, node, `cannot read ${shown}: ${whyUnreadable(error)}`);
      }
    },
    show: path.show,
    jsonSchema: path.jsonSchema,
  });
}

/** Whether a text that should be a path is a certificate, a key or a set of keys itself, which no message may repeat. */
export function isContent(text: string): boolean {
  return text.includes("\n") || text.includes("-----BEGIN ") || text.trimStart().startsWith("{");
}

/** The path of a file that may not be there yet, relative to the configuration's folder; gives it absolute. */
export function filePath(options: Described = {}): Schema<string, string> {
  const path = string({ min: 1, hint: "the path of a file" });
  return define({
    expects: "the path of a file",
    describe: options.describe,
    kinds: ["string"],
    check(node, at, context) {
      const given = path.check(node, at, context);
      return given === INVALID ? INVALID : resolve(context.sources.folder, given);
    },
    show: path.show,
    jsonSchema: path.jsonSchema,
  });
}

export interface RangeOptions extends Described {
  readonly min?: number;
  readonly max?: number;
}

export function integer(options: RangeOptions = {}): Schema<number, number> {
  return numeric("integer", Number.isSafeInteger, options);
}

export function number(options: RangeOptions = {}): Schema<number, number> {
  return numeric("number", Number.isFinite, options);
}

function numeric(type: "integer" | "number", fits: (value: number) => boolean, options: RangeOptions): Schema<number, number> {
  const { min = -Infinity, max = Infinity } = options;
  const expects = `${type === "integer" ? "an integer" : "a number"}${rangeText(min, max)}`;
  return define({
    expects,
    describe: options.describe,
    kinds: ["number"],
    check(node, at, context) {
      if (node.kind === "number" && fits(node.value) && node.value >= min && node.value <= max) return node.value;
      return mismatch(expects, node, at, context);
    },
    show: (node) => (node.kind === "number" ? node.value : null),
    jsonSchema: () => ({ type, ...(min > -Infinity && { minimum: min }), ...(max < Infinity && { maximum: max }) }),
  });
}

export function boolean(options: Described = {}): Schema<boolean, boolean> {
  return define({
    expects: "true or false",
    describe: options.describe,
    kinds: ["boolean"],
    check: (node, at, context) => (node.kind === "boolean" ? node.value : mismatch("true or false", node, at, context)),
    show: (node) => (node.kind === "boolean" ? node.value : null),
    jsonSchema: () => ({ type: "boolean" }),
  });
}

/** One of a few literals. They are keywords: references are not resolved in them. */
export function oneOf<const T extends readonly (string | number)[]>(
  literals: T,
  options: Described & { readonly hint?: string } = {},
): Schema<T[number], T[number]> {
  const quoted = literals.map((literal) => JSON.stringify(literal));
  const expects = options.hint ?? (quoted.length === 1 ? quoted[0]! : `${quoted.slice(0, -1).join(", ")} or ${quoted.at(-1)}`);
  return define({
    expects,
    describe: options.describe,
    kinds: ["string", "number"],
    check(node, at, context) {
      const value = node.kind === "string" || node.kind === "number" ? node.value : undefined;
      const found = literals.find((literal) => literal === value);
      if (found !== undefined) return found;
      const nearest = typeof value === "string" ? suggest(value, literals.map(String)) : undefined;
      return mismatch(expects, node, at, context, nearest && `did you mean "${nearest}"?`);
    },
    show: (node) => (node.kind === "string" || node.kind === "number" ? node.value : null),
    jsonSchema: () => ({ enum: literals }),
  });
}

export interface ArrayOptions extends Described {
  readonly min?: number;
  readonly max?: number;
  /** The field (as configured) in which no two items, all of them objects, may agree; items without it are not compared. */
  readonly unique?: string;
}

export function array<S extends AnySchema>(item: S, options: ArrayOptions = {}): Schema<readonly Infer<S>[], readonly InputOf<S>[]> {
  const { min = 0, max = Infinity, unique } = options;
  const { secret = false } = item;
  return define({
    expects: "an array",
    describe: options.describe,
    kinds: ["array"],
    secret,
    check(node, at, context) {
      if (node.kind !== "array") return mismatch("an array", node, at, context, "", secret);
      const { length } = node.items;
      const before = context.issues.length;
      if (length < min || length > max) report(context, at, node, `expected ${countText(min, max)}, found ${length || "none"}`);
      const values = node.items.map((child, i) => item.check(child, below(at, i), context) as Infer<S> | Invalid);
      if (unique !== undefined) checkUnique({ unique, item, items: node.items, values, at, context });
      return context.issues.length > before ? INVALID : (values as Infer<S>[]);
    },
    show: (node) => (node.kind === "array" ? node.items.map((child) => item.show(child)) : null),
    jsonSchema: (definitions) => ({
      type: "array",
      items: item.jsonSchema(definitions),
      ...(min > 0 && { minItems: min }),
      ...(max < Infinity && { maxItems: max }),
    }),
  });
}

/** A field that may be missing, from the code's side too. */
export interface Optional<S extends AnySchema> {
  readonly presence: "optional";
  readonly schema: S;
}

/** A field that may be left out; the code never sees it missing. */
export interface Defaulted<S extends AnySchema> {
  readonly presence: "defaulted";
  readonly schema: S;
  readonly value: InputOf<S>;
}

/** As `Defaulted`, with a default that is made from the fields beside it. */
export interface Derived<S extends AnySchema> {
  readonly presence: "derived";
  readonly schema: S;
  readonly from: (siblings: any) => Infer<S> & Json;
}

export type Field = AnySchema | Optional<AnySchema> | Defaulted<AnySchema> | Derived<AnySchema>;
export type Fields = Readonly<Record<string, Field>>;

export function optional<S extends AnySchema>(schema: S): Optional<S> {
  return { presence: "optional", schema };
}

/** The default is written as a person would write it, and is checked as if one had. */
export function withDefault<S extends AnySchema>(schema: S, value: InputOf<S>): Defaulted<S> {
  return { presence: "defaulted", schema, value };
}

/** `from` gets the other fields under their configured names: checked ones for the code, shown ones for display. */
export function derived<S extends AnySchema>(schema: S, from: (siblings: any) => Infer<S> & Json): Derived<S> {
  return { presence: "derived", schema, from };
}

type Camel<K> = K extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : K & string;
type SchemaOf<F> = F extends { readonly presence: string; readonly schema: infer S } ? S : F;
type Simplify<T> = { [K in keyof T]: T[K] };

export type ObjectOut<F> = Simplify<
  { readonly [K in keyof F as F[K] extends Optional<any> ? never : Camel<K>]: Infer<SchemaOf<F[K]>> } & {
    readonly [K in keyof F as F[K] extends Optional<any> ? Camel<K> : never]?: Infer<SchemaOf<F[K]>>;
  }
>;
export type ObjectIn<F> = Simplify<
  { readonly [K in keyof F as F[K] extends { readonly presence: string } ? never : K]: InputOf<SchemaOf<F[K]>> } & {
    readonly [K in keyof F as F[K] extends { readonly presence: string } ? K : never]?: InputOf<SchemaOf<F[K]>>;
  }
>;

export interface ObjectOptions<F> extends Described {
  /** Looks at the fields together, once each is valid; `report` takes what is wrong and the path of the field, as configured. */
  readonly refine?: (value: ObjectOut<F>, report: (message: string, ...under: Path) => void) => void;
  /** Keys that may stand there and mean nothing. */
  readonly ignoreKeys?: readonly string[];
}

/** Named fields and no others. In: snake_case as configured; out: camelCase. */
export function object<const F extends Fields>(fields: F, options: ObjectOptions<F> = {}): Schema<ObjectOut<F>, ObjectIn<F>> {
  const plan = Object.entries(fields).map(([key, field]) => ({
    key,
    name: camel(key),
    // The same for every object without the field, of which a large configuration has thousands: written out once, on first use. It is
    // frozen, since the next configuration shows it, too: an embedder who changed it would change what other gateways show.
    shownDefault: undefined as Json | undefined,
    /** Whether the default is known to be valid and an empty list, as most are: each object gets one of its own, and none is checked again. */
    isEmptyByDefault: false,
    ...("presence" in field ? { value: undefined, from: undefined, ...field } : { presence: "required" as const, schema: field }),
  }));
  // Below it is walked by index: at a start this code is interpreted, and an iterator makes an object for each step.
  const derives = plan.some((field) => field.presence === "derived");
  const secret = plan.some((field) => field.schema.secret === true);
  const ignored = options.ignoreKeys ?? [];
  const known = new Set([...Object.keys(fields), ...ignored]);
  return define({
    expects: "an object",
    describe: options.describe,
    kinds: ["object"],
    secret,
    check(node, at, context) {
      if (node.kind !== "object") return mismatch("an object", node, at, context, "", secret);
      const before = context.issues.length;
      for (const key of node.members.keys()) {
        if (known.has(key)) continue;
        const nearest = suggest(key, Object.keys(fields));
        const help = nearest !== undefined ? `; did you mean "${nearest}"?` : ` (known here: ${Object.keys(fields).join(", ")})`;
        context.issues.push({ at: [...at, key], message: `is not a known field${help}`, position: node.members.get(key)!.keyPosition });
      }
      const values: Record<string, unknown> = {};
      for (let i = 0; i < plan.length; i++) {
        const field = plan[i]!;
        const member = node.members.get(field.key);
        if (member !== undefined) values[field.key] = field.schema.check(member.value, below(at, field.key), context);
        else if (field.isEmptyByDefault) values[field.key] = [];
        else if (field.presence === "defaulted") {
          const value: unknown = field.schema.check(nodeFrom(field.value, node.position), below(at, field.key), context);
          values[field.key] = value;
          field.isEmptyByDefault = isEmptyList(field.value) && isEmptyList(value);
        } else if (field.presence === "required") {
          report(context, [...at, field.key], node, `is required (${field.schema.describe ?? field.schema.expects})`);
        }
      }
      if (context.issues.length > before) return INVALID;
      const out: Record<string, unknown> = {};
      for (let i = 0; i < plan.length; i++) {
        const field = plan[i]!;
        if (Object.hasOwn(values, field.key)) out[field.name] = values[field.key];
        else if (field.presence === "derived") out[field.name] = field.from(values);
      }
      options.refine?.(out as ObjectOut<F>, (message, ...under) => {
        context.issues.push({ at: [...at, ...under], message, position: positionAt(node, under) });
      });
      return context.issues.length > before ? INVALID : (out as ObjectOut<F>);
    },
    show(node) {
      if (node.kind !== "object") return null;
      const values: Record<string, Json> = {};
      for (let i = 0; i < plan.length; i++) {
        const field = plan[i]!;
        const member = node.members.get(field.key);
        if (member !== undefined) values[field.key] = field.schema.show(member.value);
        else if (field.presence === "defaulted") values[field.key] = field.shownDefault ??= frozen(field.schema.show(nodeFrom(field.value)));
      }
      if (!derives) return values;
      const shown: Record<string, Json> = {};
      for (let i = 0; i < plan.length; i++) {
        const field = plan[i]!;
        if (Object.hasOwn(values, field.key)) shown[field.key] = values[field.key]!;
        else if (field.presence === "derived") shown[field.key] = field.from(values);
      }
      return shown;
    },
    jsonSchema(definitions) {
      const properties: Record<string, JsonSchema> = Object.fromEntries(ignored.map((key) => [key, {}]));
      for (const field of plan) {
        const schema = field.schema.jsonSchema(definitions);
        properties[field.key] = field.presence === "defaulted" ? { ...schema, default: field.value } : schema;
      }
      const required = plan.filter((field) => field.presence === "required").map((field) => field.key);
      return { type: "object", properties, ...(required.length > 0 && { required }), additionalProperties: false };
    },
  });
}

/** One step further: an array of just that length, where a spread would leave room for sixteen steps more. */
function below(at: Path, step: string | number): Path {
  return at.concat(step);
}

function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0;
}

/** The same value, which nobody can change any more. */
function frozen(value: Json): Json {
  if (typeof value !== "object" || value === null) return value;
  for (const each of Object.values(value)) frozen(each);
  return Object.freeze(value);
}

/** An object with keys of the writer's choice, kept as they are. */
export function record<S extends AnySchema>(
  value: S,
  options: Described = {},
): Schema<Readonly<Record<string, Infer<S>>>, Readonly<Record<string, InputOf<S>>>> {
  const { secret = false } = value;
  return define({
    expects: "an object",
    describe: options.describe,
    kinds: ["object"],
    secret,
    check(node, at, context) {
      if (node.kind !== "object") return mismatch("an object", node, at, context, "", secret);
      const before = context.issues.length;
      const entries = [...node.members].map(([key, member]) => [key, value.check(member.value, [...at, key], context)] as const);
      // fromEntries defines properties: a key named __proto__ is data like any other.
      return context.issues.length > before ? INVALID : (Object.fromEntries(entries) as Record<string, Infer<S>>);
    },
    show: (node) =>
      node.kind === "object" ? Object.fromEntries([...node.members].map(([key, member]) => [key, value.show(member.value)])) : null,
    jsonSchema: (definitions) => ({ type: "object", additionalProperties: value.jsonSchema(definitions) }),
  });
}

/** The first of the schemas that the node satisfies. Where one alone fits its kind, that one's complaints are the ones reported. */
export function anyOf<const S extends readonly AnySchema[]>(
  schemas: S,
  options: Described = {},
): Schema<Infer<S[number]>, InputOf<S[number]>> {
  const expects = schemas.map((schema) => schema.expects).join(" or ");
  const secret = schemas.some((schema) => schema.secret === true);
  const accepts = (schema: AnySchema, node: JsonNode) => {
    const issues: Issue[] = [];
    const sources: Sources = { environment: {}, readFile: () => "", folder: "" };
    return schema.check(node, [], { issues, sources }) !== INVALID;
  };
  return define({
    expects,
    describe: options.describe,
    kinds: [...new Set(schemas.flatMap((schema) => schema.kinds))],
    secret,
    check(node, at, context) {
      const likely = schemas.filter((schema) => schema.kinds.includes(node.kind));
      if (likely.length === 1) return likely[0]!.check(node, at, context);
      for (const schema of likely) {
        const attempt: CheckContext = { ...context, issues: [] };
        const value: Infer<S[number]> | Invalid = schema.check(node, at, attempt);
        if (value !== INVALID) return value;
      }
      return mismatch(expects, node, at, context, "", secret);
    },
    show(node) {
      const likely = schemas.filter((schema) => schema.kinds.includes(node.kind));
      return (likely.find((schema) => accepts(schema, node)) ?? likely[0])?.show(node) ?? null;
    },
    jsonSchema: (definitions) => ({ anyOf: schemas.map((schema) => schema.jsonSchema(definitions)) }),
  });
}

/** The same schema, which JSON Schema says once, under `$defs`, however often it is used. */
export function named<S extends AnySchema>(name: string, schema: S): S {
  return {
    ...schema,
    jsonSchema(definitions?: Record<string, JsonSchema>) {
      if (definitions === undefined) return schema.jsonSchema();
      if (definitions[name] === undefined) {
        definitions[name] = {}; // stands in while the schema describes itself
        definitions[name] = schema.jsonSchema(definitions);
      }
      return { $ref: `#/$defs/${name}` };
    },
  };
}

/** Gives a schema its types, and puts its description into its JSON Schema. */
function define<Out, In>(schema: Schema<Out, In>): Schema<Out, In> {
  if (schema.describe === undefined) return schema;
  return { ...schema, jsonSchema: (definitions) => ({ description: schema.describe, ...schema.jsonSchema(definitions) }) };
}

/** Reports an issue at a node. */
export function report(context: CheckContext, at: Path, node: JsonNode, message: string): Invalid {
  context.issues.push({ at, message, position: node.position });
  return INVALID;
}

/** Notes what is shown of a text in its place, where `mask` hides something of it. */
export function conceal(node: JsonNode, at: Path, context: CheckContext, mask: (text: string) => string): void {
  if (node.kind !== "string") return;
  const masked = mask(node.value);
  if (masked !== node.value) context.secrets?.push({ at, masked });
}

function mismatch(expects: string, node: JsonNode, at: Path, context: CheckContext, help?: string, secret = false): Invalid {
  const found = secret ? describeKind(node) : describeNode(node);
  return report(context, at, node, `expected ${expects}, found ${found}${help ? `: ${help}` : ""}`);
}

interface UniqueCheck {
  readonly unique: string;
  readonly item: AnySchema;
  readonly items: readonly JsonNode[];
  readonly values: readonly unknown[];
  readonly at: Path;
  readonly context: CheckContext;
}

/** Compares what the names resolve to, derived ones too, and shows them as they were written. */
function checkUnique({ unique, item, items, values, at, context }: UniqueCheck): void {
  if (items.length < 2) return;
  const seen = new Map<unknown, number>();
  const name = camel(unique);
  items.forEach((node, i) => {
    const member = node.kind === "object" ? node.members.get(unique)?.value : undefined;
    const written = member?.kind === "string" ? member.value : undefined;
    // An item that is wrong elsewhere still has its name.
    const value = values[i] === INVALID ? written : (values[i] as Record<string, unknown>)[name];
    if (value === undefined) return;
    const first = seen.get(value);
    if (first === undefined) return void seen.set(value, i);
    const shown = written ?? (item.show(node) as Record<string, Json>)[unique];
    report(context, [...at, i, unique], member ?? node, `${JSON.stringify(shown)} is already used by ${formatPath([...at, first])}`);
  });
}

function camel(key: string): string {
  return key.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function rangeText(min: number, max: number): string {
  if (min === -Infinity) return max === Infinity ? "" : ` ≤ ${max}`;
  return max === Infinity || max === Number.MAX_SAFE_INTEGER ? ` ≥ ${min}` : ` ${min}–${max}`;
}

function lengthText(min: number, max: number): string {
  if (max === Infinity) return min === 1 ? "a non-empty string" : `a string of at least ${min} characters`;
  return min === 0 ? `a string of at most ${max} characters` : `a string of ${min}–${max} characters`;
}

function countText(min: number, max: number): string {
  if (max === Infinity) return `at least ${min} item${min === 1 ? "" : "s"}`;
  return min === 0 ? `at most ${max} item${max === 1 ? "" : "s"}` : `${min}–${max} items`;
}
