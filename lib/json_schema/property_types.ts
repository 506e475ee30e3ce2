/**
 * Finds the types that a JSON Schema states for the properties of an object, so that a text can be parsed as a number,
 * boolean or list.
 */
import { linearPattern, type LinearPattern } from "../base/linear_pattern.ts";
import { definitionPath, isObject, valueAt } from "./values.ts";

/** Types that a schema allows; null: any. */
export interface TextTypes {
  readonly types: readonly string[] | null;
  readonly itemTypes: readonly string[] | null;
}

type Fields = Readonly<Record<string, unknown>>;

/** Only keywords that apply to every value: not `anyOf` and similar. */
export function propertyTypes(root: unknown): (property: string) => TextTypes {
  const schemas = conjunction(root, root);
  const entriesOf = (keyword: string) => schemas.flatMap((schema) => Object.entries(schema[keyword] ?? {}));
  const typesOf = (schema: unknown): TextTypes => {
    const all = conjunction(schema, root);
    return { types: firstType(all), itemTypes: firstType(all.flatMap(({ items }) => conjunction(items, root))) };
  };
  const named = new Map<string, TextTypes>();
  for (const [name, schema] of entriesOf("properties"))
    if ((named.get(name)?.types ?? null) === null) named.set(name, typesOf(schema));
  const patterns = entriesOf("patternProperties").map(([source, schema]) => ({
    pattern: linearPattern(source) as LinearPattern,
    types: typesOf(schema),
  }));
  const others = typesOf(schemas.map(({ additionalProperties }) => additionalProperties).find(isObject));
  return (property) =>
    named.get(property) ?? patterns.find(({ pattern }) => pattern.test(property, UNMETERED) === true)?.types ?? others;
}

/** Property names are as short as a query or a header line. */
const UNMETERED = { spend() {}, isDue: false, pause: () => Promise.resolve() };

/** The schema and all schemas that apply to the same value: `$ref` and `allOf`. */
function conjunction(schema: unknown, root: unknown, found = new Set<Fields>()): Fields[] {
  if (isObject(schema) && !found.has(schema)) {
    found.add(schema);
    const path = typeof schema.$ref === "string" ? definitionPath(schema.$ref) : null;
    if (path !== null) conjunction(valueAt(root, path), root, found);
    if (Array.isArray(schema.allOf)) for (const each of schema.allOf) conjunction(each, root, found);
  }
  return [...found];
}

function firstType(schemas: readonly Fields[]): readonly string[] | null {
  const type = schemas.map((schema) => schema.type).find((each) => each !== undefined);
  return type === undefined ? null : ([type].flat() as string[]);
}
