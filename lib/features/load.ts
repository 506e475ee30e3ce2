/**
 * Loads what a configuration names, before a gateway is made with it: features, plugin kinds and plugin modules.
 */
import { readConfigFile, type ConfigSource } from "../config/source.ts";
import type { Environment } from "../config/start_settings.ts";
import { signatureCheck } from "../gateway/config_reader.ts";
import { LoadedFeatures } from "../gateway/loaded_features.ts";
import { TABLE } from "./table.ts";

/**
 * As `loadPluginModules`, with what was read, so that the gateway is made with nothing else. Without `source` it could
 * not be read.
 */
export async function readForStart(
  config: string | object,
  environment: Environment,
  configKeyFile?: string,
): Promise<{ readonly modules: LoadedFeatures; readonly source?: ConfigSource }> {
  const modules = freshModules();
  if (configKeyFile !== undefined) await modules.loadFeature("sources");
  const source =
    typeof config === "string"
      ? readConfigFile(config, signatureCheck(modules, configKeyFile))
      : { ok: true as const, value: config };
  if (!source.ok) return { modules };
  await modules.load(source, environment);
  return { modules, source };
}

/** Nothing is loaded yet. */
export function freshModules(): LoadedFeatures {
  return new LoadedFeatures(TABLE);
}
