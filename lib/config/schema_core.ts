/**
 * The common part of all schemas: the type, checking and error reports.
 */
import { describeNode, type Issue, type Json, type JsonNode, type Path } from "./json.ts";

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

/** The sources of reference values, and of help with errors. */
export interface Sources {
  /** Undefined: it has not been loaded, since no error was found so far. */
  readonly suggest?: Suggest | undefined;
  /** Undefined: no text has references. */
  readonly references?: ReferenceReader | undefined;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly readFile: (path: string) => Buffer | string;
  /** Base of relative file names: the folder of the configuration file. */
  readonly folder: string;
  /** Gets each value that a reference stood for, with the reference. */
  readonly resolved?: Map<string, string>;
  /** Gets the values of the references that no placeholder can replace, by reference. */
  readonly formed?: Map<string, string>;
  /** Takes the place of variables and files: references are not resolved. */
  readonly placeholders?: PlaceholderSource;
  /** Returns the text in place of a reference. Default: its value. */
  readonly substitute?: (reference: string) => string;
}

/** Finds the nearest known name. */
export type Suggest = (word: string, known: Iterable<string>) => string | undefined;

/** How the value of a reference is used. */
export type ReferenceUse =
  /** As a text that is only compared or passed on. */
  | "text"
  /** As a text that must not be given away, whatever form is needed. */
  | "secret"
  /** As something that names or matches, and has no references. */
  | "name"
  /** As something that random text cannot stand for: an address, a public key. */
  | "value";

/** See `Placeholders`. */
export interface PlaceholderSource {
  /** The sources to read a text with references by: the first is used that gives a text which fits. */
  alternatives(written: string, at: Path, use: ReferenceUse, sources: Sources, root: JsonNode | undefined): readonly Sources[];
  /** Whether the configuration in force has this text, with references or the name of a file, at this place. */
  isKnown(written: string, at: Path, root: JsonNode | undefined): boolean;
  /** The places of references and files that are not known. */
  readonly unknown: Path[];
  /** Whether one of the texts is at this place, or below it. */
  isAt(at: Path): boolean;
  /** Checks a plugin instance by the schema of its kind; where that cannot be told, by `unknown`, which takes any configuration. */
  checkInstance<T extends { readonly config: unknown }>(shape: Schema<T>, unknown: Schema<T>, node: JsonNode, at: Path, context: CheckContext): T | Invalid;
}

/** What reads texts that have `${`, once the part `references` has been loaded. */
export interface ReferenceReader {
  /** Whether the text has a reference, whose value must never be shown. */
  hasReference(text: string): boolean;
  /** The text for users who may not see secrets. */
  maskLiterals(text: string): string;
  /** A text that names something; undefined: it is none, or has references, which the schema reports. */
  nameIn(node: JsonNode | undefined): string | undefined;
  readText(node: NodeOf<"string">, at: Path, use: ReferenceUse, context: CheckContext, schema: AnySchema, accept: AcceptText): string | Invalid;
}

/** Returns the text as the code gets it, or what `refuse` returns, which takes a remedy. */
export type AcceptText = (text: string, refuse: (remedy: string) => Invalid) => string | Invalid;

/** In place of a secret. Its length does not depend on the secret. */
export const MASK = "********";

/** Secrets that look like a template that nobody has filled in: `$NAME`, `${NAME}`, `{{NAME}}`, `<NAME>`, `%NAME%`, "changeme". */
export const UNFILLED = /^(?:\$\w+|\$\{[^{}]*\}|\{\{[^{}]*\}\}|<[^<>]+>|%\w+%|change[-_ ]?(?:me|it|this))$/i;

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

/** The name in code of a configured field. */
export function camel(key: string): string {
  return key.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

/** "1–3 characters", "at least 2 items" */
export function countText(min: number, max: number, unit: string): string {
  if (min > 0 && max < Infinity) return `${min}–${max} ${unit}s`;
  return min > 0 ? `at least ${min} ${unit}${min === 1 ? "" : "s"}` : `at most ${max} ${unit}${max === 1 ? "" : "s"}`;
}
