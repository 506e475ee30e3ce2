/**
 * The services page: all services in a table, and each on a page of its own with its routes, upstreams, settings and plugins.
 */
import type { PluginConfig, ServiceConfig } from "./api.ts";
import { circuitCondition, conditionOf, usableText, type Mark } from "./conditions.ts";
import { el, setText } from "./dom.ts";
import { hashOf } from "./hash.ts";
import { figuresByName, healthOf, type FiguresByName } from "./inventory.ts";
import type { Known, OpenPage } from "./page.ts";
import { breakable, crumbs, facts, figureStrip, link, loading, missing, section, settingsList, slot, stateBadge } from "./parts.ts";
import { countText } from "./rows.ts";
import { routeRows, routeTable } from "./routes_page.ts";
import { summaryOf } from "./secrets.ts";
import { dataTable, figureColumns, fixedPart, type Part } from "./tables.ts";
import { upstreamRows, UpstreamsNow, upstreamTable } from "./upstreams_page.ts";

export const servicesPage: OpenPage = () => {
  const place = slot();
  place.put(loading("the configuration"));
  let config: Known["config"] = null;
  let health: Known["health"] = null;
  let figures: FiguresByName = figuresByName(null);
  const table = dataTable<ServiceConfig>({
    name: "services",
    caption: "Services",
    nouns: ["service", "services"],
    keyOf: ({ name }) => name,
    haystack: ({ name, base_path, protocol, load_balancing_strategy, hosts }) =>
      [name, base_path, protocol, load_balancing_strategy, ...(hosts ?? [])].join(" "),
    empty: el("p", {}, "No services yet. Add one to the configuration file, and reload."),
    columns: [
      { key: "service", title: "Service", sortBy: ({ name }) => name, make: serviceName },
      { key: "base_path", title: "Base path", className: "half", sortBy: (row) => row.base_path, make: basePath },
      { key: "strategy", title: "Strategy", width: 150, sortBy: (row) => row.load_balancing_strategy, make: strategyPart },
      {
        key: "upstreams",
        title: "Upstreams",
        kind: "state",
        width: 142,
        className: "half",
        sortBy: (row) => worstOf(health, row),
        make: (row) => upstreamsPart(row, () => health),
      },
      ...figureColumns<ServiceConfig>(({ name }) => figures.service(name)),
    ],
  });
  const note = el("p", { class: "muted" }, "p50, p95 and p99 are those of a service's slowest route.");
  const node = el("div", { class: "stack" }, el("div", { class: "card" }, table.node), note);
  return {
    title: "Services",
    node: place.node,
    update(known) {
      ({ config, health } = known);
      figures = figuresByName(known.stats);
      if (config === null) return;
      place.put(node);
      note.hidden = config.services.length === 0;
      table.show(config.services);
    },
    close: () => table.close(),
  };
};

function serviceName({ name, routes }: ServiceConfig): Part {
  return fixedPart(
    link(hashOf("services", name), name),
    el("span", { class: "muted sub" }, countText(routes.length, routes.length, ["route", "routes"])),
  );
}

function strategyPart({ protocol, load_balancing_strategy }: ServiceConfig): Part {
  return fixedPart(load_balancing_strategy, el("span", { class: "muted sub" }, `over ${protocol}`));
}

function basePath({ base_path, hosts }: ServiceConfig): Part {
  const names = hosts ?? [];
  return fixedPart(el("span", { class: "mono" }, base_path), names.length > 0 && el("span", { class: "muted sub" }, ...breakable(names.join(", "))));
}

/** An open circuit is worse than any state of an upstream. */
function worstOf(health: Known["health"], { name, upstreams }: ServiceConfig): number {
  const known = healthOf(health, name);
  if (known?.circuit_breaker?.state === "open") return 1000;
  return upstreams.length === 0 ? 0 : (known?.upstreams ?? []).reduce((sum, upstream) => sum + conditionOf(upstream).rank, 0) / upstreams.length;
}

function upstreamsPart({ name, upstreams }: ServiceConfig, health: () => Known["health"]): Part {
  const badge = stateBadge();
  const circuit = stateBadge();
  return {
    node: el("span", { class: "badges" }, badge.node, circuit.node),
    refresh() {
      const known = healthOf(health(), name);
      badge.set(usableText(known?.upstreams ?? null, upstreams.length));
      const condition = circuitCondition(known?.circuit_breaker);
      circuit.node.hidden = condition === null || condition.tone === "good";
      if (condition !== null) circuit.set(condition);
    },
  };
}

/** Shown in their own places; all other members of a service are listed under "Other settings". */
const PLACED = new Set(["name", "base_path", "protocol", "load_balancing_strategy", "hosts", "upstreams", "routes", "plugins"]);
const GROUPS: readonly (readonly [string, string])[] = [
  ["health", "Health checks"],
  ["circuit_breaker", "Circuit breaker"],
  ["retries", "Retries"],
  ["timeouts", "Timeouts"],
  ["pool", "Connections to upstreams"],
  ["tls", "TLS to upstreams"],
];

