/** A configuration as it is loaded, for specs of what is read from it. */
import type { AnyConfigInput } from "../../lib/config/model.ts";
import type { ValidConfig } from "../../lib/gateway/compile_types.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import type { AnyPlugin } from "../../lib/plugins/plugin.ts";
import { checkRoutes, loadConfig } from "./schema.ts";

/** Throws all its issues, if there are any. */
export function validFrom(config: AnyConfigInput, own: readonly AnyPlugin[] = []): ValidConfig {
  const loaded = loadConfig<AnyPlugin>(
    { value: config },
    { kinds: [...builtinPlugins, ...own], environment: {}, checkRoutes },
  );
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.issues));
  return loaded;
}
