/**
 * The routes page: all routes in a table, with their service and live statistics.
 */
import type { Figures, RouteConfig, ServiceConfig } from "./api.ts";
import { listPage } from "./configured_pages.ts";
import { el } from "./dom.ts";
import { number } from "./format.ts";
import { hashFor } from "./url_hash.ts";
import { figuresByName, methodsOf, patternOf, type FiguresByName } from "./inventory.ts";
import type { OpenPage } from "./page.ts";
import { link } from "./components.ts";
import { DataTable, figureColumns, fixedPart, textPart, type Column } from "./tables.ts";

export interface RouteRow {
  readonly service: ServiceConfig;
  readonly route: RouteConfig;
  readonly pattern: string;
}

export const routesPage: OpenPage = () => {
  let figures: FiguresByName = figuresByName(null);
  const table = routeTable((row) => figures.route(row.service.name, row.route.name), { ofService: false });
  return listPage({
    title: "Routes",
    table,
    rowsOf: ({ services }) => routeRows(services),
    update({ stats }) {
      figures = figuresByName(stats);
    },
  });
};

export function routeRows(services: readonly ServiceConfig[]): readonly RouteRow[] {
  return services.flatMap((service) => service.routes.map((route) => ({ service, route, pattern: patternOf(service, route) })));
}

/** The routes of one service: without the service column, and with a search only for many routes. */
export function routeTable(figuresOf: (row: RouteRow) => Figures | null, { ofService }: { readonly ofService: boolean }): DataTable<RouteRow> {
  const service: Column<RouteRow> = {
    key: "service",
    title: "Service",
    sortBy: (row) => row.service.name,
    make: (row) => fixedPart(link(hashFor("services", row.service.name), row.service.name)),
  };
  return new DataTable<RouteRow>({
    name: "routes",
    caption: "Routes",
    nouns: ["route", "routes"],
    keyOf: (row) => JSON.stringify([row.service.name, row.route.name]),
    searchText: ({ service: { name, hosts }, route, pattern }) =>
      [route.name, pattern, name, methodsOf(route), ...(hosts ?? []), ...route.plugins.map((plugin) => plugin.name)].join(" "),
    empty: el(
      "p",
      {},
      ofService
        ? "This service has no routes: nothing reaches it."
        : "No routes yet. Add a service with routes to the configuration file, and reload.",
    ),
    columns: [
      {
        key: "route",
        title: "Route",
        sortBy: (row) => row.route.name,
        make: (row) => fixedPart(link(hashFor("routes", row.service.name, row.route.name), row.route.name)),
      },
      ...(ofService ? [] : [service]),
      {
        key: "methods",
        title: "Methods",
        width: 92,
        className: "wide",
        sortBy: (row) => methodsOf(row.route),
        make: (row) => textPart(() => methodsOf(row.route)),
      },
      { key: "pattern", title: "Path", className: "wide", sortBy: (row) => row.pattern, make: (row) => textPart(() => row.pattern, "mono") },
      ...figureColumns(figuresOf),
      {
        key: "limited",
        title: "Limited/s",
        width: 86,
        kind: "number",
        sortBy: (row) => figuresOf(row)?.limited_per_s ?? null,
        make: (row) => textPart(() => number(figuresOf(row)?.limited_per_s ?? Number.NaN)),
      },
    ],
  });
}
