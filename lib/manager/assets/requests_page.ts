/**
 * The page Requests: what became of the remembered requests, by filters that are in the address, with counts of what
 * else could be chosen and over time; live as a switch. A request opens beside the list, which stays.
 */
import { ask, isSessionEnd, messageOf, type AccessLine, type RequestList, type TailBatch } from "./api.ts";
import { asking } from "./asking.ts";
import { link, two } from "./components.ts";
import { button, el, replace, setText } from "./dom.ts";
import { milliseconds, moment, number } from "./format.ts";
import { plainTable } from "./live_tables.ts";
import type { Frame, OpenPage } from "./page.ts";
import { requestDrawer, type Drawer } from "./request_drawer.ts";
import { filterFields } from "./request_filters.ts";
import { histogram } from "./request_histogram.ts";
import { requestStream } from "./request_stream.ts";
import { filterIn, listedLine, type Filter, type ListedRequest } from "./requests_text.ts";
import { hashForRequests, queryIn } from "./url_hash.ts";

const COLUMNS = ["Time", "Status", "Request", "Client", "Took"];
/** Rows that a live list keeps, the newest first. */
const MAX_LIVE_ROWS = 500;
/** Counts of a live list are asked for again while requests arrive. */
const COUNTS_EVERY_MS = 5_000;

const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
});

/** The list that was shown last: Back finds it as it was. */
let last: { readonly user: string; readonly list: ListView } | null = null;

export const page: OpenPage = (frame) => openList(frame, null);
export const onePage: OpenPage = (frame, [id = ""]) => openList(frame, id);

/** Addresses of the page Tail lead to the live list. */
export const tailPage: OpenPage = () => {
  location.replace(hashForRequests({ ...filterIn(location.hash), live: "1" }));
  return { title: "Requests", node: el("div"), update() {} };
};

function openList(frame: Frame, id: string | null): ReturnType<OpenPage> {
  const user = frame.session?.user ?? "";
  // Entries of the history have a key once they were shown.
  const isReturn = typeof (history.state as { readonly key?: string } | null)?.key === "string";
  const isKept = isReturn && last?.user === user && last.list.hash === listHash();
  const list = isKept ? last!.list : new ListView(frame);
  last = { user, list };
  // The page that is left, which may show this list as well, is closed behind it.
  const visit = list.enter(id);
  return { title: "Requests", node: list.node, update: () => list.update(), close: () => list.leave(visit) };
}

/** The address of the list alone. */
function listHash(): string {
  return hashForRequests({ ...filterIn(location.hash), live: queryIn(location.hash).get("live") ?? "" });
}

class ListView {
  readonly node: HTMLElement;
  /** Of what it shows. */
  hash = listHash();
  readonly #frame: Frame;
  readonly #filters: ReturnType<typeof filterFields>;
  readonly #stream;
  readonly #note = el("p", { class: "muted", role: "status" }, "Waiting for requests…");
  readonly #table = plainTable("Requests that have ended, the newest first", COLUMNS, [4]);
  readonly #live = button("Follow live", () => this.#toggleLive(), "", { "aria-pressed": "false" });
  readonly #held = button("", () => this.#showHeld(), "small", { hidden: true });
  readonly #older = button("Show older", () => void this.#loadOlder(), "", { hidden: true });
  readonly #histogram = histogram((range) => this.#showRange(range));
  readonly #load: () => Promise<void>;
  readonly #count: () => Promise<void>;
  #before: string | null = null;
  #looked = 0;
  /** Rows that wait until nobody points at the list. */
  #waiting: readonly ListedRequest[] = [];
  /** What the stream has brought since the list was asked for, which may be without it. */
  #since: readonly ListedRequest[] = [];
  /** Requests of the live stream that fit, and those of them that it has shown. */
  #streamed = { matched: 0, shown: 0 };
  #timer = 0;
  #visits = 0;
  #countedAt = 0;
  #drawer: (Drawer & { readonly id: string }) | null = null;
  /** The drawer was opened from this list: Back closes it. */
  #isOpened = false;
  /** Gets the focus when the page is shown again. */
  #opener: HTMLElement | null = null;

