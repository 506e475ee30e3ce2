/**
 * A table with search and sorting that stays fast with thousands of rows: a row is created once, and later only changed texts are written.
 */
import type { TryFigures } from "./api.ts";
import { el, replace, setText, type Child } from "./dom.ts";
import { milliseconds, number, percent } from "./format.ts";
import { errorShare } from "./inventory.ts";
import { arranged, countText, matches, viewIn, withView, type Sort, type SortValue, type View } from "./rows.ts";

/** The content of a cell: `refresh` is called when the state has changed. */
export interface Part {
  readonly node: Node;
  refresh(): void;
}

export interface Column<Row> {
  /** Unique in the table. */
  readonly key: string;
  readonly title: string;
  /** Numbers are aligned right; numbers and states are sorted in descending order first. */
  readonly kind?: "text" | "number" | "state";
  /** In pixels; without it a share of the remaining width, at least 112. */
  readonly width?: number;
  /** Class of its cells. */
  readonly className?: string;
  sortBy(row: Row): SortValue;
  make(row: Row): Part;
}

export interface TableOptions<Row> {
  /** Unique on the page; part of element ids. */
  readonly name: string;
  /** Its name for screen readers. */
  readonly caption: string;
  /** ["route", "routes"] */
  readonly nouns: readonly [string, string];
  readonly columns: readonly Column<Row>[];
  /** Unique among the rows. */
  keyOf(row: Row): string;
  /** The text that is searched. */
  haystack(row: Row): string;
  /** Shown in place of the table when there are no rows. */
  readonly empty: Child;
  /** False: without a search field, as for a few rows on a detail page. */
  readonly searchable?: boolean;
  readonly sort?: Sort;
}

export interface DataTable<Row> {
  readonly node: HTMLElement;
  /** Rows are identified by their keys; the same array again only refreshes them. */
  show(rows: readonly Row[]): void;
  close(): void;
}

/** Rows created initially: enough to scroll through, and few enough for a search at each key. */
const FIRST_ROWS = 100;
const KEEP_AFTER_MS = 150;
/** Milliseconds for which more rows than that keep their order: moving a thousand of them each second is slow. */
const MANY_REST_MS = 5000;
/** Margin around the visible part. */
const NEAR = "600px";
const LEAST_WIDTH = 112;
const NUMBER_WIDTH = 66;

interface MadeRow {
  readonly tr: HTMLTableRowElement;
  readonly parts: readonly Part[];
}

interface Entry<Row> {
  readonly key: string;
  readonly row: Row;
  readonly haystack: string;
}

