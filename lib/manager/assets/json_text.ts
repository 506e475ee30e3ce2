/**
 * Looks into JSON, and searches it.
 */

/** Member names and indices from the root. */
export type JsonPath = readonly (string | number)[];

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Undefined: there is none. */
export function valueAt(root: unknown, path: JsonPath): unknown {
  let value = root;
  for (const step of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) return undefined;
    value = (value as Readonly<Record<string | number, unknown>>)[step];
  }
  return value;
}

/** Paths of values with `query` in their name or in their text, in document order, ignoring case. */
export function occurrences(root: unknown, query: string): readonly JsonPath[] {
  const found: JsonPath[] = [];
  if (query !== "") search([], root, query.toLowerCase(), found);
  return found;
}

/** `query` in `text`, split at `query`: ["be", "for", "e"] for "for" in "before"; null where it does not occur. */
export function cutAt(text: string, query: string): readonly [string, string, string] | null {
  const at = query === "" ? -1 : text.toLowerCase().indexOf(query.toLowerCase());
  return at < 0 ? null : [text.slice(0, at), text.slice(at, at + query.length), text.slice(at + query.length)];
}

function search(path: JsonPath, value: unknown, query: string, found: JsonPath[]): void {
  const name = path.at(-1);
  const named = typeof name === "string" && name.toLowerCase().includes(query);
  if (typeof value === "object" && value !== null) {
    if (named) found.push(path);
    if (Array.isArray(value)) value.forEach((item: unknown, i) => search([...path, i], item, query, found));
    else for (const [member, item] of Object.entries(value)) search([...path, member], item, query, found);
  } else if (named || String(value).toLowerCase().includes(query)) {
    found.push(path);
  }
}
