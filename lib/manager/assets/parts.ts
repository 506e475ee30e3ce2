/**
 * Parts that detail pages share: breadcrumbs, statistics, facts, settings with hidden secrets, the state of an upstream, empty states.
 */
import type { Figures, TryFigures } from "./api.ts";
import type { Mark } from "./conditions.ts";
import { el, replace, setText, type Child } from "./dom.ts";
import { milliseconds, number, percent, perSecond } from "./format.ts";
import { errorShare } from "./inventory.ts";
import { secretText } from "./pairs.ts";
import { settingLines } from "./secrets.ts";

export { circuitCondition, conditionOf } from "./conditions.ts";

export function link(href: string, ...children: readonly Child[]): HTMLAnchorElement {
  return el("a", { href, class: "link" }, ...children);
}

/** Breadcrumbs; the last name is the page's own, without a link. */
export function crumbs(ways: readonly (readonly [string, string])[], here: string): HTMLElement {
  const items = ways.map(([href, text]) => el("li", {}, link(href, text)));
  return el("nav", { class: "crumbs", "aria-label": "Where this page stands" }, el("ol", {}, ...items, el("li", { "aria-current": "page" }, here)));
}

export function section(title: string, ...children: readonly Child[]): HTMLElement {
  return el("section", { class: "part" }, el("h2", {}, title), ...children);
}

/** Shown before any state is known. */
export function loading(what: string): HTMLElement {
  return el("div", { class: "empty", role: "status" }, el("p", {}, `Waiting for ${what}…`));
}

/** Shown for an item that is not in the configuration. */
export function missing(what: string, href: string, back: string): HTMLElement {
  return el(
    "div",
    { class: "empty", role: "status" },
    el("p", {}, el("strong", {}, `There is no ${what}.`)),
    el("p", { class: "muted" }, "It may have been renamed or removed when the configuration was last reloaded."),
    el("p", {}, el("a", { href, class: "button" }, back)),
  );
}

export interface FigureStrip {
  readonly node: HTMLElement;
  update(figures: AnyFigures | null): void;
}

type AnyFigures = TryFigures & Partial<Pick<Figures, "limited_per_s">>;

/** The live statistics of one item in a row; with refusals of rate limits where they are counted. */
export function figureStrip({ limited }: { readonly limited: boolean }): FigureStrip {
  const stats: readonly (readonly [string, (figures: AnyFigures) => string])[] = [
    ["Requests", (figures) => perSecond(figures.requests_per_s)],
    ["Errors", (figures) => percent(errorShare(figures) ?? Number.NaN)],
    ...(limited ? [["Limited", (figures: AnyFigures) => perSecond(figures.limited_per_s ?? Number.NaN)] as const] : []),
    ["p50", (figures) => milliseconds(figures.p50_ms)],
    ["p95", (figures) => milliseconds(figures.p95_ms)],
    ["p99", (figures) => milliseconds(figures.p99_ms)],
    ["In flight", (figures) => number(figures.in_flight)],
  ];
  const values = stats.map(([label, text]) => ({ text, label, node: el("dd", { class: "stat__value" }, "–") }));
  const node = el(
    "dl",
    { class: "stats stats--strip live" },
    ...values.map(({ label, node: value }) => el("div", { class: "stat" }, el("dt", { class: "stat__label" }, label), value)),
  );
  return {
    node,
    update(figures) {
      for (const { node: value, text } of values) setText(value, figures === null ? "–" : text(figures));
    },
  };
}

/** A list of names and values; null omits an entry. */
export function facts(entries: readonly (readonly [string, Child] | null)[]): HTMLElement {
  return el("dl", { class: "pairs" }, ...entries.flatMap((entry) => (entry === null ? [] : [el("dt", {}, entry[0]), el("dd", {}, entry[1])])));
}

/** Settings line by line, with hidden secrets. */
export function settingsList(settings: unknown, empty = "No settings of its own."): HTMLElement {
  const lines = settingLines(settings);
  if (lines.length === 0) return el("p", { class: "muted" }, empty);
  return el(
    "dl",
    { class: "settings mono" },
    ...lines.map((line) =>
      el("div", {}, el("dt", {}, ...breakable(line.name)), el("dd", {}, line.secret ? secretText(line.name, line.value) : line.value)),
    ),
  );
}

/** Lets long names, paths and addresses break after an underscore, a dot, a slash or a colon. */
export function breakable(name: string): readonly Child[] {
  return name.split(/(?<=[^\s*_./:][_./:])(?!$)/).flatMap((part, i) => (i === 0 ? [part] : [el("wbr"), part]));
}

export interface Badge {
  readonly node: HTMLElement;
  set(condition: Mark): void;
}

export function stateBadge(): Badge {
  const node = el("span", { class: "badge" });
  return {
    node,
    set({ word, tone }) {
      setText(node, word);
      if (node.dataset.tone === tone) return;
      node.dataset.tone = tone;
      node.className = `badge badge--${tone}`;
    },
  };
}

/** Shows one element at a time; showing the same one again changes nothing. */
export function slot(className: string | null = null): { readonly node: HTMLElement; put(child: Node): void } {
  const node = el("div", { class: className });
  return {
    node,
    put(child) {
      if (node.firstChild !== child || node.childNodes.length !== 1) replace(node, child);
    },
  };
}
