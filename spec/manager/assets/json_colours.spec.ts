import { describe, expect, it } from "vitest";
import { MAX_COLOURED, piecesOf, type LineMark } from "../../../lib/manager/assets/json_colours.ts";

function shown(line: string, marks: readonly LineMark[] = []): string[] {
  return piecesOf(line, marks).map(({ text, kinds }) => (kinds === "" ? text : `${text}<${kinds}>`));
}

describe("the colours of a line", () => {
  it("tell keys, texts, and numbers and words apart, and lose no character", () => {
    expect(shown('  "a" : "b", "c":-1.5e3,"d":true}')).toEqual([
      "  ",
      '"a"<key>',
      " : ",
      '"b"<text>',
      ", ",
      '"c"<key>',
      ":",
      "-1.5e3<atom>",
      ",",
      '"d"<key>',
      ":",
      "true<atom>",
      "}",
    ]);
    expect(shown('"a\\": \\\\"')).toEqual(['"a\\": \\\\"<text>']);
    expect(shown('{ "open')).toEqual(["{ ", '"open<text>']);
    expect(shown("")).toEqual([]);
    for (const line of ['"\\', "<img onerror=alert(1)>", '\u202e"x": \ud800', "\t\u0000//"])
      expect(
        piecesOf(line, [])
          .map(({ text }) => text)
          .join(""),
      ).toBe(line);
  });

  it("mark parts of tokens and parts across tokens", () => {
    expect(shown('"abc": 12', [{ from: 1, to: 3, kind: "found" }])).toEqual([
      '"<key>',
      "ab<key found>",
      'c"<key>',
      ": ",
      "12<atom>",
    ]);
    expect(shown('"a": 12', [{ from: 2, to: 99, kind: "error" }])).toEqual([
      '"a<key>',
      '"<key error>',
      ": <error>",
      "12<atom error>",
    ]);
  });

  it("are left out for a line that is very long, which is shown all the same", () => {
    const line = `"${"x".repeat(MAX_COLOURED)}"`;
    expect(piecesOf(line, [])).toEqual([{ text: line, kinds: "" }]);
  });
});
