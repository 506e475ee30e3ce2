/**
 * A line chart of the last 15 minutes or more, or of those since the start, in SVG, with axes, marks, a cursor for
 * pointer and keyboard, a summary sentence and a table.
 */
import { el, replace, setText, svg } from "./dom.ts";
import type { Sample } from "./history.ts";
import {
  areaPath,
  dotsPath,
  groupedByMinute,
  linePath,
  axisMarks,
  nearestIndex,
  maximums,
  spanOf,
  timeMarks,
  type ChartArea,
  type Span,
} from "./chart_geometry.ts";

export interface ChartOptions {
  readonly title: string;
  /** At most four; they differ in colour and dashes. */
  readonly series: readonly string[];
  /** The series that the summary above the chart describes, and its name there; "" if the name can be omitted. */
  readonly leading: { readonly series: number; readonly name: string };
  /** The smallest maximum of the vertical axis, so that noise looks small. */
  readonly least: number;
  readonly format: (value: number) => string;
  /** The text in the plot when there is nothing to draw. */
  readonly empty: string;
  /** What it shows at most, in ms. Default: 15 minutes. */
  readonly mostMs?: number;
}

/** A vertical line at a moment (ms since 1970), and what happened then. */
export interface Mark {
  readonly at: number;
  readonly text: string;
}

const HEIGHT = 150;
const LEFT = 54;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;
/** Samples that Page Up and Page Down skip: a minute, with steps of five seconds. */
const FAR = 12;
const STEPS: Readonly<Record<string, number>> = {
  ArrowLeft: -1,
  ArrowDown: -1,
  ArrowRight: 1,
  ArrowUp: 1,
  PageDown: -FAR,
  PageUp: FAR,
  Home: Number.NEGATIVE_INFINITY,
  End: Number.POSITIVE_INFINITY,
};
/** Between the marks of the time axis, in pixels. */
const MARK_WIDTH = 72;

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const clockS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

let charts = 0;

export class Chart {
  readonly node: HTMLElement;
  readonly #options: ChartOptions;
  readonly #el: ReturnType<typeof chartElements>;
  #samples: readonly Sample[] = [];
  #marks: readonly Mark[] = [];
  #gapMs = 0;
  #emptyText: string;
  #span: Span | null = null;
  #width = 0;
  /** The time under the cursor (ms since 1970), which stays while the chart moves on; null: the last sample. */
  #pointed: number | null = null;