export function dataTable<Row>(options: TableOptions<Row>): DataTable<Row> {
  const { name, caption, nouns, columns } = options;
  const searchable = options.searchable !== false;
  let view: View = viewIn(history.state, name) ?? { query: "", sort: options.sort ?? null, all: false };
  let given: readonly Row[] | null = null;
  let entries: readonly Entry<Row>[] = [];
  let shown: readonly Entry<Row>[] = [];
  let found = 0;
  let arrangedAt = 0;
  let keepTimer: ReturnType<typeof setTimeout> | undefined;
  const made = new Map<string, MadeRow>();
  const rows = new WeakMap<Element, MadeRow>();
  const near = new Set<Element>();
  const watch = new IntersectionObserver(seen, { rootMargin: NEAR });

  const input = el("input", {
    id: `search-${name}`,
    type: "search",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => search(input.value),
    onchange: keepNow,
  });
  const count = el("p", { class: "muted data__count", role: "status" });
  const headers = columns.map((column) => {
    const button = el("button", { type: "button", class: "sort", onclick: () => sortBy(column) }, column.title);
    return { column, th: el("th", { scope: "col", role: "columnheader", class: column.kind === "number" ? "num" : null }, button) };
  });
  // On narrow screens a row is a card, and browsers drop the table role of other layouts: so the roles are explicit.
  const body = el("tbody", { role: "rowgroup" });
  const head = el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...headers.map(({ th }) => th)));
  const table = el("table", { class: "table", role: "table", "aria-label": caption }, head, body);
  // Fixed widths: otherwise the browser measures every cell again when a number changes.
  for (const { column, th } of headers) if (widthOf(column) !== undefined) th.style.setProperty("width", `${widthOf(column)}px`);
  table.style.setProperty("--table-width", `${columns.reduce((sum, column) => sum + (widthOf(column) ?? LEAST_WIDTH), 0)}px`);
  const wrap = el("div", { class: "table-wrap", role: "region", "aria-label": caption, tabindex: 0 }, table);
  const more = el("button", { type: "button", class: "button button--quiet data__more", onclick: showAll });
  const nothingText = el("p", {});
  const clear = el("button", { type: "button", class: "button button--quiet", onclick: clearSearch }, "Clear the search");
  const nothing = el("div", { class: "empty" }, nothingText, clear);
  const empty = el("div", { class: "empty" }, options.empty);
  const label = el("label", { for: input.id }, `Search ${nouns[1]}`);
  const toolbar = el("div", { class: "toolbar" }, el("div", { class: "field" }, label, input), count);
  const node = el("div", { class: "data" }, searchable && toolbar, wrap, more, nothing, empty);
  input.value = view.query;

  function search(query: string): void {
    change({ ...view, query });
  }

  function clearSearch(): void {
    input.value = "";
    search("");
    input.focus();
  }

  function sortBy({ key, kind }: Column<Row>): void {
    const descending = view.sort?.key === key ? !view.sort.descending : isLive(kind);
    change({ ...view, sort: { key, descending } });
  }

  function showAll(): void {
    const next = shown.length;
    change({ ...view, all: true });
    // The button is removed, so the focus moves to the first new row.
    body.rows[next]?.querySelector("a")?.focus();
  }

  function change(next: View): void {
    view = next;
    clearTimeout(keepTimer);
    keepTimer = setTimeout(keepNow, KEEP_AFTER_MS);
    arrangeRows();
  }

  /** Browsers allow about a hundred changes of the history in half a minute: too few for one at each key. */
  function keepNow(): void {
    if (keepTimer === undefined) return;
    clearTimeout(keepTimer);
    keepTimer = undefined;
    history.replaceState(withView(history.state, name, view), "");
  }

  function arrangeRows(): void {
    arrangedAt = performance.now();
    const sort = view.sort;
    const column = columns.find(({ key }) => key === sort?.key);
    const matching = entries.filter(({ haystack }) => matches(haystack, view.query));
    const ordered = sort === null || column === undefined ? matching : arranged(matching, ({ row }) => column.sortBy(row), sort.descending);
    found = ordered.length;
    shown = view.all ? ordered : ordered.slice(0, FIRST_ROWS);
    placeRows();
    describe(column);
  }

  /** Moves only the rows whose place has changed; a moved row keeps the focus. */
  function placeRows(): void {
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    const wanted = shown.map((entry) => rowOf(entry).tr);
    const stay = new Set(wanted);
    for (const tr of [...body.rows]) if (!stay.has(tr)) tr.remove();
    let at = body.firstElementChild;
    for (const tr of wanted) {
      if (tr === at) at = at.nextElementSibling;
      else body.insertBefore(tr, at);
    }
    if (focused instanceof HTMLElement && body.contains(focused) && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }

  function rowOf({ key, row }: Entry<Row>): MadeRow {
    const there = made.get(key);
    if (there !== undefined) {
      refreshNear(there);
      return there;
    }
    const parts = columns.map((column) => column.make(row));
    const cells = parts.map(({ node: content }, i) => {
      const { kind, title, className } = columns[i]!;
      if (i === 0) return el("th", { scope: "row", role: "rowheader" }, content);
      return el("td", { role: "cell", class: kind === "number" ? "num" : className, "data-label": title }, content);
    });
    const fresh = { tr: el("tr", { role: "row" }, ...cells), parts };
    refresh(fresh);
    made.set(key, fresh);
    rows.set(fresh.tr, fresh);
    watch.observe(fresh.tr);
    return fresh;
  }

  /** Only visible rows are kept up to date; the others when they come near. */
  function refreshNear(row: MadeRow): void {
    if (shown.length <= FIRST_ROWS || near.has(row.tr)) refresh(row);
  }

  function seen(changes: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting } of changes) {
      if (!isIntersecting) near.delete(target);
      else if (!near.has(target)) {
        near.add(target);
        refresh(rows.get(target)!);
      }
    }
  }

  function describe(sorted: Column<Row> | undefined): void {
    for (const { column, th } of headers) {
      const order = column !== sorted ? null : view.sort?.descending === true ? "descending" : "ascending";
      if (order === null) th.removeAttribute("aria-sort");
      else th.setAttribute("aria-sort", order);
    }
    const none = entries.length === 0;
    setText(count, none ? "" : countText(found, entries.length, nouns));
    wrap.hidden = found === 0;
    nothing.hidden = none || found > 0;
    empty.hidden = !none;
    toolbar.hidden = none;
    more.hidden = shown.length === found;
    setText(more, `Show all ${number(found)} ${nouns[1]} (the first ${number(shown.length)} are here)`);
    setText(nothingText, `No ${nouns[0]} matches “${view.query.trim()}”.`);
  }

  /** While a row has the pointer or the focus, rows keep their places, so that a click hits the intended one. */
  function stands(): boolean {
    return body.contains(document.activeElement) || (matchMedia("(hover: hover)").matches && body.matches(":hover"));
  }

  return {
    node,
    show(next) {
      if (next === given) {
        const column = columns.find(({ key }) => key === view.sort?.key);
        const due = shown.length <= FIRST_ROWS || performance.now() - arrangedAt >= MANY_REST_MS;
        if (column !== undefined && isLive(column.kind) && due && !stands()) arrangeRows();
        else for (const { key } of shown) refreshNear(made.get(key)!);
        return;
      }
      given = next;
      made.clear();
      near.clear();
      watch.disconnect();
      entries = next.map((row) => ({ key: options.keyOf(row), row, haystack: options.haystack(row).toLowerCase() }));
      arrangeRows();
    },
    close() {
      // The entry of the history belongs to the next page already.
      clearTimeout(keepTimer);
      watch.disconnect();
    },
  };
}

