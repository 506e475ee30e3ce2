/**
 * Draws a ranking as a card: a list of names, each with its value and a bar.
 */
import type { Stats } from "./api.ts";
import { breakable, card } from "./components.ts";
import { el, replace, setText, svg, whenChanged } from "./dom.ts";
import type { Ranking, RankingRow } from "./rankings.ts";

export function rankingCard<Source = Stats>({ title, unit, none, rowsOf }: Ranking<Source>) {
  const list = el("ol", { class: "ranking" });
  const text = el("p", { class: "muted" }, "Waiting for figures…");
  const node = card(title, el("span", { class: "muted" }, unit), list, text);
  node.classList.add("live");
  const draw = whenChanged((rows: readonly RankingRow[]) => {
    replace(list, ...rows.map(rowOf));
    setText(text, rows.length === 0 ? none : "");
    text.hidden = rows.length > 0;
  });
  return {
    node,
    update(source: Source | null): void {
      const rows = source === null ? null : rowsOf(source);
      // Another order under the pointer or the focus would lead elsewhere.
      if (rows !== null && list.querySelector("a:hover, a:focus-visible") === null) draw(rows);
    },
  };
}

/** 0 of 0 is 0. */
export function ratioOf(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole;
}

function rowOf({ name, hash, note, value, share }: RankingRow): HTMLElement {
  const bar = svg(
    "svg",
    { class: "share", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "share__whole", x: 0, y: 0, width: 100, height: 4 }),
    svg("rect", { class: "share__part", x: 0, y: 0, width: Math.round(share * 1000) / 10, height: 4 }),
  );
  return el(
    "li",
    { class: "ranking__row" },
    el(
      "span",
      { class: hash === null ? "ranking__name mono" : "ranking__name" },
      hash === null ? el("span", {}, ...breakable(name)) : el("a", { href: hash }, name),
      note !== "" && el("span", { class: "muted ranking__note" }, note),
    ),
    el("span", { class: "num" }, value),
    bar,
  );
}
