/**
 * The types of schemas, and of what they are checked with: the sources of values, and what a check finds.
 */
import type { Issue, Json, JsonNode, Path, PositionOf } from "./json.ts";

declare const INVALID: unique symbol;
/** The type of `INVALID`. */
export type Invalid = typeof INVALID;

export interface CheckContext {
  /** All errors; `check` appends. */
  readonly issues: Issue[];
  /** Of the text that is checked. Default: it is a value. */
  readonly positionOf?: PositionOf;
  readonly sources: Sources;
  /** The whole document, for checks that look at other nodes; it may have errors elsewhere. */
  readonly root?: JsonNode;
  /** The files that the document names, by absolute path; `check` adds to it. */
  readonly files?: Map<string, NamedFile>;
  /** Every text that contains a secret, with its masked form; `check` adds to it. */
  readonly secrets?: Secret[];
  /** Lists whose items have been checked, by their nodes. */
  readonly lists?: Map<JsonNode, CheckedList>;
}

/** The items of a list, and what their checks have found. */
export interface CheckedList {
  readonly values: readonly unknown[];
  readonly shown: readonly Json[];
  readonly issues: readonly Issue[];
  readonly secrets: readonly Secret[];
  readonly files: ReadonlyMap<string, NamedFile>;
}

/** A file that a configuration names, read together with the configuration. */
export interface NamedFile {
  /** Absolute. */
  readonly path: string;
  readonly content: Buffer;
}

export interface Secret {
  readonly at: Path;
  /** As it is written. */
  readonly text: string;
  readonly masked: string;
}

/** The sources of reference values, and of help with errors. */
export interface Sources {
  /** Undefined: no text has references. */
  readonly references?: ReferenceReader | undefined;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly readFile: (path: string) => Buffer | string;
  /** Base of relative file names: the folder of the configuration file; null: there is none, and no such names. */
  readonly folder: string | null;
  /** Gets each value that a reference stood for, with the reference. */
  readonly resolved?: Map<string, string>;
  /** Gets the values of the references that no placeholder can replace, by reference. */
  readonly formed?: Map<string, string>;
  /** Takes the place of variables and files: references are not resolved. */
  readonly placeholders?: PlaceholderSource;
  /** Returns the text in place of a reference. Default: its value. */
  readonly substitute?: (reference: string) => string;
}

/** How the value of a reference is used. */
export type ReferenceUse =
  /** As a text that is only compared or passed on. */
  | "text"
  /** As a text that must not be given away, whatever form is needed. */
  | "secret"
  /** As something that names or matches, and has no references. */
  | "name"
  /** As the URL or the address of a server or a network. */
  | "address"
  /** As something that random text cannot stand for, and that nobody guesses: a public key, a file. */
  | "value";

/** See `Placeholders`. */
export interface PlaceholderSource {
  /** The sources to read a text with references by: the first is used that gives a text which fits. */
  alternatives(
    written: string,
    at: Path,
    use: ReferenceUse,
    sources: Sources,
    root: JsonNode | undefined,
  ): readonly Sources[];
  /** Whether the configuration in force has this text, with references or the name of a file, at this place. */
  isKnown(written: string, at: Path, root: JsonNode | undefined): boolean;
  /** The places of references and files that are not known. */
  readonly unknown: Path[];
  /** Whether one of the texts is at this place, or below it. */
  isAt(at: Path): boolean;
  /**
   * Checks a plugin instance by the schema of its kind; where that cannot be told, by `unknown`, which takes any
   * configuration.
   */
  checkInstance<T extends { readonly config: unknown }>(
    shape: Schema<T>,
    unknown: Schema<T>,
    node: JsonNode,
    at: Path,
    context: CheckContext,
  ): T | Invalid;
}

/** What reads texts that have `${`, once the feature `sources` has been loaded. */
export interface ReferenceReader {
  /** Whether the text has a reference, whose value must never be shown. */
  hasReference(text: string): boolean;
  /** The text for users who may not see secrets. */
  maskLiterals(text: string): string;
  /** A text that names something; undefined: it is none, or has references, which the schema reports. */
  nameIn(node: JsonNode | undefined): string | undefined;
  readText(
    node: NodeOf<"string">,
    at: Path,
    use: ReferenceUse,
    context: CheckContext,
    schema: AnySchema,
    accept: AcceptText,
  ): string | Invalid;
}

/** Returns the text as the code gets it, or what `refuse` returns, which takes a remedy. */
export type AcceptText = (text: string, refuse: (remedy: string) => Invalid) => string | Invalid;

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
  /** A valid node as plain JSON, defaults filled in, references unresolved. `lists`: as in `CheckContext`. */
  show(node: JsonNode, lists?: CheckContext["lists"]): Json;
  /** JSON Schema, draft 2020-12. Schemas made by `named` go into `definitions` if it is given. */
  jsonSchema(definitions?: Record<string, JsonSchema>): JsonSchema;
  /** Whether a node may contain a secret: messages then give only its kind. */
  readonly secret?: boolean;
  /** Of a list: the schema of its items; of an object: those of its fields. */
  readonly item?: AnySchema;
  readonly fields?: ReadonlyMap<string, AnySchema>;
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

export type Kind = JsonNode["kind"];
export type NodeOf<K extends Kind> = Extract<JsonNode, { readonly kind: K }>;
