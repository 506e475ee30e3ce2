/** Configurations read with the fields of all parts, whatever has been loaded. */
import { loadConfig as load, type ConfigSource, type LoadOptions, type LoadResult } from "../../lib/config/load.ts";
import { configJsonSchema as jsonSchema, type PluginKind } from "../../lib/config/model.ts";
import { readTests } from "../../lib/config/read_tests.ts";
import type { JsonSchema } from "../../lib/config/schema.ts";
import { ALL_FIELDS } from "../../lib/gateway/all_parts.ts";

export function loadConfig<K extends PluginKind>(source: ConfigSource, options: LoadOptions<K>): LoadResult<K> {
  return load(source, { parts: ALL_FIELDS, readTests, ...options });
}

export function configJsonSchema(kinds: readonly PluginKind[]): JsonSchema {
  return jsonSchema(kinds, ALL_FIELDS);
}
