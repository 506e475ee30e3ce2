/**
 * Bars of requests over time. A pressed bar shows its time alone; one of them can be reached by Tab, the others by
 * arrow keys.
 */
import type { RequestList } from "./api.ts";
import { button, el, replace, svg } from "./dom.ts";
import { moment, number } from "./format.ts";
import { barsOf, statusesText, stepText, type Bar, type Filter } from "./requests_text.ts";

const HEIGHT = 48;
const WIDTH = 10;
/** Few bars are not drawn wider. */
const LEAST_PLACES = 12;
const NO_BAR = { count: 0, at: "" };
const STEPS: Readonly<Record<string, number>> = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

/** `choose` gets the time of a bar; null: all that is remembered. */
export function histogram(choose: (range: Pick<Filter, "since" | "until"> | null) => void) {
  const drawing = svg("svg", {
    role: "group",
    "aria-label": "Bars over time",
    preserveAspectRatio: "none",
    onkeydown: onKey,
  });
  const caption = el("span", { class: "muted" });
  const all = button("Show all times", () => choose(null), "small");
  const node = el(
    "figure",
    { class: "card requests__time", hidden: true },
    drawing,
    el("figcaption", { class: "toolbar" }, caption, all),
  );
  let reached = 0;
  return { node, show };

  function show(found: RequestList, { since, until }: Filter): void {
    const { bars, places } = barsOf(found);
    const { step_s: stepS } = found.histogram;
    const isRange = since !== undefined || until !== undefined;
    node.hidden = bars.length === 0 && !isRange;
    all.hidden = !isRange;
    const isFocused = drawing.contains(document.activeElement);
    drawing.setAttribute("viewBox", `0 0 ${Math.max(places, LEAST_PLACES) * WIDTH} ${HEIGHT}`);
    replace(drawing, ...bars.map((bar) => barOf(bar, stepS)));
    reach(Math.min(reached, bars.length - 1), isFocused);
    const most = bars.reduce((highest, bar) => (bar.count > highest.count ? bar : highest), bars[0] ?? NO_BAR);
    const totals: Record<string, number> = {};
    for (const { status } of bars)
      for (const [name, count] of Object.entries(status)) totals[name] = (totals[name] ?? 0) + count;
    const peak = `At most ${number(most.count)} in ${stepText(stepS)}, at ${moment(most.at)}.`;
    replace(caption, bars.length === 0 ? "None at this time." : `Over time: ${statusesText(totals)}. ${peak}`);
  }

  function barOf({ place, at, status, parts }: Bar, stepS: number): SVGElement {
    const x = place * WIDTH;
    let y = HEIGHT;
    const drawn = parts.map((part, i) => {
      const height = part * HEIGHT;
      y -= height;
      return svg("rect", { class: `requests__bar-${i}`, x: x + 1, y, width: WIDTH - 2, height });
    });
    const label = `${moment(at)}, ${stepText(stepS)}: ${statusesText(status)}`;
    const until = new Date(Date.parse(at) + stepS * 1000).toISOString();
    const area = svg("rect", { class: "requests__bar-area", x, y: 0, width: WIDTH, height: HEIGHT });
    const onclick = (): void => choose({ since: at, until });
    return svg(
      "g",
      { role: "button", tabindex: -1, "aria-label": label, onclick },
      svg("title", {}, label),
      area,
      ...drawn,
    );
  }

  function reach(next: number, isFocused: boolean): void {
    drawing.children[reached]?.setAttribute("tabindex", "-1");
    reached = Math.max(next, 0);
    const bar = drawing.children[reached] as SVGElement | undefined;
    bar?.setAttribute("tabindex", "0");
    if (isFocused) bar?.focus();
  }

  function onKey(event: KeyboardEvent): void {
    const step = STEPS[event.key];
    if (step !== undefined) reach(Math.min(Math.max(reached + step, 0), drawing.children.length - 1), true);
    else if (event.key === "Enter" || event.key === " ") (event.target as Element).dispatchEvent(new Event("click"));
    else return;
    event.preventDefault();
  }
}
