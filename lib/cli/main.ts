/**
 * The command line: starts a gateway, or finds another command, and turns errors into one message and an exit code.
 */
import { areOfStart, type Flags } from "../config/start_settings.ts";
import { Failure, type ExitCode } from "./failure.ts";

/** Only the code of what runs is loaded. */
const CODE = {
  run: () => import("./run.ts"),
  commandLine: () => import("./command_line.ts"),
};

/** `words` are the command line after the program name. Resolves when the command has ended: for `run`, at shutdown. */
export async function main(words: readonly string[]): Promise<ExitCode> {
  // The gateway keeps running if the reader of its output ends (`| head`, a log collector that restarts).
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  try {
    const flags = flagsOfStart(words[0] === "run" ? words.slice(1) : words);
    return flags === null
      ? await (await CODE.commandLine()).runCommand(words)
      : await (await CODE.run()).run({ flags });
  } catch (error) {
    return report(error);
  }
}

/** Null: this is another command, or has an error, or flags that not every start has: `readArguments` reads it. */
function flagsOfStart(words: readonly string[]): Flags | null {
  const flags: Record<string, string> = {};
  for (let i = 0; i < words.length; i++) {
    const [, name, given] = /^--([a-z-]+)(?:=(.+))?$/s.exec(words[i]!) ?? [];
    const value = given ?? words[++i];
    if (name === undefined || value === undefined || value.startsWith("--") || name in flags) return null;
    flags[name] = value;
  }
  return areOfStart(flags) ? flags : null;
}

function report(error: unknown): ExitCode {
  const text =
    error instanceof Failure ? error.message : error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.stderr.write(`edge-gateway: ${text}\n`);
  return error instanceof Failure ? error.exitCode : 1;
}
