/**
 * Loads what a configuration names, for a program that makes its gateway later.
 */
import type { TextSource } from "../config/text_source.ts";
import type { Environment } from "../config/start_settings.ts";
import type { LoadedFeatures } from "../gateway/loaded_features.ts";
import { readForStart } from "./load.ts";

/**
 * Loads the modules that a configuration names, given as a file's path or as a value, for `createGateway({ …, modules
 * })`, and the features that it names. `createGateway` reports the errors of modules together with all
 * other errors; rejects only if a file of the program is missing. `configKeyFile` is the option of `createGateway`:
 * nothing is loaded for a file without the signature that it must have.
 */
export async function loadPluginModules(
  config: string | object,
  environment: Environment = process.env,
  configKeyFile?: string,
  textSource?: Pick<TextSource, "name" | "current">,
): Promise<LoadedFeatures> {
  return (await readForStart(config, environment, configKeyFile, textSource)).modules;
}
