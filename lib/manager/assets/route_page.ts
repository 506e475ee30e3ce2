/**
 * The page of one route: its live statistics, and the path of a request through it.
 */
import type { ProxyConfig, RequestList, RouteConfig, RoutePlugins, ServiceConfig } from "./api.ts";
import { figuresAt } from "./asking.ts";
import { detailPage, type Detail } from "./configured_pages.ts";
import { el, setText } from "./dom.ts";
import { failures } from "./failures.ts";
import { figureCharts } from "./figure_charts.ts";
import { counted, moment, number } from "./format.ts";
import { formLinks } from "./form_links.ts";
import { hashFor, hashForRequests } from "./url_hash.ts";
import { conditionTexts, exampleFor } from "./conditions.ts";
import { disabledOf, faultsOf, methodsOf, patternOf, placeOf, type PluginPlace } from "./inventory.ts";
import { live } from "./live.ts";
import type { Frame, OpenPage } from "./page.ts";
import { breadcrumbs, factList, figureStrip, loading, section, settingsList, slot } from "./components.ts";
import { Pipeline } from "./pipeline.ts";
import { ratioOf } from "./ranking_view.ts";
import { pluginDetails } from "./services_page.ts";
import { warningList } from "./warnings.ts";

const AGAIN_MS = 5_000;

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
  let seen: RequestList | null = null;
  const drawn = slot("card");
  // Only the gateway knows in which order plugins run.
  const of = { service: service.name, route: route.name };
  const asking = figuresAt<RoutePlugins>(
    `/gateway/plugins?${new URLSearchParams(of)}`,
    "The plugins",
    ({ plugins }) => {
      drawing = draw(plugins);
      drawTraffic();
    },
    () => (drawing === null ? AGAIN_MS : Infinity),
  );
  const ofRequests = `/gateway/requests?${new URLSearchParams({ ...of, limit: "1" })}`;
  const watching = figuresAt<RequestList>(
    ofRequests,
    "Its requests",
    (list) => {
      seen = list;
      drawTraffic();
    },
    () => AGAIN_MS,
  );
  const failed = failures(of);
  const legend = el("p", { class: "muted" });
  const strip = figureStrip({ ofRequests: true });
  const charts = figureCharts(of);
  const warnings = warningList(frame);
  const off = disabledOf(config, service, route);
  const path = [
    ["#/routes", "Routes"],
    [hashFor("services", service.name), service.name],
  ] as const;
  const tryLink = el("a", { class: "button", href: `#/try?${exampleRequest(service, route)}` }, "Try it");
  const requestsLink = el("a", { class: "button", href: hashForRequests(of) }, "Requests");
  const changes = formLinks(frame, ["Add a rate limit", "limit", service.name, route.name]);
  const node = el(
    "div",
    { class: "stack" },
    el(
      "div",
      { class: "toolbar toolbar--apart" },
      breadcrumbs(path, route.name),
      el("span", { class: "badges" }, changes.node, requestsLink, tryLink),
    ),
    warnings.node,
    strip.node,
    failed.node,
    section("Path of a request", drawn.node, asking.note, legend, watching.note),
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
    return pipeline;
  }

  function update(): void {
    changes.refresh();
    asking.update();
    watching.update();
    failed.update();
    strip.update(live.figures.route(service.name, route.name));
    charts.update();
    warnings.update(live.warningsOf(service.name, route.name));
    drawTraffic();
  }

  function drawTraffic(): void {
    const { name } = service;
    setText(legend, legendOf(seen));
    drawing?.update({
      route: live.figures.route(name, route.name),
      circuit: live.health(name)?.circuit_breaker ?? null,
      answered: (plugin) => partOf(seen, "by", plugin),
      faults: (i) => faultsText(running[i]!),
      upstream(id) {
        const health = live.upstream(name, id);
        const share = partOf(seen, "upstream", id);
        if (share !== null) return { health, share: { share, how: "measured" } };
        return { health, share: health && { share: health.share, how: "planned" } };
      },
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

function faultsText(place: PluginPlace): string {
  const count = faultsOf(live.known?.status ?? null, place);
  const where = place.level === "route" ? "" : ", on all routes";
  return count === 0 ? "" : `${counted(count, "failure")} since the start${where}`;
}

/** Of the remembered requests of the route, 0 to 1; null: there are none. */
function partOf(seen: RequestList | null, facet: "by" | "upstream", value: string): number | null {
  if (seen === null || seen.matching === 0) return null;
  return ratioOf(seen.facets[facet].values.find((each) => each.value === value)?.count ?? 0, seen.matching);
}

/** Explains the numbers in the drawing. */
function legendOf(seen: RequestList | null): string {
  if (seen === null) return "";
  if (seen.matching === 0)
    return "No request of this route is remembered: shares follow from splits, weights and health.";
  return (
    `Rate and times are those of the last minute, shares those of the ` +
    `${counted(seen.matching, "request")} of this route among the ${number(seen.looked)} that were looked at, since ` +
    `${moment(seen.since!)}. A share of a plugin is that of its kind.`
  );
}
