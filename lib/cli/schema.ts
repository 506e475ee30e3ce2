/**
 * `edge-gateway schema`: prints the JSON Schema of the configuration, made of the same description that validates it.
 */
import { configJsonSchema } from "../config/model.ts";
import { builtinPlugins } from "../plugins/builtin.ts";
import { onlyFlags, type Arguments } from "./arguments.ts";
import type { ExitCode } from "./failure.ts";

export function schemaCommand(given: Arguments): ExitCode {
  onlyFlags(given, [], 0);
  process.stdout.write(`${JSON.stringify(configJsonSchema(builtinPlugins), null, 2)}\n`);
  return 0;
}
