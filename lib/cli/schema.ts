/**
 * `edge-gateway schema`: prints the JSON Schema of the configuration. It runs the code of plugin modules.
 */
import { schemaDocument } from "../config/json_schema_document.ts";
import { kindsWithModules } from "../config/plugin_modules.ts";
import type { PluginKind } from "../config/model.ts";
import * as references from "../config/references.ts";
import type { JsonSchema } from "../config/schema.ts";
import { readConfigFile } from "../config/source.ts";
import { ConfigError } from "../gateway/config_error.ts";
import { signatureCheck } from "../gateway/config_reader.ts";
import { loadPluginModules } from "../features/plugin_modules.ts";
import { ALL_FIELDS } from "../features/all.ts";
import { builtinPlugins } from "../plugins/builtin.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { RunCommand } from "./arguments.ts";
import { configKeyFile, namedFile } from "./config_file.ts";

/** Errors in the configuration do not matter, except that its plugin modules must be usable. */
export const schema: RunCommand = async (given) => {
  const kinds =
    given.flags.config === undefined ? builtinPlugins : await kindsFor(namedFile(given), configKeyFile(given));
  process.stdout.write(`${JSON.stringify(configJsonSchema(kinds), null, 2)}\n`);
  return 0;
};

export function configJsonSchema(kinds: readonly PluginKind[]): JsonSchema {
  return schemaDocument(kinds, ALL_FIELDS);
}

/** The built-in kinds, and those from the modules of a configuration file. */
async function kindsFor(file: string, keyFile: string | undefined): Promise<readonly AnyPlugin[]> {
  const modules = await loadPluginModules(file, process.env, keyFile);
  const read = readConfigFile(file, signatureCheck(modules, keyFile));
  if (!read.ok) throw new ConfigError(read.issues, file);
  const { kinds, issues } = kindsWithModules<AnyPlugin>(
    read,
    { references, environment: process.env },
    builtinPlugins,
    modules.kindsOf,
  );
  if (issues.length > 0) throw new ConfigError(issues, file);
  return kinds;
}
