/**
 * Charts of a service, a route or an upstream: its requests, errors and times of the last 15 minutes or of a day, with a mark for each reload.
 */
import { ask, type FigurePoint, type FiguresHistory } from "./api.ts";
import { Chart, type Mark } from "./chart.ts";
import { el, setText } from "./dom.ts";
import { milliseconds, moment, percent, perSecond } from "./format.ts";
import type { Sample } from "./history.ts";
import type { Known } from "./page.ts";
import { section } from "./components.ts";

interface Of {
  readonly service: string;
  readonly route?: string;
  readonly upstream?: string;
}

const SPANS = [
  { name: "15m", label: "15 minutes", mostMs: 900_000, everyMs: 5_000 },
  { name: "1d", label: "A day", mostMs: 86_400_000, everyMs: 60_000 },
] as const;

const queryOfHash = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

/** The share of failed requests; null without requests. */
const errorShare = ({ requests, errors }: FigurePoint) => (requests === 0 ? null : errors / requests);

export function figureCharts(of: Of) {
  let chosen: (typeof SPANS)[number] = SPANS.find(({ name }) => name === queryOfHash().get("span")) ?? SPANS[0];
  let askedAt = -Infinity;
  /** Counts the questions: a reply to an earlier one is ignored. */
  let turn = 0;
  let charts = chartsOf(chosen.mostMs, of.upstream === undefined);
  const grid = el("div", { class: "grid charts charts--three live" });
  const note = el("p", { class: "muted", role: "status" });
  const buttons = SPANS.map((span) => el("button", { type: "button", class: "button button--small", "aria-pressed": String(span === chosen), onclick: () => choose(span) }, span.label));
  const node = section("Over time", el("div", { class: "toolbar", role: "group", "aria-label": "Shown" }, ...buttons), grid, note);
  grid.append(...charts.map(({ chart }) => chart.node));
  return { node, update, close };

  function close(): void {
    turn++;
    for (const { chart } of charts) chart.close();
  }

  function choose(span: (typeof SPANS)[number]): void {
    chosen = span;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(SPANS[i] === span)));
    const query = queryOfHash();
    query.delete("span");
    if (span !== SPANS[0]) query.set("span", span.name);
    history.replaceState(history.state, "", `${location.hash.split("?", 1)[0]!}${query.size === 0 ? "" : `?${query}`}`);
    close();
    charts = chartsOf(span.mostMs, of.upstream === undefined);
    grid.replaceChildren(...charts.map(({ chart }) => chart.node));
    void load();
  }

  /** Is called while the page is visible. */
  function update({ now }: Pick<Known, "now">): void {
    if (now - askedAt < chosen.everyMs) return;
    askedAt = now;
    void load();
  }

  async function load(): Promise<void> {
    const own = ++turn;
    try {
      const found = await ask<FiguresHistory>("GET", `/gateway/figures?${new URLSearchParams({ ...of, span: chosen.name })}`);
      if (own === turn) show(found);
    } catch (error) {
      // The page's own requests lead to the login where the session has ended.
      if (own === turn) setText(note, `The history could not be read. ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  function show({ step_s: stepS, since, recorded, points, reloads }: FiguresHistory): void {
    const marks: Mark[] = reloads.map(({ at, digest }) => ({ at: Date.parse(at), text: `${moment(at)}: reloaded, ${digest}` }));
    const last = points.at(-1);
    const end = last === undefined ? null : Date.parse(last.at) + stepS * 1000;
    for (const { chart, values } of charts) chart.update(points.map((point): Sample => ({ at: Date.parse(point.at), values: values(point, secondsOf(point, stepS, since)) })), stepS, end, marks);
    const begin = points[0] === undefined ? NaN : Date.parse(points[0].at);
    const shown = marks.filter(({ at }) => at >= begin).map(({ text }) => text);
    const missing = recorded ? "" : "The gateway has no history of it: it keeps that of the first 2,000 services, routes and upstreams that had requests. ";
    setText(note, missing + (shown.length === 0 ? "" : `Dashed lines mark reloads: ${shown.slice(-5).join("; ")}${shown.length > 5 ? `, and ${shown.length - 5} before` : ""}.`));
  }
}

/** How much of a step was counted: the first one may have begun before that. */
function secondsOf({ at }: FigurePoint, stepS: number, since: string | null): number {
  const before = since === null ? 0 : (Date.parse(since) - Date.parse(at)) / 1000;
  return stepS - Math.min(Math.max(before, 0), stepS - 1);
}

type Values = (point: FigurePoint, seconds: number) => Sample["values"];

function chartsOf(mostMs: number, ofRequests: boolean): readonly { readonly chart: Chart; readonly values: Values }[] {
  const empty = "No requests";
  const requests = { title: "Requests over time", series: ofRequests ? ["all", "limited"] : ["all"], leading: { series: 0, name: "" }, least: 1, format: perSecond, empty, mostMs };
  const errors = { title: "Errors over time", series: ["5xx"], leading: { series: 0, name: "5xx" }, least: 0.01, format: percent, empty, mostMs };
  const times = { title: "Response time over time", series: ["p50", "p95", "p99"], leading: { series: 1, name: "p95" }, least: 5, format: milliseconds, empty, mostMs };
  return [
    { chart: new Chart(requests), values: ({ requests: all, limited }, seconds) => [all / seconds, limited / seconds] },
    { chart: new Chart(errors), values: (point) => [errorShare(point)] },
    { chart: new Chart(times), values: ({ p50_ms: p50, p95_ms: p95, p99_ms: p99 }) => [p50, p95, p99] },
  ];
}
