/**
 * The page Requests: what became of the remembered requests, by filters that are in the address, with counts of what
 * else could be chosen and over time; live as a switch. A request opens beside the list, which stays.
 */
import { ask, isSessionEnd, messageOf, type AccessLine, type RequestList, type TailBatch } from "./api.ts";
import { asking } from "./asking.ts";
import { field, link } from "./components.ts";
import { button, el, replace, setText, svg, whenChanged, type Child } from "./dom.ts";
import { milliseconds, moment, number } from "./format.ts";
import { live } from "./live.ts";
import { plainTable } from "./live_tables.ts";
import type { Frame, OpenPage } from "./page.ts";
import { requestDrawer, type Drawer } from "./request_drawer.ts";
import {
  barsOf,
  filterIn,
  FILTERS,
  isChosen,
  listedLine,
  statusesText,
  stepText,
  toggled,
  type Filter,
  type FilterName,
  type ListedRequest,
} from "./requests_text.ts";
import { hashForRequests, queryIn } from "./url_hash.ts";

const COLUMNS = ["Time", "Status", "Request", "Client", "Took"];
/** Filters that are shown at once; the others on demand. */
const MAIN_FILTERS = 5;
/** Rows that a live list keeps, the newest first. */
const MAX_LIVE_ROWS = 500;
/** Pause after a key before the filters count. */
const FILTER_AFTER_MS = 400;
/** Counts of a live list are asked for again while requests arrive. */
const COUNTS_EVERY_MS = 5_000;
const AGAIN_MS = 5_000;
/** Counted values below a filter. */
const MAX_CHIPS = 3;
/** Names of the configuration that a filter offers. */
const MAX_NAMES = 200;
/** Below it the filters are closed at first. */
const WIDE = 800;
const BAR_HEIGHT = 48;

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
  readonly #note = el("p", { class: "muted", role: "status" }, "Waiting for requests…");
  readonly #table = plainTable("Requests that have ended, the newest first", COLUMNS, [4]);
  readonly #live = button("Follow live", () => this.#toggleLive(), "", { "aria-pressed": "false" });
  readonly #held = button("", () => this.#showHeld(), "small", { hidden: true });
  readonly #older = button("Show older", () => void this.#loadOlder(), "", { hidden: true });
  readonly #histogram = el("figure", { class: "card requests__time", hidden: true });
  readonly #load: () => Promise<void>;
  readonly #count: () => Promise<void>;
  #before: string | null = null;
  #looked = 0;
  /** Rows that wait until nobody points at the list. */
  #waiting: readonly ListedRequest[] = [];
  /** Requests of the live stream that fit, and those of them that it has shown. */
  #streamed = { matched: 0, shown: 0 };
  #source: EventSource | null = null;
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
    this.#filters = filterFields(filterIn(this.hash), (ms) => this.#changeLater(ms));
    const { rows, node: table } = this.#table;
    rows.addEventListener("click", (event) => this.#onRowClick(event));
    for (const type of ["pointerleave", "focusout"]) table.addEventListener(type, () => this.#showHeld());
    const failed = (error: unknown): void => {
      if (isSessionEnd(error)) frame.showError(error);
      else setText(this.#note, messageOf(error));
    };
    const options = { node: this.#note, failed };
    this.#load = asking({ ...options, ask: () => this.#ask({}), show: (found) => this.#showAll(found) });
    this.#count = asking({
      ...options,
      ask: () => this.#ask({ limit: "1" }),
      show: (found) => this.#showCounts(found),
    });
    const list = el(
      "div",
      { class: "stack requests__list" },
      this.#filters.node,
      this.#histogram,
      el("div", { class: "toolbar" }, this.#live, this.#held, this.#note),
      table,
      el("p", {}, this.#older),
    );
    this.node = el("div", { class: "requests" }, list);
    this.#showLive();
    queueMicrotask(() => void this.#load());
  }

  enter(id: string | null): number {
    document.addEventListener("visibilitychange", this.#follow);
    this.#follow();
    if (id !== (this.#drawer?.id ?? null)) this.#showDrawer(id);
    return ++this.#visits;
  }

  leave(visit: number): void {
    if (visit !== this.#visits) return;
    document.removeEventListener("visibilitychange", this.#follow);
    this.#stop();
  }

  update(): void {
    this.#drawer?.update();
    this.#filters.showNames();
    this.#opener?.focus();
    this.#opener = null;
  }

  get #isLive(): boolean {
    return queryIn(this.hash).get("live") === "1";
  }

  #query(more: Readonly<Record<string, string>>): string {
    return String(new URLSearchParams({ ...filterIn(this.hash), ...more }));
  }

  #ask(more: Readonly<Record<string, string>>): Promise<RequestList> {
    return ask<RequestList>("GET", `/gateway/requests?${this.#query(more)}`);
  }

  #stop(): void {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  /** Reads the live stream while the tab is visible. */
  readonly #follow = (): void => {
    this.#stop();
    if (document.hidden || !this.#isLive) return;
    this.#source = new EventSource(`api/gateway/tail?${this.#query({})}`);
    this.#source.addEventListener("lines", ({ data }: MessageEvent<string>) =>
      this.#receive(JSON.parse(data) as TailBatch),
    );
    this.#source.addEventListener("error", () => {
      setText(
        this.#note,
        "New requests cannot be read: a filter cannot be used, 32 others read them, or the connection is lost.",
      );
      // A broken stream the browser opens again by itself, one that was refused it does not.
      if (this.#source?.readyState === EventSource.CLOSED) this.#timer = window.setTimeout(this.#follow, AGAIN_MS);
    });
  };

  #toggleLive(): void {
    this.#change(this.#isLive ? "" : "1");
    this.#showLive();
    // What has ended meanwhile is in the list as well.
    if (this.#isLive) void this.#load();
    else this.#showHeld();
    this.#follow();
  }

  #showLive(): void {
    this.#live.setAttribute("aria-pressed", String(this.#isLive));
  }

  #changeLater(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => {
      this.#change(this.#isLive ? "1" : "");
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
    this.#waiting = [];
    this.#streamed = { matched: 0, shown: 0 };
    this.#held.hidden = true;
    replace(this.#table.rows, ...found.requests.map((each) => this.#rowOf(each)));
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
    this.#drawHistogram(found);
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
    this.#waiting = [...fresh.reverse(), ...this.#waiting].slice(0, MAX_LIVE_ROWS);
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

  #drawHistogram(found: RequestList): void {
    const { bars, places } = barsOf(found);
    this.#histogram.hidden = bars.length === 0;
    const drawn = bars.map(({ place, parts }) => {
      let y = BAR_HEIGHT;
      return svg(
        "g",
        {},
        ...parts.map((part, i) => {
          const height = part * BAR_HEIGHT;
          y -= height;
          return svg("rect", { class: `requests__bar-${i}`, x: place * 10 + 1, y, width: 8, height });
        }),
      );
    });
    const most = bars.reduce((highest, bar) => (bar.count > highest.count ? bar : highest), bars[0] ?? NO_BAR);
    const { histogram } = found;
    const all: Record<string, number> = {};
    for (const { status } of histogram.bars)
      for (const [name, count] of Object.entries(status)) all[name] = (all[name] ?? 0) + count;
    const frame = { viewBox: `0 0 ${Math.max(places, 12) * 10} ${BAR_HEIGHT}`, preserveAspectRatio: "none" };
    const peak = `At most ${number(most.count)} in ${stepText(histogram.step_s)}, at ${moment(most.at)}.`;
    replace(
      this.#histogram,
      svg("svg", { ...frame, "aria-hidden": "true" }, ...drawn),
      el("figcaption", { class: "muted" }, `Over time: ${statusesText(all)}. ${peak}`),
    );
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
      this.#opener = rows.find((row) => row.dataset.id === before.id)?.querySelector("a") ?? null;
    }
  }

  #close(): void {
    if (this.#isOpened) return history.back();
    history.replaceState(history.state, "", this.hash);
    this.#showDrawer(null);
    this.update();
  }
}

const NO_BAR = { count: 0, at: "" };

/** What clients send stays text. */
function two(first: Child, below: string | null): HTMLElement {
  return el("span", { class: "line" }, first, below !== null && el("span", { class: "sub muted" }, below));
}

function filterFields(given: Filter, changed: (afterMs: number) => void) {
  const fields = FILTERS.map(([name, label, example]) => {
    const options = el("datalist", { id: `requests-${name}-values` });
    const input = el("input", {
      id: `requests-${name}`,
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      value: given[name] ?? "",
      placeholder: example,
      list: options.id,
      oninput: () => changed(FILTER_AFTER_MS),
    });
    const chips = el("div", { class: "requests__chips" });
    return { name, input, options, chips, node: field(label, input, options, chips) };
  });
  const [main, others] = [fields.slice(0, MAIN_FILTERS), fields.slice(MAIN_FILTERS)];
  const grid = (some: typeof fields) => el("div", { class: "requests__filters" }, ...some.map(({ node }) => node));
  const isAsked = others.some(({ name }) => given[name] !== undefined);
  const more = el("details", { open: isAsked }, el("summary", {}, "More filters"), grid(others));
  const isOpen = innerWidth >= WIDE;
  const node = el("details", { class: "card", open: isOpen }, el("summary", {}, "Filters"), grid(main), more);
  let counts: RequestList["facets"] | null = null;
  const showNames = whenChanged(drawOptions, () => [live.known?.status?.digest, counts]);
  return {
    node: el("form", { onsubmit: (event: Event) => event.preventDefault() }, node),
    read: (): Filter =>
      Object.fromEntries(
        fields.flatMap(({ name, input }) => (input.value.trim() === "" ? [] : [[name, input.value.trim()]])),
      ),
    showNames,
    showCounts(facets: RequestList["facets"]): void {
      counts = facets;
      showNames();
      for (const { name, input, chips } of fields) {
        const focused = chips.contains(document.activeElement) ? document.activeElement!.getAttribute("title") : null;
        const made = valuesOf(name).map((value) => chipOf(name, input, value));
        replace(chips, ...made.slice(0, MAX_CHIPS));
        if (focused !== null) (made.find(({ title }) => title === focused) ?? input).focus();
        if (focused !== null && !chips.contains(document.activeElement)) input.focus();
      }
    },
  };

  function valuesOf(name: FilterName): readonly { readonly value: string; readonly count: number }[] {
    return counts === null || !Object.hasOwn(counts, name) ? [] : counts[name as keyof typeof counts].values;
  }

  function chipOf(name: FilterName, input: HTMLInputElement, { value, count }: { value: string; count: number }) {
    const pressed = String(isChosen(name, input.value.trim(), value));
    const choose = (): void => {
      input.value = toggled(name, input.value.trim(), value);
      changed(0);
    };
    return button(`${value} ${number(count)}`, choose, "small", { "aria-pressed": pressed, title: value });
  }

  /** Values that were counted, then names of the configuration. */
  function drawOptions(): void {
    const services = live.known?.config?.services ?? [];
    const chosen = fields.find(({ name }) => name === "service")!.input.value.trim();
    const shown = services.filter(({ name }) => chosen === "" || name === chosen);
    const names: Partial<Record<FilterName, readonly string[]>> = {
      service: services.map(({ name }) => name),
      route: shown.flatMap(({ routes }) => routes.map(({ name }) => name)),
      upstream: shown.flatMap(({ upstreams }) => upstreams.map(({ id }) => id)),
    };
    for (const { name, options } of fields) {
      const all = new Set([...valuesOf(name).map(({ value }) => value), ...(names[name] ?? [])]);
      replace(
        options,
        ...Array.from(all)
          .slice(0, MAX_NAMES)
          .map((value) => el("option", { value })),
      );
    }
  }
}
