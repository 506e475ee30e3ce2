/**
 * Figures of plugins since the start, below the table of the plugins page: by kind, refusals by code, caches and circuit breakers.
 */
import type { PluginFigures } from "./api.ts";
import { figuresAt } from "./asking.ts";
import { link } from "./components.ts";
import { el } from "./dom.ts";
import { milliseconds, number, percent } from "./format.ts";
import { countsOf, liveTable } from "./live_tables.ts";
import { hashFor } from "./url_hash.ts";

export function pluginFigures() {
  const kinds = liveTable("By kind", ["Kind", "Instances", "Requests", "Mean time", "Results"], [1, 2, 3]);
  const refusals = liveTable("Refusals by code", ["Code", "Requests", "Routes"], [1, 2]);
  const caches = liveTable("Caches", ["Route", "Answered from it", "Requests"], [1]);
  const circuits = liveTable("Circuit breakers", ["Service", "State", "Failed in the window", "Requests in the window"], [2, 3]);
  const asking = figuresAt<PluginFigures>("/gateway/plugin-figures", "Figures of plugins", show);
  const node = el("div", { class: "stack live" }, asking.note, kinds.node, refusals.node, caches.node, circuits.node, el("p", { class: "muted" }, "Since the start of the gateway; of plugins that have had requests."));
  return { node, update: asking.update, close };

  function close(): void {
    for (const each of [asking, kinds, refusals, caches, circuits]) each.close();
  }

  function show({ plugins, routes, circuits: all }: PluginFigures): void {
    kinds.show(grouped(plugins, ({ plugin }) => plugin).map(([kind, instances]) => {
      const [requests, seconds] = [sum(instances.map((each) => each.requests)), sum(instances.map((each) => each.seconds))];
      const callers = instances.flatMap((each) => each.callers ?? []);
      const results = { ...merged(instances.map((each) => each.results)), ...(callers.length > 0 && { callers: sum(callers) }) };
      return [kind, number(instances.length), number(requests), milliseconds(requests === 0 ? null : (seconds * 1000) / requests), countsOf(results, number)];
    }));
    const codes = merged(routes.map((each) => each.refusals));
    refusals.show(Object.entries(codes).sort((a, b) => b[1] - a[1]).map(([code, count]) => [code, number(count), number(routes.filter((route) => route.refusals[code] !== undefined).length)]));
    caches.show(routes.filter(({ cache }) => Object.keys(cache).length > 0).map(({ service, route, cache }) => {
      const answered = sum(["hit", "collapsed", "revalidated", "stale_if_error"].map((result) => cache[result] ?? 0));
      const name = service === null || route === null ? "without a route" : link(hashFor("routes", service, route), `${service} ${route}`);
      return [name, percent(answered / sum(Object.values(cache))), countsOf(cache, number)];
    }));
    circuits.show(all.map(({ service, state, requests, failures }) => [link(hashFor("services", service), service), state.replace("_", " "), number(failures), number(requests)]));
  }
}

function grouped<T>(all: readonly T[], keyOf: (each: T) => string): readonly (readonly [string, readonly T[]])[] {
  const groups = new Map<string, T[]>();
  for (const each of all) groups.set(keyOf(each), [...(groups.get(keyOf(each)) ?? []), each]);
  return [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
}

function sum(all: readonly number[]): number {
  return all.reduce((total, each) => total + each, 0);
}

function merged(all: readonly Readonly<Record<string, number>>[]): Readonly<Record<string, number>> {
  const counts = new Map<string, number>();
  for (const each of all) for (const [name, count] of Object.entries(each)) counts.set(name, (counts.get(name) ?? 0) + count);
  return Object.fromEntries(counts);
}
