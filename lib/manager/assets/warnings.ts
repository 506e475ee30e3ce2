/**
 * Shows warnings: each with the problem, an example of a request, the remedy, and a link to the page of the item.
 */
import type { Warning } from "./api.ts";
import { breakable, setOptional, stateBadge } from "./components.ts";
import { el, replace, setText } from "./dom.ts";
import { number } from "./format.ts";
import type { Part } from "./tables.ts";
import { linkForWarning } from "./url_hash.ts";

/** Further warnings are shown after a click. */
const MAX_WARNINGS = 6;

export interface WarningList {
  readonly node: HTMLElement;
  update(warnings: readonly Warning[]): void;
}

/** Hidden while there are no warnings. */
export function warningList(): WarningList {
  const list = el("ul", { class: "warnings" });
  const more = el("ul", { class: "warnings" });
  const count = el("summary");
  const rest = el("details", { class: "more" }, count, more);
  const node = el("section", { "aria-label": "Warnings", hidden: true }, list, rest);
  let drawn = "";
  return {
    node,
    update(warnings) {
      const key = JSON.stringify(warnings);
      if (key === drawn) return;
      drawn = key;
      node.hidden = warnings.length === 0;
      replace(list, ...warnings.slice(0, MAX_WARNINGS).map(warningRow));
      replace(more, ...warnings.slice(MAX_WARNINGS).map(warningRow));
      rest.hidden = warnings.length <= MAX_WARNINGS;
      setText(count, `${number(warnings.length - MAX_WARNINGS)} more`);
    },
  };
}

function warningRow(warning: Warning): HTMLElement {
  const { code, path = null, message, example = null, remedy } = warning;
  const target = linkForWarning(warning);
  return el(
    "li",
    { class: "notice notice--warn" },
    el(
      "div",
      { class: "warning" },
      el("p", {}, message),
      example !== null && el("p", {}, "Example: ", el("code", {}, example)),
      remedy !== undefined && el("p", {}, "Remedy: ", remedy),
      // As `global.accept_warnings` names it.
      el("p", { class: "muted" }, el("code", {}, ...breakable(path === null ? code : `${code}:${path}`))),
    ),
    target !== null && target.hash !== location.hash && el("a", { href: target.hash }, target.text),
  );
}

/** For a cell of a table: the contents, and below them a badge while there are warnings. */
export function withWarnings(contents: readonly Node[], countOf: () => number): Part {
  const badge = stateBadge();
  return {
    node: el("span", {}, ...contents, el("span", { class: "sub" }, badge.node)),
    refresh() {
      const count = countOf();
      setOptional(badge, count === 0 ? null : { text: count === 1 ? "1 warning" : `${number(count)} warnings`, tone: "warn" });
    },
  };
}
