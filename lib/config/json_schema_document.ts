/**
 * The JSON Schema of a whole configuration, for editors.
 */
import { configSchema, type PluginKind } from "./model.ts";
import type { PartFields } from "./part_fields.ts";
import type { JsonSchema } from "./schema.ts";

/** One document. `parts`: the fields of all parts. */
export function schemaDocument(kinds: readonly PluginKind[], parts: readonly PartFields[]): JsonSchema {
  const definitions: Record<string, JsonSchema> = {};
  const root = configSchema(kinds, parts).jsonSchema(definitions);
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "edge-gateway configuration",
    ...root,
    $defs: definitions,
  };
}
