/**
 * The command line: finds the command, runs it, and turns errors into one message and an exit code.
 */
import { isInBuild, version } from "../base/version.ts";
import { ConfigError } from "../gateway/config_error.ts";
import { readArguments, type Command, type FlagTable } from "./arguments.ts";
import { COMMANDS, ON_DEMAND } from "./commands.ts";
import { Failure, type ExitCode } from "./failure.ts";

/** `words` are the command line after the program name. Resolves when the command has ended: for `run`, at shutdown. */
export async function main(words: readonly string[]): Promise<ExitCode> {
  // The gateway keeps running if the reader of its output ends (`| head`, a log collector that restarts).
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  try {
    const own = Object.assign({}, ...Object.values<Command>(COMMANDS).map(({ flags }) => flags)) as FlagTable;
    const given = readArguments(words, Object.keys(COMMANDS), own);
    const name = given.command as keyof typeof COMMANDS;
    const command: Command = COMMANDS[name];
    if (!isInBuild(name)) {
      const has = Object.keys(COMMANDS).filter(isInBuild).join(", ");
      throw new Failure(`"${name}" is not in this build, which has ${has}: build again with --with ${name}`, 2);
    }
    if (given.flags.help !== undefined) return (await ON_DEMAND.help()).printHelp(given.isNamed ? name : "help");
    if (given.flags.version !== undefined) {
      process.stdout.write(`${version}\n`);
      return 0;
    }
    if (given.operands.length > (command.operand?.split(" ").length ?? 0)) {
      // The arguments are not repeated: one may be a password.
      const { remedy = `edge-gateway ${given.command} --help shows its usage` } = command;
      throw new Failure(`too many arguments for "${given.command}": ${remedy}`, 2);
    }
    const run = await command.load();
    return await run(given, command);
  } catch (error) {
    return report(error);
  }
}

function report(error: unknown): ExitCode {
  if (error instanceof ConfigError) {
    const errors = error.issues.length === 1 ? "an error" : `${error.issues.length} errors`;
    process.stderr.write(`${error.message.trimEnd()}\nThe configuration has ${errors}; nothing was started.\n`);
    return 2;
  }
  const text = error instanceof Failure ? error.message : error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.stderr.write(`edge-gateway: ${text}\n`);
  return error instanceof Failure ? error.exitCode : 1;
}
