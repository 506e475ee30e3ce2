/**
 * The upstreams page: all upstreams in a table, and each on a separate page with its state, traffic and response times.
 */
import type { ServiceConfig, TryFigures, UpstreamConfig, UpstreamHealth } from "./api.ts";
import { circuitLabel, upstreamLabel } from "./state_labels.ts";
import { detailPage, listPage, serviceColumn, type Detail } from "./configured_pages.ts";
import { el, replace, setText, whenChanged } from "./dom.ts";
import { ago, percent, until } from "./format.ts";
import { failures } from "./failures.ts";
import { figureCharts } from "./figure_charts.ts";
import { formLinks } from "./form_links.ts";
import { hashFor } from "./url_hash.ts";
import { balancingFacts, stateFacts, type StateTimes } from "./balancing_view.ts";
import type { Share } from "./balancing.ts";
import { addressOf } from "./inventory.ts";
import { live } from "./live.ts";
import type { Frame, OpenPage } from "./page.ts";
import {
  breakable,
  breadcrumbs,
  factList,
  figureStrip,
  groupBadge,
  link,
  section,
  setOptional,
  settingsList,
  stateBadge,
} from "./components.ts";
import { upstreamActions } from "./upstream_actions.ts";
import { DataTable, figureColumns, fixedPart, numberColumn, type Part } from "./tables.ts";

/** One upstream of one service. */
export interface UpstreamRow {
  readonly service: ServiceConfig;
  readonly upstream: UpstreamConfig;
}

export const page: OpenPage = () => {
  const note = el(
    "p",
    { class: "muted" },
    "Share is an upstream's part of the traffic of its service; without traffic, it follows from splits and weights.",
  );
  const table = upstreamTable({ searchable: true });
  return listPage({
    title: "Upstreams",
    table,
    rowsOf: ({ services }) => upstreamRows(services),
    shown: "busy",
    below: note,
  });
};

export function upstreamRows(services: readonly ServiceConfig[]): readonly UpstreamRow[] {
  return services.flatMap((service) => service.upstreams.map((upstream) => ({ service, upstream })));
}

/** With a search field and the service names, or without both for one service. */
export function upstreamTable({ searchable }: { readonly searchable: boolean }): DataTable<UpstreamRow> {
  return new DataTable<UpstreamRow>({
    name: "upstreams",
    caption: "Upstreams",
    nouns: ["upstream", "upstreams"],
    searchable,
    keyOf: (row) => JSON.stringify([row.service.name, row.upstream.id]),
    searchText: ({ service: { name, protocol }, upstream }) =>
      `${upstream.id} ${addressOf(upstream)} ${upstream.group ?? ""} ${name} ${protocol}` +
      `${upstream.backup === true ? " backup" : ""}`,
    empty: el("p", {}, "No upstreams: the configuration has no services yet."),
    columns: [
      { key: "upstream", title: "Upstream", sortBy: (row) => row.upstream.id, make: upstreamName },
      ...(searchable ? [serviceColumn<UpstreamRow>()] : []),
      {
        key: "state",
        title: "State",
        kind: "state",
        width: 156,
        className: "wide",
        sortBy: (row) => upstreamLabel(stateOf(row)).rank,
        make: statePart,
      },
      numberColumn({ key: "weight", title: "Weight", width: 76, drop: 2 }, (row) => row.upstream.weight, String),
      numberColumn(
        { key: "share", title: "Share" },
        ({ service, upstream }) => live.share(service, upstream.id)?.share ?? null,
        percent,
      ),
      ...figureColumns<UpstreamRow>(figuresOf).filter(({ key }) => key !== "in_flight"),
      numberColumn({ key: "in_flight", title: "In flight", width: 80, drop: 3 }, inFlightOf, String),
    ],
  });
}

function stateOf({ service, upstream }: UpstreamRow): UpstreamHealth | null {
  return live.upstream(service.name, upstream.id);
}

function figuresOf({ service, upstream }: UpstreamRow): TryFigures | null {
  return live.figures.upstream(service.name, upstream.id);
}

/** The health is sent only when a state has changed: the statistics are newer. */
function inFlightOf(row: UpstreamRow): number | null {
  return figuresOf(row)?.in_flight ?? stateOf(row)?.in_flight ?? null;
}

function upstreamName({ service, upstream }: UpstreamRow): Part {
  const address = addressOf(upstream);
  return fixedPart(
    link(hashFor("upstreams", service.name, upstream.id), ...breakable(upstream.id)),
    address !== upstream.id && el("span", { class: "muted mono sub" }, ...breakable(address)),
    upstream.group !== undefined && el("span", { class: "sub" }, groupBadge(upstream.group)),
    upstream.backup === true && el("span", { class: "muted sub" }, "Backup"),
  );
}

