/**
 * The upstreams page: all upstreams in a table, and each on a separate page with its state, traffic and response times.
 */
import { ageOf, timeUntil } from "./ages.ts";
import type { ServiceConfig, ServiceHealth, TryFigures, UpstreamConfig, UpstreamHealth } from "./api.ts";
import { circuitLabel, upstreamLabel } from "./state_labels.ts";
import { detailPage, listPage, serviceColumn, type Detail } from "./configured_pages.ts";
import { el, replace, setText, whenChanged } from "./dom.ts";
import { ago, moment, percent, until } from "./format.ts";
import { figureCharts } from "./figure_charts.ts";
import { formLinks } from "./form_links.ts";
import { hashFor } from "./url_hash.ts";
import { balancingFacts, type GroupNow } from "./balancing_view.ts";
import { sharesOf, type Share } from "./balancing.ts";
import { addressOf, figuresByName, healthOf, type FiguresByName } from "./inventory.ts";
import type { Frame, Known, OpenPage } from "./page.ts";
import { breakable, breadcrumbs, factList, figureStrip, groupBadge, link, section, setOptional, settingsList, stateBadge } from "./components.ts";
import { upstreamActions } from "./upstream_actions.ts";
import { DataTable, figureColumns, fixedPart, numberColumn, type Part } from "./tables.ts";

/** One upstream of one service. */
export interface UpstreamRow {
  readonly service: ServiceConfig;
  readonly upstream: UpstreamConfig;
}

/** The current state of upstreams, which table rows read at each refresh. */
export class UpstreamsNow {
  /** The gateway's time, in ms since 1970. */
  now = 0;
  #health: Known["health"] = null;
  #figures: FiguresByName = figuresByName(null);
  readonly #states = new Map<string, ReadonlyMap<string, UpstreamHealth>>();
  readonly #shares = new Map<ServiceConfig, ReadonlyMap<string, Share>>();

  update({ health, stats, now }: Known): void {
    this.now = now;
    this.#health = health;
    this.#figures = figuresByName(stats);
    this.#shares.clear();
    this.#states.clear();
    for (const { name, upstreams } of health?.services ?? []) this.#states.set(name, new Map(upstreams.map((one) => [one.id, one])));
  }

  state({ service, upstream }: UpstreamRow): UpstreamHealth | null {
    return this.#states.get(service.name)?.get(upstream.id) ?? null;
  }

  figures({ service, upstream }: UpstreamRow): TryFigures | null {
    return this.#figures.upstream(service.name, upstream.id);
  }

  share({ service, upstream }: UpstreamRow): Share | null {
    return this.#sharesOf(service).get(upstream.id) ?? null;
  }

  group(service: ServiceConfig): GroupNow {
    return {
      figures: ({ group }) => this.#figures.group(service.name, group),
      share: (group) => group.upstreams.reduce((sum, upstream) => sum + (this.share({ service, upstream })?.share ?? 0), 0),
      rest: (group) => group.upstreams.some((upstream) => this.state({ service, upstream })?.rest === true),
      usable: (group) => (this.#health === null ? null : group.upstreams.map((upstream) => ({ usable: this.state({ service, upstream })?.usable ?? false }))),
    };
  }

  #sharesOf(service: ServiceConfig): ReadonlyMap<string, Share> {
    let shares = this.#shares.get(service);
    if (shares === undefined) {
      const rateOf = (id: string) => this.#figures.upstream(service.name, id)?.requests_per_s ?? 0;
      shares = sharesOf(service.upstreams, healthOf(this.#health, service.name)?.upstreams ?? null, rateOf);
      this.#shares.set(service, shares);
    }
    return shares;
  }
}

export const page: OpenPage = () => {
  const now = new UpstreamsNow();
  const table = upstreamTable(now, { searchable: true });
  const note = el(
    "p",
    { class: "muted" },
    "Share is an upstream's part of the traffic of its service; without traffic, it follows from splits and weights.",
  );
  return listPage({
    title: "Upstreams",
    table,
    rowsOf: ({ services }) => upstreamRows(services),
    shown: "busy",
    below: note,
    update: (known) => now.update(known),
  });
};

export function upstreamRows(services: readonly ServiceConfig[]): readonly UpstreamRow[] {
  return services.flatMap((service) => service.upstreams.map((upstream) => ({ service, upstream })));
}

/** With a search field and the service names, or without both for one service. */
export function upstreamTable(now: UpstreamsNow, { searchable }: { readonly searchable: boolean }): DataTable<UpstreamRow> {
  return new DataTable<UpstreamRow>({
    name: "upstreams",
    caption: "Upstreams",
    nouns: ["upstream", "upstreams"],
    searchable,
    keyOf: (row) => JSON.stringify([row.service.name, row.upstream.id]),
    searchText: ({ service: { name, protocol }, upstream }) => `${upstream.id} ${addressOf(upstream)} ${upstream.group ?? ""} ${name} ${protocol}`,
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
        sortBy: (row) => upstreamLabel(now.state(row)).rank,
        make: (row) => statePart(now, row),
      },
      numberColumn({ key: "weight", title: "Weight", width: 76, drop: 2 }, (row) => row.upstream.weight, String),
      numberColumn({ key: "share", title: "Share" }, (row) => now.share(row)?.share ?? null, percent),
      ...figureColumns<UpstreamRow>((row) => now.figures(row)).filter(({ key }) => key !== "in_flight"),
      numberColumn({ key: "in_flight", title: "In flight", width: 80, drop: 3 }, (row) => inFlightOf(now, row), String),
    ],
  });
}

