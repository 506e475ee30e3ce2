/**
 * The page of one configured item: its name, what leads on from it and its state, and below them tabs, of which the one
 * in the address ("#/routes/shop/list?tab=failures") is shown. What is hidden asks the gateway for nothing.
 */
import type { ItemSettings, ProxyConfig } from "./api.ts";
import { figuresAt } from "./asking.ts";
import {
  breadcrumbs,
  breakable,
  figureStrip,
  link,
  loading,
  missing as notFound,
  slot,
  type AnyFigures,
} from "./components.ts";
import { el, replace } from "./dom.ts";
import { figureCharts } from "./figure_charts.ts";
import { live } from "./live.ts";
import type { Frame, Page } from "./page.ts";
import { valueText } from "./setting_lines.ts";
import type { Part } from "./tables.ts";
import { editorHash, hashForForm, hashForRequests, hashWith, pathIn, queryIn } from "./url_hash.ts";
import { warningList } from "./warnings.ts";

const AGAIN_MS = 5_000;
/** In the order in which they are shown. The last is for users from whom the gateway takes changes. */
const TABS = ["Traffic", "Failures", "Path", "Settings", "Edit"] as const;

/** Of which item: the parameters of the admin interface. */
export type Of = Readonly<Partial<Record<"service" | "route" | "upstream" | "caller", string>>>;

export interface Item {
  readonly name: string;
  /** The pages above it. */
  readonly crumbs: readonly (readonly [href: string, text: string])[];
  readonly of: Of;
  /** Beside its requests. */
  readonly links?: readonly (readonly [href: string, text: string])[];
  /** Above the tabs. */
  readonly head: readonly Part[];
  /** Each is made when it is shown first. */
  readonly tabs: Readonly<Record<(typeof TABS)[number], () => Part>>;
}

interface ItemOptions<Found> {
  readonly frame: Frame;
  readonly title: string;
  readonly service: string;
  /** Null: not in the configuration. */
  readonly find: (config: ProxyConfig) => Found | null;
  /** The name of the missing item, and the list that users can go to. */
  readonly missing: readonly [what: string, href: string, back: string];
  /** The configuration that is shown: the page is made again when it has changed. */
  readonly shown: (found: Found, config: ProxyConfig) => unknown;
  readonly itemOf: (found: Found, config: ProxyConfig) => Item;
}

export function itemPage<Found>({ frame, title, service, find, missing, shown, itemOf }: ItemOptions<Found>): Page {
  const content = slot();
  content.put(loading("the configuration"));
  const none: Part = { node: notFound(...missing), refresh() {} };
  let part = none;
  let key = "";
  let config: ProxyConfig | null = null;
  return {
    title,
    node: content.node,
    shown: { service },
    hasTabs: true,
    update(known) {
      if (known.config === null) return;
      if (known.config !== config) {
        config = known.config;
        const found = find(config);
        const next = JSON.stringify(found && shown(found, config));
        if (next !== key) part = found === null ? none : itemPart(frame, itemOf(found, config));
        key = next;
      }
      content.put(part.node);
      part.refresh();
    },
  };
}

export function itemPart(frame: Frame, { name, crumbs, of, links = [], head, tabs }: Item): Part {
  const place = pathIn(location.hash);
  const nameOf = (tab: string) => (tab === TABS[0] ? "" : tab.toLowerCase());
  const shown = slot();
  const made = new Map<string, Part>();
  const ways = TABS.map((tab) => ({ tab, node: el("a", { href: hashWith(place, { tab: nameOf(tab) }) }, tab) }));
  const buttons = [[hashForRequests(of as Readonly<Record<string, string>>), "Requests"] as const, ...links];
  const leading = buttons.map(([href, text]) => el("a", { class: "button", href }, text));
  const node = el(
    "div",
    { class: "stack" },
    el(
      "div",
      { class: "toolbar toolbar--apart" },
      breadcrumbs(crumbs, name),
      el("span", { class: "badges" }, ...leading),
    ),
    ...head.map((part) => part.node as HTMLElement),
    el("nav", { class: "tabs", "aria-label": `Parts of ${name}` }, ...ways.map((way) => way.node)),
    shown.node,
  );
  return { node, refresh };

  function refresh(): void {
    for (const part of head) part.refresh();
    const asked = queryIn(location.hash).get("tab");
    const current = TABS.find((tab) => nameOf(tab) === asked && isOpen(tab)) ?? TABS[0];
    for (const { tab, node: way } of ways) {
      way.hidden = !isOpen(tab);
      if (tab === current) way.setAttribute("aria-current", "page");
      else way.removeAttribute("aria-current");
    }
    const part = made.get(current) ?? tabs[current]();
    made.set(current, part);
    shown.put(part.node);
    part.refresh();
  }

  function isOpen(tab: (typeof TABS)[number]): boolean {
    return tab !== "Edit" || frame.session?.write === true;
  }
}

