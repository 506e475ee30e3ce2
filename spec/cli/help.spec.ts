import { describe, expect, it } from "vitest";
import { ERRORS } from "../../lib/base/errors.ts";
import { codeHelp, codesLike } from "../../lib/cli/help_code.ts";
import { entriesOf } from "../../lib/operator/own_docs.ts";
import { helpText, helpTextOf } from "../../lib/cli/help.ts";
import { COMMANDS } from "../../lib/cli/commands.ts";
import { CLIENT_SETTINGS, SETTINGS } from "../../lib/config/settings_table.ts";
import type { Setting } from "../../lib/config/start_settings.ts";

import { document, tableUnder } from "../support/documents.ts";
import { program } from "../support/process.ts";

const rows = [...Object.values(SETTINGS), ...Object.values(CLIENT_SETTINGS)] as Setting<unknown>[];

describe("--help", () => {
  const verbs = [
    ...[
      "run",
      "demo",
      "manager",
      "validate",
      "explain",
      "compare",
      "reload",
      "healthcheck",
      "audit",
      "build",
      "schema",
      "import",
      "hash-password",
      "sign",
      "verify",
      "help",
    ],
  ];
  it.each(verbs)("lists the command %s", (verb) => {
    expect(helpText(COMMANDS)).toMatch(new RegExp(`^  ${verb}\\b`, "m"));
  });

  it.each(rows.map((row): [string, Setting<unknown>] => [row.variable, row]))(
    "lists %s with its flag, what it does, and its default",
    (_name, row) => {
      const text = helpText(COMMANDS);
      expect(text).toContain(row.variable);
      expect(text).toContain(row.help);
      if (row.flag !== null) expect(text).toContain(`--${row.flag} ${row.value}`);
      if (row.fallback !== null) expect(text).toContain(`${row.help} Default ${row.fallback}.`);
    },
  );

  it("offers no flag for a secret, which every user of the machine could read", () => {
    expect(helpText(COMMANDS)).not.toMatch(/--admin-password[ =]|--admin-jwt-secret|--metrics-token[ =]/);
  });

  it.each([
    ["run", ["--config", "--http-port", "--manager", "ADMIN_PASSWORD"], ["--admin-url", "--ca PATH"]],
    ["demo", ["--http-port", "--manager-port"], ["--config"]],
    [
      "manager",
      ["--manager-port", "--manager-backend-api-url", "--admin-hosts", "--server-cert-path", "--log-level"],
      ["--config", "--http-port", "--manager true"],
    ],
    [
      "validate",
      ["--config", "--config-key", "[FILE]", "--strict", "--no-tests", "--json", "--settings none", "--http-port"],
      ["--upstream", "--junit"],
    ],
    [
      "test",
      [
        "--config",
        "[FILE]",
        "--only TEXT",
        "--json",
        "--junit FILE",
        "Exit codes: 0 all tests pass, 1 a test fails, 2 ",
      ],
      ["--http-port", "--strict"],
    ],
    [
      "explain",
      [
        "METHOD URL [FLAGS]",
        "-H, --header 'Name: value'",
        "--from IP",
        "--id ID",
        "--admin URL",
        "--json\n",
        "--config",
        "--admin-url",
        "--ca",
      ],
      ["--http-port", "--admin-hosts"],
    ],
    [
      "diff",
      ["OLD NEW", "--json", "--config-key PATH", "Exit codes: 0 nothing differs, 1 something differs, 2 "],
      ["--config PATH"],
    ],
    [
      "reload",
      ["[FILE]", "--dry-run", "--admin-url", "--ca", "--admin-user", "--admin-password-file", "--admin-tls"],
      ["--config", "--http-port", "--admin-hosts"],
    ],
    [
      "healthcheck",
      [
        "--live\n",
        "--probe-port",
        "--probe-host",
        "--admin-port",
        "Exit codes: 0 ready, 1 not ready, or no answer within 3 s, 2 ",
      ],
      ["--config", "--http-port", "--admin-url", "METRICS_TOKEN"],
    ],
    [
      "audit",
      [
        "--config",
        "--http-port",
        "--json",
        "--systemd",
        "--network-policy",
        "--permission",
        "Exit codes: 0 printed, 2 ",
      ],
      ["--strict", "--admin-url"],
    ],
    [
      "build",
      ["--config", "--output DIR", "--with NAME", "--http-port", "ADMIN_PASSWORD", "Exit codes: 0 built, 1 "],
      ["--strict", "--json"],
    ],
    ["schema", ["--config"], ["--http-port"]],
    [
      "import",
      ["SOURCE FILE…", "--upstream URL", "--gateway NAME", "--output FILE", "--force\n", "--all\n"],
      ["--config"],
    ],
    ["hash-password", ["standard input"], ["--"]],
    [
      "sign",
      ["FILE [FLAGS]", "--key PEM", "private", "Exit codes: 0 signed, 1 FILE.sig cannot be written, 2 "],
      ["--config"],
    ],
    [
      "verify",
      ["DIR [FLAGS]", "--key PEM", "public", "Exit codes: 0 the release is whole and signed, 1 it is not, 2 "],
      ["--config"],
    ],
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

describe("help CODE", () => {
  const page = document("docs/troubleshooting.md");

  it.each(Object.entries(ERRORS))(
    "explains the error %s with status, title, cause and remedy",
    (code, { status, title }) => {
      expect(codeHelp(code)).toMatch(
        new RegExp(`^${code} .*Errors\\)\\n  Status: ${status}\\n  Title: ${title}\\n  Cause: .+\\n  Remedy: .+\\n`),
      );
    },
  );

  it("explains every warning, also one with a mark, and the other codes of logs", () => {
    const codes = ["Warnings", "Other codes"].flatMap((heading) =>
      tableUnder(heading, page).map(([cell]) => /^`?(\w+)/.exec(cell!)![1]!),
    );
    for (const code of codes)
      expect(codeHelp(code)).toMatch(new RegExp(`^${code} .*, (?:Warnings|Other codes|Errors)\\)`));
  });

  it("prints both entries of a code that is an error and a warning", () => {
    expect(codeHelp("circuit_open")).toMatch(/^circuit_open .*Errors\)\n[^]*^circuit_open .*Warnings\)$/m);
  });

  it("finds a message of the log with its variable text", () => {
    expect(codeHelp("connections are refused: 10000 are open")).toMatch(
      /^connections are refused: … .*Log messages\)\n {2}Cause: .*max_connections/,
    );
    expect(codeHelp("connections")).toBeNull();
  });

  it("finds each message of the page that begins with one, whatever is said about it behind it", () => {
    for (const heading of ["Log messages", "Start and reload"]) {
      for (const [message] of tableUnder(heading, page))
        expect([message, codeHelp(/^`([^`]+)`/.exec(message!)?.[1] ?? message!)]).toEqual([
          message,
          expect.stringContaining("Remedy: "),
        ]);
    }
    expect(codeHelp("The configuration has 3 errors; nothing was started.")).toContain(", Start and reload)");
    expect(codeHelp("reload refused, configuration 96aa94c5904b stays in force")).toContain(", Log messages)");
    expect(codeHelp("gw.json is not signed by the public key")).toContain("Sign the file");
  });

  it("writes links as the text and the page that they lead to", () => {
    expect(codeHelp("bad_request")).toContain("HTTP/1.1 (docs/http2-and-websockets.md#http11)");
    expect(entriesOf("## H\n| A | B |\n|---|---|\n| `x` ² | a \\| [b](#c) |\n")).toEqual([
      { heading: "H", code: "x", facts: [["B", "a | b (docs/troubleshooting.md#c)"]] },
    ]);
  });

  it("names the codes that contain what was asked for, or else the nearest one", () => {
    expect(codesLike("certificate_expire")).toBe("; there are certificate_expired, certificate_expires");
    expect(codesLike("rate_limitd")).toBe("; there is rate_limited");
    expect(codesLike("zzzzzz")).toBe("");
  });

  it("exits with 0 for a code and with 2 for what is neither a command nor a code", { timeout: 30_000 }, async () => {
    const [known, unknown, command] = await Promise.all(
      [["key_missing"], ["key_mising"], ["explian"]].map((words) => program(["help", ...words]).ended),
    );
    expect(known).toMatchObject({ code: 0, stdout: codeHelp("key_missing") });
    expect(unknown).toMatchObject({
      code: 2,
      stdout: "",
      stderr:
        'edge-gateway: "key_mising" is neither a command nor a code; ' +
        "there is key_missing (--help lists the commands)\n",
    });
    expect(command).toMatchObject({
      code: 2,
      stderr: 'edge-gateway: "explian" is not a command; did you mean "explain"? (--help lists them)\n',
    });
  });
});
