/**
 * Reads settings from flags and the environment, and says what is wrong with them.
 */
import { isContent } from "../base/regular_file.ts";
import { givenTo, valueOf } from "./start_settings.ts";
import type { Environment, Flags, Setting, SettingsTable, ValuesOf } from "./start_settings.ts";

/** The values before all checks: null also means an invalid value, which has been reported. */
export type ReadOf<R> = { readonly [K in keyof R]: ValuesOf<R>[K] | null };

/**
 * The values of some settings: flags win over the environment, the environment over defaults. Appends one sentence per
 * mistake to `issues`.
 */
export function readValues<R extends SettingsTable>(
  rows: R,
  flags: Flags,
  environment: Environment,
  issues: string[],
): ReadOf<R> {
  const read = Object.entries(rows).map(([name, row]) => {
    const given = givenTo(row, flags, environment);
    const value = valueOf(row, given);
    if (value === null && given !== undefined)
      issues.push(
        problemOf(row, given, row.flag !== null && flags[row.flag] !== undefined ? `--${row.flag}` : row.variable),
      );
    return [name, value];
  });
  return Object.fromEntries(read) as ReadOf<R>;
}

function problemOf(row: Setting<unknown>, given: string | true, source: string): string {
  if (given === true || given === "") return `${source} needs a value: ${row.expects}`;
  // What has no flag is a secret.
  return `${source}: expected ${row.expects}${row.flag === null ? "" : `, found ${JSON.stringify(shown(given))}`}`;
}

/** Masks secrets: the password in "https://user:password@host", a private key given instead of its file name. */
function shown(text: string): string {
  return isContent(text) ? "(the content of a file)" : text.replace(/^([a-z]+:\/*)?.*@/is, "$1…@");
}

/** Whether the rule is violated, and the message. */
export type Rule = readonly [isBroken: boolean, message: string];

export const messagesOf = (rules: readonly Rule[]) => rules.flatMap(([isBroken, message]) => (isBroken ? message : []));

type Certificate = { readonly serverCertPath: string | null; readonly serverKeyPath: string | null };

export function certificateRules({ serverCertPath: cert, serverKeyPath: key }: Certificate): Rule[] {
  return [
    [cert !== null && key === null, "SERVER_CERT_PATH needs SERVER_KEY_PATH"],
    [key !== null && cert === null, "SERVER_KEY_PATH needs SERVER_CERT_PATH"],
  ];
}

/** Null: the port is not opened. */
type NamedPort = readonly [name: string, port: number | null];

/** Ports that are named twice; 0 is any free port. */
export function portProblems(ports: readonly NamedPort[]): string[] {
  return ports.flatMap(([name, port], i) => {
    const other = ports.slice(0, i).find(([, earlier]) => earlier === port);
    return other !== undefined && port !== 0 && port !== null
      ? `${name}: port ${port} is already used by ${other[0]}`
      : [];
  });
}