function statePart(row: UpstreamRow): Part {
  const badge = stateBadge();
  const why = el("span", { class: "muted sub" });
  return {
    node: el("span", { class: "state-cell" }, badge.node, why),
    refresh() {
      const state = stateOf(row);
      badge.set(upstreamLabel(state));
      setText(why, state === null ? "" : whyText(state, live.known!.now));
    },
  };
}

/** "connection refused · 3 min ago · back in 8 s"; of one that was taken out, since when. */
function whyText({ reason, since, until: end, usable, admin_since: takenOut }: UpstreamHealth, now: number): string {
  if (takenOut !== null) return ago(takenOut, now);
  if (usable && reason === null) return "";
  return [reason, since === null ? null : ago(since, now), end === null ? null : `back ${until(end, now)}`]
    .filter((text) => text !== null)
    .join(" · ");
}

function shareText(share: Share | null): string {
  return share === null ? "–" : `${percent(share.share)}${share.how === "planned" ? " planned" : ""}`;
}

export const onePage: OpenPage = (frame, [serviceName = "", id = ""]) =>
  detailPage({
    title: `Upstream ${id}`,
    service: serviceName,
    missing: { what: `upstream “${id}” in a service “${serviceName}”`, href: "#/upstreams", back: "All upstreams" },
    find({ services }) {
      const service = services.find(({ name }) => name === serviceName);
      const upstream = service?.upstreams.find((each) => each.id === id);
      return service === undefined || upstream === undefined ? null : { service, upstream };
    },
    shown: ({ service }) => service,
    create: (row) => upstreamDetail(row, frame),
  });

const BACKUP = "gets requests only while no other upstream of the service can be used";

function upstreamDetail(row: UpstreamRow, frame: Frame): Detail {
  const { service, upstream } = row;
  const strip = figureStrip({ ofRequests: false });
  const charts = figureCharts({ service: service.name, upstream: upstream.id });
  const failed = failures({ service: service.name, upstream: upstream.id });
  const badge = stateBadge();
  const circuit = stateBadge();
  const actions = upstreamActions(frame, service.name, upstream.id);
  const { group, request_headers: ownHeaders } = upstream;
  const isCanary = group !== undefined && service.split?.some((split) => split.group === group) === true;
  const changes = formLinks(frame, ...(isCanary ? [["Change the share", "share", service.name, group] as const] : []));
  const state = el("div", { class: "card" });
  const draw = (current: StateTimes, share: string) =>
    replace(state, factList([...stateFacts(current), ["Share", share]]));
  const drawState = whenChanged(draw, (...shown) => shown);
  const configuration = factList([
    ["Service", link(hashFor("services", service.name), service.name)],
    ["Address", el("span", { class: "mono" }, addressOf(upstream))],
    ["Protocol", service.protocol],
    ["Weight", upstream.weight === 0 ? "0: gets no new requests" : String(upstream.weight)],
    group === undefined ? null : ["Group", group],
    upstream.backup === true ? ["Backup", BACKUP] : null,
    ownHeaders === undefined ? null : ["Headers of its own", Object.keys(ownHeaders).join(", ")],
    ...balancingFacts(service),
  ]);
  const path = [
    ["#/upstreams", "Upstreams"],
    [hashFor("services", service.name), service.name],
  ] as const;
  const node = el(
    "div",
    { class: "stack" },
    el("div", { class: "toolbar toolbar--apart" }, breadcrumbs(path, upstream.id), changes.node),
    el("p", { class: "badges" }, badge.node, circuit.node),
    actions.node,
    strip.node,
    el("p", { class: "muted" }, "Times and errors count attempts: until the head of the response, or the failure."),
    failed.node,
    charts.node,
    el(
      "div",
      { class: "columns" },
      section("State", state),
      section("Configuration", el("div", { class: "card" }, configuration)),
      service.health !== undefined &&
        section("Health checks", el("div", { class: "card" }, settingsList(service.health))),
    ),
  );
  return {
    node,
    update() {
      const current = stateOf(row);
      badge.set(upstreamLabel(current));
      setOptional(circuit, circuitLabel(live.health(service.name)?.circuit_breaker));
      actions.refresh();
      changes.refresh();
      const figures = figuresOf(row);
      failed.update();
      charts.update();
      strip.update(figures === null ? null : { ...figures, in_flight: inFlightOf(row) ?? 0 });
      const { since = null, until: end = null, reason = null, admin_since = null } = current ?? {};
      drawState({ since, until: end, reason, admin_since }, shareText(live.share(service, upstream.id)));
    },
  };
}
