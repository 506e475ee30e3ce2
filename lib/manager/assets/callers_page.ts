/**
 * The callers page: who is in the configuration, in which groups, which plugins know them, and whether they were here
 * within the last minute.
 */
import { ask, type CallersView, type ShownCaller } from "./api.ts";
import { askingFor } from "./asking.ts";
import { field, fixedBadge, loading, searchInput } from "./components.ts";
import { el, replace, setText } from "./dom.ts";
import { number } from "./format.ts";
import { knownBy } from "./known_by.ts";
import type { OpenPage } from "./page.ts";
import { viewIn } from "./table_rows.ts";
import { DataTable, fixedPart, keepInAddress, linkColumn, textColumn, type Column } from "./tables.ts";
import { hashFor, hashForForm } from "./url_hash.ts";

const AGAIN_MS = 10_000;
/** Pause after a key before the gateway is asked. */
const SEARCH_AFTER_MS = 200;
/** Plugins that a row names. */
const MAX_PLUGINS = 3;

const COLUMNS: readonly Column<ShownCaller>[] = [
  linkColumn(
    { key: "id", title: "Caller" },
    ({ id }) => id,
    ({ id }) => hashFor("callers", id),
  ),
  textColumn({ key: "groups", title: "Groups" }, ({ groups }) => groups.join(", ")),
  {
    key: "enabled",
    title: "State",
    width: 85,
    sortBy: ({ enabled }) => Number(enabled),
    make: ({ enabled }) => fixedPart(fixedBadge(enabled ? "good" : "idle", enabled ? "On" : "Off")),
  },
  textColumn(
    { key: "key_ends", title: "Key ends", width: 110, drop: 2 },
    ({ key_ends: end }) => end?.slice(0, 10) ?? null,
  ),
  {
    key: "plugins",
    title: "Known by",
    className: "wide",
    drop: 1,
    sortBy: ({ plugins }) => plugins.length,
    make: (caller) => knownBy(caller, MAX_PLUGINS),
  },
  textColumn({ key: "used", title: "Last minute", width: 110 }, ({ used }) => (used ? "used" : null)),
];

export const page: OpenPage = (frame) => {
  const node = el("div", { class: "stack" });
  const count = el("p", { class: "muted", role: "status" });
  const { query } = viewIn(location.hash, "callers");
  const input = searchInput({ id: "search-callers", value: query, oninput: search });
  const add = el("a", { class: "button", href: hashForForm("caller") }, "Add a caller");
  const table = new DataTable<ShownCaller>({
    name: "callers",
    caption: "Callers",
    nouns: ["caller", "callers"],
    searchable: false,
    columns: COLUMNS,
    keyOf: ({ id }) => id,
    searchText: () => "",
    empty: el("p", {}, "No callers: “callers” and “caller_files” of the configuration name them."),
  });
  const read = () => ask<CallersView>("GET", `/gateway/callers?${new URLSearchParams({ search: input.value })}`);
  const load = askingFor({ frame, what: "The callers", node, ask: read, show });
  let askedAt = 0;
  let timer = 0;
  let digest: string | null = null;
  replace(node, loading("the callers"));
  return {
    title: "Callers",
    node,
    update({ status }) {
      const now = performance.now();
      add.hidden = frame.session?.write !== true;
      if (status === null || (status.digest === digest && now - askedAt < AGAIN_MS)) return;
      digest = status.digest;
      askedAt = now;
      void load();
    },
  };

  function search(): void {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      // By then the page may have been left.
      if (!node.isConnected) return;
      keepInAddress("callers", { query: input.value });
      void load();
    }, SEARCH_AFTER_MS);
  }

  function show({ total, matching, callers }: CallersView): void {
    const rest = matching > callers.length ? `, the first ${number(callers.length)} are here` : "";
    setText(count, `${number(matching)} of ${number(total)}${rest}`);
    const searching = total > 0 && field("Search callers and groups", input);
    const tools = el("div", { class: "toolbar toolbar--apart" }, searching, total > 0 && count, add);
    // The field that has the focus stays where it is.
    if (!table.node.isConnected || input.isConnected !== total > 0)
      replace(node, el("div", { class: "card stack" }, tools, table.node));
    // Rows are drawn anew: a link that has the focus would lose it.
    if (table.node.querySelector("tbody :focus") === null) table.show(callers);
  }
};
