/**
 * Loads what a configuration names, before a gateway is made with it: features, plugin kinds and plugin modules.
 */
import { atOnce } from "../base/time_slices.ts";
import { readConfigFile, receivedSteps, type ConfigSource } from "../config/source.ts";
import type { TextSource } from "../config/text_source.ts";
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
  textSource?: Pick<TextSource, "name" | "current">,
): Promise<{ readonly modules: LoadedFeatures; readonly source?: ConfigSource }> {
  const features = freshFeatures();
  if (configKeyFile !== undefined) await features.loadFeature("sources");
  const check = signatureCheck(features, configKeyFile);
  const source =
    textSource !== undefined
      ? atOnce(receivedSteps(textSource, check))
      : typeof config === "string"
        ? readConfigFile(config, check)
        : { ok: true as const, value: config };
  if (!source.ok) return { modules: features };
  await features.load(source, environment);
  return { modules: features, source };
}

/** Nothing is loaded yet. */
export function freshFeatures(): LoadedFeatures {
  return new LoadedFeatures(TABLE);
}