  constructor(frame: Frame) {
    this.#frame = frame;
    this.#filters = filterFields(this.#filter, (ms) => this.#changeLater(ms));
    const missed = () => void this.#load();
    this.#stream = requestStream((batch) => this.#receive(batch), missed, this.#note);
    const { rows, node: table } = this.#table;
    rows.addEventListener("click", (event) => this.#onRowClick(event));
    for (const type of ["pointerleave", "focusout"]) table.addEventListener(type, () => this.#showHeld());
    const failed = (error: unknown): void => {
      if (isSessionEnd(error)) frame.showError(error);
      else setText(this.#note, messageOf(error));
    };
    const options = { node: this.#note, failed };
    this.#load = asking({
      ...options,
      ask: () => ((this.#since = []), this.#ask({})),
      show: (found) => this.#showAll(found),
    });
    this.#count = asking({
      ...options,
      ask: async () => ({ hash: this.hash, found: await this.#ask({ limit: "1" }) }),
      // Counts for another filter come with its list.
      show: ({ hash, found }) => hash === this.hash && this.#showCounts(found),
    });
    const list = el(
      "div",
      { class: "stack requests__list" },
      this.#filters.node,
      this.#histogram.node,
      el("div", { class: "toolbar" }, this.#live, this.#held, this.#note),
      table,
      el("p", {}, this.#older),
    );
    this.node = el("div", { class: "requests" }, list);
    this.#showLive();
    queueMicrotask(() => void this.#load());
  }

  enter(id: string | null): number {
    this.#follow();
    // What has ended since the list was left.
    if (this.#visits > 0 && this.#isLive) void this.#load();
    if (id !== (this.#drawer?.id ?? null)) this.#showDrawer(id);
    return ++this.#visits;
  }

  leave(visit: number): void {
    if (visit !== this.#visits) return;
    clearTimeout(this.#timer);
    this.#stream.follow(null);
  }

  update(): void {
    this.#drawer?.update();
    this.#filters.showNames();
    this.#opener?.focus();
    this.#opener = null;
  }

  get #filter(): Filter {
    return filterIn(this.hash);
  }

  /** What ends from now on ends after each `until`. */
  get #isLive(): boolean {
    return queryIn(this.hash).get("live") === "1" && this.#filter.until === undefined;
  }

  #ask(more: Readonly<Record<string, string>>): Promise<RequestList> {
    return ask<RequestList>("GET", `/gateway/requests?${new URLSearchParams({ ...this.#filter, ...more })}`);
  }

  /** Reads what ends from now on. */
  readonly #follow = (): void => this.#stream.follow(this.#isLive ? this.#filter : null);

  #toggleLive(): void {
    const isLive = !this.#isLive;
    if (isLive) this.#filters.set({ until: "" });
    this.#change(isLive ? "1" : "");
    this.#showLive();
    // What has ended meanwhile is in the list as well.
    if (this.#isLive) void this.#load();
    else this.#showHeld();
    this.#follow();
  }

  /** Of a bar of the histogram; null: all that is remembered. */
  #showRange(range: Filter | null): void {
    this.#filters.set(range ?? { since: "", until: "" });
    this.#changeLater(0);
  }

  #showLive(): void {
    this.#live.setAttribute("aria-pressed", String(this.#isLive));
  }

  #changeLater(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => {
      this.#change(this.#isLive ? "1" : "");
      this.#showLive();
      this.#follow();
      void this.#load();
    }, ms);
  }

  /** The address has all that is chosen; a request that is open stays so. */
  #change(isLive: string): void {
    const filter = { ...this.#filters.read(), live: isLive };
    this.hash = hashForRequests(filter);
    history.replaceState(history.state, "", hashForRequests(filter, this.#drawer?.id ?? null));
  }

  #showAll(found: RequestList): void {
    const { rows } = this.#table;
    const listed = new Set(found.requests.map(({ id }) => id));
    const since = this.#since.filter(({ id }) => !listed.has(id));
    const focused = rows.contains(document.activeElement) ? document.activeElement!.closest("tr")!.dataset.id : null;
    this.#waiting = [];
    this.#streamed = { matched: 0, shown: 0 };
    this.#held.hidden = true;
    replace(rows, ...[...since, ...found.requests].map((each) => this.#rowOf(each)));
    if (focused !== null) this.#openerOf(focused)?.focus();
    this.#showCounts(found);
    this.#showPlace(found);
  }

  #showPlace({ before }: RequestList): void {
    this.#before = before;
    this.#older.hidden = before === null;
  }

  async #loadOlder(): Promise<void> {
    const before = this.#before;
    if (before === null) return;
    try {
      const found = await this.#ask({ before });
      if (before !== this.#before || !this.node.isConnected) return;
      const { rows } = this.#table;
      const first = rows.children.length;
      rows.append(...found.requests.map((each) => this.#rowOf(each)));
      this.#looked += found.looked;
      this.#showPlace(found);
      setText(this.#note, `${number(rows.children.length)} shown; ${this.#lookedText(found.since)}`);
      rows.children[first]?.querySelector("a")?.focus();
    } catch (error) {
      this.#frame.showError(error);
    }
  }

  #showCounts(found: RequestList): void {
    this.#looked = found.looked;
    this.#countedAt = performance.now();
    this.#filters.showCounts(found.facets);
    this.#histogram.show(found, this.#filters.read());
    const { matched, shown } = this.#streamed;
    const missed = matched - shown;
    setText(
      this.#note,
      `${number(found.matching)} of ${this.#lookedText(found.since)}` +
        (missed > 0 ? ` ${number(missed)} are not in the list: the gateway sends 50 a second at most.` : ""),
    );
  }

  #lookedText(since: string | null): string {
    const latest = `the latest ${number(this.#looked)} requests`;
    return since === null ? "0 remembered requests." : `${latest}, since ${moment(since)}.`;
  }

  #receive({ matched, lines }: TailBatch): void {
    const { rows } = this.#table;
    const known = new Set(Array.from(rows.children, (row) => (row as HTMLElement).dataset.id));
    const fresh = lines.filter(({ request_id: id }: AccessLine) => !known.has(id)).map(listedLine);
    this.#streamed.matched += matched;
    this.#streamed.shown += lines.length;
    fresh.reverse();
    this.#waiting = [...fresh, ...this.#waiting].slice(0, MAX_LIVE_ROWS);
    this.#since = [...fresh, ...this.#since].slice(0, MAX_LIVE_ROWS);
    this.#showHeld();
    if (performance.now() - this.#countedAt < COUNTS_EVERY_MS) return;
    this.#countedAt = performance.now();
    void this.#count();
  }

  /** Rows stand still while somebody points at one of them, or has come to one by keyboard. */
  #showHeld(): void {
    const { rows } = this.#table;
    const isInUse = this.#isLive && (rows.matches(":hover") || rows.contains(document.activeElement));
    const isPressed = document.activeElement === this.#held;
    this.#held.hidden = this.#waiting.length === 0 || !isInUse;
    setText(this.#held, `Show ${number(this.#waiting.length)} new`);
    if (isInUse && !isPressed) return;
    rows.prepend(...this.#waiting.map((each) => this.#rowOf(each)));
    this.#waiting = [];
    this.#held.hidden = true;
    while (this.#isLive && rows.children.length > MAX_LIVE_ROWS) rows.lastElementChild!.remove();
  }

  #rowOf(each: ListedRequest): HTMLElement {
    const { id, time, status, code, method, path, service, route, client, caller, ms } = each;
    const failed = status === null || status >= 500;
    const opener = link(this.#hashOf(id), clock.format(Date.parse(time)));
    opener.title = id;
    const place = service === null ? "no service" : `${service} ${route ?? ""}`;
    const row = this.#table.rowOf([
      opener,
      two(el("span", { class: failed ? "figure--bad" : null }, status ?? "none"), code),
      two(el("span", { class: "mono" }, `${method ?? "?"} ${path ?? ""}`), place),
      two(client ?? "–", caller),
      milliseconds(ms),
    ]);
    row.dataset.id = id;
    this.#mark(row);
    return row;
  }

  #hashOf(id: string | null): string {
    return hashForRequests(Object.fromEntries(queryIn(this.hash)), id);
  }

  #mark(row: HTMLElement): void {
    row.toggleAttribute("data-open", row.dataset.id === this.#drawer?.id);
  }

  #onRowClick(event: MouseEvent): void {
    const row = (event.target as Element).closest<HTMLElement>("tr");
    const id = row?.dataset.id;
    if (id === undefined || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (String(getSelection()) !== "") return;
    event.preventDefault();
    const hash = this.#hashOf(id);
    // Back leads to the list, however many of its requests were looked at.
    if (this.#drawer === null) history.pushState({ key: String(Math.random()) }, "", hash);
    else history.replaceState(history.state, "", hash);
    this.#isOpened ||= this.#drawer === null;
    this.#showDrawer(id);
    this.#drawer!.node.querySelector("h2")!.focus();
  }

  #showDrawer(id: string | null): void {
    const before = this.#drawer;
    before?.node.remove();
    this.#drawer = id === null ? null : { id, ...requestDrawer(this.#frame, id, () => this.#close()) };
    this.node.toggleAttribute("data-open", id !== null);
    const rows = Array.from(this.#table.rows.children, (row) => row as HTMLElement);
    for (const row of rows) this.#mark(row);
    if (this.#drawer !== null) {
      this.node.append(this.#drawer.node);
      this.#drawer.update();
    } else if (before !== null) {
      this.#isOpened = false;
      this.#opener = this.#openerOf(before.id);
    }
  }

  #openerOf(id: string | undefined): HTMLElement | null {
    const rows = Array.from(this.#table.rows.children, (row) => row as HTMLElement);
    return rows.find((row) => row.dataset.id === id)?.querySelector("a") ?? null;
  }

  #close(): void {
    if (this.#isOpened) return history.back();
    history.replaceState(history.state, "", this.hash);
    this.#showDrawer(null);
    this.update();
  }
}
