import { describe, expect, it } from "vitest";
import { junitXml } from "../../lib/cli/junit.ts";
import type { TestReport } from "../../lib/index.ts";

const report = (...tests: [name: string, differences: string[]][]): TestReport => ({
  passed: tests.filter(([, differences]) => differences.length === 0).length,
  failed: tests.filter(([, differences]) => differences.length > 0).length,
  tests: tests.map(([name, differences]) => ({
    name,
    passed: differences.length === 0,
    expected: {},
    found: {},
    differences,
    differing: [],
  })),
});

/** The names and the failures in a document, as an XML parser reads them; throws for what is not well-formed. */
function read(xml: string): { names: string[]; messages: string[]; texts: string[] } {
  const [declaration, ...rest] = xml.split("\n");
  expect(declaration).toBe('<?xml version="1.0" encoding="UTF-8"?>');
  const open: string[] = [];
  const found = { names: [] as string[], messages: [] as string[], texts: [] as string[] };
  let left = rest.join("\n");
  expect(left).not.toMatch(/[^\t\n\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/u);
  while (left !== "") {
    const tag = /^<(\/?)([a-z]+)((?: [a-z]+="[^"<]*")*)(\/?)>/.exec(left);
    if (tag !== null) {
      const [whole, closing, name = "", attributes = "", empty] = tag;
      if (closing === "/") expect(open.pop()).toBe(name);
      else if (empty === "") open.push(name);
      const value = (attribute: string) =>
        decoded(new RegExp(` ${attribute}="([^"]*)"`).exec(attributes)![1]!.replace(/[\t\n]/g, " "));
      if (name === "testcase" && closing === "") found.names.push(value("name"));
      if (name === "failure" && closing === "") found.messages.push(value("message"));
      left = left.slice(whole.length);
    } else {
      const text = /^[^<]+/.exec(left)![0];
      if (open.at(-1) === "failure") found.texts.push(decoded(text));
      else expect(text).toMatch(/^\s+$/);
      left = left.slice(text.length);
    }
  }
  expect(open).toEqual([]);
  return found;
}

function decoded(text: string): string {
  expect(text).toMatch(/^(?:[^&]|&(?:amp|lt|gt|quot|#\d+);)*$/);
  const names: Record<string, string> = { lt: "<", gt: ">", quot: '"', amp: "&" };
  return text.replace(/&(?:#(\d+)|([a-z]+));/g, (_, code?: string, name?: string) =>
    code === undefined ? names[name!]! : String.fromCharCode(Number(code)),
  );
}

describe("junitXml", () => {
  it("has one suite with a case for each test, and the counts", () => {
    expect(
      junitXml(report(["a", []], ["b", ["status: expected 1, found 2", "code: expected 3, found 4"]]), "gw.json"),
    ).toBe(
      [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<testsuites name="edge-gateway" tests="2" failures="1" errors="0">',
        '  <testsuite name="gw.json" tests="2" failures="1" errors="0" skipped="0">',
        '    <testcase classname="gw.json" name="a"/>',
        '    <testcase classname="gw.json" name="b">',
        '      <failure message="status: expected 1, found 2; code: expected 3, found 4">status: expected 1, found 2',
        "code: expected 3, found 4</failure>",
        "    </testcase>",
        "  </testsuite>",
        "</testsuites>",
        "",
      ].join("\n"),
    );
  });

  it("is well-formed without any test", () => {
    expect(read(junitXml(report(), "gw.json"))).toEqual({ names: [], messages: [], texts: [] });
  });

  it("keeps every character that XML can have, in names, messages and texts", () => {
    const odd = `<a href="x">&amp; ]]> 'q' \t tab \n line \r end é 漢 😀 \u0085 \u2028`;
    expect(read(junitXml(report([odd, [odd]]), odd))).toEqual({ names: [odd], messages: [odd], texts: [odd] });
  });

  it("replaces characters that no XML document can have", () => {
    const forbidden = "\u0000\u0001\u0008\u000b\u000c\u001b\u001f\ufffe\uffff\ud800x\udc00";
    const replaced = [...forbidden].map((character) => (character === "x" ? "x" : "\ufffd")).join("");
    expect(read(junitXml(report([forbidden, [forbidden]]), "f"))).toEqual({
      names: [replaced],
      messages: [replaced],
      texts: [replaced],
    });
  });
});
