/**
 * Searches JSON, and masks secrets in it.
 */
import { isSecret, MASK } from "./secrets.ts";

/** Member names and indices from the root. */
export type JsonPath = readonly (string | number)[];

/** Whether a text is hidden until a user asks for it. Items of a list are judged by the name of the list. `sticky.cookie` is the name of a cookie. */
export function isHidden(path: JsonPath, value: unknown): boolean {
  if (path.at(-1) === "cookie" && path.at(-2) === "sticky") return false;
  const name = path.findLast((each) => typeof each === "string");
  return typeof value === "string" && typeof name === "string" && value !== "" && isSecret(name, value);
}

/** Indented by two, with every hidden text masked: safe to paste into a ticket. */
export function maskedText(root: unknown): string {
  return JSON.stringify(masked([], root), null, 2);
}

/** Paths of values with `query` in their name or, unless hidden, in their text, in document order, ignoring case. */
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

function masked(path: JsonPath, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item: unknown, i) => masked([...path, i], item));
  if (typeof value === "object" && value !== null) return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, masked([...path, name], item)]));
  return isHidden(path, value) ? MASK : value;
}

function search(path: JsonPath, value: unknown, query: string, found: JsonPath[]): void {
  const name = path.at(-1);
  const named = typeof name === "string" && name.toLowerCase().includes(query);
  if (typeof value === "object" && value !== null) {
    if (named) found.push(path);
    if (Array.isArray(value)) value.forEach((item: unknown, i) => search([...path, i], item, query, found));
    else for (const [member, item] of Object.entries(value)) search([...path, member], item, query, found);
  } else if (named || (!isHidden(path, value) && String(value).toLowerCase().includes(query))) {
    found.push(path);
  }
}
