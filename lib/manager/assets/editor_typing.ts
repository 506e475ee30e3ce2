/**
 * What the editor adds to typing: the indentation of a new line, and of selected lines.
 */
import type { Lines } from "./text_lines.ts";

export interface TextEdit {
  readonly from: number;
  readonly to: number;
  readonly text: string;
  /** Within `text`. */
  readonly caret: number;
}

/**
 * A new line in place of a selection: indented as its line, further within a bracket, and with a closing bracket on a
 * line of its own.
 */
export function newLine(lines: Lines, from: number, to: number): TextEdit {
  const before = partBefore(lines, from);
  const indent = /^[ \t]*/.exec(before)![0];
  const isOpen = /[[{]\s*$/.test(before);
  const own = `\n${indent}${isOpen ? unitOf(lines) : ""}`;
  const isClosed = isOpen && /^[ \t]*[\]}]/.test(lines.row(lines.rowAt(to)).slice(partBefore(lines, to).length));
  return { from, to, text: isClosed ? `${own}\n${indent}` : own, caret: own.length };
}

/** The lines of a selection, one step further in or out. */
export function shiftedLines(lines: Lines, from: number, to: number, by: 1 | -1): TextEdit {
  const [first, last] = [lines.rowAt(from), lines.rowAt(to - 1)];
  const unit = unitOf(lines);
  const shifted = lines.rows(first, last + 1).map((line) => {
    if (by > 0) return line === "" ? "" : unit + line;
    return line.startsWith(unit) ? line.slice(unit.length) : line.trimStart();
  });
  const text = shifted.join("\n");
  return { from: lines.startOf(first), to: lines.startOf(last + 1) - 1, text, caret: text.length };
}

function partBefore(lines: Lines, offset: number): string {
  const row = lines.rowAt(offset);
  return lines.row(row).slice(0, offset - lines.startOf(row));
}

/** One step of indentation, as the text has it. */
function unitOf(lines: Lines): string {
  return (/^[[{][ \t]*$/.test(lines.row(0)) && /^[ \t]+/.exec(lines.row(1))?.[0]) || "  ";
}
