/**
 * Elements that pages share: breadcrumbs, statistics, lists of names and values, hidden secrets, badges, empty states.
 */
import { messageOf, type Change, type Figures, type Issue, type Refusal, type TryFigures } from "./api.ts";
import type { Label } from "./state_labels.ts";
import { button, el, replace, setText, type Child } from "./dom.ts";
import { milliseconds, number, percent, perSecond } from "./format.ts";
import { clientErrorShare, errorShare, statusesText } from "./inventory.ts";
import { MASK, settingLines } from "./setting_lines.ts";

export function link(href: string, ...children: readonly Child[]): HTMLAnchorElement {
  return el("a", { href }, ...children);
}

/** Breadcrumbs; the last name is the page's own, without a link. */
export function breadcrumbs(path: readonly (readonly [string, string])[], current: string): HTMLElement {
  const items = path.map(([href, text]) => el("li", {}, link(href, text)));
  return el(
    "nav",
    { class: "crumbs", "aria-label": "Breadcrumbs" },
    el("ol", {}, ...items, el("li", { "aria-current": "page" }, current)),
  );
}

export function section(title: string, ...children: readonly Child[]): HTMLElement {
  return el("section", { class: "part" }, el("h2", {}, title), ...children);
}

/** `aside`: beside its title. */
export function card(title: string, aside: Child, ...children: readonly Child[]): HTMLElement {
  return el("section", { class: "card" }, el("div", { class: "card__title" }, el("h2", {}, title), aside), ...children);
}

export function notice(
  tone: "good" | "warn" | "bad",
  title: string,
  text: Child,
  ...more: readonly Child[]
): HTMLElement {
  return el("div", { class: `notice notice--${tone}` }, el("p", {}, el("strong", {}, title), " ", text), ...more);
}

/** A field of a form with its label; `below`: a hint, or what is wrong. */
export function field(label: string, input: HTMLElement, ...below: readonly Child[]): HTMLElement {
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input, ...below);
}

/** `attributes`: `id`, `value`, listeners. */
export function searchInput(attributes: NonNullable<Parameters<typeof el>[1]>): HTMLInputElement {
  return el("input", { type: "search", autocomplete: "off", spellcheck: "false", ...attributes });
}

