import { describe, expect, it } from "vitest";
import { newLine, shiftedLines, type TextEdit } from "../../../lib/manager/assets/editor_typing.ts";
import { Lines } from "../../../lib/manager/assets/text_lines.ts";

/** "|" marks the selection before, and the caret afterwards. */
function typed(marked: string, edit: (lines: Lines, from: number, to: number) => TextEdit): string {
  const [before = "", selected = "", after] = marked.split("|");
  const text = marked.replaceAll("|", "");
  const done = edit(
    new Lines(text),
    before.length,
    after === undefined ? before.length : before.length + selected.length,
  );
  return (
    `${text.slice(0, done.from)}${done.text.slice(0, done.caret)}|` +
    `${done.text.slice(done.caret)}${text.slice(done.to)}`
  );
}

describe("typing in the editor", () => {
  it("indents a new line as the one before, and further within a bracket", () => {
    expect(typed('{\n  "a": 1,|\n}', newLine)).toBe('{\n  "a": 1,\n  |\n}');
    expect(typed('{\n    "a": [|]\n}', newLine)).toBe('{\n    "a": [\n        |\n    ]\n}');
    expect(typed("{|}", newLine)).toBe("{\n  |\n}");
    expect(typed("{\n\t{|", newLine)).toBe("{\n\t{\n\t\t|");
    expect(typed("{\n  |x|\n}", newLine)).toBe("{\n  \n  |\n}");
    expect(typed("|", newLine)).toBe("\n|");
  });

  it("shifts selected lines in and out, and leaves empty ones", () => {
    const out = (lines: Lines, from: number, to: number) => shiftedLines(lines, from, to, -1);
    const further = (lines: Lines, from: number, to: number) => shiftedLines(lines, from, to, 1);
    expect(typed("{\n  a|a\n\n  b|b\n}", further)).toBe("{\n    aa\n\n    bb|\n}");
    expect(typed("{\n  x\n|    aa\n bb|\n}", out)).toBe("{\n  x\n  aa\nbb|\n}");
    expect(typed("|aa\n|bb", further)).toBe("  aa|\nbb");
  });
});
