/**
 * A table with search and sorting, fast with thousands of rows: a row is created once, later only changed texts are
 * written.
 */
import type { Figures, TryFigures } from "./api.ts";
import { breakable, field, link, searchInput } from "./components.ts";
import { el, setText, type Child } from "./dom.ts";
import { milliseconds, number, percent } from "./format.ts";
import { clientErrorShare, errorShare, refusalsText } from "./inventory.ts";
import { sorted, countText, matches, viewIn, withView, type SortValue, type View } from "./table_rows.ts";
import { pathIn } from "./url_hash.ts";

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
  /** Left out where the table does not fit: 1 first, 3 last. Default: never. */
  readonly drop?: 1 | 2 | 3;
  sortBy(row: Row): SortValue;
  make(row: Row): Part;
}

interface TableOptions<Row> {
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
  searchText(row: Row): string;
  /** Shown in place of the table when there are no rows. */
  readonly empty: Child;
  /** False: without a search field, as for a few rows on a detail page. */
  readonly searchable?: boolean;
}

/** Rows created initially: more than can be seen, and few enough for a search at each key. */
const FIRST_ROWS = 50;
/** Pause after a change before the search and order go into the address. */
const SAVE_AFTER_MS = 150;
/** Larger tables are sorted again at most this often: moving a thousand rows each second is slow. */
const RESORT_MS = 5000;
/** Margin around the visible part. */
const NEAR_MARGIN = "600px";
const MIN_WIDTH = 112;
const NUMBER_WIDTH = 66;
/** Below it, and where not even the columns that stay fit, each row is a card with all of them. */
const LEAST_WIDTH = 560;

interface MadeRow {
  readonly tr: HTMLTableRowElement;
  readonly parts: readonly Part[];
}

interface Entry<Row> {
  readonly key: string;
  readonly row: Row;
  /** Null: nobody has searched yet. */
  searchText: string | null;
}

export class DataTable<Row> {
  readonly node: HTMLElement;
  readonly #options: TableOptions<Row>;
  readonly #el: ReturnType<typeof tableElements<Row>>;
  #view: View;
  #lastRows: readonly Row[] | null = null;
  #entries: readonly Entry<Row>[] = [];
  #shown: readonly Entry<Row>[] = [];
  #found = 0;
  #arrangedAt = 0;
  #saveTimer: ReturnType<typeof setTimeout> | undefined;
  readonly #page = pathIn(location.hash);
  readonly #made = new Map<string, MadeRow>();
  readonly #rows = new WeakMap<Element, MadeRow>();
  readonly #near = new Set<Element>();
  readonly #watch = new IntersectionObserver((changes) => this.#onIntersection(changes), { rootMargin: NEAR_MARGIN });

