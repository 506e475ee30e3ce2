/**
 * The page of one route: its live statistics, and the path of a request through it.
 */
import type { ProxyConfig, RouteConfig, ServiceConfig, UpstreamHealth } from "./api.ts";
import { conditionOf } from "./conditions.ts";
import { el } from "./dom.ts";
import { ago, until } from "./format.ts";
import { hashOf } from "./hash.ts";
import { addressOf, chainOf, faultsOf, figuresByName, healthOf, methodsOf, patternOf, sharesOf, type Placed } from "./inventory.ts";
import type { Known, OpenPage } from "./page.ts";
import { crumbs, facts, figureStrip, link, loading, missing, section, settingsList, slot } from "./parts.ts";
import { pipeline } from "./pipeline.ts";
import { pluginDetails } from "./services_page.ts";

export const routePage: OpenPage = (_frame, [serviceName = "", name = ""]) => {
  const place = slot();
  place.put(loading("the configuration"));
  const gone = missing(`route “${name}” in a service “${serviceName}”`, "#/routes", "All routes");
  let detail: (ReturnType<typeof routeDetail> & { readonly of: string }) | null = null;
  return {
    title: `Route ${name}`,
    node: place.node,
    update(known) {
      if (known.config === null) return;
      const service = known.config.services.find((one) => one.name === serviceName);
      const route = service?.routes.find((one) => one.name === name);
      if (service === undefined || route === undefined) return place.put(gone);
      const of = JSON.stringify([known.config.plugins, { ...service, routes: [route] }]);
      if (detail?.of !== of) {
        detail?.close();
        detail = { of, ...routeDetail(known.config, service, route) };
      }
      place.put(detail.node);
      detail.update(known);
    },
    close: () => detail?.close(),
  };
};

function routeDetail(
  config: ProxyConfig,
  service: ServiceConfig,
  route: RouteConfig,
): { readonly node: HTMLElement; update(known: Known): void; close(): void } {
  let now: Known | null = null;
  const strip = figureStrip({ limited: true });
  const chain = chainOf(config, service, route);
  const running = chain.filter(({ plugin }) => plugin.enabled);
  const off = chain.filter(({ plugin }) => !plugin.enabled);
  const pattern = patternOf(service, route);
  const hosts = service.hosts ?? [];
  const stateOf = (id: string) => healthOf(now?.health ?? null, service.name)?.upstreams.find((one) => one.id === id) ?? null;
  const drawing = pipeline({
    listener: {
      title: methodsOf(route),
      text: pattern,
      details: () =>
        facts([
          [
            "Methods",
            route.methods === undefined
              ? "all"
              : methodsOf(route) + (route.methods.includes("GET") && !route.methods.includes("HEAD") ? " (and HEAD, as GET)" : ""),
          ],
          ["Path", el("span", { class: "mono" }, pattern)],
          ["Hosts", hosts.length === 0 ? "all" : hosts.join(", ")],
          ["Sent to the upstream as", el("span", { class: "mono" }, route.path)],
        ]),
    },
    plugins: running.map(({ level, plugin }) => ({ level, name: plugin.name, id: plugin.id ?? null, config: plugin.config })),
    strategy: { name: service.load_balancing_strategy, details: () => strategyDetails(service) },
    upstreams: service.upstreams.map((upstream) => ({
      id: upstream.id,
      address: addressOf(upstream),
      details: () => upstreamFacts(stateOf(upstream.id), service.name, upstream),
    })),
  });
  const asked = new URLSearchParams({ method: route.methods?.[0] ?? "GET", url: pattern });
  const node = el(
    "div",
    { class: "stack" },
    el(
      "div",
      { class: "toolbar toolbar--apart" },
      crumbs(
        [
          ["#/routes", "Routes"],
          [hashOf("services", service.name), service.name],
        ],
        route.name,
      ),
      el("a", { class: "button", href: `#/try?${asked}` }, "Try it"),
    ),
    strip.node,
    section("The way of a request", el("div", { class: "card" }, drawing.node), el("p", { class: "muted" }, legendOf(running))),
    off.length > 0 &&
      section(
        "Switched off",
        el(
          "div",
          { class: "card" },
          el(
            "ul",
            { class: "plugin-list" },
            ...off.map(({ level, plugin }) => el("li", {}, pluginDetails(plugin), el("span", { class: "muted sub" }, `${level} plugin`))),
          ),
        ),
      ),
  );
  return {
    node,
    update(known) {
      now = known;
      const figures = figuresByName(known.stats);
      const own = figures.route(service.name, route.name);
      const health = healthOf(known.health, service.name);
      const states = new Map(health?.upstreams.map((one) => [one.id, one]));
      const shares = sharesOf(service.upstreams, health?.upstreams ?? null, (id) => figures.upstream(service.name, id)?.requests_per_s ?? 0);
      strip.update(own);
      drawing.update({
        route: own,
        circuit: health?.circuit_breaker?.state ?? null,
        faults: (i) => faultsOf(known.status, running[i]!),
        upstream: (id) => ({ health: states.get(id) ?? null, figures: figures.upstream(service.name, id), share: shares.get(id) ?? null }),
      });
    },
    close: () => drawing.close(),
  };
}

/** Explains the numbers in the drawing. */
function legendOf(running: readonly Placed[]): string {
  const least = running.length === 0 ? "" : "“≤”: at most so many, since a plugin before may have answered some itself. ";
  return `${least}Figures and shares of upstreams are those of all routes of the service; where it has no traffic, the share is the one its weights plan.`;
}

function strategyDetails(service: ServiceConfig): HTMLElement {
  const groups = [
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
      facts([
        ["Service", link(hashOf("services", service.name), service.name)],
        ["Protocol", service.protocol],
      ]),
    ),
    ...groups.map(([title, settings]) => settings !== undefined && el("div", {}, el("h4", {}, title), settingsList(settings))),
  );
}

/** The state at this moment; the stage itself is kept up to date. */
export function upstreamFacts(
  state: UpstreamHealth | null,
  service: string,
  upstream: { readonly id: string; readonly host: string; readonly port: number; readonly weight: number },
): HTMLElement {
  const at = Date.now();
  return facts([
    ["Address", el("span", { class: "mono" }, addressOf(upstream))],
    ["Weight", String(upstream.weight)],
    ["State", conditionOf(state).word],
    state === null || state.since === null ? null : ["Since", ago(state.since, at)],
    state === null || state.until === null ? null : ["Back", until(state.until, at)],
    state === null || state.reason === null ? null : ["Reason", state.reason],
    state === null ? null : ["In flight", String(state.in_flight)],
    ["More", link(hashOf("upstreams", service, upstream.id), "The page of this upstream")],
  ]);
}
