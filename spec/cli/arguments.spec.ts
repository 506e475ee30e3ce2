import { describe, expect, it } from "vitest";
import { readArguments, unknownFlags } from "../../lib/cli/arguments.ts";
import { CLIENT_TABLE, HEALTHCHECK_TABLE, SETTINGS } from "../../lib/config/settings_table.ts";
import type { SettingsTable } from "../../lib/config/start_settings.ts";

const COMMANDS = ["run", "demo", "validate"];
const OWN = {
  json: { value: null, help: "Print JSON." },
  from: { value: "IP", help: "The address." },
  header: { value: "'Name: value'", help: "A header.", letter: "H", isRepeated: true },
};
const read = (...words: string[]) => readArguments(words, COMMANDS, OWN);

describe("readArguments", () => {
  it("uses run without a command", () => {
    expect(read()).toEqual({ command: "run", isNamed: false, flags: {}, repeated: {}, operands: [] });
    expect(read("--config", "gw.json")).toEqual({
      command: "run",
      isNamed: false,
      flags: { config: "gw.json" },
      repeated: {},
      operands: [],
    });
  });

  it("accepts flags before and behind the command, as --name value and as --name=value", () => {
    expect(read("--a", "1", "validate", "--b=2=3", "file")).toEqual({
      command: "validate",
      isNamed: true,
      flags: { a: "1", b: "2=3" },
      repeated: {},
      operands: ["file"],
    });
  });

  it("reads a flag before another flag, or at the end, without a value", () => {
    expect(read("--a", "--b", "1", "--c").flags).toEqual({ a: true, b: "1", c: true });
  });

  it.each([
    [["--manager", "run"], "run", { manager: true }, []],
    [["--manager", "--admin-tls", "demo"], "demo", { manager: true, "admin-tls": true }, []],
    [["--manager", "false", "run"], "run", { manager: "false" }, []],
    [["run", "--manager", "yes"], "run", { manager: "yes" }, []],
    [["validate", "--manager", "run"], "validate", { manager: "run" }, []],
    [["--config", "run"], "run", { config: "run" }, []],
  ] as const)(
    "does not read a command as the value of a flag that is true or false: %j",
    (words, command, flags, operands) => {
      expect(read(...words)).toMatchObject({ command, flags, operands });
    },
  );

  it("accepts an empty value", () => {
    expect(read("--a=").flags).toEqual({ a: "" });
  });

  it("reads --help, -h, --version and -v without values", () => {
    expect(read("--help", "validate")).toEqual({
      command: "validate",
      isNamed: true,
      flags: { help: true },
      repeated: {},
      operands: [],
    });
    expect(read("-h").flags).toEqual({ help: true });
    expect(read("-v", "demo")).toEqual({
      command: "demo",
      isNamed: true,
      flags: { version: true },
      repeated: {},
      operands: [],
    });
  });

  it("readArguments collects the values of a flag that may be repeated, in both spellings and in their order", () => {
    const { flags, repeated, operands } = read("validate", "-H", "A: 1", "--header", "B: 2", "--header=-C: 3", "x");
    expect([repeated, flags.header, operands]).toEqual([{ header: ["A: 1", "B: 2", "-C: 3"] }, "-C: 3", ["x"]]);
  });

  it("readArguments reads a flag that takes no value without the word behind it", () => {
    expect(read("--json", "validate", "file")).toMatchObject({
      command: "validate",
      flags: { json: true },
      operands: ["file"],
    });
  });

  it.each([
    [["validate", "--json=true"], "--json takes no value"],
    [["validate", "--help=run"], "--help takes no value"],
    [["validate", "--from"], "--from needs a value: IP"],
    [["validate", "--from="], "--from needs a value: IP"],
    [["validate", "--from", "--json"], "--from needs a value: IP"],
    [["validate", "-H"], "--header needs a value: 'Name: value'"],
    [["validate", "--from", "1.1.1.1", "--from", "1.1.1.1"], "--from is given twice"],
    [["validate", "--json", "--json"], "--json is given twice"],
    [["validate", "-HA: 1"], "-HA: 1 is not a known flag; flags are written --name value, --help lists them"],
    [["validate", "-f", "1.1.1.1"], "-f is not a known flag; flags are written --name value, --help lists them"],
  ])("fails with exit code 2 for %j", (words, message) => {
    expect(() => read(...words)).toThrow(expect.objectContaining({ message, exitCode: 2 }));
  });

  it.each([
    [["vlidate"], '"vlidate" is not a command; did you mean "validate"? (--help lists them)'],
    [["qqqqqq"], '"qqqqqq" is not a command (--help lists them)'],
    [["my.json"], '"my.json" is not a command; name a configuration with --config my.json (--help lists them)'],
    [["-p", "80"], "-p is not a known flag; flags are written --name value, --help lists them"],
    [["--a", "1", "--a", "2"], "--a is given twice"],
  ])("fails with exit code 2 for %j", (words, message) => {
    expect(() => read(...words)).toThrow(expect.objectContaining({ message, exitCode: 2 }));
  });

  it.each(["__proto__", "constructor", "toString"])("treats --%s like any other flag", (name) => {
    expect(Object.entries(read(`--${name}`, "x").flags)).toEqual([[name, "x"]]);
  });
});

describe("unknownFlags", () => {
  const own = { settings: { configPath: SETTINGS.configPath } };

  it("accepts the flags of the settings", () => {
    expect(unknownFlags(read("validate", "--config", "x"), own)).toEqual([]);
  });

  it("accepts the command's own flags, suggests them, and refuses those of other commands", () => {
    const { json } = OWN;
    expect(unknownFlags(read("validate", "--json"), { ...own, flags: { json } })).toEqual([]);
    expect(unknownFlags(read("validate", "--jsn"), { ...own, flags: { json } })).toEqual([
      "--jsn is not a known flag; did you mean --json?",
    ]);
    expect(unknownFlags(read("validate", "-H", "A: 1"), { ...own, flags: { json } })).toEqual([
      "--header is not a known flag",
    ]);
  });

  it.each<[string[], SettingsTable, string[]]>([
    [["--confg", "x"], own.settings, ["--confg is not a known flag; did you mean --config?"]],
    [["--zzzzzz"], own.settings, ["--zzzzzz is not a known flag"]],
    [["--http-port", "1"], own.settings, ["--http-port is not a flag of this command: it is for starting a gateway"]],
    [["--http-prot", "1"], SETTINGS, ["--http-prot is not a known flag; did you mean --http-port?"]],
    [
      ["--admin-password", "x"],
      SETTINGS,
      ["--admin-password is not a flag, since other users could read it: set the variable ADMIN_PASSWORD"],
    ],
    [
      ["--config", "x", "--admin-ulr", "x"],
      CLIENT_TABLE,
      [
        "--config is not a flag of this command: it is for starting a gateway",
        "--admin-ulr is not a known flag; did you mean --admin-url?",
      ],
    ],
    [
      ["--admin-password", "x"],
      CLIENT_TABLE,
      ["--admin-password is not a flag, since other users could read it: set the variable ADMIN_PASSWORD"],
    ],
    [["--probe-prot", "1"], HEALTHCHECK_TABLE, ["--probe-prot is not a known flag; did you mean --probe-port?"]],
  ])("reports %j", (words, settings, issues) => {
    expect(unknownFlags(read(...words), { settings })).toEqual(issues);
  });
});
