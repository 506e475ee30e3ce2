/**
 * Charts of a service, a route or an upstream: its requests, errors and times of the last 15 minutes or of a day, with
 * a mark for each reload.
 */
import type { FigurePoint, FiguresHistory } from "./api.ts";
import { figuresAt } from "./asking.ts";
import { Chart, type Mark } from "./chart.ts";
import { button, el, setText } from "./dom.ts";
import { moment } from "./format.ts";
import type { Sample } from "./history.ts";
import { CHARTS, type TrafficChart } from "./traffic_charts.ts";
import { section } from "./components.ts";
import { hashWith, queryIn } from "./url_hash.ts";

/** Nothing: all requests. */
interface Of {
  readonly service?: string;
  readonly route?: string;
  readonly upstream?: string;
  readonly caller?: string;
}

const SPANS = [
  { name: "15m", label: "15 minutes", mostMs: 900_000, everyMs: 5_000 },
  { name: "1d", label: "A day", mostMs: 86_400_000, everyMs: 60_000 },
] as const;

/** `recent`: charts in place of those of 15 minutes, which who has made them updates. */
export function figureCharts(of: Of, recent: readonly { readonly chart: Chart }[] | null = null) {
  let marks: readonly Mark[] = [];
  let chosen: (typeof SPANS)[number] =
    SPANS.find(({ name }) => name === queryIn(location.hash).get("span")) ?? SPANS[0];
  let charts = chartsOf(chosen.mostMs, of.upstream === undefined);
  const grid = el("div", { class: "grid charts live" });
  const path = () => `/gateway/figures?${new URLSearchParams({ ...of, span: chosen.name })}`;
  const asking = figuresAt<FiguresHistory>(path, "The history", show, () => chosen.everyMs);
  const buttons = SPANS.map((span) =>
    button(span.label, () => choose(span), "small", { "aria-pressed": String(span === chosen) }),
  );
  const node = section(
    "Over time",
    el("div", { class: "toolbar", role: "group", "aria-label": "Shown" }, ...buttons),
    grid,
    asking.note,
  );
  place();
  return {
    node,
    update: asking.update,
    /** Reloads within the time that is shown. */
    get marks() {
      return marks;
    },
  };

  function place(): void {
    const shown = isRecent() ? recent! : charts;
    grid.classList.toggle("charts--three", shown === charts);
    grid.replaceChildren(...shown.map(({ chart }) => chart.node));
  }

  function isRecent(): boolean {
    return recent !== null && chosen === SPANS[0];
  }

  function choose(span: (typeof SPANS)[number]): void {
    chosen = span;
    buttons.forEach((each, i) => each.setAttribute("aria-pressed", String(SPANS[i] === span)));
    history.replaceState(history.state, "", hashWith(location.hash, { span: span === SPANS[0] ? "" : span.name }));
    charts = chartsOf(span.mostMs, of.upstream === undefined);
    place();
    void asking.load();
  }

  function show({ step_s: stepS, since, recorded, points, reloads }: FiguresHistory): void {
    marks = reloads.map(({ at, digest }) => ({
      at: Date.parse(at),
      text: `${moment(at)}: reloaded, ${digest}`,
    }));
    const last = points.at(-1);
    const end = last === undefined ? null : Date.parse(last.at) + stepS * 1000;
    for (const { chart, values } of isRecent() ? [] : charts)
      chart.update(
        points.map((point): Sample => ({
          at: Date.parse(point.at),
          values: values(point, secondsOf(point, stepS, since)),
        })),
        stepS,
        end,
        marks,
      );
    const begin = points[0] === undefined ? NaN : Date.parse(points[0].at);
    const shown = marks.filter(({ at }) => at >= begin).map(({ text }) => text);
    const missing = recorded
      ? ""
      : "The gateway has no history of it: it keeps that of the first 2,000 services, " +
        "routes and upstreams that had requests. ";
    setText(
      asking.note,
      missing +
        (shown.length === 0
          ? ""
          : `Dashed lines mark reloads: ` +
            `${shown.slice(-5).join("; ")}${shown.length > 5 ? `, and ${shown.length - 5} before` : ""}.`),
    );
  }
}

/** How much of a step was counted: the first one may have begun before that. */
function secondsOf({ at }: FigurePoint, stepS: number, since: string | null): number {
  const before = since === null ? 0 : (Date.parse(since) - Date.parse(at)) / 1000;
  return stepS - Math.min(Math.max(before, 0), stepS - 1);
}

function chartsOf(
  mostMs: number,
  ofRequests: boolean,
): readonly (Pick<TrafficChart, "values"> & { readonly chart: Chart })[] {
  const requests = ofRequests ? CHARTS.requests : { ...CHARTS.requests, series: ["all"] };
  return [requests, { ...CHARTS.errors, series: ["5xx"] }, CHARTS.times].map(
    ({ title, values, ...options }: TrafficChart) => {
      return { values, chart: new Chart({ ...options, title: `${title} over time`, empty: "No requests", mostMs }) };
    },
  );
}
