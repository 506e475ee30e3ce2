/**
 * `edge-gateway test`: runs the tests of a configuration and prints for each that fails what was expected and what was
 * found.
 */
import type { Json } from "../config/json.ts";
import { writeRegularFile } from "../base/regular_file.ts";
import { isMatches } from "../config/expected.ts";
import type { TestReport, TestResult } from "../gateway/status.ts";
import { whyUnwritable } from "../observe/log_file.ts";
import type { RunCommand } from "./arguments.ts";
import { namedConfig, openCandidate } from "./config_file.ts";
import { counted } from "./counted.ts";
import { Failure } from "./failure.ts";
import { junitXml } from "./junit.ts";
import { paintFor, withoutControls, type Paint } from "./terminal.ts";

/** 0: all pass. 1: one fails. 2: the command line or the configuration is wrong, or --only matches no test. */
export const test: RunCommand = async (given) => {
  const config = await namedConfig(given);
  const file = config.configFile;
  const { only, json, junit } = given.flags as Readonly<Record<string, string | undefined>>;
  const candidate = await openCandidate(config);
  try {
    const { configuration } = candidate;
    const { tests } = configuration.snapshot;
    if (only !== undefined && !tests.some(({ name }) => name.includes(only))) {
      throw new Failure(
        `--only: none of the ${counted(tests.length, "test")} in ${file} has ${JSON.stringify(only)} in its name`,
        2,
      );
    }
    // Before the tests run: a result that cannot be written is of no use.
    if (junit !== undefined) writeReport(junit, "", "no tests were run");
    const report = await (await configuration.features.onDemand.tests()).testInForce(configuration, only);
    if (junit !== undefined)
      writeReport(junit, junitXml(report, file), `${report.passed} passed, ${report.failed} failed`);
    process.stdout.write(
      json !== undefined ? `${JSON.stringify(report, null, 2)}\n` : reportText(report, file, paintFor(process.stdout)),
    );
    return report.failed === 0 ? 0 : 1;
  } finally {
    await candidate.close();
  }
};

function writeReport(path: string, text: string, outcome: string): void {
  try {
    writeRegularFile(path, text);
  } catch (error) {
    throw new Failure(`cannot write ${path} (--junit): ${whyUnwritable(error)}; ${outcome}`, 2);
  }
}

/** A line for each test, and a table for each that has failed. */
export function reportText({ passed, failed, tests }: TestReport, file: string, paint: Paint): string {
  if (tests.length === 0) return `${withoutControls(file)} has no tests\n`;
  const lines = tests.flatMap((result) => {
    const name = withoutControls(result.name);
    return result.passed
      ? [`${paint("good", "ok  ")}  ${name}`]
      : [`${paint("bad", "FAIL")}  ${name}`, ...comparison(result, paint)];
  });
  const summary = [`${passed} passed`, ...(failed === 0 ? [] : [`${failed} failed`])].join(", ");
  return `${lines.join("\n")}\n${paint(failed === 0 ? "good" : "bad", summary)}\n`;
}

/** Name ("status", "headers.Content-Type"), expected and found. */
type Row = readonly [name: string, expected: string, found: string];

/** Expected and found side by side, the rows that differ marked; then what cannot be said of one member. */
function comparison({ expected, found, differences, differing }: TestResult, paint: Paint): string[] {
  const rows: readonly Row[] = [["", "expected", "found"], ...rowsOf(expected, found)];
  const [names, values] = [0, 1].map((column) => Math.max(...rows.map((row) => row[column]!.length))) as [
    number,
    number,
  ];
  const lines = rows.map(([name, wanted, value]) => {
    const text = `${name.padEnd(names)}  ${wanted.padEnd(values)}  ${value}`;
    return `    ${differing.includes(name) ? paint("bad", `> ${text}`) : paint("faint", `  ${text}`)}`;
  });
  return [
    ...lines.map((line) => line.trimEnd()),
    ...differences.slice(differing.length).map((each) => `    ${withoutControls(each)}`),
  ];
}

/** A row for each member, and for each header. */
function rowsOf(expected: Json, found: Json): Row[] {
  return Object.entries(membersOf(expected)).flatMap(([name, wanted]) => {
    const value = membersOf(found)[name];
    const isList = /^(?:upstream_)?headers$/.test(name) && typeof value === "object" && value !== null;
    if (!isList) return [rowOf(name, wanted, value)];
    const values = membersOf(value);
    return Object.entries(membersOf(wanted)).map(([header, line]) => rowOf(`${name}.${header}`, line, values[header]));
  });
}

function membersOf(value: Json): Readonly<Record<string, Json>> {
  return value as Readonly<Record<string, Json>>;
}

/** The values are cut to fit side by side, so that the first difference is seen; --json has all of them. */
function rowOf(name: string, wanted: Json, value: Json | undefined): Row {
  const expected = inWords(wanted);
  const found = inWords(value);
  let same = 0;
  while (same < expected.length && expected[same] === found[same]) same++;
  const from = same === expected.length || same < MAX_SHOWN ? 0 : same - SHOWN_BEFORE;
  const cut = (text: string) =>
    (from === 0 ? "" : "…") + text.slice(from, from + MAX_SHOWN) + (text.length > from + MAX_SHOWN ? "…" : "");
  return [name, cut(expected), cut(found)];
}

function inWords(value: Json | undefined): string {
  return value === undefined
    ? "(nothing)"
    : withoutControls(isMatches(value) ? `a match of ${value.matches}` : JSON.stringify(value));
}

const MAX_SHOWN = 60;
/** What is the same before the first difference. */
const SHOWN_BEFORE = 20;
