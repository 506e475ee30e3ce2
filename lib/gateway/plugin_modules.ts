/**
 * What has been loaded for a gateway besides the kernel: parts of the program, and plugin modules.
 */
import type { JsonNode } from "../config/json.ts";
import { NOT_LOADED } from "../config/part_fields.ts";
import type { PluginModule } from "../config/plugin_modules.ts";
import type { CheckContext } from "../config/schema.ts";
import type { ConfigSource } from "../config/source.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { Parts } from "./parts.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** Modules by path and digest, and the parts of the program. A loaded module stays for the life of the process: node cannot unload it. */
export class PluginModules {
  readonly parts: Parts;
  /** The kinds of each, or why it could not be used when it was last tried. */
  readonly #loaded = new Map<string, readonly AnyPlugin[] | string>();
  #tries = 0;

  constructor(parts: Parts) {
    this.parts = parts;
  }

  /** Loads the parts and modules that are not loaded yet, modules one after the other. `readFile` defaults to the file system. */
  async load(source: ConfigSource, environment: Environment, readFile?: (path: string) => Buffer): Promise<void> {
    await this.parts.load(source);
    const part = this.parts.partIfLoaded("modules");
    for (const module of part?.pluginModulesOf(source, { environment, ...(readFile && { readFile }) }) ?? []) {
      const key = keyOf(module);
      if (Array.isArray(this.#loaded.get(key))) continue;
      this.#loaded.set(key, await part!.evaluateModule(module, `${module.sha256.slice(0, 12)}-${this.#tries++}`));
    }
  }

  /** The kinds of a module, or why there are none. */
  kindsOf(module: PluginModule): readonly AnyPlugin[] | string {
    return this.#loaded.get(keyOf(module)) ?? NOT_LOADED;
  }

  /** See `LoadOptions.withModules`. */
  addTo(kinds: readonly AnyPlugin[], root: JsonNode, context: CheckContext): readonly AnyPlugin[] {
    return this.parts.partIfLoaded("modules")?.withModules(root, kinds, context, (module) => this.kindsOf(module)) ?? kinds;
  }
}

function keyOf({ path, sha256 }: PluginModule): string {
  return `${sha256} ${path.path}`;
}
