/**
 * Figures of plugins since the start, around the table of the plugins page: above it by kind, below it refusals by
 * code, caches and circuit breakers.
 */
import type { PluginCounts, PluginFigures } from "./api.ts";
import { figuresAt } from "./asking.ts";
import { link } from "./components.ts";
import { el } from "./dom.ts";
import { bytes, milliseconds, number, percent } from "./format.ts";
import { countsOf, liveTable } from "./live_tables.ts";
import type { Frame } from "./page.ts";
import { purgeAction } from "./purge_action.ts";
import { hashFor } from "./url_hash.ts";

/** Names a plugin instance in the figures: `id` is its own, or its number among its kind in the same place. */
export function instanceKey({
  plugin,
  level,
  service,
  route,
  id,
}: Pick<PluginFigures["plugins"][number], "plugin" | "level" | "service" | "route" | "id">): string {
  return JSON.stringify([plugin, level, service, route, id]);
}

export function pluginFigures(frame: Frame) {
  const purge = purgeAction(frame);
  const kinds = liveTable("By kind", ["Kind", "Instances", "Requests", "Mean time", "Results"], [1, 2, 3]);
  const refusals = liveTable("Refusals by code", ["Code", "Requests", "Routes"], [1, 2]);
  const caches = liveTable("Caches", ["Route", "Answered from it", "Requests"], [1]);
  const held = liveTable("Memory of caches", ["Cache", "Full", "Used", "Replies", "Dropped for room"], [1, 2, 3, 4]);
  const circuits = liveTable(
    "Circuit breakers",
    ["Service", "State", "Failed in the window", "Requests in the window"],
    [2, 3],
  );
  const asking = figuresAt<PluginFigures>("/gateway/plugin-figures", "Figures of plugins", show);
  const explained =
    "Since the start of the gateway; of plugins that have had requests. How full caches are is of this moment; " +
    "each worker has its own, and these are the sums.";
  const above = el("div", { class: "stack live" }, asking.note, kinds.node);
  const below = el(
    "div",
    { class: "stack live" },
    refusals.node,
    caches.node,
    held.node,
    purge.node,
    circuits.node,
    el("p", { class: "muted" }, explained),
  );
  /** Of each instance that has had requests; null: not known yet. */
  let counts: ReadonlyMap<string, PluginCounts> | null = null;
  return { above, below, update: asking.update, counts: () => counts };

  function show({ plugins, routes, caches: stores, circuits: all }: PluginFigures): void {
    counts = new Map(plugins.map((each) => [instanceKey(each), each]));
    kinds.show(
      grouped(plugins, ({ plugin }) => plugin),
      ([kind, instances]) => {
        const [requests, seconds] = [
          sum(instances.map((each) => each.requests)),
          sum(instances.map((each) => each.seconds)),
        ];
        const callers = instances.flatMap((each) => each.callers ?? []);
        const results = {
          ...merged(instances.map((each) => each.results)),
          ...(callers.length > 0 && { callers: sum(callers) }),
        };
        return [
          kind,
          number(instances.length),
          number(requests),
          milliseconds(requests === 0 ? null : (seconds * 1000) / requests),
          countsOf(results, number),
        ];
      },
    );
    const codes = merged(routes.map((each) => each.refusals));
    refusals.show(
      Object.entries(codes).sort((a, b) => b[1] - a[1]),
      ([code, count]) => [
        code,
        number(count),
        number(routes.filter((route) => route.refusals[code] !== undefined).length),
      ],
    );
    caches.show(
      routes.filter(({ cache }) => Object.keys(cache).length > 0),
      ({ service, route, cache }) => {
        const answered = sum(["hit", "collapsed", "revalidated", "stale_if_error"].map((result) => cache[result] ?? 0));
        const name =
          service === null || route === null
            ? "without a route"
            : link(hashFor("routes", service, route), `${service} ${route}`);
        return [name, percent(answered / sum(Object.values(cache))), countsOf(cache, number)];
      },
    );
    purge.refresh(stores.length > 0);
    held.show(
      stores.filter((each) => counts!.has(instanceKey(each))),
      ({ service, route, id, bytes: used, max_bytes: most, entries, evictions }) => {
        const place =
          service === null
            ? "global"
            : route === null
              ? link(hashFor("services", service), service)
              : link(hashFor("routes", service, route), `${service} ${route}`);
        return [
          el("span", {}, place, id === "1" ? "" : ` ${id}`),
          percent(used / most),
          `${bytes(used)} of ${bytes(most)}`,
          number(entries),
          number(evictions),
        ];
      },
    );
    circuits.show(all, ({ service, state, requests, failures }) => [
      link(hashFor("services", service), service),
      state.replace("_", " "),
      number(failures),
      number(requests),
    ]);
  }
}

function grouped<T>(all: readonly T[], keyOf: (each: T) => string): readonly (readonly [string, readonly T[]])[] {
  const groups = new Map<string, T[]>();
  for (const each of all) {
    const group = groups.get(keyOf(each));
    if (group === undefined) groups.set(keyOf(each), [each]);
    else group.push(each);
  }
  return [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
}

function sum(all: readonly number[]): number {
  return all.reduce((total, each) => total + each, 0);
}

function merged(all: readonly Readonly<Record<string, number>>[]): Readonly<Record<string, number>> {
  const counts = new Map<string, number>();
  for (const each of all)
    for (const [name, count] of Object.entries(each)) counts.set(name, (counts.get(name) ?? 0) + count);
  return Object.fromEntries(counts);
}
