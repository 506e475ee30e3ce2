/**
 * The services page: all services in a table.
 */
import type { ServiceConfig } from "./api.ts";
import { hashedText } from "./balancing.ts";
import { breakable, link, setOptional, stateBadge } from "./components.ts";
import { listPage } from "./configured_pages.ts";
import { el } from "./dom.ts";
import { counted, listed } from "./format.ts";
import { live } from "./live.ts";
import type { OpenPage } from "./page.ts";
import { circuitLabel, upstreamLabel, usableLabel } from "./state_labels.ts";
import { clientErrorColumn, DataTable, figureColumns, fixedPart, type Part } from "./tables.ts";
import { hashFor } from "./url_hash.ts";
import { withWarnings } from "./warnings.ts";

export const page: OpenPage = ({ session }) => {
  const table = new DataTable<ServiceConfig>({
    name: "services",
    caption: "Services",
    nouns: ["service", "services"],
    keyOf: ({ name }) => name,
    searchText({ name, base_path: path, protocol, load_balancing_strategy: strategy, hosts, hash_on: on, ...others }) {
      const groups = others.split?.map(({ group }) => group) ?? [];
      return [name, path, protocol, strategy, ...(hosts ?? []), on, others.sticky && "sticky", ...groups].join(" ");
    },
    empty: el(
      "p",
      {},
      "No services yet. ",
      session?.write === true
        ? link("#/add/service", "Add a service")
        : "Add one to the configuration file, and reload.",
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
      ...figureColumns<ServiceConfig>(figuresOf, clientErrorColumn(figuresOf)),
    ],
  });
  return listPage({ title: "Services", table, rowsOf: ({ services }) => services, shown: "services" });
};

function figuresOf({ name }: ServiceConfig) {
  return live.figures.service(name);
}

function serviceName({ name, routes }: ServiceConfig): Part {
  const count = el("span", { class: "muted sub" }, counted(routes.length, "route"));
  return withWarnings([link(hashFor("services", name), name), count], () => live.warnings.service(name));
}

/** Groups named in the table; further ones are only counted. */
const MAX_GROUPS = 3;

function strategyPart({ protocol, load_balancing_strategy, hash_on: hashOn, sticky, split = [] }: ServiceConfig): Part {
  const groups = [...new Set(split.map(({ group }) => group))];
  const more = [
    hashOn !== undefined && `on ${hashedText(hashOn)}`,
    sticky !== undefined && `sticky by ${sticky.cookie}`,
    groups.length > 0 && `split to ${listed(groups, MAX_GROUPS)}`,
    `over ${protocol}`,
  ];
  return fixedPart(load_balancing_strategy, ...more.map((text) => text && el("span", { class: "muted sub" }, text)));
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

/** How many can be used, and whether the circuit breaker is open. */
export function upstreamsPart({ name, upstreams }: ServiceConfig): Part {
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
