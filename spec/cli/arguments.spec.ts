import { describe, expect, it } from "vitest";
import { onlyFlags, readArguments, UsageError } from "../../lib/cli/arguments.ts";

const VERBS = ["run", "demo", "validate"];
const read = (...words: string[]) => readArguments(words, VERBS);

describe("readArguments", () => {
  it("without a verb it is run", () => {
    expect(read()).toEqual({ verb: "run", isNamed: false, flags: {}, operands: [] });
    expect(read("--config", "gw.json")).toEqual({ verb: "run", isNamed: false, flags: { config: "gw.json" }, operands: [] });
  });

  it("flags stand before and behind the verb, as --name value and as --name=value", () => {
    expect(read("--a", "1", "validate", "--b=2=3", "file")).toEqual({ verb: "validate", isNamed: true, flags: { a: "1", b: "2=3" }, operands: ["file"] });
  });

  it("a flag before another flag, or at the end, has no value", () => {
    expect(read("--a", "--b", "1", "--c").flags).toEqual({ a: true, b: "1", c: true });
  });

  it.each([
    [["--manager", "run"], "run", { manager: true }, []],
    [["--manager", "--admin-tls", "demo"], "demo", { manager: true, "admin-tls": true }, []],
    [["--manager", "false", "run"], "run", { manager: "false" }, []],
    [["run", "--manager", "yes"], "run", { manager: "yes" }, []],
    [["validate", "--manager", "run"], "validate", { manager: "run" }, []],
    [["--config", "run"], "run", { config: "run" }, []],
  ] as const)("a flag of true or false leaves a verb behind it alone: %j", (words, verb, flags, operands) => {
    expect(read(...words)).toMatchObject({ verb, flags, operands });
  });

  it("an empty value is a value", () => {
    expect(read("--a=").flags).toEqual({ a: "" });
  });

  it("--help, -h, --version and -v take none", () => {
    expect(read("--help", "validate")).toEqual({ verb: "validate", isNamed: true, flags: { help: true }, operands: [] });
    expect(read("-h").flags).toEqual({ help: true });
    expect(read("-v", "demo")).toEqual({ verb: "demo", isNamed: true, flags: { version: true }, operands: [] });
  });

  it.each([
    [["vlidate"], '"vlidate" is not a command; did you mean "validate"? (--help lists them)'],
    [["qqqqqq"], '"qqqqqq" is not a command (--help lists them)'],
    [["my.json"], '"my.json" is not a command; a configuration is named by --config my.json (--help lists them)'],
    [["-p", "80"], "-p is not a known flag; flags are written --name value, --help lists them"],
    [["--a", "1", "--a", "2"], "--a is given twice"],
  ])("a UsageError for %j", (words, message) => {
    expect(() => read(...words)).toThrow(new UsageError(message));
  });

  it.each(["__proto__", "constructor", "toString"])("--%s is a flag like any other", (name) => {
    expect(Object.entries(read(`--${name}`, "x").flags)).toEqual([[name, "x"]]);
  });
});

describe("onlyFlags", () => {
  it("lets known flags and as many operands as allowed pass", () => {
    expect(() => onlyFlags(read("validate", "--config", "x"), ["config"], 0)).not.toThrow();
    expect(() => onlyFlags(read("validate", "x"), [], 1)).not.toThrow();
  });

  it.each([
    [["validate", "--confg", "x"], '--confg is not a flag of "validate"; did you mean --config?'],
    [["validate", "--zzzzzz"], '--zzzzzz is not a flag of "validate"'],
    [["validate", "one", "two"], '"two" is one word too many for "validate"'],
  ])("a UsageError for %j", (words, message) => {
    expect(() => onlyFlags(read(...words), ["config"], 1)).toThrow(new UsageError(message));
  });
});
