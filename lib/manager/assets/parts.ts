/**
 * Pieces that pages of details have in common: the way back, figures, facts, settings with their secrets hidden, the state of an
 * upstream in a word, and what is said while nothing is known or when something has gone.
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

/** Where the page stands: the last of the names is the page's own, and no link. */
export function crumbs(ways: readonly (readonly [string, string])[], here: string): HTMLElement {
  const items = ways.map(([href, text]) => el("li", {}, link(href, text)));
  return el("nav", { class: "crumbs", "aria-label": "Where this page stands" }, el("ol", {}, ...items, el("li", { "aria-current": "page" }, here)));
}

export function section(title: string, ...children: readonly Child[]): HTMLElement {
  return el("section", { class: "part" }, el("h2", {}, title), ...children);
}

/** What is said before anything is known. */
export function loading(what: string): HTMLElement {
  return el("div", { class: "empty", role: "status" }, el("p", {}, `Waiting for ${what}…`));
}

/** What is said of something that is not, or no longer, in the configuration. */
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

/** The live figures of one thing in a row; with what rate limits refuse, where that is counted. */
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

/** Names and what they stand for; null leaves one out. */
export function facts(entries: readonly (readonly [string, Child] | null)[]): HTMLElement {
  return el("dl", { class: "pairs" }, ...entries.flatMap((entry) => (entry === null ? [] : [el("dt", {}, entry[0]), el("dd", {}, entry[1])])));
}

/** Settings line by line; a secret is shown only on demand. */
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

/** Long names, paths and addresses break behind an underscore, a dot, a slash or a colon, and nowhere else if it can be helped. */
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

/** Holds one thing at a time; the same one again changes nothing. */
export function slot(className: string | null = null): { readonly node: HTMLElement; put(child: Node): void } {
  const node = el("div", { class: className });
  return {
    node,
    put(child) {
      if (node.firstChild !== child || node.childNodes.length !== 1) replace(node, child);
    },
  };
}
