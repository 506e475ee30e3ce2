/**
 * The page of one caller: when it was here last, what is left of its limits, and what changes it.
 */
import { ageOf } from "./ages.ts";
import { ApiError, ask, type CallerLimit, type OneCaller } from "./api.ts";
import { askingFor } from "./asking.ts";
import { breadcrumbs, factList, fixedBadge, link, loading, missing, section } from "./components.ts";
import { el, replace } from "./dom.ts";
import { formLinks } from "./form_links.ts";
import { counted, moment, number } from "./format.ts";
import { knownBy } from "./known_by.ts";
import type { Frame, Known, OpenPage, Page } from "./page.ts";
import { DataTable, fixedPart, numberColumn, textPart } from "./tables.ts";
import { hashForPlace } from "./url_hash.ts";

const AGAIN_MS = 5_000;

export const onePage: OpenPage = (frame, [id = ""]) => new CallerPage(frame, id);

/** A window of a limit, which has a row. */
type Row = Omit<CallerLimit, "windows"> & CallerLimit["windows"][number];

class CallerPage implements Page {
  readonly title: string;
  readonly node = el("div", { class: "stack" });
  readonly #id: string;
  readonly #changes;
  /** A form changes the configuration itself: it has no caller of another file. */
  readonly #forms = el("span");
  readonly #ask;
  readonly #limits = limitTable();
  readonly #facts = el("div");
  readonly #note = el("p", { class: "muted" });
  readonly #found: HTMLElement;
  #dueAt = 0;

  constructor(frame: Frame, id: string) {
    this.title = `Caller ${id}`;
    this.#id = id;
    this.#changes = formLinks(frame, ["Add a key", "key", id], ["Enable or disable", "caller_state", id]);
    const requests = `#/requests?${new URLSearchParams({ caller: id })}`;
    replace(this.#forms, this.#changes.node);
    const tools = el(
      "span",
      { class: "badges" },
      this.#forms,
      el("a", { class: "button", href: requests }, "Requests"),
    );
    this.#found = el(
      "div",
      { class: "stack" },
      el("div", { class: "toolbar toolbar--apart" }, breadcrumbs([["#/callers", "Callers"]], id), tools),
      el("div", { class: "card" }, this.#facts),
      section("Limits", this.#note, el("div", { class: "card" }, this.#limits.node)),
    );
    this.#ask = askingFor<OneCaller | null>({
      ...{ frame, what: "The caller", node: this.node },
      ask: () => ask<OneCaller>("GET", `/gateway/caller?${new URLSearchParams({ id })}`).catch(unlessMissing),
      show: (caller) => this.#show(caller),
    });
    replace(this.node, loading("the caller"));
  }

  update({ status }: Known): void {
    this.#changes.refresh();
    const now = performance.now();
    if (status === null || now < this.#dueAt) return;
    this.#dueAt = now + AGAIN_MS;
    void this.#ask();
  }

  #show(caller: OneCaller | null): void {
    if (caller === null) return replace(this.node, missing(`caller “${this.#id}”`, "#/callers", "All callers"));
    const { groups, enabled, file, keys, key_ends: ends, last_seen: seen, limits, limits_total: total } = caller;
    this.#forms.hidden = file !== null;
    const ending = ends == null ? "" : `, the next one ends ${moment(ends)}`;
    const facts = factList([
      ["State", enabled ? fixedBadge("good", "On") : fixedBadge("idle", "Off: it is refused")],
      ["Groups", groups.join(", ") || "–"],
      ["Keys", `${counted(keys, "key")}${ending}`],
      ["Written in", file ?? "the configuration"],
      ["Last seen", seen === null ? "not since the start" : ageOf(seen)],
      ["Known by", knownBy(caller).node],
    ]);
    // What has the focus stays.
    if (!this.#facts.contains(document.activeElement)) replace(this.#facts, facts);
    this.#note.hidden = caller.counters === "memory" && total <= limits.length;
    this.#note.textContent =
      caller.counters === "redis"
        ? "Limits that count in Redis are not listed."
        : `The ${number(limits.length)} of which most is used, of ${number(total)}.`;
    this.#limits.show(limits.flatMap(({ windows, ...limit }) => windows.map((window) => ({ ...limit, ...window }))));
    if (!this.#found.isConnected) replace(this.node, this.#found);
  }
}

function unlessMissing(error: unknown): null {
  if (error instanceof ApiError && error.status === 404) return null;
  throw error;
}

function limitTable(): DataTable<Row> {
  const used = ({ limit, left }: Row) => limit - left;
  return new DataTable<Row>({
    ...{ name: "limits", caption: "Limits", nouns: ["limit", "limits"], searchable: false },
    keyOf: ({ kind, level, service, route, id, per }) => JSON.stringify([kind, level, service, route, id, per]),
    searchText: ({ kind }) => kind,
    empty: el("p", {}, "No rate limit and no quota has counted this caller."),
    columns: [
      {
        ...{ key: "kind", title: "Limit", sortBy: ({ kind, id }) => `${kind} ${id ?? ""}` },
        make: ({ kind, id, group }) =>
          textPart(() => [kind, id, group && `of group ${group}`].filter(Boolean).join(" "), "kind"),
      },
      {
        ...{ key: "place", title: "Of", sortBy: ({ service, route }) => `${service ?? ""} ${route ?? ""}` },
        make: (row) => fixedPart(link(hashForPlace(row), row.route ?? row.service ?? "all services")),
      },
      { key: "per", title: "Per", width: 80, sortBy: ({ per }) => per, make: ({ per }) => textPart(() => per) },
      numberColumn<Row>({ key: "used", title: "Used" }, used, number, (node, row) =>
        node.classList.toggle("figure--bad", row.left === 0),
      ),
      numberColumn<Row>({ key: "left", title: "Left" }, ({ left }) => left, number),
      numberColumn<Row>({ key: "limit", title: "Limit", drop: 1 }, ({ limit }) => limit, number),
      numberColumn<Row>({ key: "reset", title: "Gives back in", width: 120, drop: 2 }, ({ reset_s: s }) => s, duration),
    ],
  });
}

/** "40 s", "3 min", "5 h", "12 days" */
function duration(seconds: number): string {
  if (seconds < 120) return `${number(seconds)} s`;
  if (seconds < 7200) return `${number(Math.round(seconds / 60))} min`;
  return seconds < 172_800 ? `${number(Math.round(seconds / 3600))} h` : `${number(Math.round(seconds / 86_400))} days`;
}
