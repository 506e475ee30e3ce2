/**
 * Splits a command line into command, flags and operands.
 */
import { suggest } from "../base/suggest.ts";
import { isSwitch, unknownFlags, type SettingsTable } from "../config/settings_table.ts";
import { Failure, type ExitCode } from "./failure.ts";

export interface Command {
  /** One argument that may follow the name, as shown in help: "[FILE]". Default: none. */
  readonly operand?: string;
  /** One sentence for help, without its full stop. */
  readonly about: string;
  /** The settings that are its flags. */
  readonly settings: SettingsTable;
  /** Advice when there are more arguments than allowed. */
  readonly remedy?: string;
  /** Throws a `Failure` or a `ConfigError`. */
  run(given: Arguments): Promise<ExitCode>;
}

export interface Arguments {
  readonly command: string;
  /** Whether the command was given. */
  readonly isNamed: boolean;
  /** `--name value`, `--name=value`, or `--name` alone (true). */
  readonly flags: Readonly<Record<string, string | true>>;
  readonly operands: readonly string[];
}

/** Flags that take no value, whatever follows them. */
const VALUELESS = ["help", "version"];

/**
 * The command is the first word that is not part of a flag; the default is "run". A command may follow a flag that is true or false
 * directly: `--manager run`. Throws a `Failure`.
 */
export function readArguments(words: readonly string[], commands: readonly string[]): Arguments {
  const flags = Object.create(null) as Record<string, string | true>; // without a prototype, --constructor is unknown
  const operands: string[] = [];
  let command: string | null = null;
  const hasValue = (name: string, next: string | undefined) => {
    if (next === undefined || VALUELESS.includes(name) || next.startsWith("--")) return false;
    return command !== null || !isSwitch(name) || !commands.includes(next);
  };
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!;
    if (word === "-h") flags.help = true;
    else if (word === "-v") flags.version = true;
    else if (word.startsWith("--") && word.length > 2) {
      const [, name = "", value] = /^--([^=]*)(?:=(.*))?$/s.exec(word)!;
      if (name in flags) throw new Failure(`--${name} is given twice`, 2);
      if (value !== undefined) flags[name] = value;
      else flags[name] = hasValue(name, words[i + 1]) ? words[++i]! : true;
    } else if (word.startsWith("-") && word !== "-") {
      throw new Failure(`${word} is not a known flag; flags are written --name value, --help lists them`, 2);
    } else if (command !== null) operands.push(word);
    else if (commands.includes(word)) command = word;
    else throw notACommand(word, commands);
  }
  return { command: command ?? "run", isNamed: command !== null, flags, operands };
}

export function notACommand(word: string, commands: readonly string[]): Failure {
  const nearest = suggest(word, commands);
  const file = word.endsWith(".json") ? `; name a configuration with --config ${word}` : "";
  return new Failure(`"${word}" is not a command${nearest === undefined ? file : `; did you mean "${nearest}"?`} (--help lists them)`, 2);
}

/** For commands that read no settings. Throws a `Failure`. */
export function refuseOtherFlags({ flags }: Arguments, settings: SettingsTable): void {
  const issues = unknownFlags(flags, settings);
  if (issues.length > 0) throw Failure.ofUsage(issues);
}
