/**
 * The routes page: all routes in a table, with their service and live statistics.
 */
import type { RouteConfig, ServiceConfig } from "./api.ts";
import { listPage, serviceColumn } from "./configured_pages.ts";
import { el } from "./dom.ts";
import { number } from "./format.ts";
import { hashFor } from "./url_hash.ts";
import { conditionTexts } from "./conditions.ts";
import { methodsOf, patternOf } from "./inventory.ts";
import { live } from "./live.ts";
import type { OpenPage } from "./page.ts";
import { breakable, link } from "./components.ts";
import {
  clientErrorColumn,
  DataTable,
  figureColumns,
  fixedPart,
  numberColumn,
  textColumn,
  type Part,
} from "./tables.ts";
import { withWarnings } from "./warnings.ts";

interface RouteRow {
  readonly service: ServiceConfig;
  readonly route: RouteConfig;
  readonly pattern: string;
}

export const page: OpenPage = () => {
  return listPage({
    title: "Routes",
    table: routeTable({ ofService: false }),
    rowsOf: ({ services }) => routeRows(services),
    shown: "busy",
  });
};

export function routeRows(services: readonly ServiceConfig[]): readonly RouteRow[] {
  return services.flatMap((service) =>
    service.routes.map((route) => ({ service, route, pattern: patternOf(service, route) })),
  );
}

/** `ofService`: the routes of one service, without the service column. */
export function routeTable({ ofService }: { readonly ofService: boolean }): DataTable<RouteRow> {
  const figuresOf = ({ service, route }: RouteRow) => live.figures.route(service.name, route.name);
  return new DataTable<RouteRow>({
    name: "routes",
    caption: "Routes",
    nouns: ["route", "routes"],
    keyOf: (row) => JSON.stringify([row.service.name, row.route.name]),
    searchText: ({ service: { name, hosts }, route, pattern }) =>
      [
        route.name,
        pattern,
        name,
        methodsOf(route),
        ...conditionTexts(route.match),
        ...(hosts ?? []),
        ...route.plugins.map((plugin) => plugin.name),
      ].join(" "),
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
        make: ({ service, route }) =>
          withWarnings([link(hashFor("routes", service.name, route.name), route.name)], () =>
            live.warnings.route(service.name, route.name),
          ),
      },
      ...(ofService ? [] : [serviceColumn<RouteRow>()]),
      textColumn({ key: "methods", title: "Methods", width: 92, className: "wide", drop: 3 }, ({ route }) =>
        methodsOf(route),
      ),
      { key: "pattern", title: "Path", className: "wide", sortBy: (row) => row.pattern, make: patternPart },
      ...figureColumns(figuresOf, clientErrorColumn(figuresOf)),
      numberColumn(
        { key: "limited", title: "Limited/s", width: 86, drop: 1 },
        (row) => figuresOf(row)?.limited_per_s ?? null,
        number,
      ),
    ],
  });
}

/** Further conditions are only counted. */
const MAX_CONDITIONS = 4;

/** With its conditions below: they tell routes of one path apart. */
function patternPart({ pattern, route }: RouteRow): Part {
  const conditions = conditionTexts(route.match);
  const rest = conditions.length - MAX_CONDITIONS;
  return fixedPart(
    el("span", { class: "mono" }, ...breakable(pattern)),
    ...conditions.slice(0, MAX_CONDITIONS).map((text) => el("span", { class: "muted sub condition" }, text)),
    rest > 0 && el("span", { class: "muted sub" }, `and ${number(rest)} more`),
  );
}
