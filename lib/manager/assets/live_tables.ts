/**
 * Small tables of figures that change: threads of the process; plugins by kind, caches and circuits.
 */
import { section } from "./components.ts";
import { el, replace, setText, type Child } from "./dom.ts";
import { number } from "./format.ts";

/** Below it each row is a card. */
const LEAST_WIDTH = 640;
/** Of a table that is drawn anew every two seconds. */
const LIVE_ROWS = 200;

/** A table of rows that come and go. `numbers`: columns with numbers. */
export function plainTable(caption: string, columns: readonly string[], numbers: readonly number[] = []) {
  const kind = (i: number) => (numbers.includes(i) ? "num" : null);
  const rows = el("tbody");
  const head = el("tr", {}, ...columns.map((column, i) => el("th", { scope: "col", class: kind(i) }, column)));
  const table = el(
    "table",
    { class: "table table--plain" },
    el("caption", { class: "visually-hidden" }, caption),
    el("thead", {}, head),
    rows,
  );
  const node = el("div", { class: "card data" }, el("div", { class: "table-wrap" }, table));
  const resized = new ResizeObserver(([change]) =>
    table.classList.toggle("table--cards", change!.contentRect.width < LEAST_WIDTH),
  );
  resized.observe(node);
  const rowOf = (cells: readonly Child[]) =>
    el(
      "tr",
      {},
      ...cells.map((cell, i) =>
        el(
          i === 0 ? "th" : "td",
          { class: kind(i), "data-label": columns[i]!, ...(i === 0 && { scope: "row" }) },
          cell,
        ),
      ),
    );
  return { node, rows, rowOf };
}

/** A table with a title, hidden while it has no rows. */
export function liveTable(title: string, columns: readonly string[], numbers: readonly number[] = []) {
  const table = plainTable(title, columns, numbers);
  const more = el("p", { class: "muted" });
  const node = section(title, table.node, more);
  node.hidden = true;
  return {
    node,
    /** The first of them, as many as are read. */
    show<T>(all: readonly T[], cellsOf: (each: T) => readonly Child[]): void {
      node.hidden = all.length === 0;
      replace(table.rows, ...all.slice(0, LIVE_ROWS).map((each) => table.rowOf(cellsOf(each))));
      setText(more, all.length > LIVE_ROWS ? `and ${number(all.length - LIVE_ROWS)} more` : "");
    },
  };
}

/** "hit 12 · miss 3", the most first. */
export function countsOf(counts: Readonly<Record<string, number>>, format: (count: number) => string): string {
  const sorted = Object.entries(counts).sort((a, b) => b[1] - a[1]);
  return sorted.length === 0 ? "–" : sorted.map(([name, count]) => `${name} ${format(count)}`).join(" · ");
}
