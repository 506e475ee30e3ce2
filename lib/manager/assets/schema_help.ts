/**
 * What the schema of a configuration (GET /gateway/schema) says about a place in a text.
 */
import { listed, number } from "./format.ts";
import { textOf, type JsonValue, type Outline, type Place } from "./json_outline.ts";

export interface Schema {
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, Schema>>;
  readonly description?: string;
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly default?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly if?: Schema;
  readonly then?: Schema;
  readonly else?: Schema;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly pattern?: string;
  /** A secret. */
  readonly writeOnly?: boolean;
}

/** References and alternatives within each other, at most. */
const MAX_NESTED = 16;
/** Values of an enumeration in the help; completion has all. */
const MAX_LISTED = 12;

/**
 * All schemas that hold for the value at the place, alternatives included: those of a plugin's `config` are those of
 * its kind.
 */
export function schemasAt(
  root: Schema,
  outline: Outline,
  { path, values }: Pick<Place, "path" | "values">,
): readonly Schema[] {
  let found = expanded(root, [root], outline, values[0]);
  path.forEach(
    (step, i) =>
      (found = expanded(
        root,
        found.flatMap((schema) => below(schema, step)),
        outline,
        values[i + 1],
      )),
  );
  return found;
}

function expanded(
  root: Schema,
  schemas: readonly Schema[],
  outline: Outline,
  value: JsonValue | undefined,
  depth = 0,
): readonly Schema[] {
  if (depth > MAX_NESTED) return [];
  return schemas.flatMap((schema) => {
    const named = schema.$ref === undefined ? undefined : root.$defs?.[schema.$ref.replace("#/$defs/", "")];
    const more = [
      named,
      ...(schema.anyOf ?? []),
      ...(schema.oneOf ?? []),
      ...(schema.allOf ?? []),
      holds(schema.if, outline, value) ? schema.then : undefined,
    ];
    return [
      schema,
      ...expanded(
        root,
        more.filter((each) => each !== undefined),
        outline,
        value,
        depth + 1,
      ),
    ];
  });
}

/** Whether the members have the constants that the condition names. */
function holds(condition: Schema | undefined, { lines }: Outline, value: JsonValue | undefined): boolean {
  return Object.entries(condition?.properties ?? {}).some(([name, { const: wanted }]) => {
    const found = value?.members.find(({ key }) => key === name)?.value;
    return wanted !== undefined && found?.kind === "string" && textOf(lines.slice(found.start, found.end)) === wanted;
  });
}

function below({ properties, additionalProperties, items }: Schema, step: string | number): readonly Schema[] {
  if (typeof step === "number") return items === undefined ? [] : [items];
  if (properties !== undefined && Object.hasOwn(properties, step)) return [properties[step]!];
  return typeof additionalProperties === "object" ? [additionalProperties] : [];
}

/** What is to be known about a field: its meaning, and its type, bounds and default in one line. */
export function helpOf(
  schemas: readonly Schema[],
  isRequired: boolean,
): { readonly description: string; readonly facts: string } {
  const facts = [...new Set(schemas.map(typeText).filter((text) => text !== ""))];
  const standard = schemas.find((schema) => schema.default !== undefined)?.default;
  const more = [
    standard === undefined ? "" : `default ${JSON.stringify(standard)}`,
    isRequired ? "required" : "",
  ].filter((text) => text !== "");
  return {
    description: schemas.find(({ description }) => description !== undefined)?.description ?? "",
    facts: [facts.join(" or "), ...more].filter((text) => text !== "").join(" · "),
  };
}

/** "integer from 1 to 65,535"; "" if the schema says nothing of it. */
function typeText(schema: Schema): string {
  if (schema.enum !== undefined)
    return `one of ${listed(
      schema.enum.map((value) => JSON.stringify(value)),
      MAX_LISTED,
    )}`;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const type = [schema.type ?? []].flat().join(" or ");
  const bounds = [
    bound("", schema.minimum, schema.maximum),
    bound(" characters", schema.minLength, schema.maxLength),
    bound(" items", schema.minItems, schema.maxItems),
    schema.pattern === undefined ? "" : `matching ${schema.pattern}`,
  ];
  return [type, ...bounds].filter((text) => text !== "").join(" ");
}

function bound(unit: string, least: number | undefined, most: number | undefined): string {
  if (least === undefined && most === undefined) return "";
  if (most === undefined) return `of at least ${number(least!)}${unit}`;
  return least === undefined ? `of at most ${number(most)}${unit}` : `from ${number(least)} to ${number(most)}${unit}`;
}