type Below = Part | Node | false;

/** Several parts, one below the other. */
export function stackOf(...parts: readonly Below[]): Part & { readonly node: HTMLElement } {
  const shown = parts.filter((each) => each !== false);
  const node = el("div", { class: "stack" }, ...shown.map((each) => (each instanceof Node ? each : each.node)));
  return { node, refresh: () => shown.forEach((each) => "refresh" in each && each.refresh()) };
}

/** Figures that tries to upstreams do not have, and those that are not counted by caller. */
const OF_REQUESTS = ["4xx", "Limited"];
const OPEN = ["In flight"];

/** Rates, errors and durations of now and over time. */
export function trafficTab(of: Of, figures: () => AnyFigures | null, ...more: readonly Below[]): Part {
  const strip = figureStrip(
    ...(of.upstream === undefined ? [] : OF_REQUESTS),
    ...(of.caller === undefined ? [] : OPEN),
  );
  const charts = figureCharts(of);
  return stackOf(
    { node: strip.node, refresh: () => strip.update(figures()) },
    { node: charts.node, refresh: charts.update },
    ...more,
  );
}

/** As the gateway has read them: each with its line, or as a default. `above`: what else is known of the item. */
export function settingsTab(frame: Frame, of: Of, ...above: readonly Below[]): Part {
  const list = el("dl", { class: "settings mono" });
  const rest = el("p", { class: "muted", hidden: true }, "Further settings are in the configuration.");
  const asking = askingSettings(of, ({ digest, path, settings, complete }) => {
    const placeIn = (name: string, line: number, column: number | null) =>
      frame.session?.write === true
        ? link(editorHash({ line, column, path: `${path}.${name}` }, digest), `line ${line}`)
        : `line ${line}`;
    const rows = settings.map(({ name, value, default: isDefault, line, column }) => {
      const place = isDefault === true ? "default" : line !== null && placeIn(name, line, column);
      return el(
        "div",
        {},
        el("dt", {}, ...breakable(name)),
        el("dd", {}, valueText(value), " ", el("span", { class: "muted" }, place)),
      );
    });
    replace(list, ...rows);
    rest.hidden = complete;
  });
  return stackOf(...above, el("div", { class: "card" }, list, rest), asking);
}

/** `forms`: which with the item chosen. */
export function editTab(
  of: Of,
  ...forms: readonly (readonly [text: string, form: string, ...names: string[]])[]
): Part {
  const items = forms.map(([text, ...form]) => el("li", {}, link(hashForForm(...form), text)));
  const editor = link("#/edit", "Open in the editor");
  const asking = askingSettings(of, ({ digest, line, ...place }) => {
    if (line !== null) editor.href = editorHash({ line, ...place }, digest);
  });
  return stackOf(el("div", { class: "card" }, el("ul", { class: "list" }, ...items, el("li", {}, editor))), asking);
}

/** Asks once for each configuration. */
function askingSettings(of: Of, show: (found: ItemSettings) => void): Part {
  let digest: string | null = null;
  const path = `/gateway/settings?${new URLSearchParams(of as Readonly<Record<string, string>>)}`;
  const asking = figuresAt<ItemSettings>(path, "The settings", note, () => AGAIN_MS);
  return { node: asking.note, refresh };

  function note(found: ItemSettings): void {
    digest = found.digest;
    show(found);
  }

  function refresh(): void {
    if (digest === null || digest !== live.known?.status?.digest) asking.update();
  }
}

/** The warnings about a service with its routes, or about a route. */
export function warningsOf(frame: Frame, service: string, route?: string): Part {
  const list = warningList(frame);
  return { node: list.node, refresh: () => list.update(live.warningsOf(service, route)) };
}
