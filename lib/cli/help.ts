/**
 * The text of `--help`: verbs, and every setting from the one table.
 */
import { CLIENT_SETTINGS, SETTINGS, type Setting } from "../config/settings.ts";

export function helpText(): string {
  return `Usage: edge-gateway [COMMAND] [FLAGS]

Commands:
  run                  Start the gateway (also without a command): edge-gateway --config gw.json
  demo                 Start a complete example inside this process, with curl lines to try
  manager              Start the management UI alone, before the admin interface at MANAGER_BACKEND_API_URL
  validate [FILE]      Check a configuration and say everything that is wrong with it
  reload               Ask a running gateway to take its configuration anew, and print what changed
  schema               Print the JSON Schema of the configuration, for editors; with --config FILE also of its plugin modules
  hash-password        Read a password from standard input and print its hash for ADMIN_PASSWORD

  --help, --version

Flags, each with its environment variable; flags win:
${rowsOf(SETTINGS)}
Flags of reload, beside --admin-user, --admin-password-file, --admin-host, --admin-port and --admin-tls:
${rowsOf(CLIENT_SETTINGS)}
Of the flags above, manager takes those of the management UI (but --manager), of the server certificate and of the log.
Traces are sent where OTEL_EXPORTER_OTLP_ENDPOINT says, as OpenTelemetry's other variables have it.

Exit codes: 0 done, 1 failed while running, 2 wrong command line, settings or configuration.
`;
}

function rowsOf(settings: Readonly<Record<string, Setting<unknown>>>): string {
  const rows = Object.values(settings).map((row) => {
    const left = row.flag === null ? row.variable : `--${row.flag} ${row.value}`;
    const second = row.flag === null ? "(environment only)" : row.variable;
    const fallback = row.fallback === null ? "" : ` Default ${row.fallback}.`;
    return `  ${left}\n      ${second}. ${row.help}${fallback}\n`;
  });
  return rows.join("");
}
