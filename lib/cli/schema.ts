/**
 * `edge-gateway schema`: prints the JSON Schema of the configuration, made of the same description that validates it.
 * With `--config FILE`, the kinds of that configuration's plugin modules are in it.
 */
import { configJsonSchema, type PluginKind } from "../config/model.ts";
import { ConfigError } from "../gateway/gateway.ts";
import { moduleKinds } from "../gateway/plugin_modules.ts";
import { builtinPlugins } from "../plugins/builtin.ts";
import { onlyFlags, UsageError, type Arguments } from "./arguments.ts";
import type { ExitCode } from "./failure.ts";

/** Rejects with a `ConfigError` when a plugin module cannot be used; whatever else is wrong in the file does not matter. */
export async function schemaCommand(given: Arguments): Promise<ExitCode> {
  onlyFlags(given, ["config"], 0);
  const { config } = given.flags;
  if (config === true) throw new UsageError("--config needs a value: the path of the configuration file");
  const kinds = config === undefined ? builtinPlugins : await kindsWith(config);
  process.stdout.write(`${JSON.stringify(configJsonSchema(kinds), null, 2)}\n`);
  return 0;
}

async function kindsWith(file: string): Promise<readonly PluginKind[]> {
  const { kinds, issues } = await moduleKinds(file, builtinPlugins);
  if (issues.length > 0) throw new ConfigError(issues, file);
  return kinds;
}
