/**
 * The page of one service: its figures, and how requests come to it and where they go on.
 */
import type { ServiceConfig } from "./api.ts";
import { groupsOf } from "./balancing.ts";
import { groupTable, serviceFacts } from "./balancing_view.ts";
import { section } from "./components.ts";
import { el } from "./dom.ts";
import { failures } from "./failures.ts";
import { editTab, itemPage, settingsTab, stackOf, trafficTab, warningsOf } from "./item_page.ts";
import { live } from "./live.ts";
import type { OpenPage } from "./page.ts";
import { routeRows, routeTable } from "./routes_page.ts";
import { upstreamsPart } from "./services_page.ts";
import type { DataTable, Part } from "./tables.ts";
import { upstreamRows, upstreamTable } from "./upstreams_page.ts";

export const onePage: OpenPage = (frame, [name = ""]) =>
  itemPage({
    frame,
    title: `Service ${name}`,
    service: name,
    missing: [`service “${name}”`, "#/services", "All services"],
    find: ({ services }) => services.find((service) => service.name === name) ?? null,
    shown: (service) => service,
    itemOf: (service) => ({
      name,
      of: { service: name },
      crumbs: [["#/services", "Services"]],
      head: [upstreamsPart(service), warningsOf(frame, name)],
      tabs: {
        Traffic: () => trafficTab({ service: name }, () => live.figures.service(name)),
        Failures: () => failures({ service: name }),
        Path: () => wayThrough(service),
        Settings: () => settingsTab(frame, { service: name }),
        Edit: () =>
          editTab(
            { service: name },
            ["Add a route", "route", name],
            ["Add an upstream", "upstream", name],
            ["Add a rate limit", "limit", name],
            ["Add a plugin", "plugin", name],
            ["Change its settings", "service_settings", name],
          ),
      },
    }),
  });

const GROUPS_NOTE =
  "Share is measured; without traffic, it follows from splits and weights. " +
  "Requests without the value that a split hashes on are divided by request.";

/** Its routes, what it has for all of them, and its upstreams. */
function wayThrough(service: ServiceConfig): Part {
  const groups = groupsOf(service);
  return stackOf(
    tablePart("Routes", routeTable({ ofService: true }), routeRows([service])),
    section("Service", el("div", { class: "card" }, serviceFacts(service))),
    groups.length > 0 && tablePart("Groups", groupTable(service), groups, GROUPS_NOTE),
    tablePart("Upstreams", upstreamTable({ searchable: false }), upstreamRows([service])),
  );
}

function tablePart<Row>(title: string, table: DataTable<Row>, rows: readonly Row[], note?: string): Part {
  const more = note !== undefined && el("p", { class: "muted" }, note);
  return { node: section(title, el("div", { class: "card" }, table.node), more), refresh: () => table.show(rows) };
}
