/**
 * What the gateway has found in a text, at its places in the editor.
 */
import type { Validation } from "./api.ts";
import type { Lines } from "./text_lines.ts";

/** Something to be said about the text. */
export interface Finding {
  readonly kind: "error" | "warning";
  /** Offset of the place; null: it is about all of the text, or about another file. */
  at: number | null;
  readonly message: string;
}

/** `lines`: of what was checked. */
export function findingsOf(
  lines: Lines,
  { issues, warnings }: Pick<Validation, "issues" | "warnings">,
): readonly Finding[] {
  const at = (line: number | null, column: number | null) => (line === null ? null : lines.offsetOf(line, column ?? 1));
  const errors = issues.map((issue): Finding => {
    const { path, line, column, message, file, code } = issue;
    const where = [file === undefined ? "" : line === null ? file : `${file}:${line}:${column}`, path].filter(
      (part) => part !== "",
    );
    return {
      kind: code === "unsigned" ? "warning" : "error",
      at: file === undefined ? at(line, column) : null,
      message: [...where, message].join(": "),
    };
  });
  const others = warnings.map(({ line, column, message, remedy }): Finding => ({
    kind: "warning",
    at: at(line, column),
    message: `${message} Remedy: ${remedy}`,
  }));
  return [...errors, ...others];
}

/** Where an offset of `before` is in `after`; null: that part has been changed. */
export function moved(before: string, after: string): (offset: number) => number | null {
  if (before === after) return (offset) => offset;
  const least = Math.min(before.length, after.length);
  let start = 0;
  while (start < least && before.charCodeAt(start) === after.charCodeAt(start)) start++;
  let end = 0;
  while (end < least - start && before.charCodeAt(before.length - 1 - end) === after.charCodeAt(after.length - 1 - end))
    end++;
  return (offset) =>
    offset < start ? offset : offset >= before.length - end ? offset + after.length - before.length : null;
}

const TOKEN = /"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|[^\s,:[\]{}"]+/y;

/** The end of the string, number or word at an offset; of anything else, the next character. */
export function tokenEnd(lines: Lines, offset: number): number {
  const row = lines.rowAt(offset);
  const start = lines.startOf(row);
  TOKEN.lastIndex = offset - start;
  return TOKEN.test(lines.row(row)) ? start + TOKEN.lastIndex : offset + 1;
}
