/**
 * What the schema of a configuration says of one value: what it is, which members it has, and whether a value fits.
 */
import { isRecord } from "./json_text.ts";
import type { Schema } from "./schema_help.ts";

/** What a form shows for a value. */
export type Node =
  | { readonly is: "text" | "switch" | "object" | "json" }
  | { readonly is: "number"; readonly isWhole: boolean }
  | { readonly is: "choice"; readonly values: readonly unknown[] }
  /** Plain values; `isSingle`: one alone needs no list. */
  | (Lines & { readonly is: "lines"; readonly isSingle: boolean })
  | { readonly is: "list" | "map"; readonly item: Schema; readonly atLeast: number }
  | { readonly is: "one of"; readonly schemas: readonly Schema[] };

/** Which plain values may stand in a list. */
export interface Lines {
  readonly isNumeric: boolean;
  readonly isBoolean: boolean;
  readonly isText: boolean;
}

const JSON_NODE: Node = { is: "json" };
const UNITS: readonly (readonly [string, string])[] = [
  ["_ms", "milliseconds"],
  ["_s", "seconds"],
  ["bytes", "bytes"],
  ["percent", "percent"],
];

/** By the end of a name: "timeout_ms" is in milliseconds. */
export function unitOf(name: string): string | null {
  return UNITS.find(([end]) => name.endsWith(end))?.[1] ?? null;
}

/** With what it refers to. */
export function schemaOf(root: Schema, { $ref, ...schema }: Schema): Schema {
  return $ref === undefined ? schema : { ...root.$defs?.[$ref.replace("#/$defs/", "")], ...schema };
}

/** For its help: those of alternatives, and not the patterns of references. */
export function alternativesOf(root: Schema, schema: Schema): readonly Schema[] {
  const { anyOf = [], ...own } = schema;
  return schema.type === "string" ? [own] : [own, ...anyOf.map((each) => schemaOf(root, each))];
}

/** The members of an object with this value: those of a plugin's `config` are those of its kind. */
export function membersOf(
  schema: Schema,
  value: Readonly<Record<string, unknown>>,
): { readonly members: Readonly<Record<string, Schema>>; readonly required: readonly string[] } {
  const then = (schema.allOf ?? []).find(({ if: condition }) =>
    Object.entries(condition?.properties ?? {}).every(([name, { const: wanted }]) => value[name] === wanted),
  )?.then;
  const isOther = schema.if?.required?.some((name) => value[name] === undefined) === true;
  return {
    members: { ...schema.properties, ...then?.properties },
    required: [schema, then, isOther ? schema.else : undefined].flatMap((each) => each?.required ?? []),
  };
}

export function nodeOf(root: Schema, schema: Schema): Node {
  const { type, anyOf, properties, additionalProperties, items, minItems = 0 } = schema;
  if (schema.enum !== undefined) return { is: "choice", values: schema.enum };
  if (schema.const !== undefined) return { is: "choice", values: [schema.const] };
  if (type === "string") return { is: "text" };
  if (type === "boolean") return { is: "switch" };
  if (type === "null") return { is: "choice", values: [null] };
  if (type === "integer" || type === "number") return { is: "number", isWhole: type === "integer" };
  if (type === "array" && items !== undefined) {
    const item = schemaOf(root, items);
    const plain = plainTypes(root, item);
    return plain === null ? { is: "list", item, atLeast: minItems } : { is: "lines", ...plain, isSingle: false };
  }
  if (type === "object" && (properties !== undefined || schema.allOf !== undefined)) return { is: "object" };
  if (type === "object" && typeof additionalProperties === "object" && Object.keys(additionalProperties).length > 0)
    return { is: "map", item: additionalProperties, atLeast: 0 };
  if (anyOf === undefined) return JSON_NODE;
  const schemas = anyOf.map((each) => schemaOf(root, each));
  // One value, or a list of them.
  const list = schemas.map((each) => nodeOf(root, each)).find((each) => each.is === "lines");
  const isSingle =
    list !== undefined && schemas.length === 2 && schemas.some((each) => plainTypes(root, each) !== null);
  return isSingle ? { ...list, isSingle } : { is: "one of", schemas };
}

