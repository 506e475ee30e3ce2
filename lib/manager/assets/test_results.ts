/**
 * Prepares results of tests for display: their order, and what was expected beside what was found.
 */
import type { TestResult } from "./api.ts";
import { isRecord, valueAt } from "./json_text.ts";

/** One line of a comparison. */
interface Comparison {
  /** "status", "headers.WWW-Authenticate" */
  readonly name: string;
  readonly expected: string;
  readonly found: string;
  readonly differs: boolean;
}

/** Failed tests first, otherwise in the order of the configuration. */
export function failedFirst<Test extends TestResult>(tests: readonly Test[]): readonly Test[] {
  return [...tests.filter(({ passed }) => !passed), ...tests.filter(({ passed }) => passed)];
}

/** A line for each expectation, headers one by one. */
export function comparisonsOf({ expected, found, differing }: TestResult): readonly Comparison[] {
  return namesIn(expected).map(({ name, path }) => ({
    name,
    expected: valueOf(valueAt(expected, path)),
    found: valueOf(valueAt(found, path)),
    differs: differing.includes(name),
  }));
}

/** The names of what differs, or the reason why there was nothing to compare: "status, headers.Via". */
export function differenceOf(result: TestResult): string {
  const [other] = otherDifferences(result);
  return (
    other ??
    comparisonsOf(result)
      .filter(({ differs }) => differs)
      .map(({ name }) => name)
      .join(", ")
  );
}

/** Differences that belong to no line, such as a test that did not end. */
export function otherDifferences({ differences, differing }: TestResult): readonly string[] {
  const others = differences.slice(differing.length);
  return differing.includes("upstream_headers") ? ["upstream_headers: the upstream got no request", ...others] : others;
}

/** The text that a search looks at. */
export function searchTextOf(result: TestResult): string {
  return `${result.name} ${differenceOf(result)}`.toLowerCase();
}

const HEADERS = new Set(["headers", "upstream_headers"]);

function namesIn(expected: unknown): readonly { readonly name: string; readonly path: readonly string[] }[] {
  return Object.entries(isRecord(expected) ? expected : {}).flatMap(([member, value]) => {
    if (!HEADERS.has(member) || !isRecord(value)) return [{ name: member, path: [member] }];
    return Object.keys(value).map((header) => ({ name: `${member}.${header}`, path: [member, header] }));
  });
}

/** Text as it is, a pattern as "matches ^Key", and null as "none". */
function valueOf(value: unknown): string {
  if (value === null || value === undefined) return "none";
  if (value === "") return '""';
  if (isRecord(value) && Object.keys(value).length === 1 && typeof value.matches === "string")
    return `matches ${value.matches}`;
  return typeof value === "string" ? value : JSON.stringify(value);
}
