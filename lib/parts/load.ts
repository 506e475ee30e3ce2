/**
 * Loads what a configuration names, before a gateway is made with it: parts of the program, and plugin modules.
 */
import { kindsWithModules, readConfigFile, type ConfigIssue } from "../config/load.ts";
import { Parts } from "../gateway/parts.ts";
import { PluginModules } from "../gateway/plugin_modules.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import { TABLE } from "./table.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Loads the modules that a configuration names, given as a file's path or as a value, for `createGateway({ …, modules })`, and the parts of
 * the program that it names. Never rejects: `createGateway` reports the errors of modules together with all other errors. `configKeyFile` is
 * the option of `createGateway`: nothing is loaded for a file without the signature that it must have.
 */
export async function loadPluginModules(config: string | object, environment: Environment = process.env, configKeyFile?: string): Promise<PluginModules> {
  const modules = freshModules();
  const read = typeof config === "string" ? readConfigFile(config, configKeyFile) : { ok: true as const, value: config };
  if (read.ok) await modules.load(read, environment);
  return modules;
}

/** Returns the given kinds, the kinds from the modules of a configuration file, and the errors of the modules. */
export async function moduleKinds(
  file: string,
  given: readonly AnyPlugin[],
  configKeyFile?: string,
): Promise<{ readonly kinds: readonly AnyPlugin[]; readonly issues: readonly ConfigIssue[] }> {
  const read = readConfigFile(file, configKeyFile);
  if (!read.ok) return { kinds: given, issues: read.issues };
  const modules = freshModules();
  await modules.load(read, process.env);
  return kindsWithModules(read, { environment: process.env, kinds: given, moduleKinds: (module) => modules.kindsOf(module) });
}

/** Nothing is loaded yet. */
export function freshModules(): PluginModules {
  return new PluginModules(new Parts(TABLE));
}
