/**
 * JSON documents as nodes that know where they stand in their text. Texts are read by `json_parser.ts`.
 */
/** Line and column count from 1; a column is a character (code point), not a byte. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** The place of a value in the document: keys and indexes from the root. */
export type Path = readonly (string | number)[];

export interface Issue {
  readonly at: Path;
  readonly message: string;
  /** Null when the document did not come from text. */
  readonly position: Position | null;
  /** Absolute path of the file that it is in, unless that is the configuration itself. */
  readonly file?: string;
  /** What is wrong is the signature of a file. */
  readonly isSignature?: true;
  /** It stands for so many further ones. */
  readonly more?: number;
}

/** Issues of one text that are kept: each is held, answered and logged, and the rest is like the first ones. */
const MAX_ISSUES = 100;
/** At a place that no text has: `Placeholders` leaves out issues at places of its own. */
const FURTHER: Issue = { at: [""], message: "", position: null };

/** Adds an issue of a text; of those beyond the first ones only their number is kept. */
export function addIssue(issues: Issue[], make: () => Issue): void {
  issues.push(issues.length < MAX_ISSUES ? make() : FURTHER);
}

/** The issues of a text in its order, and one that says how many more there are. */
export function listedIssues(issues: readonly Issue[]): readonly Issue[] {
  const kept = issues.filter((issue) => issue !== FURTHER).sort(byPosition);
  const more = issues.length - kept.length;
  if (more === 0) return kept;
  return [...kept, { at: [], message: `and ${more} more ${more === 1 ? "error" : "errors"}`, position: null, more }];
}

/** How many there are, with those that one stands for. */
export function countOfIssues(issues: readonly Pick<Issue, "more">[]): number {
  return issues.reduce((sum, { more = 1 }) => sum + more, 0);
}

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/**
 * Where it stands in its text, for `PositionOf`: in UTF-16 code units behind a byte order mark; of a configuration see
 * `config_document.ts`.
 */
export interface JsonPlace {
  /** -1: it did not come from text. */
  readonly offset: number;
  /** Of its key; -1: it has none. */
  readonly keyOffset: number;
  /** Of its text: of services, and of arrays and objects beside them. */
  readonly digest?: string;
  /** Where its text is known. What is in it is read when somebody asks for that, or in steps before. */
  readonly readSteps?: () => Generator<void, void>;
}

export type JsonNode = JsonPlace &
  (
    | { readonly kind: "null" }
    | { readonly kind: "boolean"; readonly value: boolean }
    | { readonly kind: "number"; readonly value: number; readonly text: string }
    | { readonly kind: "string"; readonly value: string }
    | { readonly kind: "array"; readonly items: readonly JsonNode[] }
    | { readonly kind: "object"; readonly members: ReadonlyMap<string, JsonNode> }
    /** A JavaScript value that JSON cannot express; `text` names it. */
    | { readonly kind: "other"; readonly text: string }
  );

/** Finds line and column of an offset; null for -1. */
export type PositionOf = (offset: number) => Position | null;

/** A text that has been read. */
export interface JsonDocument {
  /** Null after a syntax error, which is the only issue then. */
  readonly node: JsonNode | null;
  readonly issues: readonly Issue[];
  readonly positionOf: PositionOf;
}

export const MAX_DEPTH = 100;
export const HALF_PAIR = /\p{Surrogate}/u;

/** Of a document that did not come from text. */
export const NOWHERE: PositionOf = () => null;

/** Nodes for a JavaScript value, all at one offset. Values that JSON cannot express become nodes of kind "other". */
export function nodeFrom(value: unknown, offset = -1, depth = 0): JsonNode {
  const place = { offset, keyOffset: offset };
  const other = (text: string): JsonNode => ({ kind: "other", ...place, text });
  // ends cycles too
  if (depth >= MAX_DEPTH && Object(value) === value) return other(`a value nested deeper than ${MAX_DEPTH} levels`);
  if (value === null) return { kind: "null", ...place };
  if (typeof value === "boolean") return { kind: "boolean", ...place, value };
  if (typeof value === "number" && Number.isFinite(value))
    return { kind: "number", ...place, value, text: String(value) };
  if (typeof value === "number") return other(String(value));
  if (typeof value === "string" && HALF_PAIR.test(value)) return other("a string with half a surrogate pair");
  if (typeof value === "string") return { kind: "string", ...place, value };
  if (typeof value !== "object") return other(value === undefined ? "undefined" : `a ${typeof value}`);
  if (Array.isArray(value))
    return { kind: "array", ...place, items: Array.from(value, (item) => nodeFrom(item, offset, depth + 1)) };
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null)
    return other(`an instance of ${value.constructor.name}`);
  const members = new Map<string, JsonNode>();
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue; // as in JSON.stringify
    if (HALF_PAIR.test(key)) return other("an object with half a surrogate pair in a key");
    members.set(key, nodeFrom(item, offset, depth + 1));
  }
  return { kind: "object", ...place, members };
}

/** `services[0].upstreams[1].port`; keys that are not identifiers are quoted, and long ones cut: `headers["X-A"]`. */
export function formatPath(path: Path): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else if (/^[A-Za-z_$][\w$]{0,59}$/.test(step)) text += text === "" ? step : `.${step}`;
    else text += `[${shortText(step)}]`;
  }
  return text;
}

/** The node at the path, or undefined if there is none. */
export function nodeAt(node: JsonNode, path: Path): JsonNode | undefined {
  let found: JsonNode | undefined = node;
  for (const step of path) {
    if (found?.kind === "object") found = found.members.get(String(step));
    else found = found?.kind === "array" && typeof step === "number" ? found.items[step] : undefined;
  }
  return found;
}

/** The items of an array; none of another node. */
export function itemsOf(node: JsonNode | undefined): readonly JsonNode[] {
  return node?.kind === "array" ? node.items : [];
}

/** The offset of the value at the path, or of its nearest ancestor that exists. */
export function offsetAt(node: JsonNode, path: Path): number {
  return path.length === 0 ? node.offset : (nodeAt(node, path)?.offset ?? offsetAt(node, path.slice(0, -1)));
}

/** For issues of one text, in its order. */
function byPosition({ position: a }: Issue, { position: b }: Issue): number {
  return a === null || b === null ? 0 : a.line - b.line || a.column - b.column;
}

/** The value for an error message, short: `"80a"`, `12`, `an array`. A secret is named by its kind: `a string`. */
export function describeNode(node: JsonNode, isSecret = false): string {
  if (node.kind === "null") return "null";
  if (node.kind === "array" || node.kind === "object") return `an ${node.kind}`;
  if (node.kind === "other") return node.text;
  if (isSecret) return `a ${node.kind}`;
  if (node.kind === "string") return shortText(node.value);
  return node.kind === "number" ? node.text : String(node.value);
}

/** A text of any length for a message, in quotes. */
export function shortText(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 57)}…` : text);
}

/** The same with the keys of all objects in alphabetical order. */
export function inKeyOrder(value: Json): Json {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(inKeyOrder);
  const keys = Object.keys(value).sort();
  // fromEntries defines properties: a key named __proto__ is data like any other.
  return Object.fromEntries(keys.map((key) => [key, inKeyOrder((value as { readonly [key: string]: Json })[key]!)]));
}
