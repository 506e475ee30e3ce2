/**
 * The upstreams page: all upstreams in a table.
 */
import type { ServiceConfig, TryFigures, UpstreamConfig, UpstreamHealth } from "./api.ts";
import { breakable, groupBadge, link, stateBadge } from "./components.ts";
import { listPage, serviceColumn } from "./configured_pages.ts";
import { el, setText } from "./dom.ts";
import { ago, percent, until } from "./format.ts";
import { addressOf, endpointsOf } from "./inventory.ts";
import { live } from "./live.ts";
import type { OpenPage } from "./page.ts";
import { upstreamLabel } from "./state_labels.ts";
import { DataTable, figureColumns, fixedPart, numberColumn, type Part } from "./tables.ts";
import { hashFor } from "./url_hash.ts";

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
    follows: "health",
    shown: "busy",
    below: note,
  });
};

export function upstreamRows(services: readonly ServiceConfig[]): readonly UpstreamRow[] {
  return services.flatMap((service) =>
    endpointsOf(service, live.health(service.name)).map((upstream) => ({ service, upstream })),
  );
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
      numberColumn(
        { key: "weight", title: "Weight", width: 76, drop: 2 },
        (row) => row.upstream.weight ?? null,
        String,
      ),
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

export function stateOf({ service, upstream }: UpstreamRow): UpstreamHealth | null {
  return live.upstream(service.name, upstream.id);
}

export function figuresOf({ service, upstream }: UpstreamRow): TryFigures | null {
  return live.figures.upstream(service.name, upstream.id);
}

/** The health is sent only when a state has changed: the statistics are newer. */
export function inFlightOf(row: UpstreamRow): number | null {
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
    node: el("span", {}, badge.node, why),
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
