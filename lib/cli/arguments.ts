/**
 * Splits a command line into verb, flags and operands. What a flag means is `config/settings.ts` or the verb's own affair.
 */
import { suggest } from "../base/suggest.ts";
import { isSwitch } from "../config/settings.ts";

export interface Arguments {
  readonly verb: string;
  /** Whether the verb was written. */
  readonly isNamed: boolean;
  /** `--name value`, `--name=value`, or `--name` alone (true). */
  readonly flags: Readonly<Record<string, string | true>>;
  readonly operands: readonly string[];
}

/** A command line that cannot be understood; `message` says what to write instead. */
export class UsageError extends Error {}

/** Flags that take no value, whatever follows them. */
const SWITCHES = ["help", "version"];

/**
 * The verb is the first word that is none of a flag's; without one it is "run". A flag that is true or false leaves a verb behind it alone:
 * `--manager run`. Throws a `UsageError`.
 */
export function readArguments(words: readonly string[], verbs: readonly string[]): Arguments {
  const flags = Object.create(null) as Record<string, string | true>; // so that --constructor is as unknown as any other
  const operands: string[] = [];
  let verb: string | null = null;
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!;
    if (word === "-h") flags.help = true;
    else if (word === "-v") flags.version = true;
    else if (word.startsWith("--") && word.length > 2) {
      const equals = word.indexOf("=");
      const name = word.slice(2, equals < 0 ? undefined : equals);
      if (name in flags) throw new UsageError(`--${name} is given twice`);
      const next = words[i + 1];
      if (equals >= 0) flags[name] = word.slice(equals + 1);
      else if (!SWITCHES.includes(name) && next !== undefined && !next.startsWith("--") && !(verb === null && isSwitch(name) && verbs.includes(next))) {
        flags[name] = next;
        i++;
      } else flags[name] = true;
    } else if (word.startsWith("-") && word !== "-") {
      throw new UsageError(`${word} is not a known flag; flags are written --name value, --help lists them`);
    } else if (verb === null) {
      if (!verbs.includes(word)) {
        const nearest = suggest(word, verbs);
        const file = word.endsWith(".json") ? `; a configuration is named by --config ${word}` : "";
        throw new UsageError(`"${word}" is not a command${nearest === undefined ? file : `; did you mean "${nearest}"?`} (--help lists them)`);
      }
      verb = word;
    } else operands.push(word);
  }
  return { verb: verb ?? "run", isNamed: verb !== null, flags, operands };
}

/** For verbs with few flags of their own: everything beside them is an error. */
export function onlyFlags(given: Arguments, known: readonly string[], mostOperands: number): void {
  for (const flag of Object.keys(given.flags)) {
    if (known.includes(flag)) continue;
    const nearest = suggest(flag, known);
    throw new UsageError(`--${flag} is not a flag of "${given.verb}"${nearest === undefined ? "" : `; did you mean --${nearest}?`}`);
  }
  const surplus = given.operands[mostOperands];
  if (surplus !== undefined) throw new UsageError(`"${surplus}" is one word too many for "${given.verb}"`);
}
