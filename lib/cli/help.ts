/**
 * `edge-gateway help [COMMAND]`, and `--help` of every command: what it does, and its flags from the one table of settings.
 */
import { CLIENT_ROWS, MANAGER_ROWS, SETTINGS, type Setting } from "../config/settings.ts";
import { onlyFlags, UsageError, type Arguments } from "./arguments.ts";
import type { ExitCode } from "./failure.ts";

type Rows = Readonly<Record<string, Setting<unknown>>>;

interface Command {
  /** What may stand behind the name, beside flags. */
  readonly operands?: string;
  readonly about: string;
  readonly rows: Rows;
}

const { configPath, ...OTHERS } = SETTINGS;
const CONFIG = { configPath };

const COMMANDS = {
  run: { about: "Start the gateway (also without a command): edge-gateway --config gw.json", rows: SETTINGS },
  demo: { about: "Start a complete example inside this process, with curl lines to try", rows: OTHERS },
  manager: { about: "Start the management UI alone, before the admin interface at MANAGER_BACKEND_API_URL", rows: MANAGER_ROWS },
  validate: { operands: "[FILE]", about: "Check a configuration and say everything that is wrong with it", rows: CONFIG },
  reload: { about: "Ask a running gateway to reload its configuration, and print what changed", rows: CLIENT_ROWS },
  schema: { about: "Print the JSON Schema of the configuration, for editors; with --config FILE also of its plugin modules", rows: CONFIG },
  "hash-password": { about: "Read a password from standard input and print its hash for ADMIN_PASSWORD", rows: {} },
  help: { operands: "[COMMAND]", about: "Print this text, or that of one command", rows: {} },
} satisfies Record<string, Command>;

export type CommandName = keyof typeof COMMANDS;

export function help(given: Arguments): ExitCode {
  onlyFlags(given, [], 1);
  const [name = null] = given.operands;
  if (name !== null && !Object.hasOwn(COMMANDS, name)) throw new UsageError(`"${name}" is not a command (--help lists them)`);
  return printHelp(name as CommandName | null);
}

/** Of one command, or of all. */
export function printHelp(name: CommandName | null): ExitCode {
  process.stdout.write(name === null || name === "help" ? helpText() : helpTextOf(name));
  return 0;
}

export function helpText(): string {
  const commands = Object.entries<Command>(COMMANDS).map(([name, { operands = "", about }]) => `  ${`${name} ${operands}`.padEnd(21)}${about}\n`);
  return `Usage: edge-gateway [COMMAND] [FLAGS]

Commands:
${commands.join("")}
  --help, --version; edge-gateway COMMAND --help tells of one command

${FLAGS}:
${rowsOf(SETTINGS)}
Flags of reload, beside --admin-user, --admin-password-file, --admin-host, --admin-port and --admin-tls:
${rowsOf({ adminUrl: CLIENT_ROWS.adminUrl, adminCaPath: CLIENT_ROWS.adminCaPath })}
Of the flags above, manager takes those of the management UI (but --manager), of the server certificate and of the log, and --admin-hosts.
${TRACES}
${EXIT_CODES}`;
}

export function helpTextOf(name: CommandName): string {
  const { operands, about, rows }: Command = COMMANDS[name];
  const flags = Object.keys(rows).length === 0 ? "" : `\n${FLAGS}:\n${rowsOf(rows)}`;
  const usage = ["edge-gateway", name, operands, flags === "" ? undefined : "[FLAGS]"].filter((word) => word !== undefined);
  return `Usage: ${usage.join(" ")}\n\n${about}.\n${flags}${rows === SETTINGS || rows === OTHERS ? `\n${TRACES}` : ""}\n${EXIT_CODES}`;
}

const FLAGS = "Flags, each with its environment variable; flags win";
const TRACES = "Traces are sent where OTEL_EXPORTER_OTLP_ENDPOINT says, as OpenTelemetry's other variables have it.\n";
const EXIT_CODES = "Exit codes: 0 done, 1 failed while running, 2 wrong command line, settings or configuration.\n";

function rowsOf(settings: Rows): string {
  const rows = Object.values(settings).map((row) => {
    const left = row.flag === null ? row.variable : `--${row.flag} ${row.value}`;
    const second = row.flag === null ? "(environment only)" : row.variable;
    const fallback = row.fallback === null ? "" : ` Default ${row.fallback}.`;
    return `  ${left}\n      ${second}. ${row.help}${fallback}\n`;
  });
  return rows.join("");
}
