/**
 * Names of MCP with "*" for any characters, also none.
 */

/** Finds the first pattern that matches a name. */
export class NamePatterns {
  readonly #exact: ReadonlySet<string>;
  readonly #wild: readonly { readonly pattern: string; readonly parts: readonly string[] }[];

  constructor(patterns: readonly string[]) {
    this.#exact = new Set(patterns.filter((pattern) => !pattern.includes("*")));
    this.#wild = patterns
      .filter((pattern) => pattern.includes("*"))
      .map((pattern) => ({ pattern, parts: pattern.split("*") }));
  }

  /** The pattern that matches the name; null: none does. Takes time in proportion to the name. */
  find(name: string): string | null {
    if (this.#exact.has(name)) return name;
    return this.#wild.find(({ parts }) => matches(name, parts))?.pattern ?? null;
  }
}

/** Takes the first place for each part: if any choice of places fits, this one does. */
function matches(name: string, parts: readonly string[]): boolean {
  const [first = "", last = ""] = [parts[0], parts.at(-1)];
  const end = name.length - last.length;
  if (end < first.length || !name.startsWith(first) || !name.endsWith(last)) return false;
  let at = first.length;
  for (const part of parts.slice(1, -1)) {
    at = name.indexOf(part, at);
    if (at < 0) return false;
    at += part.length;
  }
  return at <= end;
}
