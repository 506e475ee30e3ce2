import { describe, expect, it } from "vitest";
import { readArguments, refuseOtherFlags } from "../../lib/cli/arguments.ts";
import { SETTINGS } from "../../lib/config/settings_table.ts";

const COMMANDS = ["run", "demo", "validate"];
const read = (...words: string[]) => readArguments(words, COMMANDS);

describe("readArguments", () => {
  it("uses run without a command", () => {
    expect(read()).toEqual({ command: "run", isNamed: false, flags: {}, operands: [] });
    expect(read("--config", "gw.json")).toEqual({ command: "run", isNamed: false, flags: { config: "gw.json" }, operands: [] });
  });

  it("accepts flags before and behind the command, as --name value and as --name=value", () => {
    expect(read("--a", "1", "validate", "--b=2=3", "file")).toEqual({ command: "validate", isNamed: true, flags: { a: "1", b: "2=3" }, operands: ["file"] });
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
  ] as const)("does not read a command as the value of a flag that is true or false: %j", (words, command, flags, operands) => {
    expect(read(...words)).toMatchObject({ command, flags, operands });
  });

  it("accepts an empty value", () => {
    expect(read("--a=").flags).toEqual({ a: "" });
  });

  it("reads --help, -h, --version and -v without values", () => {
    expect(read("--help", "validate")).toEqual({ command: "validate", isNamed: true, flags: { help: true }, operands: [] });
    expect(read("-h").flags).toEqual({ help: true });
    expect(read("-v", "demo")).toEqual({ command: "demo", isNamed: true, flags: { version: true }, operands: [] });
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

describe("refuseOtherFlags", () => {
  const settings = { configPath: SETTINGS.configPath };

  it("accepts the flags of the settings", () => {
    expect(() => refuseOtherFlags(read("validate", "--config", "x"), settings)).not.toThrow();
  });

  it.each([
    [["validate", "--confg", "x"], "--confg is not a known flag; did you mean --config?"],
    [["validate", "--zzzzzz"], "--zzzzzz is not a known flag"],
    [["validate", "--http-port", "1"], "--http-port is not a flag of this command: it is for starting a gateway"],
  ])("fails with exit code 2 for %j", (words, message) => {
    expect(() => refuseOtherFlags(read(...words), settings)).toThrow(expect.objectContaining({ message, exitCode: 2 }));
  });
});
