/**
 * What has been loaded for a gateway besides the kernel: parts of the program, and plugin modules.
 */
import { pluginModulesOf, type ConfigSource } from "../config/load.ts";
import type { PluginModule } from "../config/model.ts";
import { NOT_LOADED } from "../config/part_fields.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { Parts } from "./parts.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** Modules by path and digest, and the parts of the program. A loaded module stays for the life of the process: node cannot unload it. */
export class PluginModules {
  readonly parts: Parts;
  readonly #loaded = new Map<string, readonly AnyPlugin[]>();
  /** Why a module could not be used when it was last tried. */
  readonly #problems = new Map<string, string>();
  #tries = 0;

  constructor(parts: Parts) {
    this.parts = parts;
  }

  /** Loads the parts and modules that are not loaded yet, modules one after the other. `readFile` defaults to the file system. */
  async load(source: ConfigSource, environment: Environment, readFile?: (path: string) => Buffer): Promise<void> {
    await this.parts.load(source);
    for (const module of pluginModulesOf(source, { environment, ...(readFile && { readFile }) })) {
      const key = keyOf(module);
      if (this.#loaded.has(key)) continue;
      const label = `${module.sha256.slice(0, 12)}-${this.#tries++}`;
      const found = await this.parts.part("modules").evaluateModule(module, label);
      if (typeof found === "string") this.#problems.set(key, found);
      else {
        this.#loaded.set(key, found);
        this.#problems.delete(key);
      }
    }
  }

  /** The kinds of a module, or why there are none. */
  kindsOf(module: PluginModule): readonly AnyPlugin[] | string {
    const key = keyOf(module);
    return this.#loaded.get(key) ?? this.#problems.get(key) ?? NOT_LOADED;
  }
}

function keyOf({ path, sha256 }: PluginModule): string {
  return `${sha256} ${path.path}`;
}
