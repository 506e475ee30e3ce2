/**
 * The page of one caller: when it was here last, what is left of its limits, and what changes it.
 */
import { ageOf } from "./ages.ts";
import { ApiError, ask, type OneCaller } from "./api.ts";
import { askingFor } from "./asking.ts";
import { factList, fixedBadge, link, loading, missing, slot } from "./components.ts";
import { el, replace, setText, whenChanged } from "./dom.ts";
import { failures, usedRoutes } from "./failures.ts";
import { counted, moment, number } from "./format.ts";
import { editTab, itemPart, settingsTab, stackOf, trafficTab, type Item } from "./item_page.ts";
import { knownBy } from "./known_by.ts";
import type { Frame, OpenPage } from "./page.ts";
import { liveTable } from "./live_tables.ts";
import type { Part } from "./tables.ts";
import { hashForPlace } from "./url_hash.ts";

const AGAIN_MS = 5_000;

export const onePage: OpenPage = (frame, [id = ""]) => {
  const content = slot();
  content.put(loading("the caller"));
  let caller: OneCaller | null = null;
  let part: Part | null = null;
  const none = missing(`caller “${id}”`, "#/callers", "All callers");
  let dueAt = 0;
  const asked = askingFor<OneCaller | null>({
    frame,
    what: "The caller",
    node: content.node,
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
    name: id,
    of,
    crumbs: [["#/callers", "Callers"]],
    head: [drawn(now, stateOf, "badges")],
    tabs: {
      Traffic: () => trafficTab(of, () => now().figures, limitsOf(now)),
      Failures: () => failures(of),
      Path: () => stackOf(drawn(now, known), usedRoutes(of)),
      Settings: () => {
        const facts = drawn(now, factsOf);
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

const stateOf = ({ enabled, last_seen: seen }: OneCaller) => [
  enabled ? fixedBadge("good", "On") : fixedBadge("idle", "Off: it is refused"),
  el("span", { class: "muted" }, ...(seen === null ? ["Not seen since the start"] : ["Last seen ", ageOf(seen)])),
];
const known = (caller: OneCaller) => [factList([["Known by", knownBy(caller).node]])];
const factsOf = ({ groups, file, keys, key_ends: ends }: OneCaller) => [
  factList([
    ["Groups", groups.join(", ") || "–"],
    ["Keys", `${counted(keys, "key")}${ends == null ? "" : `, the next one ends ${moment(ends)}`}`],
    ["Written in", file ?? "the configuration"],
  ]),
];

/** Is drawn again when the caller has changed, unless something in it has the focus. */
function drawn(now: () => OneCaller, contentOf: (caller: OneCaller) => readonly Node[], className = "card"): Part {
  const node = el("div", { class: className });
  const draw = whenChanged((caller: OneCaller) => replace(node, ...contentOf(caller)));
  return { node, refresh: () => void (node.contains(document.activeElement) || draw(now())) };
}

const LIMITS = ["Limit", "Of", "Per", "Used", "Left", "Allowed", "Gives back in"];

function limitsOf(now: () => OneCaller): Part {
  const table = liveTable("Limits", LIMITS, [3, 4, 5, 6]);
  const note = el("p", { class: "muted" });
  const draw = whenChanged(({ counters, limits, limits_total: total }: OneCaller) => {
    const rows = limits.flatMap(({ windows, ...limit }) => windows.map((window) => ({ ...limit, ...window })));
    table.show(rows, ({ kind, id, group, per, left, limit, reset_s: resetS, ...place }) => [
      el("span", { class: "kind" }, [kind, id, group && `of group ${group}`].filter(Boolean).join(" ")),
      link(hashForPlace(place), place.route ?? place.service ?? "all services"),
      per,
      el("span", { class: left === 0 ? "figure--bad" : null }, number(limit - left)),
      ...[number(left), number(limit), duration(resetS)],
    ]);
    const most = total > limits.length && `The ${number(limits.length)} of which most is used, of ${number(total)}.`;
    const none = total === 0 && "No rate limit and no quota has counted this caller.";
    setText(note, counters === "redis" ? "Limits that count in Redis are not listed." : most || none || "");
  });
  return {
    node: el("div", { class: "stack" }, table.node, note),
    // Rows are drawn anew: a link that has the focus would lose it.
    refresh: () => void (table.node.contains(document.activeElement) || draw(now())),
  };
}

function unlessMissing(error: unknown): null {
  if (error instanceof ApiError && error.status === 404) return null;
  throw error;
}

/** "40 s", "3 min", "5 h", "12 days" */
function duration(seconds: number): string {
  if (seconds < 120) return `${number(seconds)} s`;
  if (seconds < 7200) return `${number(Math.round(seconds / 60))} min`;
  return seconds < 172_800 ? `${number(Math.round(seconds / 3600))} h` : `${number(Math.round(seconds / 86_400))} days`;
}
