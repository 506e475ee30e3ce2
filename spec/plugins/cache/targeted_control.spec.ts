import { describe, expect, it } from "vitest";
import { targetedDirectives } from "../../../lib/plugins/cache/targeted_control.ts";
import { counted, growth, LINEAR } from "../../support/growth.ts";

function read(...lines: string[]): Record<string, string | null> | null {
  const found = targetedDirectives(lines.flatMap((line) => ["CDN-Cache-Control", line]));
  return found === null ? null : Object.fromEntries(found);
}

describe("CDN-Cache-Control", () => {
  it.each<[readonly string[], Record<string, string | null>]>([
    [["max-age=60, no-store"], { "max-age": "60", "no-store": null }],
    [["max-age=60", "no-store"], { "max-age": "60", "no-store": null }],
    [["max-age=60 ,\t no-store"], { "max-age": "60", "no-store": null }],
    [['max-age=60;a;b=2; c="x", no-store;a=?0'], { "max-age": "60", "no-store": null }],
    [["max-age=60, max-age=5"], { "max-age": "5" }],
    [["max-age=-60"], { "max-age": "-60" }],
    [["no-store=?1"], { "no-store": null }],
    [["no-store=?0, max-age=60"], { "max-age": "60" }],
    [["no-store, no-store=?0"], {}],
    [['no-cache="X-A, x-b"'], { "no-cache": "X-A, x-b" }],
    [['private="a \\"b\\" \\\\"'], { private: 'a "b" \\' }],
    [["no-cache=Set-Cookie"], { "no-cache": "Set-Cookie" }],
    [["no-cache=1"], { "no-cache": null }],
    [['private=("a" b;c 1.5), max-age=5'], { private: null, "max-age": "5" }],
    [['max-age="60"'], { "max-age": "" }],
    [["max-age=1.5"], { "max-age": "" }],
    [["max-age=a60"], { "max-age": "" }],
    [["max-age=(60)"], { "max-age": "" }],
    [["max-age=:NjA=:"], { "max-age": "" }],
    [["max-age"], { "max-age": null }],
    [["*x.y_z-1, a=()"], { "*x.y_z-1": null, a: "" }],
  ])("%j is read as its directives", (lines, expected) => {
    expect(read(...lines)).toEqual(expected);
  });

  it.each([
    ...[
      "",
      " ",
      ",",
      "max-age=60,",
      "max-age=60, ",
      ",max-age=60",
      "max-age=60,,no-store",
      "max-age=60 no-store",
      "max-age=60, &&&&&",
    ],
    ...[
      "Max-Age=60",
      "max-age =60",
      "max-age= 60",
      "max-age=",
      "max-age=60a",
      "max-age=1234567890123456",
      "max-age=1.2345",
      "max-age=1.",
      "max-age=--1",
    ],
    ...[
      'a="open',
      'a="\\n"',
      'a="é"',
      "a='x'",
      "a=(1",
      "a=(1 2",
      "a=(1,2)",
      "a=:a b:",
      "a=?2",
      "a=?",
      "1=2",
      "=1",
      "a;B=1",
      "a; =1",
      "a=1 ;b",
    ],
  ])("%j counts as missing", (line) => {
    expect(read(line)).toBe(null);
  });

  it("CDN-Cache-Control counts as missing if one of its lines is empty", () => {
    expect(read("max-age=60", "")).toBe(null);
    expect(read()).toBe(null);
  });

  it("CDN-Cache-Control is parsed in a time that grows linearly with its length", async () => {
    const targeted = await counted(() => import("../../../lib/plugins/cache/targeted_control.ts"));
    for (const [start, part] of [
      ["", "a,"],
      ["", "a, "],
      ["a", ";b"],
      ['a="', "\\\\"],
      ["a=(", " "],
      ["a=(", "b "],
      ["a=(", "b;c "],
      ["a=(b", ";c=1"],
      ["a=:", "b"],
      ["a", " "],
      ["a=b", "b"],
    ] as const) {
      const parse = (size: number) =>
        targeted.targetedDirectives(["CDN-Cache-Control", `${start}${part.repeat(size / part.length)}&`]);
      expect(growth(parse, 1_000), start + part).toBeLessThan(LINEAR);
    }
  });
});
