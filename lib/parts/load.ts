/**
 * Loads what a configuration names, before a gateway is made with it: parts of the program, and plugin modules.
 */
import { parsedFrom, readConfigFile, type ConfigIssue } from "../config/source.ts";
import { signatureCheck } from "../gateway/config_reader.ts";
import { Parts } from "../gateway/parts.ts";
import { PluginModules } from "../gateway/plugin_modules.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import { TABLE } from "./table.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Loads the modules that a configuration names, given as a file's path or as a value, for `createGateway({ …, modules })`, and the parts of
 * the program that it names. `createGateway` reports the errors of modules together with all other errors; rejects only if a file of the program is missing. `configKeyFile` is
 * the option of `createGateway`: nothing is loaded for a file without the signature that it must have.
 */
export async function loadPluginModules(config: string | object, environment: Environment = process.env, configKeyFile?: string): Promise<PluginModules> {
  const modules = await modulesFor(configKeyFile);
  const read = typeof config === "string" ? readConfigFile(config, signatureCheck(modules.parts, configKeyFile)) : { ok: true as const, value: config };
  if (read.ok) await modules.load(read, environment);
  return modules;
}

/** Returns the given kinds, the kinds from the modules of a configuration file, and the errors of the modules. */
export async function moduleKinds(
  file: string,
  given: readonly AnyPlugin[],
  configKeyFile?: string,
): Promise<{ readonly kinds: readonly AnyPlugin[]; readonly issues: readonly ConfigIssue[] }> {
  const modules = await modulesFor(configKeyFile);
  const read = readConfigFile(file, signatureCheck(modules.parts, configKeyFile));
  if (!read.ok) return { kinds: given, issues: read.issues };
  await modules.load(read, process.env);
  const part = modules.parts.partIfLoaded("modules");
  return part?.kindsWithModules(read, { references: modules.parts.partIfLoaded("references") ?? undefined, environment: process.env }, given, (module) => modules.kindsOf(module)) ?? { kinds: given, issues: parsedFrom(read).issues };
}

async function modulesFor(configKeyFile: string | undefined): Promise<PluginModules> {
  const modules = freshModules();
  if (configKeyFile !== undefined) await modules.parts.loadPart("signatures");
  return modules;
}

/** Nothing is loaded yet. */
export function freshModules(): PluginModules {
  return new PluginModules(new Parts(TABLE));
}
