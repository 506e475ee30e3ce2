/**
 * The services page: all services in a table, and each on a separate page with its routes, upstreams, settings and
 * plugins.
 */
import type { PluginConfig, ServiceConfig } from "./api.ts";
import { circuitLabel, upstreamLabel, usableLabel } from "./state_labels.ts";
import { detailPage, listPage, type Detail } from "./configured_pages.ts";
import { el } from "./dom.ts";
import { counted, listed } from "./format.ts";
import { failures } from "./failures.ts";
import { figureCharts } from "./figure_charts.ts";
import { formLinks } from "./form_links.ts";
import { hashFor, hashForRequests } from "./url_hash.ts";
import { live } from "./live.ts";
import type { Frame, OpenPage } from "./page.ts";
import {
  breakable,
  breadcrumbs,
  factList,
  figureStrip,
  fixedBadge,
  link,
  section,
  setOptional,
  settingsList,
  stateBadge,
} from "./components.ts";
import { countText } from "./table_rows.ts";
import { balancingFacts, groupTable } from "./balancing_view.ts";
import { groupsOf, hashedText } from "./balancing.ts";
import { pluginText } from "./plugin_texts.ts";
import { routeRows, routeTable } from "./routes_page.ts";
import { clientErrorColumn, DataTable, figureColumns, fixedPart, type Part } from "./tables.ts";
import { upstreamRows, upstreamTable } from "./upstreams_page.ts";
import { warningList, withWarnings } from "./warnings.ts";

export const page: OpenPage = ({ session }) => {
  const table = new DataTable<ServiceConfig>({
    name: "services",
    caption: "Services",
    nouns: ["service", "services"],
    keyOf: ({ name }) => name,
    searchText: ({ name, base_path, protocol, load_balancing_strategy, hosts, hash_on, sticky, split }) =>
      [
        name,
        base_path,
        protocol,
        load_balancing_strategy,
        ...(hosts ?? []),
        hash_on ?? "",
        sticky === undefined ? "" : "sticky",
        ...(split ?? []).map(({ group }) => group),
      ].join(" "),
    empty: el(
      "p",
      {},
      ...(session?.write === true
        ? ["No services yet. ", link("#/add/service", "Add a service")]
        : ["No services yet. Add one to the configuration file, and reload."]),
    ),
    columns: [
      { key: "service", title: "Service", sortBy: ({ name }) => name, make: serviceName },
      { key: "base_path", title: "Base path", className: "half", sortBy: (row) => row.base_path, make: basePath },
      {
        key: "strategy",
        title: "Strategy",
        width: 150,
        className: "wide",
        drop: 2,
        sortBy: (row) => row.load_balancing_strategy,
        make: strategyPart,
      },
      {
        key: "upstreams",
        title: "Upstreams",
        kind: "state",
        width: 142,
        className: "half",
        sortBy: worstOf,
        make: upstreamsPart,
      },
      ...figureColumns<ServiceConfig>(
        ({ name }) => live.figures.service(name),
        clientErrorColumn(({ name }) => live.figures.service(name)),
      ),
    ],
  });
  return listPage({ title: "Services", table, rowsOf: ({ services }) => services, shown: "services" });
};

function serviceName({ name, routes }: ServiceConfig): Part {
  const count = el("span", { class: "muted sub" }, counted(routes.length, "route"));
  return withWarnings([link(hashFor("services", name), name), count], () => live.warnings.service(name));
}

/** Groups named in the table; further ones are only counted. */
const MAX_GROUPS = 3;

function strategyPart({ protocol, load_balancing_strategy, hash_on: hashOn, sticky, split = [] }: ServiceConfig): Part {
  const groups = [...new Set(split.map(({ group }) => group))];
  const more = [
    hashOn === undefined ? "" : `on ${hashedText(hashOn)}`,
    sticky === undefined ? "" : `sticky by ${sticky.cookie}`,
    groups.length === 0 ? "" : `split to ${listed(groups, MAX_GROUPS)}`,
    `over ${protocol}`,
  ];
  return fixedPart(
    load_balancing_strategy,
    ...more.filter((text) => text !== "").map((text) => el("span", { class: "muted sub" }, text)),
  );
}

