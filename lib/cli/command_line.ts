/**
 * Runs the command that a command line names.
 */
import { isInBuild, version } from "../base/version.ts";
import { ConfigError } from "../gateway/config_error.ts";
import { readArguments, unknownFlags, type Command, type FlagTable } from "./arguments.ts";
import { COMMANDS } from "./commands.ts";
import { Failure, reportErrors, type ExitCode } from "./failure.ts";

/** Throws a `Failure` or a `ConfigError`. */
export async function runCommand(words: readonly string[]): Promise<ExitCode> {
  const flags = Object.assign({}, ...Object.values<Command>(COMMANDS).map((command) => command.flags)) as FlagTable;
  const given = readArguments(words, Object.keys(COMMANDS), flags);
  const name = given.command as keyof typeof COMMANDS;
  const command: Command = COMMANDS[name];
  if (!isInBuild(name)) {
    const has = Object.keys(COMMANDS).filter(isInBuild).join(", ");
    throw new Failure(`"${name}" is not in this build, which has ${has}: build again with --with ${name}`, 2);
  }
  if (given.flags.help !== undefined) {
    const help = await COMMANDS.help.load();
    return help({ ...given, flags: {}, operands: given.isNamed ? [name] : [] }, COMMANDS);
  }
  if (given.flags.version !== undefined) {
    process.stdout.write(`${version}\n`);
    return 0;
  }
  const { operand = "" } = command;
  if (!operand.endsWith("…") && given.operands.length > (operand === "" ? 0 : operand.split(" ").length)) {
    // The arguments are not repeated: one may be a password.
    const { remedy = `edge-gateway ${name} --help shows its usage` } = command;
    throw new Failure(`too many arguments for "${name}": ${remedy}`, 2);
  }
  const unknown = unknownFlags(given, command);
  if (unknown.length > 0 && !READING_FLAGS.has(name)) throw Failure.ofUsage(unknown);
  const run = await command.load();
  try {
    return await run({ ...given, unknown }, COMMANDS);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return reportErrors(error, command.ifRefused);
  }
}

/** They report unknown flags together with wrong settings. */
const READING_FLAGS: ReadonlySet<string> = new Set(["run", "demo", "manager"]);
