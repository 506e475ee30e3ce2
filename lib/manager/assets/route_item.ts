/**
 * The page of one route: its figures, and the path of a request through it.
 */
import type { ProxyConfig, RequestList, RouteConfig, RoutePlugins, ServiceConfig } from "./api.ts";
import { figuresAt } from "./asking.ts";
import { factList, loading, section, slot } from "./components.ts";
import { conditionTexts, exampleFor } from "./conditions.ts";
import { el, setText } from "./dom.ts";
import { failures } from "./failures.ts";
import { counted, moment, number } from "./format.ts";
import { disabledOf, endpointsOf, faultsOf, methodsOf, patternOf, placeOf, type PluginPlace } from "./inventory.ts";
import { editTab, itemPage, settingsTab, trafficTab, warningsOf } from "./item_page.ts";
import { live } from "./live.ts";
import type { OpenPage } from "./page.ts";
import { Pipeline } from "./pipeline.ts";
import { ratioOf } from "./ranking_view.ts";
import type { Part } from "./tables.ts";
import { hashFor } from "./url_hash.ts";

const AGAIN_MS = 5_000;

export const onePage: OpenPage = (frame, [serviceName = "", name = ""]) =>
  itemPage({
    frame,
    title: `Route ${name}`,
    service: serviceName,
    missing: [`route “${name}” in a service “${serviceName}”`, "#/routes", "All routes"],
    find({ services }) {
      const service = services.find((each) => each.name === serviceName);
      const route = service?.routes.find((each) => each.name === name);
      return service === undefined || route === undefined ? null : { service, route };
    },
    shown: ({ service, route }, { plugins }) => [plugins, { ...service, routes: [route] }],
    itemOf({ service, route }, config) {
      const of = { service: serviceName, route: name };
      return {
        name,
        of,
        crumbs: [
          ["#/routes", "Routes"],
          [hashFor("services", serviceName), serviceName],
        ],
        links: [[`#/try?${exampleRequest(service, route)}`, "Try it"]],
        head: [warningsOf(frame, serviceName, name)],
        tabs: {
          Traffic: () => trafficTab(of, () => live.figures.route(serviceName, name)),
          Failures: () => failures(of),
          Path: () => pathOfRequest(config, service, route),
          Settings: () => settingsTab(frame, of),
          Edit: () =>
            editTab(
              of,
              ["Add a rate limit", "limit", serviceName, name],
              ["Add a plugin", "plugin", serviceName, name],
              ["Change its settings", "route_settings", serviceName, name],
            ),
        },
      };
    },
  });

function pathOfRequest(config: ProxyConfig, service: ServiceConfig, route: RouteConfig): Part {
  let running: readonly PluginPlace[] = [];
  let drawing: Pipeline | null = null;
  let seen: RequestList | null = null;
  const drawn = slot("card");
  const of = { service: service.name, route: route.name };
  // Only the gateway knows in which order plugins run.
  const asking = figuresAt<RoutePlugins>(
    `/gateway/plugins?${new URLSearchParams(of)}`,
    "The plugins",
    ({ plugins }) => {
      drawing = draw(plugins);
      drawTraffic();
    },
    () => (drawing === null ? AGAIN_MS : Infinity),
  );
  const watching = figuresAt<RequestList>(
    `/gateway/requests?${new URLSearchParams({ ...of, limit: "1" })}`,
    "Its requests",
    (list) => {
      seen = list;
      drawTraffic();
    },
    () => AGAIN_MS,
  );
  const legend = el("p", { class: "muted" });
  const off = disabledOf(config, service, route).map(({ level, plugin: { name, id } }) => `${id ?? name} (${level})`);
  const offText = off.length > 0 && el("p", { class: "muted" }, `Switched off: ${off.join(", ")}.`);
  drawn.put(loading("the plugins"));
  return {
    node: section("Path of a request", drawn.node, asking.note, legend, watching.note, offText),
    refresh: update,
  };

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
      service: service.name,
      strategy: service.load_balancing_strategy,
      config: service,
      upstreams: endpointsOf(service, live.health(service.name)),
    });
    drawn.put(pipeline.node);
    return pipeline;
  }

  function update(): void {
    asking.update();
    watching.update();
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
  const { methods, match, path } = route;
  const conditions = conditionTexts(match).map((text) => el("div", { class: "mono" }, text));
  const answersHead = methods?.includes("GET") === true && !methods.includes("HEAD");
  return factList([
    ["Methods", methods === undefined ? "all" : methodsOf(route) + (answersHead ? " (and HEAD, as GET)" : "")],
    ["Path", el("span", { class: "mono" }, patternOf(service, route))],
    ["Hosts", service.hosts?.join(", ") || "all"],
    conditions.length === 0 ? null : ["Conditions", el("div", {}, ...conditions)],
    ["Sent to the upstream as", el("span", { class: "mono" }, path)],
  ]);
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
