/**
 * The page of one route: its live statistics, and the path of a request through it.
 */
import type { ProxyConfig, RouteConfig, RoutePlugins, ServiceConfig, ServiceHealth, UpstreamHealth } from "./api.ts";
import { upstreamLabel } from "./state_labels.ts";
import { figuresAt } from "./asking.ts";
import { detailPage, type Detail } from "./configured_pages.ts";
import { el, setText } from "./dom.ts";
import { ago, until } from "./format.ts";
import { figureCharts } from "./figure_charts.ts";
import { formLinks } from "./form_links.ts";
import { hashFor } from "./url_hash.ts";
import { balancingFacts } from "./balancing_view.ts";
import { balancingNotes, sharesOf, strategyText } from "./balancing.ts";
import { conditionTexts, exampleFor } from "./conditions.ts";
import { addressOf, disabledOf, faultsOf, figuresByName, healthOf, methodsOf, patternOf, placeOf, type PluginPlace } from "./inventory.ts";
import type { Frame, Known, OpenPage } from "./page.ts";
import { breadcrumbs, factList, figureStrip, link, loading, section, settingsList, slot } from "./components.ts";
import { Pipeline } from "./pipeline.ts";
import { pluginDetails } from "./services_page.ts";
import { warningList } from "./warnings.ts";

export const onePage: OpenPage = (frame, [serviceName = "", name = ""]) =>
  detailPage({
    title: `Route ${name}`,
    service: serviceName,
    missing: { what: `route “${name}” in a service “${serviceName}”`, href: "#/routes", back: "All routes" },
    find({ services }) {
      const service = services.find((each) => each.name === serviceName);
      const route = service?.routes.find((each) => each.name === name);
      return service === undefined || route === undefined ? null : { service, route };
    },
    shown: ({ service, route }, { plugins }) => [plugins, { ...service, routes: [route] }],
    create: ({ service, route }, config) => routeDetail(config, service, route, frame),
  });

function routeDetail(config: ProxyConfig, service: ServiceConfig, route: RouteConfig, frame: Frame): Detail {
  let known: Known | null = null;
  let health: ServiceHealth | null = null;
  let running: readonly PluginPlace[] = [];
  let drawing: Pipeline | null = null;
  let counts: RoutePlugins["plugins"] = [];
  const drawn = slot("card");
  // Only the gateway knows in which order plugins run.
  const asking = figuresAt<RoutePlugins>(`/gateway/plugins?${new URLSearchParams({ service: service.name, route: route.name })}`, "The plugins", ({ plugins }) => {
    counts = plugins;
    if (drawing === null) draw(plugins);
    else if (known !== null) update(known);
  });
  const legend = el("p", { class: "muted" });
  const strip = figureStrip({ ofRequests: true });
  const charts = figureCharts({ service: service.name, route: route.name });
  const warnings = warningList();
  const off = disabledOf(config, service, route);
  const path = [["#/routes", "Routes"], [hashFor("services", service.name), service.name]] as const;
  const tryLink = el("a", { class: "button", href: `#/try?${exampleRequest(service, route)}` }, "Try it");
  const tailLink = el("a", { class: "button", href: `#/tail?${new URLSearchParams({ service: service.name, route: route.name })}` }, "Tail");
  const changes = formLinks(frame, ["Add a rate limit", "limit", service.name, route.name]);
  const node = el(
    "div",
    { class: "stack" },
    el("div", { class: "toolbar toolbar--apart" }, breadcrumbs(path, route.name), el("span", { class: "badges" }, changes.node, tailLink, tryLink)),
    warnings.node,
    strip.node,
    section("Path of a request", drawn.node, asking.note, legend),
    charts.node,
    off.length > 0 && section("Switched off", el("div", { class: "card" }, el("ul", { class: "plugin-list" }, ...off.map(disabledPlugin)))),
  );
  drawn.put(loading("the plugins"));
  return { node, update };

  function draw(found: RoutePlugins["plugins"]): void {
    running = found.map((plugin) => placeOf(plugin, service.name, route.name));
    drawing = new Pipeline({
      listener: { title: methodsOf(route), text: patternOf(service, route), notes: conditionTexts(route.match), details: () => matchFacts(service, route) },
      plugins: found,
      strategy: { name: service.load_balancing_strategy, text: strategyText(service), notes: balancingNotes(service), details: () => strategyDetails(service) },
      upstreams: service.upstreams.map((upstream) => ({
        id: upstream.id,
        address: addressOf(upstream),
        group: upstream.group ?? null,
        details: () => upstreamFacts(health?.upstreams.find(({ id }) => id === upstream.id) ?? null, service.name, upstream, known?.now ?? 0),
      })),
    });
    drawn.put(drawing.node);
    setText(legend, legendOf(running));
    if (known !== null) update(known);
  }

  function update(next: Known): void {
    known = next;
    const figures = figuresByName(known.stats);
    const own = figures.route(service.name, route.name);
    health = healthOf(known.health, service.name);
    const states = new Map(health?.upstreams.map((each) => [each.id, each]));
    const shares = sharesOf(service.upstreams, health?.upstreams ?? null, (id) => figures.upstream(service.name, id)?.requests_per_s ?? 0);
    changes.refresh();
    asking.update(next.now);
    strip.update(own);
    charts.update(known);
    warnings.update((known.status?.warnings ?? []).filter((warning) => warning.service === service.name && warning.route === route.name));
    drawing?.update({
      route: own,
      circuit: health?.circuit_breaker?.state ?? null,
      counts: (i) => counts[i] ?? null,
      faults: (i) => faultsOf(next.status, running[i]!),
      upstream: (id) => ({ health: states.get(id) ?? null, figures: figures.upstream(service.name, id), share: shares.get(id) ?? null }),
    });
  }
}

