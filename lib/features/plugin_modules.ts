/**
 * Loads what a configuration names, for a program that makes its gateway later.
 */
import type { Environment } from "../config/start_settings.ts";
import type { ConfigInput } from "../gateway/config_input.ts";
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
): Promise<LoadedFeatures> {
  const named = typeof config === "string" ? { configFile: config } : { config: config as ConfigInput };
  const signed = configKeyFile === undefined ? {} : { configKeyFile };
  return (await readForStart({ ...named, ...signed }, environment)).modules;
}
