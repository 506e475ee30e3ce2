/**
 * The plugins page: every plugin instance in a table, with its level, settings and failures.
 */
import { listPage } from "./configured_pages.ts";
import { el } from "./dom.ts";
import { number } from "./format.ts";
import { hashForForm, hashForPlace } from "./url_hash.ts";
import { faultsOf, pluginsOf, type PluginPlace } from "./inventory.ts";
import { live } from "./live.ts";
import type { Frame, OpenPage } from "./page.ts";
import { fixedBadge, link, settingsList } from "./components.ts";
import { instanceKey, pluginFigures } from "./plugin_figures_view.ts";
import { injectsFaults, pluginText } from "./plugin_texts.ts";
import { DataTable, fixedPart, linkColumn, numberColumn, textColumn, textPart, type Part } from "./tables.ts";

interface PluginRow extends PluginPlace {
  /** Instances may have no id, so the place in the configuration is the key. */
  readonly index: number;
  /** At its place: its id, or `rate_limit#2`. */
  readonly which: string;
  /** In the figures. */
  readonly key: string;
}

const LEVEL_ORDER = { global: 0, service: 1, route: 2 } as const;

export const page: OpenPage = (frame) => {
  const figures = pluginFigures(frame);
  const count =
    (what: "requests" | "answered") =>
    ({ plugin, key }: PluginRow) => {
      const counts = figures.counts();
      if (counts === null || !plugin.enabled) return null;
      return counts.get(key)?.[what] ?? 0;
    };
  const faults = (row: PluginRow) => live.known && faultsOf(live.known.status, row);
  const table = new DataTable<PluginRow>({
    name: "plugins",
    caption: "Plugins",
    nouns: ["plugin", "plugins"],
    keyOf: ({ index }) => String(index),
    searchText: ({ level, service, route, plugin }) =>
      [
        plugin.name,
        plugin.id ?? "",
        level,
        service ?? "",
        route ?? "",
        plugin.enabled ? "on" : "off",
        pluginText(plugin, 20),
      ].join(" "),
    empty: el("p", {}, "No plugins: requests are forwarded unchanged."),
    columns: [
      {
        key: "kind",
        title: "Kind",
        width: 165,
        sortBy: ({ plugin }) => plugin.name,
        make: ({ plugin }) => textPart(() => plugin.name, "kind"),
      },
      textColumn({ key: "id", title: "Id", drop: 2 }, ({ plugin }) => plugin.id ?? null),
      {
        key: "level",
        title: "Level",
        width: 75,
        drop: 1,
        sortBy: ({ level }) => LEVEL_ORDER[level],
        make: ({ level }) => textPart(() => level),
      },
      linkColumn(
        { key: "service", title: "Service" },
        ({ service }) => service,
        ({ service }) => hashForPlace({ service, route: null }),
      ),
      linkColumn({ key: "route", title: "Route" }, ({ route }) => route, hashForPlace),
      {
        key: "enabled",
        title: "State",
        width: 72,
        sortBy: ({ plugin }) => Number(plugin.enabled),
        make: ({ plugin }) =>
          fixedPart(
            fixedBadge(
              !plugin.enabled ? "idle" : injectsFaults(plugin) ? "warn" : "good",
              plugin.enabled ? "On" : "Off",
            ),
          ),
      },
      {
        key: "settings",
        title: "Settings",
        width: 236,
        className: "wide",
        sortBy: ({ plugin }) => pluginText(plugin),
        make: (row) => settingsPart(frame, row),
      },
      numberColumn({ key: "requests", title: "Requests", width: 84, drop: 3 }, count("requests"), number),
      numberColumn({ key: "answered", title: "Answered", width: 84, drop: 3 }, count("answered"), number),
      numberColumn({ key: "faults", title: "Failures", width: 76, drop: 3 }, faults, number, (node, row) =>
        node.classList.toggle("figure--bad", (faults(row) ?? 0) > 0),
      ),
    ],
  });
  const note = el(
    "p",
    { class: "muted" },
    "As configured, with the requests since the start and those that the plugin answered itself: refusals, " +
      "redirects, replies from a cache. The page of a route shows its plugins in the order in which they run.",
  );
  return listPage({
    title: "Plugins",
    table,
    rowsOf: (config) => rowsOf(pluginsOf(config)),
    above: el("div", { class: "stack" }, figures.above, note),
    below: figures.below,
    update: figures.update,
  });
};

function rowsOf(places: readonly PluginPlace[]): readonly PluginRow[] {
  const numbers = new Map<string, number>();
  return places.map((place, index) => {
    const {
      plugin: { name: plugin, id },
      level,
      service,
      route,
    } = place;
    const kind = JSON.stringify([plugin, level, service, route]);
    const number = (numbers.get(kind) ?? 0) + 1;
    numbers.set(kind, number);
    const which = id ?? (number === 1 ? plugin : `${plugin}#${number}`);
    return { ...place, index, which, key: instanceKey({ plugin, level, service, route, id: id ?? String(number) }) };
  });
}

/** The list is created when it is opened: there may be a thousand instances. */
function settingsPart(frame: Frame, { plugin, service, route, which }: PluginRow): Part {
  const summary = pluginText(plugin);
  if (summary === "") return fixedPart(el("span", { class: "muted" }, "none"));
  const details = el("details", { class: "plugin", ontoggle: open }, el("summary", { class: "mono" }, summary));
  function open(): void {
    if (details.open && details.children.length === 1) {
      const names = [service, route, which].filter((each) => each !== null);
      const change = link(hashForForm("plugin_settings", ...names), "Change");
      details.append(settingsList(plugin.config), frame.session?.write === true ? change : "");
    }
  }
  return { node: details, refresh: () => undefined };
}
