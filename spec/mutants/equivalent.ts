/**
 * Changes that nobody can tell from what stands: they are not counted. Found by file, by the line without its spaces at
 * both ends, and by what is replaced, so that a line that is edited is looked at again.
 */
import type { Change } from "./changes.ts";

interface Equivalent {
  readonly file: string;
  readonly line: string;
  readonly before: string;
  readonly after: string;
  /** Why no promise to a user depends on it. */
  readonly reason: string;
}

const EQUIVALENT: readonly Equivalent[] = [];

/** Null: a spec should tell it. */
export function reasonOf({ file, start, before, after }: Change, text: string): string | null {
  const from = text.lastIndexOf("\n", start - 1) + 1;
  const end = text.indexOf("\n", start);
  const line = text.slice(from, end < 0 ? text.length : end).trim();
  const found = EQUIVALENT.find(
    (each) => each.file === file && each.line === line && each.before === before && each.after === after,
  );
  return found?.reason ?? null;
}
