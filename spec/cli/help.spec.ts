import { describe, expect, it } from "vitest";
import { helpText, helpTextOf } from "../../lib/cli/help.ts";
import { COMMANDS } from "../../lib/cli/commands.ts";
import { CLIENT_SETTINGS, SETTINGS } from "../../lib/config/settings_table.ts";
import type { Setting } from "../../lib/config/start_settings.ts";

const rows = [...Object.values(SETTINGS), ...Object.values(CLIENT_SETTINGS)] as Setting<unknown>[];

describe("--help", () => {
  const verbs = [
    ...["run", "demo", "manager", "validate", "explain", "reload", "healthcheck", "audit", "build", "schema", "import", "hash-password", "sign", "verify", "help"],
  ];
  it.each(verbs)("lists the command %s", (verb) => {
    expect(helpText(COMMANDS)).toMatch(new RegExp(`^  ${verb}\\b`, "m"));
  });

  it.each(rows.map((row): [string, Setting<unknown>] => [row.variable, row]))("lists %s with its flag, what it does, and its default", (_name, row) => {
    const text = helpText(COMMANDS);
    expect(text).toContain(row.variable);
    expect(text).toContain(row.help);
    if (row.flag !== null) expect(text).toContain(`--${row.flag} ${row.value}`);
    if (row.fallback !== null) expect(text).toContain(`${row.help} Default ${row.fallback}.`);
  });

  it("offers no flag for a secret, which every user of the machine could read", () => {
    expect(helpText(COMMANDS)).not.toMatch(/--admin-password[ =]|--admin-jwt-secret|--metrics-token[ =]/);
  });

  it.each([
    ["run", ["--config", "--http-port", "--manager", "ADMIN_PASSWORD"], ["--admin-url", "--ca PATH"]],
    ["demo", ["--http-port", "--manager-port"], ["--config"]],
    ["manager", ["--manager-port", "--manager-backend-api-url", "--admin-hosts", "--server-cert-path", "--log-level"], ["--config", "--http-port", "--manager true"]],
    ["validate", ["--config", "--config-key", "[FILE]", "--strict", "--no-tests", "--json"], ["--http-port", "--admin", "--junit"]],
    ["test", ["--config", "[FILE]", "--only TEXT", "--json", "--junit FILE", "Exit codes: 0 all tests pass, 1 a test fails, 2 "], ["--http-port", "--strict"]],
    ["explain", ["METHOD URL [FLAGS]", "-H, --header 'Name: value'", "--from IP", "--admin URL", "--json\n", "--config", "--admin-url", "--ca"], ["--http-port", "--admin-hosts"]],
    ["diff", ["OLD NEW", "--json", "--config-key PATH", "Exit codes: 0 nothing differs, 1 something differs, 2 "], ["--config PATH"]],
    ["reload", ["[FILE]", "--dry-run", "--admin-url", "--ca", "--admin-user", "--admin-password-file", "--admin-tls"], ["--config", "--http-port", "--admin-hosts"]],
    ["healthcheck", ["--live\n", "--probe-port", "--probe-host", "--admin-port", "Exit codes: 0 ready, 1 not ready, or no answer within 3 s, 2 "], ["--config", "--http-port", "--admin-url", "METRICS_TOKEN"]],
    ["audit", ["--config", "--http-port", "--json", "--systemd", "--network-policy", "--permission", "Exit codes: 0 printed, 2 "], ["--strict", "--admin-url"]],
    ["build", ["--config", "--output DIR", "--with NAME", "--http-port", "ADMIN_PASSWORD", "Exit codes: 0 built, 1 "], ["--strict", "--json"]],
    ["schema", ["--config"], ["--http-port"]],
    ["import", ["SOURCE FILE", "--upstream URL", "--output FILE", "--force\n", "--all\n"], ["--config"]],
    ["hash-password", ["standard input"], ["--"]],
    ["sign", ["FILE [FLAGS]", "--key PEM", "private", "Exit codes: 0 signed, 1 FILE.sig cannot be written, 2 "], ["--config"]],
    ["verify", ["DIR [FLAGS]", "--key PEM", "public", "Exit codes: 0 the release is whole and signed, 1 it is not, 2 "], ["--config"]],
  ] as const)("lists for %s its own flags and no others", (verb, own, others) => {
    const text = helpTextOf(verb, COMMANDS[verb]!);
    expect(text).toMatch(new RegExp(`^Usage: edge-gateway ${verb}\\b`));
    for (const word of own) expect(text).toContain(word);
    for (const word of others) expect(text).not.toContain(word);
    expect(text).toMatch(/Exit codes: 0 /);
  });

  it("explains the exit codes", () => {
    expect(helpText(COMMANDS)).toMatch(/Exit codes: 0 .*1 .*2 /);
  });
});
