/**
 * The JSON Schema of a whole configuration, for editors.
 */
import { configSchema, type PluginKind } from "./model.ts";
import type { FeatureFields } from "./feature_fields.ts";
import type { JsonSchema } from "./schema.ts";

/** One document. `features`: the fields of all features. */
export function schemaDocument(kinds: readonly PluginKind[], features: readonly FeatureFields[]): JsonSchema {
  const definitions: Record<string, JsonSchema> = {};
  const root = configSchema(kinds, features).jsonSchema(definitions);
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "edge-gateway configuration",
    ...root,
    $defs: definitions,
  };
}