export const servicePage: OpenPage = (_frame, [name = ""]) => {
  const place = slot();
  place.put(loading("the configuration"));
  const gone = missing(`service “${name}”`, "#/services", "All services");
  let detail: (ReturnType<typeof serviceDetail> & { readonly of: string }) | null = null;
  return {
    title: `Service ${name}`,
    node: place.node,
    update(known) {
      if (known.config === null) return;
      const service = known.config.services.find((one) => one.name === name);
      if (service === undefined) return place.put(gone);
      const of = JSON.stringify([service, known.config.plugins]);
      if (detail?.of !== of) {
        detail?.close();
        detail = { of, ...serviceDetail(service, known.config.plugins) };
      }
      place.put(detail.node);
      detail.update(known);
    },
    close: () => detail?.close(),
  };
};

function serviceDetail(
  service: ServiceConfig,
  globals: readonly PluginConfig[],
): { readonly node: HTMLElement; update(known: Known): void; close(): void } {
  const now = new UpstreamsNow();
  let figures: FiguresByName = figuresByName(null);
  const strip = figureStrip({ limited: true });
  const badge = stateBadge();
  const circuit = stateBadge();
  const routes = routeTable((row) => figures.route(row.service.name, row.route.name), { ofService: true });
  const upstreams = upstreamTable(now, { searchable: false });
  const rows = { routes: routeRows([service]), upstreams: upstreamRows([service]) };
  const others = Object.fromEntries(Object.entries(service).filter(([key]) => !PLACED.has(key) && !GROUPS.some(([group]) => group === key)));
  const hosts = service.hosts ?? [];
  const node = el(
    "div",
    { class: "stack" },
    crumbs([["#/services", "Services"]], service.name),
    el("p", { class: "badges" }, badge.node, circuit.node),
    strip.node,
    el("p", { class: "muted" }, "Times are those of the slowest route."),
    section("Routes", el("div", { class: "card" }, routes.node)),
    section("Upstreams", el("div", { class: "card" }, upstreams.node)),
    section("Plugins", pluginLists(service, globals)),
    section(
      "Settings",
      el(
        "div",
        { class: "grid" },
        settingsCard(
          "Service",
          facts([
            ["Base path", el("span", { class: "mono" }, service.base_path)],
            ["Hosts", hosts.length === 0 ? "all" : hosts.join(", ")],
            ["Protocol", service.protocol],
            ["Strategy", el("span", { class: "mono" }, service.load_balancing_strategy)],
          ]),
        ),
        ...GROUPS.map(([key, title]) => service[key] !== undefined && settingsCard(title, settingsList(service[key]))),
        Object.keys(others).length > 0 && settingsCard("Other settings", settingsList(others)),
      ),
    ),
  );
  return {
    node,
    update(known) {
      now.update(known);
      figures = figuresByName(known.stats);
      strip.update(figures.service(service.name));
      const health = healthOf(known.health, service.name);
      badge.set(
        health === null
          ? { word: `${service.upstreams.length} upstreams`, tone: "idle" }
          : wordedUpstreams(usableText(health.upstreams, service.upstreams.length)),
      );
      const condition = circuitCondition(health?.circuit_breaker);
      circuit.node.hidden = condition === null;
      if (condition !== null) circuit.set(condition);
      routes.show(rows.routes);
      upstreams.show(rows.upstreams);
    },
    close() {
      routes.close();
      upstreams.close();
    },
  };
}

function wordedUpstreams({ word, tone }: Mark): Mark {
  return { word: word.replace(/ usable$/, " upstreams usable"), tone };
}

function settingsCard(title: string, content: HTMLElement): HTMLElement {
  return el("div", { class: "card" }, el("h3", { class: "card__title" }, title), content);
}

/** The service's own plugins, and how many run before and after them. */
function pluginLists({ plugins, routes }: ServiceConfig, globals: readonly PluginConfig[]): HTMLElement {
  const ofRoutes = routes.reduce((sum, route) => sum + route.plugins.length, 0);
  const around = [
    globals.length === 0 ? "" : `${globals.length} global ${globals.length === 1 ? "plugin runs" : "plugins run"} before these.`,
    ofRoutes === 0 ? "" : `${ofRoutes} ${ofRoutes === 1 ? "stands" : "stand"} at single routes and ${ofRoutes === 1 ? "runs" : "run"} after them.`,
  ].join(" ");
  const text = el("p", { class: "muted" });
  setText(text, `${plugins.length === 0 ? "No plugins of its own. " : ""}${around}`);
  return el(
    "div",
    { class: "card stack" },
    plugins.length > 0 && el("ol", { class: "plugin-list" }, ...plugins.map((plugin) => el("li", {}, pluginDetails(plugin)))),
    text.textContent !== "" && text,
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
    !enabled && el("span", { class: "badge badge--idle" }, "Off"),
    el("span", { class: "muted mono" }, ` ${summaryOf(config)}`),
  );
  return el("details", { class: "plugin" }, summary, settingsList(config));
}
