/**
 * The common part of all schemas: the type, checking and error reports.
 */
import { describeNode, type Issue, type Json, type JsonNode, type Path } from "./json.ts";
import { referencesIn, resolveReferences, type ReferenceUse, type Sources } from "./references.ts";

/** The result of `check` for a node that has been reported. */
export const INVALID: unique symbol = Symbol("invalid");
export type Invalid = typeof INVALID;

export interface CheckContext {
  /** All errors; `check` appends. */
  readonly issues: Issue[];
  readonly sources: Sources;
  /** The whole document, for checks that look at other nodes; it may have errors elsewhere. */
  readonly root?: JsonNode;
  /** The files that the document names, by absolute path; `check` adds to it. */
  readonly files?: Map<string, NamedFile>;
  /** Every text that contains a secret, with its masked form; `check` adds to it. */
  readonly secrets?: Secret[];
}

/** A file that a configuration names, read together with the configuration. */
export interface NamedFile {
  /** Absolute. */
  readonly path: string;
  readonly content: Buffer;
}

export interface Secret {
  readonly at: Path;
  readonly masked: string;
}

export type JsonSchema = { readonly [keyword: string]: unknown };

/** `Out` is the value for the code, `In` the configured value. */
export interface Schema<Out, In = any> {
  /** Completes "expected …". */
  readonly expects: string;
  readonly describe: string | undefined;
  /** The kinds of node that can be valid. */
  readonly kinds: readonly JsonNode["kind"][];
  /** Appends all errors to `context.issues`; does not throw. */
  check(node: JsonNode, at: Path, context: CheckContext): Out | Invalid;
  /** A valid node as plain JSON, defaults filled in, references unresolved. */
  show(node: JsonNode): Json;
  /** JSON Schema, draft 2020-12. Schemas made by `named` go into `definitions` if it is given. */
  jsonSchema(definitions?: Record<string, JsonSchema>): JsonSchema;
  /** Whether a node may contain a secret: messages then give only its kind. */
  readonly secret?: boolean;
  /** For the type only; has no value. */
  readonly input?: In;
}

export type Infer<S> = S extends Schema<infer Out, any> ? Out : never;
export type InputOf<S> = S extends Schema<any, infer In> ? In : never;
export type AnySchema = Schema<any, any>;

/** For documentation and editors: one sentence. */
export interface Described {
  readonly describe?: string | undefined;
}

type Kind = JsonNode["kind"];
export type NodeOf<K extends Kind> = Extract<JsonNode, { readonly kind: K }>;

interface Definition<K extends Kind, Out> extends Described {
  readonly expects: string;
  readonly kinds: readonly K[];
  readonly secret?: boolean;
  /** Called with nodes of these kinds only; others are reported as a mismatch. */
  check(node: NodeOf<K>, at: Path, context: CheckContext): Out | Invalid;
  /** Default: the value as written. */
  show?(node: NodeOf<K>): Json;
  jsonSchema(definitions?: Record<string, JsonSchema>): JsonSchema;
}

export function define<K extends Kind, Out, In>(definition: Definition<K, Out>): Schema<Out, In> {
  const { expects, describe, kinds, secret = false } = definition;
  const fits = (node: JsonNode): node is NodeOf<K> => (kinds as readonly Kind[]).includes(node.kind);
  const show = definition.show ?? ((node) => ("value" in node ? node.value : null));
  return {
    expects,
    describe,
    kinds,
    secret,
    check: (node, at, context) => (fits(node) ? definition.check(node, at, context) : mismatch({ expects, secret }, node, at, context)),
    show: (node) => (fits(node) ? show(node) : null),
    jsonSchema: (definitions) => ({ ...(describe !== undefined && { description: describe }), ...definition.jsonSchema(definitions) }),
  };
}

/** The same schema, which a JSON Schema document contains once, under `$defs`, even if it is used several times. */
export function named<S extends AnySchema>(name: string, schema: S): S {
  return {
    ...schema,
    jsonSchema(definitions?: Record<string, JsonSchema>) {
      if (definitions === undefined) return schema.jsonSchema();
      if (definitions[name] === undefined) {
        definitions[name] = {}; // ends the recursion of a schema that contains itself
        definitions[name] = schema.jsonSchema(definitions);
      }
      return { $ref: `#/$defs/${name}` };
    },
  };
}

/** Whether the node is valid by itself, with references unresolved. */
export function accepts(schema: AnySchema, node: JsonNode): boolean {
  return schema.check(node, [], { issues: [], sources: { environment: {}, readFile: () => "", folder: "" } }) !== INVALID;
}

/** Reports an issue at a node. */
export function report(context: CheckContext, at: Path, node: JsonNode, message: string): Invalid {
  context.issues.push({ at, message, position: node.position });
  return INVALID;
}

/** Reports that a node does not match the schema; `help` is the remedy. */
export function mismatch(schema: Pick<AnySchema, "expects" | "secret">, node: JsonNode, at: Path, context: CheckContext, help?: string): Invalid {
  return report(context, at, node, `expected ${schema.expects}, found ${describeNode(node, schema.secret)}${help ? `: ${help}` : ""}`);
}

/** Records the masked form of a text. */
export function conceal(node: JsonNode, at: Path, context: CheckContext, mask: (text: string) => string): void {
  if (node.kind !== "string") return;
  const masked = mask(node.value);
  if (masked !== node.value) context.secrets?.push({ at, masked });
}

/**
 * Reads a text that has references. Where placeholders take the place of values: the first that `read` accepts. If it accepts none, the result
 * is INVALID, and no issue is reported: nobody can tell whether the text is valid. `read` reports a text that does not fit only if its
 * `sources` have no `substitute`.
 */
export function readReferences<T>(node: NodeOf<"string">, at: Path, use: ReferenceUse, context: CheckContext, read: (context: CheckContext) => T | Invalid): T | Invalid {
  const { sources, issues, root } = context;
  const before = issues.length;
  for (const each of sources.placeholders?.alternatives(node.value, at, use, sources, root) ?? []) {
    const value = read({ ...context, sources: each });
    if (value !== INVALID || issues.length > before) return value;
  }
  if (sources.placeholders !== undefined) return INVALID;
  const value = read(context);
  const { formed, resolved: _, ...others } = sources;
  if (value === INVALID || formed === undefined || use === "secret") return value;
  const needsForm = use === "value" || read({ ...context, sources: { ...others, substitute: () => "0".repeat(64) } }) === INVALID;
  if (needsForm) for (const each of referencesIn(node.value)) formed.set(each, resolveReferences(each, others).text);
  return value;
}

/** "1–3 characters", "at least 2 items" */
export function countText(min: number, max: number, unit: string): string {
  if (min > 0 && max < Infinity) return `${min}–${max} ${unit}s`;
  return min > 0 ? `at least ${min} ${unit}${min === 1 ? "" : "s"}` : `at most ${max} ${unit}${max === 1 ? "" : "s"}`;
}