/** Null: a value of it does not fit into a line. */
function plainTypes(root: Schema, schema: Schema): Lines | null {
  const all = schema.type === undefined ? (schema.anyOf ?? [schema]).map((each) => schemaOf(root, each)) : [schema];
  const types = all.map(({ type, enum: values, anyOf }) =>
    anyOf !== undefined && type === undefined ? null : (type ?? typeof values?.[0]),
  );
  const isNumeric = types.some((type) => type === "integer" || type === "number");
  const isPlain = types.every((type) => ["string", "integer", "number", "boolean"].includes(String(type)));
  const isText = all.some(({ type }) => type === "string");
  return isPlain ? { isNumeric, isBoolean: types.includes("boolean"), isText } : null;
}

/** What a line says: where not only texts may stand, true, false and numbers are such, and texts may be in quotes. */
export function valueOfLine({ isNumeric, isBoolean, isText }: Lines, line: string): unknown {
  if (!isNumeric && !isBoolean) return line;
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return line;
  }
  // Of a larger number, such as an id, digits would be lost.
  if (typeof value === "number") return isNumeric && Math.abs(value) <= Number.MAX_SAFE_INTEGER ? value : line;
  if (typeof value === "boolean") return isBoolean ? value : line;
  return typeof value === "string" && isText ? value : line;
}

/** The line of a value: a text that would be read as something else is in quotes. */
export function lineOf(lines: Lines, value: unknown): string {
  const isQuoted = typeof value === "string" && valueOfLine(lines, value) !== value;
  return isQuoted ? JSON.stringify(value) : String(value);
}

/** Whether a value of it, or anything in it, is a secret. */
export function holdsSecret(root: Schema, schema: Schema, seen = new Set<string>()): boolean {
  if (schema.$ref !== undefined && seen.has(schema.$ref)) return false;
  if (schema.$ref !== undefined) seen.add(schema.$ref);
  const { writeOnly, items, properties = {}, additionalProperties, anyOf = [], allOf = [] } = schemaOf(root, schema);
  const inner = [items, additionalProperties, ...Object.values(properties), ...anyOf, ...allOf.map(({ then }) => then)];
  return writeOnly === true || inner.some((each) => typeof each === "object" && holdsSecret(root, each, seen));
}

/**
 * Whether the form can show the value: whether it is right the gateway says. Of the alternatives one for an object is
 * told by its members.
 */
export function fits(root: Schema, schema: Schema, value: unknown, isAlternative = false): boolean {
  const node = nodeOf(root, schema);
  switch (node.is) {
    case "text":
      return typeof value === "string";
    case "switch":
      return typeof value === "boolean";
    case "number":
      return typeof value === "number";
    case "choice":
      return node.values.includes(value);
    case "lines":
      return (node.isSingle || Array.isArray(value)) && [value].flat().every(isLine);
    case "list":
      return Array.isArray(value);
    case "map":
      return isRecord(value);
    case "object":
      return isRecord(value) && (!isAlternative || hasMembersOf(schema, value));
    case "one of":
      return node.schemas.some((each) => fits(root, each, value, true));
    default:
      return true;
  }
}

function hasMembersOf(schema: Schema, value: Readonly<Record<string, unknown>>): boolean {
  const { members, required } = membersOf(schema, value);
  const areKnown = Object.keys(value).every((name) => Object.hasOwn(members, name));
  return areKnown && required.every((name) => Object.hasOwn(value, name));
}

function isLine(value: unknown): boolean {
  if (typeof value === "string") return value.trim() === value && value !== "" && !/[\r\n]/.test(value);
  return typeof value === "number" || typeof value === "boolean";
}
