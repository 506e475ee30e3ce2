/**
 * Filters and sorts the rows of a table, and keeps search and order in the address of its page.
 */
import { number } from "./format.ts";
import { hashWith, pathIn, queryIn } from "./url_hash.ts";

export type SortValue = string | number | null;

interface Sort {
  readonly key: string;
  readonly descending: boolean;
}

/** What a user has chosen to see. */
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
export function sorted<Item>(
  items: readonly Item[],
  valueOf: (item: Item) => SortValue,
  descending: boolean,
): readonly Item[] {
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

/**
 * The view of a table in the hash of its page: "#/routes?search=shop&sort=-p95&rows=all"; on pages of other names as
 * "routes.search".
 */
export function viewIn(hash: string, table: string): View {
  const [query, prefix] = [queryIn(hash), prefixOf(hash, table)];
  const [, minus, key] = /^(-?)(\w.*)$/.exec(query.get(`${prefix}sort`) ?? "") ?? [];
  return {
    query: query.get(`${prefix}search`) ?? "",
    sort: key === undefined ? null : { key, descending: minus === "-" },
    all: query.get(`${prefix}rows`) === "all",
  };
}

/** The hash with what is given of a table's view. */
export function withView(hash: string, table: string, { query, sort, all }: Partial<View>): string {
  const prefix = prefixOf(hash, table);
  return hashWith(hash, {
    ...(query !== undefined && { [`${prefix}search`]: query }),
    ...(sort !== undefined && { [`${prefix}sort`]: sort === null ? "" : `${sort.descending ? "-" : ""}${sort.key}` }),
    ...(all !== undefined && { [`${prefix}rows`]: all ? "all" : "" }),
  });
}

function prefixOf(hash: string, table: string): string {
  return pathIn(hash) === `#/${table}` ? "" : `${table}.`;
}
