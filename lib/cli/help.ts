/**
 * The texts of `edge-gateway help` and of `--help`, generated from the commands and the table of settings.
 */
import { suggest } from "../base/suggest.ts";
import { isInBuild } from "../base/version.ts";
import { CLIENT_SETTINGS, SETTINGS } from "../config/settings_table.ts";
import type { SettingsTable } from "../config/start_settings.ts";
import { notACommand, type Command, type Commands, type FlagTable, type RunCommand } from "./arguments.ts";
import { Failure } from "./failure.ts";
import { codeHelp, codesLike } from "./help_code.ts";

/** Of a command, or else of a code. */
export const help: RunCommand = async (given, all) => {
  const [name = "help"] = given.operands;
  if (!Object.hasOwn(all, name) || !isInBuild(name)) return helpOnCode(name, Object.keys(all).filter(isInBuild));
  const here = Object.entries(all).filter(([each]) => isInBuild(each));
  const further = await all[name]!.further?.(all);
  process.stdout.write(
    name === "help"
      ? helpText(Object.fromEntries(here))
      : helpTextOf(name, all[name]!) + (further === undefined ? "" : `\n${further}\n`),
  );
  return 0;
};

function helpOnCode(name: string, commands: readonly string[]): 0 {
  const text = codeHelp(name);
  // A mistyped command is more likely than a mistyped code.
  if (text === null && suggest(name, commands) !== undefined) throw notACommand(name, commands);
  if (text === null)
    throw new Failure(`"${name}" is neither a command nor a code${codesLike(name)} (--help lists the commands)`, 2);
  process.stdout.write(text);
  return 0;
}

export function helpText(commands: Commands): string {
  const lines = Object.entries(commands).map(
    ([name, { operand = "", about }]) => `  ${`${name} ${operand}`.padEnd(21)}${about}\n`,
  );
  return `Usage: edge-gateway [COMMAND] [FLAGS]

Commands:
${lines.join("")}
  --help, --version; edge-gateway COMMAND --help shows the flags of one command

${FLAGS}:
${flagsText(SETTINGS)}
Further flags of explain and reload, which ask a running gateway:
${flagsText(CLIENT_SETTINGS)}
${TRACES}
${exitCodes()}`;
}

export function helpTextOf(name: string, { operand, about, settings, flags, exits }: Command): string {
  const hasSettings = Object.keys(settings).length > 0;
  const usage = ["edge-gateway", name, operand, hasSettings || flags !== undefined ? "[FLAGS]" : undefined].filter(
    (word) => word !== undefined,
  );
  const own = flags === undefined ? "" : `\nFlags:\n${ownFlagsText(flags)}`;
  const shared = hasSettings ? `\n${FLAGS}:\n${flagsText(settings)}` : "";
  return (
    `Usage: ${usage.join(" ")}\n\n${about}.\n${own}${shared}` +
    `${"httpPort" in settings ? `\n${TRACES}` : ""}\n${exitCodes(exits)}`
  );
}

const FLAGS = "Flags, each with its environment variable; flags win";
const TRACES = "Traces are sent to OTEL_EXPORTER_OTLP_ENDPOINT; OpenTelemetry's other variables are read, too.\n";
const exitCodes = (exits = "0 done, 1 failed while running") =>
  `Exit codes: ${exits}, 2 wrong command line, settings or configuration.\n`;

function flagsText(settings: SettingsTable): string {
  const rows = Object.values(settings).map((row) => {
    const [left, right] =
      row.flag === null ? [row.variable, "(environment only)"] : [`--${row.flag} ${row.value}`, row.variable];
    return `  ${left}\n      ${right}. ${row.help}${row.fallback === null ? "" : ` Default ${row.fallback}.`}\n`;
  });
  return rows.join("");
}

function ownFlagsText(flags: FlagTable): string {
  const rows = Object.entries(flags).map(([name, { value, help, letter }]) => {
    const left = [letter === undefined ? `--${name}` : `-${letter}, --${name}`, value]
      .filter((word) => word !== null)
      .join(" ");
    return `  ${left}\n      ${help}\n`;
  });
  return rows.join("");
}
