/**
 * What the editor adds to typing: the indentation of a new line, and of selected lines.
 */
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
export function newLine(text: string, from: number, to: number): TextEdit {
  const before = text.slice(text.lastIndexOf("\n", from - 1) + 1, from);
  const indent = /^[ \t]*/.exec(before)![0];
  const isOpen = /[[{]\s*$/.test(before);
  const own = `\n${indent}${isOpen ? unitOf(text) : ""}`;
  const isClosed = isOpen && /^[ \t]*[\]}]/.test(text.slice(to, to + 200));
  return { from, to, text: isClosed ? `${own}\n${indent}` : own, caret: own.length };
}

/** The lines of a selection, one step further in or out. */
export function shiftedLines(text: string, from: number, to: number, by: 1 | -1): TextEdit {
  const start = text.lastIndexOf("\n", from - 1) + 1;
  const end = text.indexOf("\n", to - 1) < 0 ? text.length : text.indexOf("\n", to - 1);
  const unit = unitOf(text);
  const lines = text
    .slice(start, end)
    .split("\n")
    .map((line) =>
      by > 0 ? (line === "" ? "" : unit + line) : line.startsWith(unit) ? line.slice(unit.length) : line.trimStart(),
    );
  const shifted = lines.join("\n");
  return { from: start, to: end, text: shifted, caret: shifted.length };
}

/** One step of indentation, as the text has it. */
function unitOf(text: string): string {
  return /^[[{][ \t]*\n([ \t]+)/.exec(text)?.[1] ?? "  ";
}