function basePath({ base_path, hosts }: ServiceConfig): Part {
  const names = hosts ?? [];
  return fixedPart(
    el("span", { class: "mono" }, base_path),
    names.length > 0 && el("span", { class: "muted sub" }, ...breakable(names.join(", "))),
  );
}

/** An open circuit is worse than any state of an upstream. */
function worstOf({ name, upstreams }: ServiceConfig): number {
  const known = live.health(name);
  if (known?.circuit_breaker?.state === "open") return 1000;
  return upstreams.length === 0
    ? 0
    : (known?.upstreams ?? []).reduce((sum, upstream) => sum + upstreamLabel(upstream).rank, 0) / upstreams.length;
}

function upstreamsPart({ name, upstreams }: ServiceConfig): Part {
  const badge = stateBadge();
  const circuit = stateBadge();
  return {
    node: el("span", { class: "badges" }, badge.node, circuit.node),
    refresh() {
      const known = live.health(name);
      badge.set(usableLabel(known?.upstreams ?? null, upstreams.length));
      const label = circuitLabel(known?.circuit_breaker);
      setOptional(circuit, label?.tone === "good" ? null : label);
    },
  };
}

/** Members with a separate section; all except GROUPS are listed under "Other settings". */
const SHOWN_ELSEWHERE = new Set([
  ...["name", "base_path", "protocol", "load_balancing_strategy", "hosts", "upstreams", "routes", "plugins"],
  ...["hash_on", "hash_balance_factor", "sticky", "split"],
]);
const GROUPS: readonly (readonly [string, string])[] = [
  ["health", "Health checks"],
  ["circuit_breaker", "Circuit breaker"],
  ["retries", "Retries"],
  ["timeouts", "Timeouts"],
  ["pool", "Connections to upstreams"],
  ["tls", "TLS to upstreams"],
];

export const onePage: OpenPage = (frame, [name = ""]) =>
  detailPage({
    title: `Service ${name}`,
    service: name,
    missing: { what: `service “${name}”`, href: "#/services", back: "All services" },
    find: ({ services }) => services.find((service) => service.name === name) ?? null,
    shown: (service, { plugins }) => [service, plugins],
    create: (service, { plugins }) => serviceDetail(service, plugins, frame),
  });

function serviceDetail(service: ServiceConfig, globals: readonly PluginConfig[], frame: Frame): Detail {
  const strip = figureStrip({ ofRequests: true });
  const charts = figureCharts({ service: service.name });
  const failed = failures({ service: service.name });
  const badge = stateBadge();
  const circuit = stateBadge();
  const warnings = warningList(frame);
  const forms = [
    ["Add a route", "route"],
    ["Add an upstream", "upstream"],
    ["Add a rate limit", "limit"],
  ] as const;
  const changes = formLinks(frame, ...forms.map(([text, form]) => [text, form, service.name] as const));
  const requestsLink = el("a", { class: "button", href: hashForRequests({ service: service.name }) }, "Requests");
  const routes = routeTable({ ofService: true });
  const upstreams = upstreamTable({ searchable: false });
  const groups = groupTable(service);
  const rows = { routes: routeRows([service]), groups: groupsOf(service), upstreams: upstreamRows([service]) };
  const node = el(
    "div",
    { class: "stack" },
    el(
      "div",
      { class: "toolbar toolbar--apart" },
      breadcrumbs([["#/services", "Services"]], service.name),
      el("span", { class: "badges" }, changes.node, requestsLink),
    ),
    el("p", { class: "badges" }, badge.node, circuit.node),
    warnings.node,
    strip.node,
    failed.node,
    charts.node,
    section("Routes", el("div", { class: "card" }, routes.node)),
    rows.groups.length > 0 &&
      section("Groups", el("div", { class: "card" }, groups.node), el("p", { class: "muted" }, GROUPS_NOTE)),
    section("Upstreams", el("div", { class: "card" }, upstreams.node)),
    section("Plugins", pluginLists(service, globals)),
    section("Settings", serviceSettings(service)),
  );
  return {
    node,
    update() {
      changes.refresh();
      warnings.update(live.warningsOf(service.name));
      strip.update(live.figures.service(service.name));
      failed.update();
      charts.update();
      const health = live.health(service.name);
      const { text, tone } = usableLabel(health?.upstreams ?? null, service.upstreams.length);
      badge.set({ text: health === null ? `${text} upstreams` : text.replace(/ usable$/, " upstreams usable"), tone });
      setOptional(circuit, circuitLabel(health?.circuit_breaker));
      routes.show(rows.routes);
      groups.show(rows.groups);
      upstreams.show(rows.upstreams);
    },
  };
}

