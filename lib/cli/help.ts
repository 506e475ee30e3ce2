/**
 * The text of `--help`: verbs, and every setting from the one table.
 */
import { SETTINGS, type Setting } from "../config/settings.ts";

export function helpText(): string {
  const rows = (Object.values(SETTINGS) as Setting<unknown>[]).map((row) => {
    const left = row.flag === null ? row.variable : `--${row.flag} ${row.value}`;
    const second = row.flag === null ? "(environment only)" : row.variable;
    const fallback = row.fallback === null ? "" : ` Default ${row.fallback}.`;
    return `  ${left}\n      ${second}. ${row.help}${fallback}\n`;
  });
  return `Usage: edge-gateway [COMMAND] [FLAGS]

Commands:
  run                  Start the gateway (also without a command): edge-gateway --config gw.json
  demo                 Start a complete example inside this process, with curl lines to try
  validate [FILE]      Check a configuration and say everything that is wrong with it
  schema               Print the JSON Schema of the configuration, for editors
  hash-password        Read a password from standard input and print its hash for ADMIN_PASSWORD

  --help, --version

Flags, each with its environment variable; flags win:
${rows.join("")}
Exit codes: 0 done, 1 failed while running, 2 wrong command line, settings or configuration.
`;
}
