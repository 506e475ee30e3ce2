/**
 * `edge-gateway schema`: prints the JSON Schema of the configuration. It runs the code of plugin modules.
 */
import { configJsonSchema } from "../config/model.ts";
import { ConfigError } from "../gateway/config_error.ts";
import { moduleKinds } from "../parts/load.ts";
import { ALL_FIELDS } from "../parts/all_parts.ts";
import { builtinPlugins } from "../plugins/builtin.ts";
import type { RunCommand } from "./arguments.ts";
import { configFlag, configKeyFile } from "./config_file.ts";

/** Errors in the configuration do not matter, except that its plugin modules must be usable. */
export const schema: RunCommand = async (given) => {
  const file = configFlag(given);
  const { kinds, issues } = file === undefined ? { kinds: builtinPlugins, issues: [] } : await moduleKinds(file, builtinPlugins, configKeyFile(given));
  if (issues.length > 0) throw new ConfigError(issues, file);
  process.stdout.write(`${JSON.stringify(configJsonSchema(kinds, ALL_FIELDS), null, 2)}\n`);
  return 0;
};