const GROUPS_NOTE =
  "Share is measured; without traffic, it follows from splits and weights. " +
  "Requests without the value that a split hashes on are divided by request.";

export function serviceSettings(service: ServiceConfig): HTMLElement {
  const others = Object.fromEntries(
    Object.entries(service).filter(([key]) => !SHOWN_ELSEWHERE.has(key) && !GROUPS.some(([group]) => group === key)),
  );
  const { base_path: basePath, hosts = [], protocol } = service;
  const own = factList([
    ["Base path", el("span", { class: "mono" }, basePath)],
    ["Hosts", hosts.length === 0 ? "all" : hosts.join(", ")],
    ["Protocol", protocol],
    ...balancingFacts(service),
  ]);
  return el(
    "div",
    { class: "grid" },
    settingsCard("Service", own),
    ...GROUPS.map(([key, title]) => service[key] !== undefined && settingsCard(title, settingsList(service[key]))),
    Object.keys(others).length > 0 && settingsCard("Other settings", settingsList(others)),
  );
}

function settingsCard(title: string, content: HTMLElement): HTMLElement {
  return el("div", { class: "card" }, el("h3", { class: "card__title" }, title), content);
}

/** The service's own plugins, and how many others its routes have. */
function pluginLists({ plugins, routes }: ServiceConfig, globals: readonly PluginConfig[]): HTMLElement {
  const ofRoutes = routes.reduce((sum, route) => sum + route.plugins.length, 0);
  const others = [
    globals.length === 0 ? "" : counted(globals.length, "global plugin"),
    ofRoutes === 0 ? "" : countText(ofRoutes, ofRoutes, ["plugin of a route", "plugins of routes"]),
  ];
  const more = others.filter((text) => text !== "").join(" and ");
  const text = [
    plugins.length === 0 ? "The service has no plugins. " : "",
    more === "" ? "" : `Requests also pass ${more}: the page of a route shows the order in which they run.`,
  ].join("");
  return el(
    "div",
    { class: "card stack" },
    plugins.length > 0 &&
      el("ol", { class: "plugin-list" }, ...plugins.map((plugin) => el("li", {}, pluginDetails(plugin)))),
    text !== "" && el("p", { class: "muted" }, text),
  );
}

/** One instance as a line that opens to its settings. */
export function pluginDetails({ name, id, enabled, config }: PluginConfig): HTMLElement {
  const summary = el(
    "summary",
    {},
    el("strong", {}, name),
    id !== undefined && el("span", { class: "mono" }, ` ${id}`),
    !enabled && " ",
    !enabled && fixedBadge("idle", "Off"),
    el("span", { class: "muted mono" }, ` ${pluginText({ name, config })}`),
  );
  return el("details", { class: "plugin" }, summary, settingsList(config));
}
