/**
 * Shows how a service distributes its requests: as facts, and as a table of its groups of upstreams.
 */
import { ageOf, timeUntil } from "./ages.ts";
import type { ServiceConfig, UpstreamHealth } from "./api.ts";
import { splitText, strategyText, type Group } from "./balancing.ts";
import { breakable, factList, stateBadge } from "./components.ts";
import { el, setText, type Child } from "./dom.ts";
import { moment, percent } from "./format.ts";
import { live } from "./live.ts";
import { usableLabel, type Label } from "./state_labels.ts";
import { DataTable, figureColumns, fixedPart, numberColumn, type Part } from "./tables.ts";

/** Which requests a service gets, and how it distributes them. */
export function serviceFacts(service: ServiceConfig): HTMLElement {
  const { load_balancing_strategy: strategy, hash_balance_factor: factor, sticky, split = [] } = service;
  const { base_path: basePath, hosts = [], protocol, plugins } = service;
  return factList([
    ["Base path", el("span", { class: "mono" }, basePath)],
    ["Hosts", hosts.length === 0 ? "all" : hosts.join(", ")],
    ["Protocol", protocol],
    ["Plugins of its own", plugins.map(({ name }) => name).join(", ") || "none"],
    [
      "Strategy",
      el(
        "span",
        {},
        el("span", { class: "mono" }, strategy),
        el("span", { class: "muted sub" }, strategyText(service)),
      ),
    ],
    factor === undefined || factor === 0
      ? null
      : ["Balance factor", `${factor} % of the mean load: further requests go to another upstream`],
    sticky === undefined ? null : ["Sticky", stickyText(sticky)],
    split.length === 0 ? null : ["Split", el("div", {}, ...split.map((entry) => el("div", {}, splitText(entry))))],
  ]);
}

/** Since when an upstream is in its state, until when and why. */
export type StateTimes = Pick<UpstreamHealth, "since" | "until" | "reason" | "admin_since">;

/** For `factList`. */
export function stateFacts({
  since,
  until,
  reason,
  admin_since: takenOut,
}: StateTimes): readonly (readonly [string, Child] | null)[] {
  const sinceThen = (at: string) => el("span", {}, moment(at), " (", ageOf(at), ")");
  return [
    takenOut === null ? null : ["Taken out since", sinceThen(takenOut)],
    since === null ? null : [takenOut === null ? "Since" : "Health since", sinceThen(since)],
    until === null ? null : ["Back", el("span", {}, moment(until), " (", timeUntil(until), ")")],
    reason === null ? null : ["Reason", reason],
  ];
}

function stickyText({ cookie, ttl_s: ttl }: NonNullable<ServiceConfig["sticky"]>): HTMLElement {
  return el(
    "span",
    {},
    "by the cookie ",
    el("span", { class: "mono" }, cookie),
    ttl === 0 ? ", until the browser is closed" : `, for ${ttl} s`,
  );
}

/** Whether each upstream of a group can be used; null: not known. */
function usableOf(service: ServiceConfig, { upstreams }: Group): readonly { readonly usable: boolean }[] | null {
  return (
    live.health(service.name) &&
    upstreams.map(({ id }) => ({ usable: live.upstream(service.name, id)?.usable ?? false }))
  );
}

export function groupTable(service: ServiceConfig): DataTable<Group> {
  const labelOf = (group: Group): Label => usableLabel(usableOf(service, group), group.upstreams.length);
  const shareOf = ({ upstreams }: Group) =>
    upstreams.reduce((sum, { id }) => sum + (live.share(service, id)?.share ?? 0), 0);
  return new DataTable<Group>({
    name: "groups",
    caption: "Groups",
    nouns: ["group", "groups"],
    searchable: false,
    keyOf: ({ group }) => JSON.stringify(group),
    searchText: ({ group }) => group ?? "",
    empty: null,
    columns: [
      {
        key: "group",
        title: "Group",
        sortBy: ({ group }) => group,
        make: ({ group }) => fixedPart(...(group === null ? ["no group"] : breakable(group))),
      },
      {
        key: "gets",
        title: "Gets",
        width: 190,
        className: "wide",
        drop: 3,
        sortBy: ({ rules }) => rules.join(),
        make: (row) => rulesPart(row, service),
      },
      {
        key: "upstreams",
        title: "Upstreams",
        kind: "state",
        width: 142,
        className: "half",
        sortBy: (row) => labelOf(row).tone,
        make: (row) => usablePart(() => labelOf(row)),
      },
      numberColumn({ key: "share", title: "Share" }, shareOf, percent),
      ...figureColumns<Group>(({ group }) => live.figures.group(service.name, group)),
    ],
  });
}

function rulesPart(group: Group, service: ServiceConfig): Part {
  const rest = el("span");
  const refresh = () => {
    const getsRest = group.upstreams.some(({ id }) => live.upstream(service.name, id)?.rest === true);
    const isKnown = getsRest || usableOf(service, group) !== null;
    rest.className = getsRest ? "line" : "muted";
    setText(rest, getsRest ? group.rest : isKnown && group.rules.length === 0 ? "nothing: no split names it" : "");
  };
  return { node: el("span", {}, ...group.rules.map((rule) => el("span", { class: "line" }, rule)), rest), refresh };
}

function usablePart(label: () => Label): Part {
  const badge = stateBadge();
  return { node: badge.node, refresh: () => badge.set(label()) };
}