/** For the "Try it" page: what the route asks for, as far as it can be known. */
function exampleRequest(service: ServiceConfig, route: RouteConfig): URLSearchParams {
  const { query, headers } = exampleFor(route.match);
  const url = patternOf(service, route) + (query === "" ? "" : `?${query}`);
  return new URLSearchParams({ method: route.methods?.[0] ?? "GET", url, ...(headers !== "" && { headers }) });
}

function matchFacts(service: ServiceConfig, route: RouteConfig): HTMLElement {
  const { methods, match } = route;
  const conditions = conditionTexts(match);
  const { hosts = [] } = service;
  const answersHead = methods?.includes("GET") === true && !methods.includes("HEAD");
  return factList([
    ["Methods", methods === undefined ? "all" : methodsOf(route) + (answersHead ? " (and HEAD, as GET)" : "")],
    ["Path", el("span", { class: "mono" }, patternOf(service, route))],
    ["Hosts", hosts.length === 0 ? "all" : hosts.join(", ")],
    conditions.length === 0 ? null : ["Conditions", el("div", {}, ...conditions.map((text) => el("div", { class: "mono" }, text)))],
    ["Sent to the upstream as", el("span", { class: "mono" }, route.path)],
  ]);
}

function disabledPlugin({ level, plugin }: PluginPlace): HTMLElement {
  return el("li", {}, pluginDetails(plugin), el("span", { class: "muted sub" }, `${level} plugin`));
}

/** Explains the numbers in the drawing. */
function legendOf(running: readonly PluginPlace[]): string {
  const plugins = running.length === 0 ? "" : "Counts of plugins are since the start, on all routes for which they run. ";
  return `${plugins}Figures and shares of upstreams count all routes of the service; without traffic, the share follows from splits and weights.`;
}

function strategyDetails(service: ServiceConfig): HTMLElement {
  const settings = [
    ["Circuit breaker", service.circuit_breaker],
    ["Retries", service.retries],
    ["Timeouts", service.timeouts],
    ["Health checks", service.health],
  ] as const;
  return el(
    "div",
    { class: "grid" },
    el(
      "div",
      {},
      el("h4", {}, "Service"),
      factList([
        ["Service", link(hashFor("services", service.name), service.name)],
        ["Protocol", service.protocol],
        ...balancingFacts(service),
      ]),
    ),
    ...settings.map(([title, values]) => values !== undefined && el("div", {}, el("h4", {}, title), settingsList(values))),
  );
}

/** The state when the details are opened, at `at` by the gateway's clock; the stage itself is kept up to date. */
export function upstreamFacts(
  state: UpstreamHealth | null,
  service: string,
  upstream: { readonly id: string; readonly host: string; readonly port: number; readonly weight: number; readonly group?: string | null | undefined },
  at: number,
): HTMLElement {
  return factList([
    ["Address", el("span", { class: "mono" }, addressOf(upstream))],
    ["Weight", String(upstream.weight)],
    upstream.group == null ? null : ["Group", upstream.group],
    ["State", upstreamLabel(state).text],
    state === null || state.since === null ? null : ["Since", ago(state.since, at)],
    state === null || state.until === null ? null : ["Back", until(state.until, at)],
    state === null || state.reason === null ? null : ["Reason", state.reason],
    state === null ? null : ["In flight", String(state.in_flight)],
    ["More", link(hashFor("upstreams", service, upstream.id), "The page of this upstream")],
  ]);
}