function widthOf({ kind, width }: Pick<Column<never>, "kind" | "width">): number | undefined {
  return width ?? (kind === "number" ? NUMBER_WIDTH : undefined);
}

function isLive(kind: Column<never>["kind"]): boolean {
  return kind === "number" || kind === "state";
}

function refresh({ parts }: MadeRow): void {
  for (const part of parts) part.refresh();
}

/** A text that may change. */
export function textPart(text: () => string, className: string | null = null): Part {
  const data = document.createTextNode("");
  const node = el("span", { class: className }, data);
  return {
    node,
    refresh() {
      const now = text();
      if (data.data !== now) data.data = now;
    },
  };
}

/** A text that never changes. */
export function fixedPart(...children: readonly Child[]): Part {
  const node = el("span");
  replace(node, ...children);
  return { node, refresh: () => undefined };
}

/** Columns for requests, errors, times and requests in flight. */
export function figureColumns<Row>(figuresOf: (row: Row) => TryFigures | null): readonly Column<Row>[] {
  const column = (key: string, title: string, sortBy: (figures: TryFigures) => number | null, text: (figures: TryFigures) => string): Column<Row> => ({
    key,
    title,
    kind: "number",
    sortBy: (row) => valueOf(figuresOf(row), sortBy),
    make: (row) => textPart(() => valueOf(figuresOf(row), text) ?? "–"),
  });
  return [
    column(
      "requests",
      "Req/s",
      (figures) => figures.requests_per_s,
      (figures) => number(figures.requests_per_s),
    ),
    {
      ...column("errors", "Errors", errorShare, () => ""),
      width: 70,
      make(row) {
        const part = textPart(() => valueOf(valueOf(figuresOf(row), errorShare), percent) ?? "–");
        const node = part.node as HTMLElement;
        return {
          node,
          refresh() {
            part.refresh();
            node.classList.toggle("figure--bad", (figuresOf(row)?.errors_per_s ?? 0) > 0);
          },
        };
      },
    },
    column(
      "p50",
      "p50",
      (figures) => figures.p50_ms,
      (figures) => milliseconds(figures.p50_ms),
    ),
    column(
      "p95",
      "p95",
      (figures) => figures.p95_ms,
      (figures) => milliseconds(figures.p95_ms),
    ),
    column(
      "p99",
      "p99",
      (figures) => figures.p99_ms,
      (figures) => milliseconds(figures.p99_ms),
    ),
    {
      ...column(
        "in_flight",
        "In flight",
        (figures) => figures.in_flight,
        (figures) => number(figures.in_flight),
      ),
      width: 80,
    },
  ];
}

function valueOf<From, To>(value: From | null, to: (value: From) => To): To | null {
  return value === null ? null : to(value);
}
