/**
 * The command line: finds the verb, runs it, and turns what it throws into one clear message and an exit code.
 * Each verb is a file of its own.
 */
import { version } from "../base/version.ts";
import { ConfigError } from "../gateway/gateway.ts";
import { readArguments, UsageError, type Arguments } from "./arguments.ts";
import { demo } from "./demo.ts";
import { StartError, type ExitCode } from "./failure.ts";
import { hashPasswordCommand } from "./hash_password.ts";
import { help, printHelp, type CommandName } from "./help.ts";
import { managerCommand } from "./manager.ts";
import { reloadCommand } from "./reload.ts";
import { run } from "./run.ts";
import { schemaCommand } from "./schema.ts";
import { validate } from "./validate.ts";

const VERBS: Readonly<Record<CommandName, (given: Arguments) => ExitCode | Promise<ExitCode>>> = {
  help,
  run,
  demo,
  manager: managerCommand,
  validate,
  reload: reloadCommand,
  schema: schemaCommand,
  "hash-password": hashPasswordCommand,
};

/** `words` as they follow the program's name. Resolves when the verb has ended: for `run`, at shutdown. */
export async function main(words: readonly string[]): Promise<ExitCode> {
  // A reader of our output that goes away (`| head`, a log collector that restarts) must not end the gateway.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  try {
    const given = readArguments(words, Object.keys(VERBS));
    const verb = given.verb as CommandName;
    if (given.flags.help !== undefined) return printHelp(given.isNamed ? verb : null);
    if (given.flags.version !== undefined) {
      process.stdout.write(`${version}\n`);
      return 0;
    }
    return await VERBS[verb](given);
  } catch (error) {
    return report(error);
  }
}

function report(error: unknown): ExitCode {
  if (error instanceof ConfigError) {
    const count = error.issues.length;
    process.stderr.write(`${error.message.trimEnd()}\nThe configuration has ${count === 1 ? "an error" : `${count} errors`}; nothing was started.\n`);
    return 2;
  }
  if (error instanceof UsageError || error instanceof StartError) {
    process.stderr.write(`edge-gateway: ${error.message}\n`);
    return error instanceof UsageError ? 2 : error.exitCode;
  }
  process.stderr.write(`edge-gateway: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  return 1;
}
