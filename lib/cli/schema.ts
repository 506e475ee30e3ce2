/**
 * `edge-gateway schema`: prints the JSON Schema of the configuration. It runs the code of plugin modules.
 */
import { schemaDocument } from "../config/json_schema_document.ts";
import { kindsWithModules } from "../config/plugin_modules.ts";
import type { PluginKind } from "../config/model.ts";
import { readRegularFile } from "../base/regular_file.ts";
import * as references from "../config/references.ts";
import type { JsonSchema } from "../config/schema.ts";
import { ConfigError } from "../gateway/config_error.ts";
import { ConfigReader } from "../gateway/config_reader.ts";
import { readForStart } from "../features/load.ts";
import { ALL_FIELDS } from "../features/all.ts";
import { builtinPlugins } from "../plugins/builtin.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { RunCommand } from "./arguments.ts";
import { namedConfig, type NamedConfig } from "./config_file.ts";

/** Errors in the configuration do not matter, except that its plugin modules must be usable. */
export const schema: RunCommand = async (given) => {
  const kinds = given.flags.config === undefined ? builtinPlugins : await kindsFor(await namedConfig(given));
  process.stdout.write(`${JSON.stringify(configJsonSchema(kinds), null, 2)}\n`);
  return 0;
};

export function configJsonSchema(kinds: readonly PluginKind[]): JsonSchema {
  return schemaDocument(kinds, ALL_FIELDS);
}

/** The built-in kinds, and those from the modules of a configuration. */
async function kindsFor(config: NamedConfig): Promise<readonly AnyPlugin[]> {
  const { modules, source } = await readForStart(config);
  const { kinds, issues } = kindsWithModules<AnyPlugin>(
    source ?? new ConfigReader({ ...config, modules }, readRegularFile).source(),
    { references, environment: process.env },
    builtinPlugins,
    modules.kindsOf,
  );
  if (issues.length > 0) throw new ConfigError(issues, config.configFile);
  return kinds;
}