  constructor(options: ChartOptions) {
    this.#options = options;
    this.#emptyText = options.empty;
    this.#el = chartElements(options);
    this.node = this.#el.node;
    const { plot, more } = this.#el;
    for (const type of ["pointermove", "pointerdown"] as const)
      plot.addEventListener(type, (event) => this.#span !== null && this.#point(this.#momentAt(event, this.#span)));
    plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.#point(null));
    plot.addEventListener("keydown", (event) => this.#step(event));
    plot.addEventListener("blur", () => this.#point(null));
    more.addEventListener("toggle", () => this.#fillTable());
    const observer = new ResizeObserver(([entry]) => {
      this.#width = Math.round(entry!.contentRect.width);
      this.#draw();
    });
    observer.observe(plot);
  }

  /** `now` in ms since 1970. Null: no data yet. */
  update(samples: readonly Sample[], stepS: number, now: number | null, marks: readonly Mark[] = []): void {
    this.#samples = samples;
    this.#marks = marks;
    this.#gapMs = stepS * 2500;
    this.#span = spanOf(samples, now ?? Date.now(), this.#options.mostMs);
    this.#emptyText = now === null ? "Waiting for data" : this.#options.empty;
    setText(this.#el.summary, this.#sentence(this.#span));
    this.#draw();
    this.#fillTable();
  }

  #draw(): void {
    const span = this.#span;
    if (this.#width <= LEFT + RIGHT || span === null) return;
    const highest = maximums(this.#samples, this.#options.series.length).reduce<number>(
      (most, each) => Math.max(most, each ?? 0),
      this.#options.least,
    );
    const vertical = axisMarks(highest);
    const plane = this.#chartAreaOf(vertical.at(-1)!, span);
    this.#el.drawing.setAttribute("viewBox", `0 0 ${this.#width} ${HEIGHT}`);
    const times = timeMarks(span, (this.#width - LEFT - RIGHT) / MARK_WIDTH);
    replace(
      this.#el.grid,
      ...vertical.flatMap((mark) => this.#horizontalMark(mark, plane)),
      ...times.flatMap((mark) => this.#timeMark(mark, times, plane)),
    );
    this.#el.areas.setAttribute("d", this.#options.series.length === 1 ? areaPath(this.#samples, 0, plane) : "");
    this.#el.lines.forEach((line, i) => line.setAttribute("d", linePath(this.#samples, i, plane)));
    this.#el.singles.forEach((dots, i) => dots.setAttribute("d", dotsPath(this.#samples, i, plane)));
    replace(
      this.#el.marks,
      ...this.#marks
        .filter(({ at }) => at >= span.from && at <= span.to)
        .map(({ at, text }) =>
          svg(
            "line",
            { class: "chart__mark", x1: plane.x(at), x2: plane.x(at), y1: TOP, y2: HEIGHT - BOTTOM },
            svg("title", {}, text),
          ),
        ),
    );
    this.#el.none.setAttribute("x", String((this.#width + LEFT - RIGHT) / 2));
    setText(this.#el.none, this.#el.lines.every((line) => line.getAttribute("d") === "") ? this.#emptyText : "");
    this.#drawCursor(plane);
  }

  #chartAreaOf(top: number, { from, to }: Span): ChartArea {
    return {
      x: (moment) => LEFT + ((moment - from) / (to - from)) * (this.#width - LEFT - RIGHT),
      y: (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM),
      gapMs: this.#gapMs,
    };
  }

  #horizontalMark(mark: number, { y }: ChartArea): readonly SVGElement[] {
    const height = Math.round(y(mark));
    return [
      svg("line", { class: "chart__grid", x1: LEFT, x2: this.#width - RIGHT, y1: height, y2: height }),
      svg("text", { x: LEFT - 8, y: height + 4, "text-anchor": "end" }, this.#options.format(mark)),
    ];
  }

  #timeMark(mark: number, all: readonly number[], { x }: ChartArea): readonly SVGElement[] {
    const left = x(mark);
    if (left < LEFT + 14 || left > this.#width - RIGHT - 20) return [];
    const format = all.every((each) => each % 60_000 === 0) ? clock : clockS;
    return [svg("text", { x: Math.round(left), y: HEIGHT - 5, "text-anchor": "middle" }, format.format(mark))];
  }

  #drawCursor({ x, y }: ChartArea): void {
    const index = this.#pointed === null ? this.#samples.length - 1 : nearestIndex(this.#samples, this.#pointed);
    const sample = this.#samples[index];
    const shown = this.#pointed !== null && sample !== undefined ? "visible" : "hidden";
    this.#el.cursor.setAttribute("visibility", shown);
    this.#options.series.forEach((_, i) => {
      const value = sample?.values[i] ?? null;
      setText(this.#el.figures[i]!, value === null ? "–" : this.#options.format(value));
      this.#el.dots[i]!.setAttribute("visibility", value === null ? "hidden" : shown);
      if (sample === undefined || value === null) return;
      this.#el.dots[i]!.setAttribute("cx", String(x(sample.at)));
      this.#el.dots[i]!.setAttribute("cy", String(y(value)));
    });
    if (sample !== undefined) {
      this.#el.cursor.setAttribute("x1", String(x(sample.at)));
      this.#el.cursor.setAttribute("x2", String(x(sample.at)));
    }
    setText(this.#el.at, this.#pointed === null || sample === undefined ? "now" : clockS.format(sample.at));
    this.#el.plot.setAttribute("aria-valuemax", String(Math.max(this.#samples.length - 1, 0)));
    // A slider at the last moment would announce a new value to screen readers each second.
    if (
      this.#pointed === null &&
      this.#el.plot.hasAttribute("aria-valuenow") &&
      document.activeElement === this.#el.plot
    )
      return;
    this.#el.plot.setAttribute("aria-valuenow", String(Math.max(index, 0)));
    this.#el.plot.setAttribute("aria-valuetext", sample === undefined ? this.#emptyText : this.#spoken(sample));
  }

  #spoken(sample: Sample): string {
    const values = this.#options.series.map(
      (name, i) => `${name} ${sample.values[i] == null ? "nothing" : this.#options.format(sample.values[i])}`,
    );
    return `${clockS.format(sample.at)}: ${values.join(", ")}`;
  }

  #sentence({ from, to }: Span): string {
    const most = maximums(this.#samples, this.#options.series.length)[this.#options.leading.series] ?? null;
    const last = this.#samples.at(-1)?.values[this.#options.leading.series] ?? null;
    if (most === null) return `${this.#emptyText}.`;
    return (
      `${this.#options.leading.name === "" ? "Now" : `${this.#options.leading.name} now`} ` +
      (`${last === null ? "–" : this.#options.format(last)}, ` +
        `peak ${this.#options.format(most)} in ${lengthOf(to - from)}.`)
    );
  }

  #fillTable(): void {
    if (!this.#el.more.open) return;
    const minutes = groupedByMinute(this.#samples);
    const rows = minutes.map((minute) => {
      const values = maximums(minute.samples, this.#options.series.length).map((value) =>
        el("td", { class: "num" }, value === null ? "–" : this.#options.format(value)),
      );
      return el("tr", {}, el("th", { scope: "row" }, clock.format(minute.at)), ...values);
    });
    replace(this.#el.rows, ...rows);
  }

  #momentAt(event: PointerEvent, { from, to }: Span): number {
    const x = event.clientX - this.#el.plot.getBoundingClientRect().left;
    return from + ((x - LEFT) / Math.max(this.#width - LEFT - RIGHT, 1)) * (to - from);
  }

  #step(event: KeyboardEvent): void {
    const by = STEPS[event.key];
    if (by === undefined && event.key !== "Escape") return;
    event.preventDefault();
    const last = this.#samples.length - 1;
    const from = this.#pointed === null ? last : nearestIndex(this.#samples, this.#pointed);
    this.#point(by === undefined ? null : (this.#samples[Math.min(Math.max(from + by, 0), last)]?.at ?? null));
  }

  #point(moment: number | null): void {
    if (moment === this.#pointed) return;
    this.#pointed = moment;
    this.#draw();
  }
}

function chartElements({ title, series }: ChartOptions) {
  const id = `chart-${++charts}`;
  const grid = svg("g");
  const areas = svg("path", { class: "chart__area fill-1" });
  const lines = series.map((_, i) => svg("path", { class: `chart__line tone-${i + 1}` }));
  const singles = series.map((_, i) => svg("path", { class: `chart__single tone-${i + 1}` }));
  const marks = svg("g");
  const cursor = svg("line", { class: "chart__cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const dots = series.map((_, i) => svg("circle", { class: `chart__dot fill-${i + 1}`, r: 4.5, visibility: "hidden" }));
  const none = svg("text", { class: "chart__none", "text-anchor": "middle", y: (HEIGHT - BOTTOM + TOP) / 2 });
  const drawing = svg(
    "svg",
    { class: "chart__svg", "aria-hidden": "true" },
    grid,
    areas,
    ...lines,
    ...singles,
    marks,
    cursor,
    ...dots,
    none,
  );
  const slider = {
    role: "slider",
    tabindex: "0",
    "aria-valuemin": "0",
    "aria-label": `${title}: values at a moment`,
    "aria-describedby": `${id}-summary`,
  };
  const plot = el("div", { class: "chart__plot", ...slider }, drawing);
  const summary = el("p", { class: "chart__summary", id: `${id}-summary` });
  const figures = series.map(() => el("strong", {}));
  const at = el("span", { class: "chart__at" });
  const keys = series.map((name, i) =>
    el("span", { class: "chart__key" }, swatch(i), series.length === 1 ? null : name, figures[i]!),
  );
  const read = el("div", { class: "chart__read" }, ...keys);
  const rows = el("tbody");
  const head = el(
    "tr",
    {},
    el("th", { scope: "col" }, "Minute"),
    ...series.map((name) => el("th", { scope: "col", class: "num" }, name)),
  );
  const table = el(
    "table",
    { class: "table" },
    el("caption", { class: "visually-hidden" }, `${title}: the highest value of each minute`),
    el("thead", {}, head),
    rows,
  );
  const more = el(
    "details",
    { class: "more" },
    el("summary", {}, "As a table"),
    el("p", { class: "muted" }, "The highest value of each minute."),
    el("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": `${title} as a table` }, table),
  );
  const node = el(
    "section",
    { class: "card chart", "aria-labelledby": `${id}-title` },
    el("div", { class: "chart__head" }, el("h2", { id: `${id}-title` }, title), at),
    summary,
    plot,
    read,
    more,
  );
  return {
    node,
    grid,
    areas,
    lines,
    singles,
    marks,
    cursor,
    dots,
    none,
    drawing,
    plot,
    summary,
    figures,
    at,
    rows,
    more,
  };
}

/** "15 min", "24 h" */
function lengthOf(ms: number): string {
  const minutes = Math.round(ms / 60_000);
  return minutes < 120 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
}

function swatch(i: number): SVGSVGElement {
  return svg(
    "svg",
    { viewBox: "0 0 20 8", "aria-hidden": "true" },
    svg("line", { class: `tone-${i + 1}`, x1: 1, x2: 19, y1: 4, y2: 4 }),
  );
}