/** JSON to be copied: its rows are those of the text. */
export function readOnlyJson(value: unknown, attributes: NonNullable<Parameters<typeof el>[1]>): HTMLTextAreaElement {
  const text = JSON.stringify(value, null, 2);
  const area = el("textarea", {
    class: "mono",
    readonly: true,
    rows: text.split("\n").length,
    spellcheck: "false",
    ...attributes,
  });
  area.value = text;
  return area;
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

/** Those of an upstream have no statuses, those of a caller no requests in flight. */
export type AnyFigures = Omit<TryFigures, "in_flight"> & Partial<Figures>;

/** The live statistics of one item in a row. `missing`: the labels of those that it never has. */
export function figureStrip(...missing: readonly string[]) {
  const all: readonly (readonly [string, (figures: AnyFigures) => string])[] = [
    ["Requests", (figures) => perSecond(figures.requests_per_s)],
    ["Errors", (figures) => percent(errorShare(figures))],
    ["4xx", (figures) => percent(isCounted(figures) ? clientErrorShare(figures) : null)],
    ["Limited", ({ limited_per_s: limited = null }) => perSecond(limited)],
    ["p50", (figures) => milliseconds(figures.p50_ms)],
    ["p95", (figures) => milliseconds(figures.p95_ms)],
    ["p99", (figures) => milliseconds(figures.p99_ms)],
    ["In flight", ({ in_flight: now = null }) => number(now)],
  ];
  const stats = all.filter(([label]) => !missing.includes(label));
  const values = stats.map(() => el("dd", { class: "stat__value" }, "–"));
  const statuses = el("p", { class: "muted", hidden: true });
  const tiles = stats.map(([label], i) =>
    el("div", { class: "stat" }, el("dt", { class: "stat__label" }, label), values[i]!),
  );
  return {
    node: el("div", { class: "part" }, el("dl", { class: "stats stats--strip live" }, ...tiles), statuses),
    update(figures: AnyFigures | null): void {
      statuses.hidden = figures?.statuses_per_s === undefined;
      if (figures !== null && isCounted(figures)) setText(statuses, statusesText(figures));
      stats.forEach(([, text], i) => setText(values[i]!, figures === null ? "–" : text(figures)));
    },
  };
}

function isCounted(figures: AnyFigures): figures is Omit<Figures, "in_flight"> {
  return figures.statuses_per_s !== undefined;
}

/** A list of names and values; null omits an entry. */
export function factList(entries: readonly (readonly [string, Child] | null)[]): HTMLElement {
  return el("dl", { class: "pairs" }, ...entries.flatMap((entry) => (entry === null ? [] : pair(...entry))));
}

/** Settings line by line. */
export function settingsList(settings: unknown, empty = "No settings."): HTMLElement {
  const lines = settingLines(settings);
  if (lines.length === 0) return el("p", { class: "muted" }, empty);
  return el(
    "dl",
    { class: "settings mono" },
    ...lines.map(({ name, value }) => el("div", {}, el("dt", {}, ...breakable(name)), el("dd", {}, value))),
  );
}

/**
 * Lets long names, paths and addresses break after an underscore, a dot, a slash or a colon; "2.5 %" stays in one
 * piece.
 */
export function breakable(name: string): readonly Child[] {
  return name.split(/(?<=[^\s*_./:][_./:])(?!$|\d+ %)/).flatMap((part, i) => (i === 0 ? [part] : [el("wbr"), part]));
}

/** A badge that stays as it is. */
export function fixedBadge(tone: Label["tone"], text: string, title: string | null = null): HTMLElement {
  return el("span", { class: `badge badge--${tone}`, title }, text);
}

/** For what could not be asked for, with a button that asks again. */
export function unreadable(what: string, error: unknown, again: () => void): readonly HTMLElement[] {
  return [
    el(
      "div",
      { class: "notice notice--bad", role: "alert" },
      el("p", {}, `${what} could not be read. ${messageOf(error)}`),
    ),
    el("p", { class: "again" }, button("Try again", again, "small")),
  ];
}

export interface Badge {
  readonly node: HTMLElement;
  set(label: Label): void;
}

export function stateBadge(): Badge {
  const node = el("span", { class: "badge" });
  return {
    node,
    set({ text, tone }) {
      setText(node, text);
      if (node.dataset.tone === tone) return;
      node.dataset.tone = tone;
      node.className = `badge badge--${tone}`;
    },
  };
}

/** The group of an upstream. */
export function groupBadge(group: string): HTMLElement {
  return el("span", { class: "badge badge--plain badge--wrap" }, ...breakable(group));
}

/** Hides the badge without a label. */
export function setOptional(badge: Badge, label: Label | null): void {
  badge.node.hidden = label === null;
  if (label !== null) badge.set(label);
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

/** A text below another one. */
export function two(first: Child, below: string | null): HTMLElement {
  return el("span", { class: "line" }, first, below !== null && el("span", { class: "sub muted" }, below));
}

/** For `dl.pairs`. */
export function pair(name: string, value: Child): readonly HTMLElement[] {
  return [el("dt", {}, name), el("dd", {}, value)];
}

/** A text that is asked for once its button is pressed; `name` is in the label of the button. */
export function secretText(name: string, read: () => Promise<string>): HTMLElement {
  const value = el("span", { class: "mono" }, MASK);
  const reveal = button("Show", () => void toggle(), "quiet small", { "aria-label": `Show ${name}` });
  return el("span", {}, value, " ", reveal);

  async function toggle(): Promise<void> {
    const shown = reveal.textContent === "Show";
    setText(value, shown ? await read() : MASK);
    setText(reveal, shown ? "Hide" : "Show");
    reveal.setAttribute("aria-label", `${shown ? "Hide" : "Show"} ${name}`);
  }
}

/** Items of a list that are shown; the others are only counted. */
const MAX_ITEMS = 200;

export function listOf<T>(
  items: readonly T[],
  shown: (item: T) => readonly Child[],
  className = "reasons",
): HTMLElement {
  const rest = items.length - MAX_ITEMS;
  return el(
    "ul",
    { class: className },
    ...items.slice(0, MAX_ITEMS).map((item) => el("li", {}, ...shown(item))),
    rest > 0 && el("li", { class: "muted" }, `and ${number(rest)} more`),
  );
}

const CHANGES: Readonly<Record<string, readonly [Label["tone"], string]>> = {
  added: ["good", "Added"],
  altered: ["warn", "Altered"],
  removed: ["bad", "Removed"],
};

export function changeList(changes: readonly Change[]): HTMLElement {
  return listOf(
    changes,
    ({ change, name }) => [
      fixedBadge(...(CHANGES[change] ?? ["idle", change])),
      " ",
      el("span", { class: "mono" }, name),
    ],
    "list changes",
  );
}

/** The errors of a refused configuration: where each is, and what is wrong. */
export function issueList({ file, issues }: Refusal): HTMLElement {
  const placeOf = (issue: Issue): string =>
    [issue.file ?? file, issue.line, issue.column].filter((part) => part !== null).join(":");
  const items = issues.map((issue) =>
    el("li", {}, [placeOf(issue), issue.path, issue.message].filter((part) => part !== "").join("  ")),
  );
  return el(
    "div",
    { class: "lines", tabindex: "0", role: "region", "aria-label": "Errors in the configuration" },
    el("ul", { class: "issues mono" }, ...items),
  );
}

/** That of an error reply; null: it has none. */
export function refusalIn(problem: Readonly<Record<string, unknown>>): Refusal | null {
  return Array.isArray(problem.issues) ? (problem as unknown as Refusal) : null;
}
