import { describe, expect, it } from "vitest";
import { findingsOf, moved, tokenEnd } from "../../../lib/manager/assets/editor_checks.ts";
import { Lines } from "../../../lib/manager/assets/text_lines.ts";

const WARNING = { at: "", code: "stale_acceptance", path: "", example: null, service: null, route: null } as const;

describe("the place of a finding", () => {
  it("gives errors and warnings with their places, and those of other files without", () => {
    const place = { line: 2, column: 7 };
    const findings = findingsOf(new Lines('{\n "😀": "x"}'), {
      issues: [
        { path: "services[0].name", ...place, message: "expected a name" },
        { path: "", line: null, column: null, message: "not signed" },
        { path: "[0]", ...place, message: "wrong", file: "/etc/tests.json" },
      ],
      warnings: [
        { ...WARNING, message: "Open to all.", remedy: "Add key_auth.", ...place },
        { ...WARNING, message: "Old.", remedy: "Remove it.", line: null, column: null },
      ],
    });
    expect(findings).toEqual([
      { kind: "error", at: 9, message: "services[0].name: expected a name" },
      { kind: "error", at: null, message: "not signed" },
      { kind: "error", at: null, message: "/etc/tests.json:2:7: [0]: wrong" },
      { kind: "warning", at: 9, message: "Open to all. Remedy: Add key_auth." },
      { kind: "warning", at: null, message: "Old. Remedy: Remove it." },
    ]);
  });

  it("moves with the text around it, and is lost where the text has been changed", () => {
    const place = moved("one two three", "zero one 2 three");
    expect([0, 4, 8, 12].map(place)).toEqual([null, null, 11, 15]);
    expect([0, 3].map(moved("same", "same"))).toEqual([0, 3]);
    expect([0, 1].map(moved("aa", "aaa"))).toEqual([0, 1]);
    expect([0, 1].map(moved("ab", ""))).toEqual([null, null]);
  });

  it("is a whole string, number or word, or one character", () => {
    expect([0, 6, 10, 12].map((offset) => tokenEnd(new Lines('"a b": 5, true}'), offset))).toEqual([5, 7, 14, 14]);
    expect([tokenEnd(new Lines("{}"), 0), tokenEnd(new Lines(""), 0)]).toEqual([1, 1]);
  });
});
