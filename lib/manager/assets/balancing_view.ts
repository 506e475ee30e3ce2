/**
 * Shows how a service distributes its requests: as facts, and as a table of its groups of upstreams.
 */
import type { ServiceConfig, TryFigures } from "./api.ts";
import { splitText, strategyText, type Group } from "./balancing.ts";
import { breakable, stateBadge } from "./components.ts";
import { el, setText, type Child } from "./dom.ts";
import { percent } from "./format.ts";
import { usableLabel, type Label } from "./state_labels.ts";
import { DataTable, figureColumns, fixedPart, numberColumn, type Part } from "./tables.ts";

/** For `factList`. */
export function balancingFacts(service: ServiceConfig): readonly (readonly [string, Child] | null)[] {
  const { load_balancing_strategy: strategy, hash_balance_factor: factor, sticky, split = [] } = service;
  return [
    ["Strategy", el("span", {}, el("span", { class: "mono" }, strategy), el("span", { class: "muted sub" }, strategyText(service)))],
    factor === undefined || factor === 0 ? null : ["Balance factor", `${factor} % of the mean load: further requests go to another upstream`],
    sticky === undefined ? null : ["Sticky", stickyText(sticky)],
    split.length === 0 ? null : ["Split", el("div", {}, ...split.map((entry) => el("div", {}, splitText(entry))))],
  ];
}

function stickyText({ cookie, ttl_s: ttl }: NonNullable<ServiceConfig["sticky"]>): HTMLElement {
  return el("span", {}, "by the cookie ", el("span", { class: "mono" }, cookie), ttl === 0 ? ", until the browser is closed" : `, for ${ttl} s`);
}

/** The live state of a group. */
export interface GroupNow {
  figures(group: Group): TryFigures | null;
  /** 0 to 1; null: not known. */
  share(group: Group): number | null;
  /** Whether it gets what no split takes. */
  rest(group: Group): boolean;
  /** Whether each of its upstreams is usable; null: not known. */
  usable(group: Group): readonly { readonly usable: boolean }[] | null;
}

export function groupTable(now: GroupNow): DataTable<Group> {
  const labelOf = (group: Group): Label => usableLabel(now.usable(group), group.upstreams.length);
  return new DataTable<Group>({
    name: "groups",
    caption: "Groups",
    nouns: ["group", "groups"],
    searchable: false,
    keyOf: ({ group }) => JSON.stringify(group),
    searchText: ({ group }) => group ?? "",
    empty: null,
    columns: [
      { key: "group", title: "Group", sortBy: ({ group }) => group, make: ({ group }) => fixedPart(...(group === null ? ["no group"] : breakable(group))) },
      { key: "gets", title: "Gets", width: 190, className: "wide", drop: 3, sortBy: ({ rules }) => rules.join(), make: (row) => rulesPart(row, now) },
      { key: "upstreams", title: "Upstreams", kind: "state", width: 142, className: "half", sortBy: (row) => labelOf(row).tone, make: (row) => usablePart(() => labelOf(row)) },
      numberColumn({ key: "share", title: "Share" }, now.share, percent),
      ...figureColumns<Group>(now.figures),
    ],
  });
}

function rulesPart(group: Group, now: GroupNow): Part {
  const rest = el("span");
  const refresh = () => {
    const getsRest = now.rest(group);
    const isKnown = getsRest || now.usable(group) !== null;
    rest.className = getsRest ? "line" : "muted";
    setText(rest, getsRest ? group.rest : isKnown && group.rules.length === 0 ? "nothing: no split names it" : "");
  };
  return { node: el("span", {}, ...group.rules.map((rule) => el("span", { class: "line" }, rule)), rest), refresh };
}

function usablePart(label: () => Label): Part {
  const badge = stateBadge();
  return { node: badge.node, refresh: () => badge.set(label()) };
}
