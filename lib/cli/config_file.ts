/**
 * `edge-gateway validate` and `edge-gateway schema`: the commands that check a configuration without starting anything. They run the code of
 * plugin modules.
 */
import { configJsonSchema } from "../config/model.ts";
import { SETTINGS } from "../config/settings_table.ts";
import { ConfigError, Gateway } from "../gateway/gateway.ts";
import { loadPluginModules, moduleKinds } from "../gateway/plugin_modules.ts";
import { builtinPlugins } from "../plugins/builtin.ts";
import { refuseOtherFlags, type Arguments, type Command } from "./arguments.ts";
import { Failure } from "./failure.ts";

const settings = { configPath: SETTINGS.configPath };

/** Checks a configuration as `run` would. */
export const validate: Command = {
  operand: "[FILE]",
  about: "Check a configuration and report all errors",
  settings,
  async run(given) {
    const named = configFlag(given);
    const [operand] = given.operands;
    if (named !== undefined && operand !== undefined) throw new Failure("name one file, as --config FILE or as FILE", 2);
    const file = named ?? operand ?? (process.env.CONFIG_FILE_PATH || "gw.json");
    const { counts, digest } = new Gateway({ configFile: file, modules: await loadPluginModules(file) });
    process.stdout.write(`${file} is valid (${describeCounts(counts)}; digest ${digest})\n`);
    return 0;
  },
};

/** Errors in the configuration do not matter, except that its plugin modules must be usable. */
export const schema: Command = {
  about: "Print the JSON Schema of the configuration, for editors; with --config FILE also of its plugin modules",
  settings,
  async run(given) {
    const file = configFlag(given);
    const { kinds, issues } = file === undefined ? { kinds: builtinPlugins, issues: [] } : await moduleKinds(file, builtinPlugins);
    if (issues.length > 0) throw new ConfigError(issues, file);
    process.stdout.write(`${JSON.stringify(configJsonSchema(kinds), null, 2)}\n`);
    return 0;
  },
};

function configFlag(given: Arguments): string | undefined {
  refuseOtherFlags(given, settings);
  const { config } = given.flags;
  if (config === true) throw new Failure("--config needs a value: the path of the configuration file", 2);
  return config;
}

/** "1 service, 2 routes, 3 upstreams" */
export function describeCounts({ services, routes, upstreams }: Gateway["counts"]): string {
  const some = (count: number, noun: string) => `${count} ${noun}${count === 1 ? "" : "s"}`;
  return `${some(services, "service")}, ${some(routes, "route")}, ${some(upstreams, "upstream")}`;
}
