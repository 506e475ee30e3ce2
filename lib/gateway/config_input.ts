/**
 * The type of a configuration as programs pass it, in which the name of a plugin decides the type of its `config`.
 */
import type { AnyConfigInput } from "../config/model.ts";
import type { InputOf } from "../config/schema.ts";
import type { BUILTIN } from "../plugins/builtin.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";

/** The `config` of a plugin kind as it is written: `PluginConfig<typeof tenant>`. */
export type PluginConfig<K extends Pick<AnyPlugin, "schema">> = InputOf<K["schema"]>;

/**
 * The kinds that are not built in, with the types of their `config`. A program adds its own:
 * `declare module "edge-gateway" { interface CustomPlugins { tenant: PluginConfig<typeof tenant> } }`.
 */
export interface CustomPlugins {}

type BuiltIn = {
  readonly [Name in keyof typeof BUILTIN]: PluginConfig<(typeof BUILTIN)[Name]>;
};

/** `config` may be left out where it may be empty. */
type Instances<Configs> = {
  readonly [Name in keyof Configs]: {
    readonly id?: string | undefined;
    readonly name: Name & string;
    readonly enabled?: boolean | undefined;
  } & ({} extends Configs[Name] ? { readonly config?: Configs[Name] | undefined } : { readonly config: Configs[Name] });
}[keyof Configs];

/** The configuration as written. */
export type ConfigInput = AnyConfigInput<Instances<BuiltIn> | Instances<CustomPlugins>>;
