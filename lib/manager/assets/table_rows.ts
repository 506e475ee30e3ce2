/**
 * Filters and sorts the rows of a table, and saves search and order in an entry of the browser's history.
 */
import { number } from "./format.ts";

export type SortValue = string | number | null;

export interface Sort {
  readonly key: string;
  readonly descending: boolean;
}

/** The state that is restored when the user comes back to the page. */
export interface View {
  readonly query: string;
  readonly sort: Sort | null;
  readonly all: boolean;
}

/** Whether every word of the query is in the text, which is in lower case. */
export function matches(searchText: string, query: string): boolean {
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => searchText.includes(word));
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** A sorted copy. Rows without a value come last in both directions; equal rows keep their order. */
export function sorted<Item>(items: readonly Item[], valueOf: (item: Item) => SortValue, descending: boolean): readonly Item[] {
  const sign = descending ? -1 : 1;
  const valued = items.map((item) => ({ item, value: valueOf(item) }));
  valued.sort((a, b) => {
    if (a.value === null || b.value === null) return Number(a.value === null) - Number(b.value === null);
    if (typeof a.value === "number" && typeof b.value === "number") return sign * (a.value - b.value);
    return sign * collator.compare(String(a.value), String(b.value));
  });
  return valued.map(({ item }) => item);
}

/** "1,000 routes", "12 of 1,000 routes", "1 route" */
export function countText(found: number, all: number, [one, many]: readonly [string, string]): string {
  const noun = all === 1 ? one : many;
  return found === all ? `${number(all)} ${noun}` : `${number(found)} of ${number(all)} ${noun}`;
}

/** The view of a table in an entry of the history; null: none, or an unreadable one. */
export function viewIn(state: unknown, table: string): View | null {
  const views = isRecord(state) ? state.tables : null;
  const view = isRecord(views) ? views[table] : null;
  if (!isRecord(view) || typeof view.query !== "string") return null;
  const sort = isRecord(view.sort) && typeof view.sort.key === "string" ? { key: view.sort.key, descending: view.sort.descending === true } : null;
  return { query: view.query, sort, all: view.all === true };
}

/** The state of an entry with a table's view added. */
export function withView(state: unknown, table: string, view: View): Readonly<Record<string, unknown>> {
  const rest = isRecord(state) ? state : {};
  return { ...rest, tables: { ...(isRecord(rest.tables) ? rest.tables : {}), [table]: view } };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
