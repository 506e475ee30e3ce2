/**
 * The callers page: who is in the configuration, in which groups, which plugins know them, and whether they were here
 * within the last minute.
 */
import { ask, type CallersView, type ShownCaller } from "./api.ts";
import { askingFor } from "./asking.ts";
import { breakable, field, fixedBadge, link, loading, searchInput } from "./components.ts";
import { el, replace, setText } from "./dom.ts";
import { formLinks } from "./form_links.ts";
import { number } from "./format.ts";
import { knownBy } from "./known_by.ts";
import type { Frame, Known, OpenPage, Page } from "./page.ts";
import { viewIn } from "./table_rows.ts";
import { DataTable, fixedPart, keepInAddress, textPart, type Part } from "./tables.ts";
import { hashFor } from "./url_hash.ts";

const AGAIN_MS = 10_000;
/** Pause after a key before the gateway is asked. */
const SEARCH_AFTER_MS = 200;

export const page: OpenPage = (frame) => new CallersPage(frame);

class CallersPage implements Page {
  readonly title = "Callers";
  readonly node = el("div", { class: "stack" });
  readonly #table: DataTable<ShownCaller>;
  readonly #count = el("p", { class: "muted", role: "status" });
  readonly #input = searchInput({
    id: "search-callers",
    value: viewIn(location.hash, "callers").query,
    oninput: () => this.#search(),
  });
  readonly #changes: Part;
  readonly #ask;
  #askedAt = 0;
  #timer = 0;
  #digest: string | null = null;

  constructor(frame: Frame) {
    this.#changes = formLinks(frame, ["Add a caller", "caller"]);
    const read = () =>
      ask<CallersView>("GET", `/gateway/callers?${new URLSearchParams({ search: this.#input.value })}`);
    this.#ask = askingFor({ frame, what: "The callers", node: this.node, ask: read, show: (view) => this.#show(view) });
    this.#table = new DataTable<ShownCaller>({
      name: "callers",
      caption: "Callers",
      nouns: ["caller", "callers"],
      keyOf: ({ id }) => id,
      searchText: ({ id, groups }) => [id, ...groups].join(" "),
      searchable: false,
      empty: el("p", {}, "No callers: “callers” and “caller_files” of the configuration name them."),
      columns: [
        {
          key: "id",
          title: "Caller",
          sortBy: ({ id }) => id,
          make: ({ id }) => fixedPart(link(hashFor("callers", id), ...breakable(id))),
        },
        {
          key: "groups",
          title: "Groups",
          sortBy: ({ groups }) => groups.join(),
          make: ({ groups }) => textPart(() => groups.join(", ") || "–"),
        },
        {
          key: "enabled",
          title: "State",
          width: 85,
          sortBy: ({ enabled }) => Number(enabled),
          make: ({ enabled }) => fixedPart(fixedBadge(enabled ? "good" : "idle", enabled ? "On" : "Off")),
        },
        {
          key: "key_ends",
          title: "Key ends",
          width: 110,
          drop: 2,
          sortBy: ({ key_ends }) => key_ends ?? "~",
          make: ({ key_ends }) => textPart(() => (key_ends == null ? "–" : key_ends.slice(0, 10))),
        },
        {
          key: "plugins",
          title: "Known by",
          className: "wide",
          drop: 1,
          sortBy: ({ plugins }) => plugins.length,
          make: knownBy,
        },
        {
          key: "used",
          title: "Last minute",
          width: 110,
          sortBy: ({ used }) => Number(used),
          make: ({ used }) => textPart(() => (used ? "used" : "–")),
        },
      ],
    });
    replace(this.node, loading("the callers"));
  }

  update({ status }: Known): void {
    const now = performance.now();
    this.#changes.refresh();
    if (status === null || (status.digest === this.#digest && now - this.#askedAt < AGAIN_MS)) return;
    this.#digest = status.digest;
    this.#askedAt = now;
    void this.#ask();
  }

  #search(): void {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => {
      // By then the page may have been left.
      if (!this.node.isConnected) return;
      keepInAddress("callers", { query: this.#input.value });
      void this.#ask();
    }, SEARCH_AFTER_MS);
  }

  #show({ total, matching, callers }: CallersView): void {
    const left = matching - callers.length;
    setText(
      this.#count,
      `${number(matching)} of ${number(total)}${left > 0 ? `, the first ${number(callers.length)} are here` : ""}`,
    );
    const search = total > 0 && field("Search callers and groups", this.#input);
    const tools = el("div", { class: "toolbar toolbar--apart" }, search, total > 0 && this.#count, this.#changes.node);
    // The field that has the focus stays where it is.
    if (!this.#table.node.isConnected || this.#input.isConnected !== total > 0)
      replace(this.node, el("div", { class: "card stack" }, tools, this.#table.node));
    // Rows are drawn anew: a link that has the focus would lose it.
    if (this.#table.node.querySelector("tbody :focus") === null) this.#table.show(callers);
  }
}