/** Health events arrive only when a state has changed: the statistics are newer. */
function inFlightOf(now: UpstreamsNow, row: UpstreamRow): number | null {
  return now.figures(row)?.in_flight ?? now.state(row)?.in_flight ?? null;
}

function upstreamName({ service, upstream }: UpstreamRow): Part {
  const address = addressOf(upstream);
  return fixedPart(
    link(hashFor("upstreams", service.name, upstream.id), ...breakable(upstream.id)),
    address !== upstream.id && el("span", { class: "muted mono sub" }, ...breakable(address)),
    upstream.group !== undefined && el("span", { class: "sub" }, groupBadge(upstream.group)),
  );
}

function statePart(now: UpstreamsNow, row: UpstreamRow): Part {
  const badge = stateBadge();
  const why = el("span", { class: "muted sub" });
  return {
    node: el("span", { class: "state-cell" }, badge.node, why),
    refresh() {
      const state = now.state(row);
      badge.set(upstreamLabel(state));
      setText(why, state === null ? "" : whyText(state, now.now));
    },
  };
}

/** "connection refused · 3 min ago · back in 8 s" */
function whyText({ reason, since, until: end, usable }: UpstreamHealth, now: number): string {
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

function upstreamDetail(row: UpstreamRow, frame: Frame): Detail {
  const { service, upstream } = row;
  const now = new UpstreamsNow();
  const strip = figureStrip({ ofRequests: false });
  const charts = figureCharts({ service: service.name, upstream: upstream.id });
  const badge = stateBadge();
  const circuit = stateBadge();
  let health: ServiceHealth | null = null;
  const actions = upstreamActions(frame, service.name, upstream.id, () => health);
  const { group } = upstream;
  const isCanary = group !== undefined && service.split?.some((split) => split.group === group) === true;
  const changes = formLinks(frame, ...(isCanary ? [["Change the share", "share", service.name, group] as const] : []));
  const state = el("div", { class: "card" });
  const drawState = whenChanged((current: StateTimes, share: string) => replace(state, factList([...stateFacts(current), ["Share", share]])), (...shown) => shown);
  const configuration = factList([
    ["Service", link(hashFor("services", service.name), service.name)],
    ["Address", el("span", { class: "mono" }, addressOf(upstream))],
    ["Protocol", service.protocol],
    ["Weight", upstream.weight === 0 ? "0: gets no new requests" : String(upstream.weight)],
    group === undefined ? null : ["Group", group],
    ...balancingFacts(service),
  ]);
  const path = [["#/upstreams", "Upstreams"], [hashFor("services", service.name), service.name]] as const;
  const node = el(
    "div",
    { class: "stack" },
    el("div", { class: "toolbar toolbar--apart" }, breadcrumbs(path, upstream.id), changes.node),
    el("p", { class: "badges" }, badge.node, circuit.node),
    actions.node,
    strip.node,
    el("p", { class: "muted" }, "Times and errors count attempts: until the head of the response, or the failure."),
    charts.node,
    el(
      "div",
      { class: "columns" },
      section("State", state),
      section("Configuration", el("div", { class: "card" }, configuration)),
      service.health !== undefined && section("Health checks", el("div", { class: "card" }, settingsList(service.health))),
    ),
  );
  return {
    node,
    update(known) {
      now.update(known);
      const current = now.state(row);
      badge.set(upstreamLabel(current));
      health = healthOf(known.health, service.name);
      setOptional(circuit, circuitLabel(health?.circuit_breaker));
      actions.refresh();
      changes.refresh();
      const figures = now.figures(row);
      charts.update(known);
      strip.update(figures === null ? null : { ...figures, in_flight: inFlightOf(now, row) ?? 0 });
      const { since = null, until: end = null, reason = null } = current ?? {};
      drawState({ since, until: end, reason }, shareText(now.share(row)));
    },
  };
}

type StateTimes = Pick<UpstreamHealth, "since" | "until" | "reason">;

/** For `factList`. */
function stateFacts({ since, until: end, reason }: StateTimes): Parameters<typeof factList>[0] {
  return [
    since === null ? null : ["Since", el("span", {}, moment(since), " (", ageOf(since), ")")],
    end === null ? null : ["Back", el("span", {}, moment(end), " (", timeUntil(end), ")")],
    reason === null ? null : ["Reason", reason],
  ];
}
