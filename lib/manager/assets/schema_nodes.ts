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
  | { readonly is: "lines"; readonly isNumeric: boolean; readonly isText: boolean; readonly isSingle: boolean }
  | { readonly is: "list" | "map"; readonly item: Schema; readonly atLeast: number }
  | { readonly is: "one of"; readonly schemas: readonly Schema[] };

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
  return {
    members: { ...schema.properties, ...then?.properties },
    required: [...(schema.required ?? []), ...(then?.required ?? [])],
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
function plainTypes(root: Schema, schema: Schema): { readonly isNumeric: boolean; readonly isText: boolean } | null {
  const all = schema.type === undefined ? (schema.anyOf ?? [schema]).map((each) => schemaOf(root, each)) : [schema];
  const types = all.map(({ type, enum: values, anyOf }) =>
    anyOf !== undefined && type === undefined ? null : (type ?? typeof values?.[0]),
  );
  const isNumeric = types.some((type) => type === "integer" || type === "number");
  const isPlain = types.every((type) => ["string", "integer", "number", "boolean"].includes(String(type)));
  return isPlain ? { isNumeric, isText: all.some(({ type }) => type === "string") } : null;
}

/** Whether the form can show the value: whether it is right the gateway says. */
export function fits(root: Schema, schema: Schema, value: unknown): boolean {
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
    case "object":
      return isRecord(value);
    case "one of":
      return node.schemas.some((each) => fits(root, each, value));
    default:
      return true;
  }
}

function isLine(value: unknown): boolean {
  if (typeof value === "string") return value.trim() === value && value !== "" && !value.includes("\n");
  return typeof value === "number" || typeof value === "boolean";
}
