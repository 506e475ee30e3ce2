/**
 * Writes the results of tests as JUnit XML, which CI servers display.
 */
import type { TestReport } from "../gateway/status.ts";

/** One suite, named like the configuration file. */
export function junitXml({ passed, failed, tests }: TestReport, file: string): string {
  const counts = `tests="${passed + failed}" failures="${failed}" errors="0"`;
  const cases = tests.map(({ name, differences, ...result }) => {
    const head = `    <testcase classname=${attribute(file)} name=${attribute(name)}`;
    if (result.passed) return `${head}/>\n`;
    return (
      `${head}>\n      <failure ` +
      `message=${attribute(differences.join("; "))}>${text(differences.join("\n"))}</failure>\n    </testcase>\n`
    );
  });
  const suite = `  <testsuite name=${attribute(file)} ${counts} skipped="0">\n${cases.join("")}  </testsuite>\n`;
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="edge-gateway" ${counts}>\n${suite}</testsuites>\n`;
}

/** Line ends and tabs are written as references: a parser turns others into spaces (XML 1.0 §3.3.3). */
function attribute(value: string): string {
  return `"${text(value).replace(/[\t\n]/g, (character) => `&#${character.charCodeAt(0)};`)}"`;
}

/**
 * Characters that no XML document can have (XML 1.0 §2.2), half surrogate pairs too, become U+FFFD; a raw CR would
 * become LF (§2.11).
 */
function text(value: string): string {
  const allowed = value.replace(/[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "\uFFFD");
  return allowed.replace(/[&<>"\r]/g, (character) => ENTITIES[character]!);
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "\r": "&#13;",
};
