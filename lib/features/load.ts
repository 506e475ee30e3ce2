/**
 * Loads what a configuration names, before a gateway is made with it: features, plugin kinds and plugin modules.
 */
import { atOnce } from "../base/time_slices.ts";
import type { ConfigSource } from "../config/source.ts";
import type { Environment } from "../config/start_settings.ts";
import { readSteps } from "../gateway/config_reader.ts";
import { LoadedFeatures } from "../gateway/loaded_features.ts";
import type { ConfigurationOptions } from "../gateway/options.ts";
import { TABLE } from "./table.ts";

/**
 * As `loadPluginModules`, with what was read, so that the gateway is made with nothing else. Without `source` it could
 * not be read.
 */
export async function readForStart(
  options: Pick<ConfigurationOptions, "config" | "configFile" | "configKeyFile" | "textSource">,
  environment: Environment = process.env,
): Promise<{ readonly modules: LoadedFeatures; readonly source?: ConfigSource }> {
  const features = freshFeatures();
  if (options.configKeyFile !== undefined) await features.loadFeature("sources");
  const source = atOnce(readSteps(options.config, { ...options, modules: features }));
  if (!source.ok) return { modules: features };
  await features.load(source, environment);
  return { modules: features, source };
}

/** Nothing is loaded yet. */
export function freshFeatures(): LoadedFeatures {
  return new LoadedFeatures(TABLE);
}
