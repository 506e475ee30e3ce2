/**
 * The command line: finds the command, runs it, and turns errors into one message and an exit code.
 */
import { version } from "../base/version.ts";
import { ConfigError } from "../gateway/gateway.ts";
import { notACommand, readArguments, refuseOtherFlags, type Command, type FlagTable } from "./arguments.ts";
import { schema, validate } from "./config_file.ts";
import { demo } from "./demo.ts";
import { diff } from "./diff.ts";
import { explain } from "./explain.ts";
import { Failure, type ExitCode } from "./failure.ts";
import { hashPassword } from "./hash_password.ts";
import { healthcheck } from "./healthcheck.ts";
import { helpText, helpTextOf } from "./help.ts";
import { importCommand } from "./import.ts";
import { manager } from "./manager.ts";
import { reload } from "./reload.ts";
import { run } from "./run.ts";
import { sign } from "./sign.ts";
import { test } from "./test.ts";
import { verify } from "./verify.ts";

const help: Command = {
  operand: "[COMMAND]",
  about: "Print this text, or the help of one command",
  settings: {},
  async run(given) {
    refuseOtherFlags(given, {});
    const [name = "help"] = given.operands;
    if (!Object.hasOwn(COMMANDS, name)) throw notACommand(name, Object.keys(COMMANDS));
    return printHelp(name);
  },
};

/** In the order in which help lists them. */
export const COMMANDS: Readonly<Record<string, Command>> = {
  run, demo, manager, validate, test, explain, diff, reload, healthcheck, schema, import: importCommand, "hash-password": hashPassword, sign, verify, help,
};

/** `words` are the command line after the program name. Resolves when the command has ended: for `run`, at shutdown. */
export async function main(words: readonly string[]): Promise<ExitCode> {
  // The gateway keeps running if the reader of its output ends (`| head`, a log collector that restarts).
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  try {
    const own = Object.assign({}, ...Object.values(COMMANDS).map(({ flags }) => flags)) as FlagTable;
    const given = readArguments(words, Object.keys(COMMANDS), own);
    const command = COMMANDS[given.command]!;
    if (given.flags.help !== undefined) return printHelp(given.isNamed ? given.command : "help");
    if (given.flags.version !== undefined) {
      process.stdout.write(`${version}\n`);
      return 0;
    }
    if (given.operands.length > (command.operand?.split(" ").length ?? 0)) {
      // The arguments are not repeated: one may be a password.
      const { remedy = `edge-gateway ${given.command} --help shows its usage` } = command;
      throw new Failure(`too many arguments for "${given.command}": ${remedy}`, 2);
    }
    return await command.run(given);
  } catch (error) {
    return report(error);
  }
}

function printHelp(name: string): ExitCode {
  process.stdout.write(name === "help" ? helpText(COMMANDS) : helpTextOf(name, COMMANDS[name]!));
  return 0;
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
