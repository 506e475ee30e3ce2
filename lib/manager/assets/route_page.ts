/**
 * The page of one route: its live statistics, and the path of a request through it.
 */
import type { PluginCounts, ProxyConfig, RouteConfig, RoutePlugins, ServiceConfig } from "./api.ts";
import { figuresAt } from "./asking.ts";
import { detailPage, type Detail } from "./configured_pages.ts";
import { el, setText } from "./dom.ts";
import { figureCharts } from "./figure_charts.ts";
import { formLinks } from "./form_links.ts";
import { hashFor } from "./url_hash.ts";
import { conditionTexts, exampleFor } from "./conditions.ts";
import { disabledOf, faultsOf, methodsOf, patternOf, placeOf, type PluginPlace } from "./inventory.ts";
import { live } from "./live.ts";
import type { Frame, OpenPage } from "./page.ts";
import { breadcrumbs, factList, figureStrip, loading, section, settingsList, slot } from "./components.ts";
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
  let running: readonly PluginPlace[] = [];
  let drawing: Pipeline | null = null;
  let counts: readonly PluginCounts[] = [];
  const drawn = slot("card");
  // Only the gateway knows in which order plugins run.
  const ofPlugins = `/gateway/plugins?${new URLSearchParams({ service: service.name, route: route.name })}`;
  const asking = figuresAt<RoutePlugins>(
    () => (drawing === null ? ofPlugins : `${ofPlugins}&only=counts`),
    "The plugins",
    ({ plugins }) => {
      counts = plugins;
      drawing ??= draw(plugins);
      drawTraffic();
    },
  );
  const legend = el("p", { class: "muted" });
  const strip = figureStrip({ ofRequests: true });
  const charts = figureCharts({ service: service.name, route: route.name });
  const warnings = warningList(frame);
  const off = disabledOf(config, service, route);
  const path = [
    ["#/routes", "Routes"],
    [hashFor("services", service.name), service.name],
  ] as const;
  const tryLink = el("a", { class: "button", href: `#/try?${exampleRequest(service, route)}` }, "Try it");
  const tailLink = el(
    "a",
    { class: "button", href: `#/tail?${new URLSearchParams({ service: service.name, route: route.name })}` },
    "Tail",
  );
  const changes = formLinks(frame, ["Add a rate limit", "limit", service.name, route.name]);
  const node = el(
    "div",
    { class: "stack" },
    el(
      "div",
      { class: "toolbar toolbar--apart" },
      breadcrumbs(path, route.name),
      el("span", { class: "badges" }, changes.node, tailLink, tryLink),
    ),
    warnings.node,
    strip.node,
    section("Path of a request", drawn.node, asking.note, legend),
    charts.node,
    off.length > 0 &&
      section(
        "Switched off",
        el("div", { class: "card" }, el("ul", { class: "plugin-list" }, ...off.map(disabledPlugin))),
      ),
  );
  drawn.put(loading("the plugins"));
  return { node, update };

  function draw(found: RoutePlugins["plugins"]): Pipeline {
    running = found.map((plugin) => placeOf(plugin, service.name, route.name));
    const pipeline = new Pipeline({
      listener: {
        title: methodsOf(route),
        text: patternOf(service, route),
        notes: conditionTexts(route.match),
        details: () => matchFacts(service, route),
      },
      plugins: found,
      ...{
        service: service.name,
        strategy: service.load_balancing_strategy,
        config: service,
        upstreams: service.upstreams,
      },
    });
    drawn.put(pipeline.node);
    setText(legend, legendOf(running));
    return pipeline;
  }

  function update(): void {
    changes.refresh();
    asking.update();
    strip.update(live.figures.route(service.name, route.name));
    charts.update();
    warnings.update(live.warningsOf(service.name, route.name));
    drawTraffic();
  }

  function drawTraffic(): void {
    const { name } = service;
    drawing?.update({
      route: live.figures.route(name, route.name),
      circuit: live.health(name)?.circuit_breaker ?? null,
      counts: (i) => counts[i] ?? null,
      faults: (i) => faultsOf(live.known?.status ?? null, running[i]!),
      upstream: (id) => ({
        health: live.upstream(name, id),
        figures: live.figures.upstream(name, id),
        share: live.share(service, id),
      }),
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
  const { methods, match, timeouts } = route;
  const conditions = conditionTexts(match);
  const { hosts = [] } = service;
  const answersHead = methods?.includes("GET") === true && !methods.includes("HEAD");
  return factList([
    ["Methods", methods === undefined ? "all" : methodsOf(route) + (answersHead ? " (and HEAD, as GET)" : "")],
    ["Path", el("span", { class: "mono" }, patternOf(service, route))],
    ["Hosts", hosts.length === 0 ? "all" : hosts.join(", ")],
    conditions.length === 0
      ? null
      : ["Conditions", el("div", {}, ...conditions.map((text) => el("div", { class: "mono" }, text)))],
    ["Sent to the upstream as", el("span", { class: "mono" }, route.path)],
    timeouts === undefined ? null : ["Its own timeouts", settingsList(timeouts)],
  ]);
}

function disabledPlugin({ level, plugin }: PluginPlace): HTMLElement {
  return el("li", {}, pluginDetails(plugin), el("span", { class: "muted sub" }, `${level} plugin`));
}

/** Explains the numbers in the drawing. */
function legendOf(running: readonly PluginPlace[]): string {
  const plugins =
    running.length === 0 ? "" : "Counts of plugins are since the start, on all routes for which they run. ";
  return (
    `${plugins}Figures and shares of upstreams count all routes of the service; without traffic, ` +
    `the share follows from splits and weights.`
  );
}
