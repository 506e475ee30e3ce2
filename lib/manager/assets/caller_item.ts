/**
 * The page of one caller: when it was here last, what is left of its limits, and what changes it.
 */
import { ageOf } from "./ages.ts";
import { ApiError, ask, type CallerLimit, type OneCaller } from "./api.ts";
import { askingFor } from "./asking.ts";
import { factList, fixedBadge, link, loading, missing, section, slot } from "./components.ts";
import { el, replace, setText, whenChanged } from "./dom.ts";
import { failures, usedRoutes } from "./failures.ts";
import { counted, moment, number } from "./format.ts";
import { editTab, itemPart, settingsTab, stackOf, trafficTab, type Item } from "./item_page.ts";
import { knownBy } from "./known_by.ts";
import type { Frame, OpenPage } from "./page.ts";
import { DataTable, fixedPart, numberColumn, textPart, type Part } from "./tables.ts";
import { hashForPlace } from "./url_hash.ts";

const AGAIN_MS = 5_000;

/** A window of a limit, which has a row. */
type Row = Omit<CallerLimit, "windows"> & CallerLimit["windows"][number];

export const onePage: OpenPage = (frame, [id = ""]) => {
  const content = slot();
  content.put(loading("the caller"));
  let caller: OneCaller | null = null;
  let part: Part | null = null;
  const none = missing(`caller “${id}”`, "#/callers", "All callers");
  let dueAt = 0;
  const asked = askingFor<OneCaller | null>({
    ...{ frame, what: "The caller", node: content.node },
    ask: () => ask<OneCaller>("GET", `/gateway/caller?${new URLSearchParams({ id })}`).catch(unlessMissing),
    show(found) {
      caller = found;
      if (found !== null)
        part ??= itemPart(
          frame,
          itemOf(frame, id, () => caller ?? found),
        );
      content.put(found === null ? none : part!.node);
      if (found !== null) part!.refresh();
    },
  });
  return {
    title: `Caller ${id}`,
    node: content.node,
    hasTabs: true,
    update({ status }) {
      const now = performance.now();
      if (caller !== null) part?.refresh();
      if (status === null || now < dueAt) return;
      dueAt = now + AGAIN_MS;
      void asked();
    },
  };
};

/** `now`: as the gateway has answered last. */
function itemOf(frame: Frame, id: string, now: () => OneCaller): Item {
  const of = { caller: id };
  return {
    ...{ name: id, of, crumbs: [["#/callers", "Callers"]] },
    head: [
      drawn(now, ({ enabled, last_seen: seen }) => [
        factList([
          ["State", enabled ? fixedBadge("good", "On") : fixedBadge("idle", "Off: it is refused")],
          ["Last seen", seen === null ? "not since the start" : ageOf(seen)],
        ]),
      ]),
    ],
    tabs: {
      Traffic: () => trafficTab(of, () => now().figures, limitsOf(now)),
      Failures: () => failures(of),
      Path: () =>
        stackOf(
          drawn(now, (caller) => [factList([["Known by", knownBy(caller).node]])]),
          usedRoutes(of),
        ),
      Settings: () => {
        const facts = drawn(now, ({ groups, file, keys, key_ends: ends }) => [
          factList([
            ["Groups", groups.join(", ") || "–"],
            ["Keys", `${counted(keys, "key")}${ends == null ? "" : `, the next one ends ${moment(ends)}`}`],
            ["Written in", file ?? "the configuration"],
          ]),
        ]);
        return now().file === null ? settingsTab(frame, of, facts) : facts;
      },
      Edit: () => {
        const { file } = now();
        if (file !== null) return stackOf(el("p", { class: "card" }, `It is written in ${file}: change it there.`));
        return editTab(of, ["Add a key, and let the others end", "key", id], ["Enable or disable", "caller_state", id]);
      },
    },
  };
}

/** A card that is drawn again when the caller has changed, unless something in it has the focus. */
function drawn(now: () => OneCaller, contentOf: (caller: OneCaller) => readonly Node[]): Part {
  const node = el("div", { class: "card" });
  const draw = whenChanged((caller: OneCaller) => replace(node, ...contentOf(caller)));
  return { node, refresh: () => void (node.contains(document.activeElement) || draw(now())) };
}

function limitsOf(now: () => OneCaller): Part {
  const table = limitTable();
  const note = el("p", { class: "muted" });
  return {
    node: section("Limits", note, el("div", { class: "card" }, table.node)),
    refresh() {
      // Rows are drawn anew: a link that has the focus would lose it.
      if (table.node.contains(document.activeElement)) return;
      const { counters, limits, limits_total: total } = now();
      note.hidden = counters === "memory" && total <= limits.length;
      setText(
        note,
        counters === "redis"
          ? "Limits that count in Redis are not listed."
          : `The ${number(limits.length)} of which most is used, of ${number(total)}.`,
      );
      table.show(limits.flatMap(({ windows, ...limit }) => windows.map((window) => ({ ...limit, ...window }))));
    },
  };
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