  constructor(options: TableOptions<Row>) {
    this.#options = options;
    const view = viewIn(location.hash, options.name);
    this.#view = options.searchable === false ? { ...view, query: "" } : view;
    this.#el = tableElements(options);
    const { node, input, headers, more, clear } = this.#el;
    this.node = node;
    new ResizeObserver(([change]) => this.#fit(change!.contentRect.width)).observe(node);
    input.value = this.#view.query;
    input.addEventListener("input", () => this.#search(input.value));
    input.addEventListener("change", () => this.#saveView());
    for (const { column, sorter } of headers) sorter.addEventListener("click", () => this.#sortBy(column));
    more.addEventListener("click", () => this.#showAll());
    clear.addEventListener("click", () => this.#clearSearch());
  }

  /** Rows are identified by their keys; the same array again only refreshes them. */
  show(next: readonly Row[]): void {
    if (next === this.#lastRows) {
      const column = this.#options.columns.find(({ key }) => key === this.#view.sort?.key);
      const due = this.#shown.length <= FIRST_ROWS || performance.now() - this.#arrangedAt >= RESORT_MS;
      if (column !== undefined && isLive(column.kind) && due && !this.#isInUse()) this.#arrangeRows();
      else for (const { key } of this.#shown) this.#refreshNear(this.#made.get(key)!);
      return;
    }
    this.#lastRows = next;
    this.#made.clear();
    this.#near.clear();
    this.#watch.disconnect();
    this.#entries = next.map((row) => ({ key: this.#options.keyOf(row), row, searchText: null }));
    this.#arrangeRows();
  }

  /** Leaves out as few columns as possible. */
  #fit(width: number): void {
    const { columns } = this.#options;
    const { table } = this.#el;
    const widths = [0, 1, 2, 3].map((level) =>
      columns.filter(({ drop = 4 }) => drop > level).reduce((sum, column) => sum + (widthOf(column) ?? MIN_WIDTH), 0),
    );
    const level = width < LEAST_WIDTH ? -1 : widths.findIndex((least) => least <= width);
    table.className = level < 0 ? "table table--cards" : `table table--less-${level}`;
    table.style.setProperty("--table-width", `${widths[level] ?? 0}px`);
  }

  #search(query: string): void {
    this.#change({ ...this.#view, query });
  }

  #clearSearch(): void {
    this.#el.input.value = "";
    this.#search("");
    this.#el.input.focus();
  }

  #sortBy({ key, kind }: Column<Row>): void {
    const descending = this.#view.sort?.key === key ? !this.#view.sort.descending : isLive(kind);
    this.#change({ ...this.#view, sort: { key, descending } });
  }

  #showAll(): void {
    const next = this.#shown.length;
    this.#change({ ...this.#view, all: true });
    // The button is removed, so the focus moves to the first new row.
    this.#el.body.rows[next]?.querySelector("a")?.focus();
  }

  #change(next: View): void {
    this.#view = next;
    clearTimeout(this.#saveTimer);
    this.#saveTimer = setTimeout(() => this.#saveView(), SAVE_AFTER_MS);
    this.#arrangeRows();
  }

  /** Browsers allow about a hundred changes of the history in half a minute: too few for one at each key. */
  #saveView(): void {
    if (this.#saveTimer === undefined) return;
    clearTimeout(this.#saveTimer);
    this.#saveTimer = undefined;
    // The address may belong to the next page already.
    if (!this.node.isConnected || pathIn(location.hash) !== this.#page) return;
    const { name, searchable } = this.#options;
    const { query, ...others } = this.#view;
    keepInAddress(name, searchable === false ? others : { query, ...others });
  }

  #arrangeRows(): void {
    this.#arrangedAt = performance.now();
    const sort = this.#view.sort;
    const column = this.#options.columns.find(({ key }) => key === sort?.key);
    const { query } = this.#view;
    const textOf = (entry: Entry<Row>) => (entry.searchText ??= this.#options.searchText(entry.row).toLowerCase());
    const matching = query === "" ? this.#entries : this.#entries.filter((entry) => matches(textOf(entry), query));
    const ordered =
      sort === null || column === undefined
        ? matching
        : sorted(matching, ({ row }) => column.sortBy(row), sort.descending);
    this.#found = ordered.length;
    this.#shown = this.#view.all ? ordered : ordered.slice(0, FIRST_ROWS);
    this.#placeRows();
    this.#updateTexts(column);
  }

  /** Moves only the rows whose place has changed; a moved row keeps the focus. */
  #placeRows(): void {
    const focused = this.#el.body.contains(document.activeElement) ? document.activeElement : null;
    const wanted = this.#shown.map((entry) => this.#rowOf(entry).tr);
    const stay = new Set(wanted);
    for (const tr of [...this.#el.body.rows]) if (!stay.has(tr)) tr.remove();
    let at = this.#el.body.firstElementChild;
    for (const tr of wanted) {
      if (tr === at) at = at.nextElementSibling;
      else this.#el.body.insertBefore(tr, at);
    }
    if (focused instanceof HTMLElement && this.#el.body.contains(focused) && document.activeElement !== focused)
      focused.focus({ preventScroll: true });
  }

  #rowOf({ key, row }: Entry<Row>): MadeRow {
    const there = this.#made.get(key);
    if (there !== undefined) {
      this.#refreshNear(there);
      return there;
    }
    const parts = this.#options.columns.map((column) => column.make(row));
    const cells = parts.map(({ node: content }, i) => {
      const { kind, title, className = "", drop = 0 } = this.#options.columns[i]!;
      if (i === 0) return el("th", { scope: "row", role: "rowheader" }, content);
      return el(
        "td",
        { role: "cell", class: `${kind === "number" ? "num" : className} drop-${drop}`, "data-label": title },
        content,
      );
    });
    const fresh = { tr: el("tr", { role: "row" }, ...cells), parts };
    refresh(fresh);
    this.#made.set(key, fresh);
    this.#rows.set(fresh.tr, fresh);
    this.#watch.observe(fresh.tr);
    return fresh;
  }

  /** Only visible rows are kept up to date; other rows once they are scrolled near. */
  #refreshNear(row: MadeRow): void {
    if (this.#shown.length <= FIRST_ROWS || this.#near.has(row.tr)) refresh(row);
  }

  #onIntersection(changes: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting } of changes) {
      if (!isIntersecting) this.#near.delete(target);
      else if (!this.#near.has(target)) {
        this.#near.add(target);
        refresh(this.#rows.get(target)!);
      }
    }
  }

  #updateTexts(sortColumn: Column<Row> | undefined): void {
    for (const { column, th } of this.#el.headers) {
      const order = column !== sortColumn ? null : this.#view.sort?.descending === true ? "descending" : "ascending";
      if (order === null) th.removeAttribute("aria-sort");
      else th.setAttribute("aria-sort", order);
    }
    const none = this.#entries.length === 0;
    setText(this.#el.count, none ? "" : countText(this.#found, this.#entries.length, this.#options.nouns));
    this.#el.wrap.hidden = this.#found === 0;
    this.#el.nothing.hidden = none || this.#found > 0;
    this.#el.empty.hidden = !none;
    this.#el.toolbar.hidden = none;
    this.#el.more.hidden = this.#shown.length === this.#found;
    setText(
      this.#el.more,
      `Show all ${number(this.#found)} ${this.#options.nouns[1]} (the first ${number(this.#shown.length)} are here)`,
    );
    setText(this.#el.nothingText, `No ${this.#options.nouns[0]} matches “${this.#view.query.trim()}”.`);
  }

  /** While a row has the pointer or the focus, rows keep their places, so that a click hits the intended one. */
  #isInUse(): boolean {
    return (
      this.#el.body.contains(document.activeElement) ||
      (matchMedia("(hover: hover)").matches && this.#el.body.matches(":hover"))
    );
  }
}

function tableElements<Row>({
  name,
  caption,
  nouns,
  columns,
  empty: emptyContent,
  searchable = true,
}: TableOptions<Row>) {
  const input = searchInput({ id: `search-${name}` });
  const count = el("p", { class: "muted", role: "status" });
  const headers = columns.map((column) => {
    const sorter = el("button", { type: "button", class: "sort" }, column.title);
    return {
      column,
      sorter,
      th: el(
        "th",
        {
          scope: "col",
          role: "columnheader",
          class: `${column.kind === "number" ? "num " : ""}drop-${column.drop ?? 0}`,
        },
        sorter,
      ),
    };
  });
  // On narrow screens a row is a card, and browsers drop the table role of other layouts: so the roles are explicit.
  const body = el("tbody", { role: "rowgroup" });
  const head = el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...headers.map(({ th }) => th)));
  const table = el("table", { class: "table", role: "table", "aria-label": caption }, head, body);
  // Fixed widths: otherwise the browser measures every cell again when a number changes.
  for (const { column, th } of headers)
    if (widthOf(column) !== undefined) th.style.setProperty("width", `${widthOf(column)}px`);
  const wrap = el("div", { class: "table-wrap", role: "region", "aria-label": caption, tabindex: 0 }, table);
  const more = el("button", { type: "button", class: "button button--quiet data__more" });
  const nothingText = el("p", {});
  const clear = el("button", { type: "button", class: "button button--quiet" }, "Clear the search");
  const nothing = el("div", { class: "empty" }, nothingText, clear);
  const empty = el("div", { class: "empty" }, emptyContent);
  const toolbar = el("div", { class: "toolbar" }, field(`Search ${nouns[1]}`, input), count);
  const node = el("div", { class: "data" }, searchable && toolbar, wrap, more, nothing, empty);
  return { node, table, clear, input, count, body, wrap, more, nothingText, nothing, empty, toolbar, headers };
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

/** So that Back and a link lead to the same view. */
export function keepInAddress(table: string, view: Partial<View>): void {
  history.replaceState(history.state, "", withView(location.hash, table, view));
}

/** A text that may change. */
export function textPart(text: () => string, className: string | null = null): Part & { readonly node: HTMLElement } {
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
  return { node: el("span", {}, ...children), refresh: () => undefined };
}

type NamedColumn<Row> = Pick<Column<Row>, "key" | "title" | "width" | "drop" | "className">;

/** A column of texts that stay as they are, "–" where a row has none. */
export function textColumn<Row>(options: NamedColumn<Row>, textOf: (row: Row) => string | null): Column<Row> {
  return { ...options, sortBy: textOf, make: (row) => fixedPart(textOf(row) || "–") };
}

/** A column of names that lead somewhere. */
export function linkColumn<Row>(
  options: NamedColumn<Row>,
  nameOf: (row: Row) => string | null,
  hashOf: (row: Row) => string,
): Column<Row> {
  const shown = (row: Row) => nameOf(row) !== null && link(hashOf(row), ...breakable(nameOf(row)!));
  return { ...options, sortBy: nameOf, make: (row) => fixedPart(shown(row) || "–") };
}

/** A column of numbers, "–" where a row has none. `mark` gives the element of the text a colour or a title. */
export function numberColumn<Row>(
  options: Pick<Column<Row>, "key" | "title" | "width" | "drop">,
  valueOf: (row: Row) => number | null,
  format: (value: number) => string,
  mark?: (node: HTMLElement, row: Row) => void,
): Column<Row> {
  const textOf = (value: number | null) => (value === null ? "–" : format(value));
  return {
    ...options,
    kind: "number",
    sortBy: valueOf,
    make(row) {
      const part = textPart(() => textOf(valueOf(row)));
      return {
        node: part.node,
        refresh() {
          part.refresh();
          mark?.(part.node, row);
        },
      };
    },
  };
}

/** Columns for requests, errors, times and requests in flight; `others` behind the errors. */
export function figureColumns<Row>(
  figuresOf: (row: Row) => TryFigures | null,
  ...others: readonly Column<Row>[]
): readonly Column<Row>[] {
  const figure = (name: keyof TryFigures) => (row: Row) => figuresOf(row)?.[name] ?? null;
  const markErrors = (node: HTMLElement, row: Row) =>
    void node.classList.toggle("figure--bad", (figuresOf(row)?.errors_per_s ?? 0) > 0);
  return [
    numberColumn({ key: "requests", title: "Req/s" }, figure("requests_per_s"), number),
    numberColumn(
      { key: "errors", title: "Errors", width: 70 },
      (row) => valueOf(figuresOf(row), errorShare),
      percent,
      markErrors,
    ),
    ...others,
    numberColumn({ key: "p50_ms", title: "p50", drop: 1 }, figure("p50_ms"), milliseconds),
    numberColumn({ key: "p95_ms", title: "p95" }, figure("p95_ms"), milliseconds),
    numberColumn({ key: "p99_ms", title: "p99", drop: 2 }, figure("p99_ms"), milliseconds),
    numberColumn({ key: "in_flight", title: "In flight", width: 80, drop: 3 }, figure("in_flight"), number),
  ];
}

/** The share of replies with 4xx, with 401, 403 and 404 as the title of the cell. */
export function clientErrorColumn<Row>(figuresOf: (row: Row) => Figures | null): Column<Row> {
  const share = (row: Row) => valueOf(figuresOf(row), clientErrorShare);
  return numberColumn(
    { key: "client_errors", title: "4xx", width: 70 },
    share,
    percent,
    (node, row) => (node.title = refusalsText(figuresOf(row))),
  );
}

function valueOf<From, To>(value: From | null, to: (value: From) => To): To | null {
  return value === null ? null : to(value);
}
