/**
 * Splits a command line into command, flags and operands.
 */
import { suggest } from "../base/suggest.ts";
import { isSwitch, SETTINGS } from "../config/settings_table.ts";
import { kebab, type SettingsTable } from "../config/start_settings.ts";
import { Failure, type ExitCode } from "./failure.ts";

/** What is known of a command before its code is loaded. */
export interface Command {
  /** The arguments that may follow the name, as shown in help: "[FILE]", "METHOD URL". Default: none. */
  readonly operand?: string;
  /** One sentence for help, without its full stop. */
  readonly about: string;
  /** The settings that are its flags. */
  readonly settings: SettingsTable;
  /** Its other flags, by name. A name means the same in every command. */
  readonly flags?: FlagTable;
  /** What its exit codes 0 and 1 mean, for help: "0 all tests pass, 1 a test fails". Default: those of `run`. */
  readonly exits?: string;
  /** Advice when there are more arguments than allowed. */
  readonly remedy?: string;
  /** What did not happen where the configuration has errors. Default: "nothing was started". */
  readonly ifRefused?: string;
  /** More for its help. */
  further?(all: Commands): Promise<string>;
  load(): Promise<RunCommand>;
}

export type Commands = Readonly<Record<string, Command>>;

/** Throws a `Failure` or a `ConfigError`. `all` is the table of commands. */
export type RunCommand = (given: Arguments, all: Commands) => Promise<ExitCode>;

/** A flag that no environment variable sets. */
export interface CommandFlag {
  /** The placeholder for its value in help: "IP". Null: it takes no value. */
  readonly value: string | null;
  readonly help: string;
  /** A second spelling: "H" for -H. */
  readonly letter?: string;
  /** Whether it may be given several times: `Arguments.repeated` has all values. Default: false. */
  readonly isRepeated?: boolean;
}

export type FlagTable = Readonly<Record<string, CommandFlag>>;

export interface Arguments {
  readonly command: string;
  /** Whether the command was given. */
  readonly isNamed: boolean;
  /** `--name value`, `--name=value`, or `--name` alone (true). */
  readonly flags: Readonly<Record<string, string | true>>;
  /** The values of a flag that may be repeated, in their order. */
  readonly repeated: Readonly<Record<string, readonly string[]>>;
  readonly operands: readonly string[];
  /** See `unknownFlags`: for the commands that report them together with wrong settings. */
  readonly unknown?: readonly string[];
}

/** Flags of every command. */
const COMMON: FlagTable = {
  help: { value: null, help: "Print the help.", letter: "h" },
  version: { value: null, help: "Print the version.", letter: "v" },
};

/**
 * The command is the first word that is not part of a flag; the default is "run". A command may follow a flag that is
 * true or false directly: `--manager run`. `own` has the flags of all commands that are not settings. Throws a
 * `Failure`.
 */
export function readArguments(words: readonly string[], commands: readonly string[], own: FlagTable = {}): Arguments {
  const table = new Map(Object.entries({ ...COMMON, ...own }));
  const flags = Object.create(null) as Record<string, string | true>; // without a prototype, --constructor is unknown
  const repeated: Record<string, string[]> = {};
  const operands: string[] = [];
  let command: string | null = null;
  const hasValue = (name: string, next: string | undefined) => {
    if (next === undefined || table.get(name)?.value === null || next.startsWith("--")) return false;
    return command !== null || !isSwitch(name) || !commands.includes(next);
  };
  for (let i = 0; i < words.length; i++) {
    const word = spelledOut(words[i]!, table);
    if (word.startsWith("--") && word.length > 2) {
      const [, name = "", value] = /^--([^=]*)(?:=(.*))?$/s.exec(word)!;
      const flag = table.get(name);
      if (name in flags && flag?.isRepeated !== true) throw new Failure(`--${name} is given twice`, 2);
      const given = value ?? (hasValue(name, words[i + 1]) ? words[++i]! : true);
      if (flag !== undefined) checkValue(name, flag, given);
      if (flag?.isRepeated === true) (repeated[name] ??= []).push(String(given));
      flags[name] = given;
    } else if (word.startsWith("-") && word !== "-") {
      throw new Failure(`${word} is not a known flag; flags are written --name value, --help lists them`, 2);
    } else if (command !== null) operands.push(word);
    else if (commands.includes(word)) command = word;
    else throw notACommand(word, commands);
  }
  return { command: command ?? "run", isNamed: command !== null, flags, repeated, operands };
}

/** "-H" -> "--header" */
function spelledOut(word: string, table: ReadonlyMap<string, CommandFlag>): string {
  for (const [name, { letter }] of table) if (word === `-${letter}`) return `--${name}`;
  return word;
}

function checkValue(name: string, { value }: CommandFlag, given: string | true): void {
  if (value === null && given !== true) throw new Failure(`--${name} takes no value`, 2);
  if (value !== null && (given === true || given === "")) throw new Failure(`--${name} needs a value: ${value}`, 2);
}

export function notACommand(word: string, commands: readonly string[]): Failure {
  const nearest = suggest(word, commands);
  const file = word.endsWith(".json") ? `; name a configuration with --config ${word}` : "";
  return new Failure(
    `"${word}" is not a command${nearest === undefined ? file : `; did you mean "${nearest}"?`} (--help lists them)`,
    2,
  );
}

/** Errors for flags that are neither settings of the command nor its own. */
export function unknownFlags(
  { flags }: Pick<Arguments, "flags">,
  own: Pick<Command, "settings" | "flags">,
): readonly string[] {
  const known = [...Object.values(own.settings).flatMap((row) => row.flag ?? []), ...Object.keys(own.flags ?? {})];
  return Object.keys(flags)
    .filter((flag) => !known.includes(flag))
    .map((flag) => {
      const other = Object.values(SETTINGS).find((row) => kebab(row.variable) === flag || row.flag === flag);
      if (other?.flag === null)
        return `--${flag} is not a flag, since other users could read it: set the variable ${other.variable}`;
      if (other !== undefined) return `--${flag} is not a flag of this command: it is for starting a gateway`;
      const nearest = suggest(flag, known);
      return `--${flag} is not a known flag${nearest === undefined ? "" : `; did you mean --${nearest}?`}`;
    });
}
