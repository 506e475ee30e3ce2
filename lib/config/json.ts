/**
 * JSON documents as nodes, and the reading of those without errors. Positions and errors: `json_text.ts`.
 */
import { isUtf8 } from "node:buffer";

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
  /** Null when the document did not come from text, or was read without positions. */
  readonly position: Position | null;
  /** Absolute path of the file that it is in, unless that is the configuration itself. */
  readonly file?: string;
  /** What is wrong is the signature of a file. */
  readonly isSignature?: true;
}

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

export interface Member {
  readonly keyPosition: Position | null;
  readonly value: JsonNode;
}

export type JsonNode = { readonly position: Position | null } & (
  | { readonly kind: "null" }
  | { readonly kind: "boolean"; readonly value: boolean }
  | { readonly kind: "number"; readonly value: number; readonly text: string }
  | { readonly kind: "string"; readonly value: string }
  | { readonly kind: "array"; readonly items: readonly JsonNode[] }
  | { readonly kind: "object"; readonly members: ReadonlyMap<string, Member> }
  /** A JavaScript value that JSON cannot express; `text` names it. */
  | { readonly kind: "other"; readonly text: string }
);

export const MAX_DEPTH = 100;
export const HALF_PAIR = /\p{Surrogate}/u;

/** The document of a text, without positions. Null: `parseJson` finds an error in it. */
export function readValidJson(input: Buffer | string): JsonNode | null {
  if (typeof input !== "string" && !isUtf8(input)) return null;
  const text = String(input).replace(/^\uFEFF/, "");
  try {
    const node = nodeFrom(JSON.parse(text));
    let written = 0;
    for (const [, colon] of text.matchAll(STRING)) if (colon !== "") written++;
    return keysIn(node) === written ? node : null;
  } catch {
    return null;
  }
}

/** A string, and the colon behind it if it is a key. */
const STRING = /"[^"\\]*(?:\\.[^"\\]*)*"[ \n\r\t]*(:?)/g;

/** `JSON.parse` keeps one of two equal keys. NaN: a value in the node is invalid. */
function keysIn(node: JsonNode): number {
  if (node.kind === "array") return node.items.reduce((sum, item) => sum + keysIn(item), 0);
  if (node.kind !== "object") return node.kind === "other" ? NaN : 0;
  return Array.from(node.members.values()).reduce((sum, { value }) => sum + keysIn(value), node.members.size);
}

/** Nodes for a JavaScript value, all at one position. Values that JSON cannot express become nodes of kind "other". */
export function nodeFrom(value: unknown, position: Position | null = null, depth = 0): JsonNode {
  const other = (text: string): JsonNode => ({ kind: "other", text, position });
  // ends cycles too
  if (depth >= MAX_DEPTH && Object(value) === value) return other(`a value nested deeper than ${MAX_DEPTH} levels`);
  if (value === null) return { kind: "null", position };
  if (typeof value === "boolean") return { kind: "boolean", value, position };
  if (typeof value === "number" && Number.isFinite(value))
    return { kind: "number", value, text: String(value), position };
  if (typeof value === "number") return other(String(value));
  if (typeof value === "string" && HALF_PAIR.test(value)) return other("a string with half a surrogate pair");
  if (typeof value === "string") return { kind: "string", value, position };
  if (typeof value !== "object") return other(value === undefined ? "undefined" : `a ${typeof value}`);
  if (Array.isArray(value))
    return { kind: "array", items: Array.from(value, (item) => nodeFrom(item, position, depth + 1)), position };
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null)
    return other(`an instance of ${value.constructor.name}`);
  const members = new Map<string, Member>();
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue; // as in JSON.stringify
    if (HALF_PAIR.test(key)) return other("an object with half a surrogate pair in a key");
    members.set(key, { keyPosition: position, value: nodeFrom(item, position, depth + 1) });
  }
  return { kind: "object", members, position };
}

/** `services[0].upstreams[1].port`; keys that are not identifiers are quoted: `headers["X-A"]`. */
export function formatPath(path: Path): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else if (/^[A-Za-z_$][\w$]*$/.test(step)) text += text === "" ? step : `.${step}`;
    else text += `[${JSON.stringify(step)}]`;
  }
  return text;
}

/** The node at the path, or undefined if there is none. */
export function nodeAt(node: JsonNode, path: Path): JsonNode | undefined {
  let found: JsonNode | undefined = node;
  for (const step of path) {
    if (found?.kind === "object") found = found.members.get(String(step))?.value;
    else found = found?.kind === "array" && typeof step === "number" ? found.items[step] : undefined;
  }
  return found;
}

/** The items of an array; none of another node. */
export function itemsOf(node: JsonNode | undefined): readonly JsonNode[] {
  return node?.kind === "array" ? node.items : [];
}

/**
 * The values at a place such as `services[].protocol`; `=h2` behind it: those that are this text. `known`: what was
 * found on the way to others.
 */
export function valuesAt(
  document: JsonNode,
  place: string,
  known = new Map<string, readonly JsonNode[]>(),
): readonly JsonNode[] {
  const [path, text] = place.split("=") as [string, string | undefined];
  let [found, begin]: [readonly JsonNode[], string] = [[document], ""];
  for (const step of path.replaceAll("[]", ".[]").split(".")) {
    begin += `.${step}`;
    found =
      known.get(begin) ??
      found.flatMap((node) =>
        step === "[]" ? itemsOf(node) : (node.kind === "object" && node.members.get(step)?.value) || [],
      );
    known.set(begin, found);
  }
  return text === undefined ? found : found.filter((node) => node.kind === "string" && node.value === text);
}

/** All texts in these nodes; keys are none. */
export function textsOf(nodes: readonly JsonNode[]): readonly string[] {
  return nodes.flatMap((node) => {
    if (node.kind === "string") return node.value;
    return node.kind === "array"
      ? textsOf(node.items)
      : node.kind === "object"
        ? textsOf(Array.from(node.members.values(), ({ value }) => value))
        : [];
  });
}

/** The position of the value at the path, or of its nearest ancestor that exists. */
export function positionAt(node: JsonNode, path: Path): Position | null {
  return path.length === 0 ? node.position : (nodeAt(node, path)?.position ?? positionAt(node, path.slice(0, -1)));
}

/** For issues of one text, in its order. */
export function byPosition({ position: a }: Issue, { position: b }: Issue): number {
  return a === null || b === null ? 0 : a.line - b.line || a.column - b.column;
}

/** The value for an error message, short: `"80a"`, `12`, `an array`. A secret is named by its kind: `a string`. */
export function describeNode(node: JsonNode, isSecret = false): string {
  if (node.kind === "null") return "null";
  if (node.kind === "array" || node.kind === "object") return `an ${node.kind}`;
  if (node.kind === "other") return node.text;
  if (isSecret) return `a ${node.kind}`;
  if (node.kind === "string")
    return JSON.stringify(node.value.length > 60 ? `${node.value.slice(0, 57)}…` : node.value);
  return node.kind === "number" ? node.text : String(node.value);
}

/** The same with the keys of all objects in alphabetical order. */
export function inKeyOrder(value: Json): Json {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(inKeyOrder);
  const keys = Object.keys(value).sort();
  // fromEntries defines properties: a key named __proto__ is data like any other.
  return Object.fromEntries(keys.map((key) => [key, inKeyOrder((value as { readonly [key: string]: Json })[key]!)]));
}
