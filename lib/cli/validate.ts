/**
 * `edge-gateway validate FILE`: checks a configuration as `run` would, and starts nothing. Plugin modules are loaded, which runs their code.
 */
import { Gateway } from "../gateway/gateway.ts";
import { loadPluginModules } from "../gateway/plugin_modules.ts";
import { onlyFlags, UsageError, type Arguments } from "./arguments.ts";
import type { ExitCode } from "./failure.ts";

/** Rejects with a `ConfigError` with everything that is wrong; `main` prints it. */
export async function validate(given: Arguments): Promise<ExitCode> {
  onlyFlags(given, ["config"], 1);
  const { config } = given.flags;
  const [operand] = given.operands;
  if (config === true) throw new UsageError("--config needs a value: the path of the configuration file");
  if (config !== undefined && operand !== undefined) throw new UsageError("name one file, as --config FILE or as FILE");
  const file = config ?? operand ?? (process.env.CONFIG_FILE_PATH || "gw.json");
  const { counts, digest } = new Gateway({ configFile: file, modules: await loadPluginModules(file) });
  process.stdout.write(`${file} is valid (${describeCounts(counts)}; digest ${digest})\n`);
  return 0;
}

/** "1 service, 2 routes, 3 upstreams" */
export function describeCounts(counts: Gateway["counts"]): string {
  const some = (count: number, noun: string) => `${count} ${noun}${count === 1 ? "" : "s"}`;
  return `${some(counts.services, "service")}, ${some(counts.routes, "route")}, ${some(counts.upstreams, "upstream")}`;
}
