/**
 * A line chart of the last 15 minutes in SVG, with axes, a read-out for pointer and keyboard, and its content as a sentence and a table.
 */
import { el, replace, setText, svg } from "./dom.ts";
import { HISTORY_MS, type Sample } from "./history.ts";
import { areaOf, byMinute, lineOf, marks, minuteMarks, nearest, peaks, type Plane } from "./scale.ts";

export interface ChartOptions {
  readonly title: string;
  /** At most three; they differ in colour and dashes. */
  readonly series: readonly string[];
  /** The series of the sentence above the chart, and its name there; "" where it needs none. */
  readonly leading: { readonly series: number; readonly name: string };
  /** The smallest maximum of the vertical axis, so that noise looks small. */
  readonly least: number;
  readonly format: (value: number) => string;
  /** The text in the plot when there is nothing to draw. */
  readonly empty: string;
}

export interface Chart {
  readonly node: HTMLElement;
  /** `now` in ms since 1970: the right end. Null: no data yet. */
  update(samples: readonly Sample[], stepS: number, now: number | null): void;
  close(): void;
}

const HEIGHT = 190;
const LEFT = 54;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;
/** Samples that Page Up and Page Down skip: a minute, with steps of five seconds. */
const FAR = 12;

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const clockS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

let charts = 0;

export function createChart({ title, series, leading, least, format, empty }: ChartOptions): Chart {
  const id = `chart-${++charts}`;
  let samples: readonly Sample[] = [];
  let gapMs = 0;
  let nothing = empty;
  let now = 0;
  let width = 0;
  /** The moment shown in the read-out, which stays while the chart moves on; null: the last one. */
  let pointed: number | null = null;

  const grid = svg("g");
  const areas = svg("path", { class: "chart__area fill-1" });
  const lines = series.map((_, i) => svg("path", { class: `chart__line tone-${i + 1}` }));
  const cursor = svg("line", { class: "chart__cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const dots = series.map((_, i) => svg("circle", { class: `chart__dot fill-${i + 1}`, r: 4.5, visibility: "hidden" }));
  const none = svg("text", { class: "chart__none", "text-anchor": "middle", y: (HEIGHT - BOTTOM + TOP) / 2 });
  const drawing = svg("svg", { class: "chart__svg", "aria-hidden": "true" }, grid, areas, ...lines, cursor, ...dots, none);
  const plot = el(
    "div",
    {
      class: "chart__plot",
      tabindex: "0",
      role: "slider",
      "aria-label": `${title}: values at a moment`,
      "aria-describedby": `${id}-summary`,
      onpointermove: (event: PointerEvent) => point(momentAt(event)),
      onpointerdown: (event: PointerEvent) => point(momentAt(event)),
      onpointerleave: (event: PointerEvent) => event.pointerType === "mouse" && point(null),
      onkeydown: step,
      onblur: () => point(null),
    },
    drawing,
  );
  const summary = el("p", { class: "chart__summary", id: `${id}-summary` });
  const figures = series.map(() => el("strong", {}));
  const at = el("span", { class: "chart__at" });
  const keys = series.map((name, i) => el("span", { class: "chart__key" }, swatch(i), series.length === 1 ? null : name, figures[i]!));
  const read = el("div", { class: "chart__read" }, ...keys);
  const rows = el("tbody");
  const head = el("tr", {}, el("th", { scope: "col" }, "Minute"), ...series.map((name) => el("th", { scope: "col", class: "num" }, name)));
  const table = el("table", { class: "table" }, el("caption", { class: "visually-hidden" }, `${title}: the highest value of each minute`), el("thead", {}, head), rows);
  const more = el(
    "details",
    { class: "more", ontoggle: () => fillTable() },
    el("summary", {}, "As a table"),
    el("p", { class: "muted" }, "The highest value of each minute."),
    el("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": `${title} as a table` }, table),
  );
  const node = el("section", { class: "card chart", "aria-labelledby": `${id}-title` }, el("div", { class: "chart__head" }, el("h2", { id: `${id}-title` }, title), at), summary, plot, read, more);

  const observer = new ResizeObserver(([entry]) => {
    width = Math.round(entry!.contentRect.width);
    draw();
  });
  observer.observe(plot);

  return {
    node,
    update(given, stepS, moment) {
      samples = given;
      gapMs = stepS * 2500;
      now = moment ?? Date.now();
      nothing = moment === null ? "Waiting for figures" : empty;
      setText(summary, sentence());
      draw();
      fillTable();
    },
    close: () => observer.disconnect(),
  };

  function draw(): void {
    if (width <= LEFT + RIGHT || now === 0) return;
    const highest = peaks(samples, series.length).reduce<number>((most, each) => Math.max(most, each ?? 0), least);
    const vertical = marks(highest);
    const plane = planeOf(vertical.at(-1)!);
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    replace(grid, ...vertical.flatMap((mark) => horizontalMark(mark, plane)), ...minuteMarks(now - HISTORY_MS, now, width < 420 ? 5 : 3).flatMap((mark) => minuteMark(mark, plane)));
    areas.setAttribute("d", series.length === 1 ? areaOf(samples, 0, plane) : "");
    lines.forEach((line, i) => line.setAttribute("d", lineOf(samples, i, plane)));
    none.setAttribute("x", String((width + LEFT - RIGHT) / 2));
    setText(none, lines.every((line) => line.getAttribute("d") === "") ? nothing : "");
    drawCursor(plane);
  }

  function planeOf(top: number): Plane {
    return {
      x: (moment) => LEFT + ((moment - now + HISTORY_MS) / HISTORY_MS) * (width - LEFT - RIGHT),
      y: (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM),
      gapMs,
    };
  }

  function horizontalMark(mark: number, { y }: Plane): readonly SVGElement[] {
    const at = Math.round(y(mark));
    return [
      svg("line", { class: "chart__grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
      svg("text", { x: LEFT - 8, y: at + 4, "text-anchor": "end" }, format(mark)),
    ];
  }

  function minuteMark(mark: number, { x }: Plane): readonly SVGElement[] {
    const at = x(mark);
    if (at < LEFT + 14 || at > width - RIGHT - 14) return [];
    return [svg("text", { x: Math.round(at), y: HEIGHT - 5, "text-anchor": "middle" }, clock.format(mark))];
  }

  function drawCursor({ x, y }: Plane): void {
    const index = pointed === null ? samples.length - 1 : nearest(samples, pointed);
    const sample = samples[index];
    const shown = pointed !== null && sample !== undefined ? "visible" : "hidden";
    cursor.setAttribute("visibility", shown);
    series.forEach((_, i) => {
      const value = sample?.values[i] ?? null;
      setText(figures[i]!, value === null ? "–" : format(value));
      dots[i]!.setAttribute("visibility", value === null ? "hidden" : shown);
      if (sample === undefined || value === null) return;
      dots[i]!.setAttribute("cx", String(x(sample.at)));
      dots[i]!.setAttribute("cy", String(y(value)));
    });
    if (sample !== undefined) {
      cursor.setAttribute("x1", String(x(sample.at)));
      cursor.setAttribute("x2", String(x(sample.at)));
    }
    setText(at, pointed === null || sample === undefined ? "now" : clockS.format(sample.at));
    plot.setAttribute("aria-valuemin", "0");
    plot.setAttribute("aria-valuemax", String(Math.max(samples.length - 1, 0)));
    // A slider at the last moment would announce a new value to screen readers each second.
    if (pointed === null && plot.hasAttribute("aria-valuenow") && document.activeElement === plot) return;
    plot.setAttribute("aria-valuenow", String(Math.max(index, 0)));
    plot.setAttribute("aria-valuetext", sample === undefined ? nothing : spoken(sample));
  }

  function spoken(sample: Sample): string {
    const values = series.map((name, i) => `${name} ${sample.values[i] == null ? "nothing" : format(sample.values[i])}`);
    return `${clockS.format(sample.at)}: ${values.join(", ")}`;
  }

  function sentence(): string {
    const most = peaks(samples, series.length)[leading.series] ?? null;
    const last = samples.at(-1)?.values[leading.series] ?? null;
    if (most === null) return `${nothing}.`;
    return `${leading.name === "" ? "Now" : `${leading.name} now`} ${last === null ? "–" : format(last)}, peak ${format(most)} in 15 min.`;
  }

  function fillTable(): void {
    if (!more.open) return;
    const minutes = byMinute(samples);
    replace(
      rows,
      ...minutes.map((minute) => {
        const values = peaks(minute.samples, series.length).map((value) => el("td", { class: "num" }, value === null ? "–" : format(value)));
        return el("tr", {}, el("th", { scope: "row" }, clock.format(minute.at)), ...values);
      }),
    );
  }

  function momentAt(event: PointerEvent): number {
    const x = event.clientX - plot.getBoundingClientRect().left;
    return now - HISTORY_MS + ((x - LEFT) / Math.max(width - LEFT - RIGHT, 1)) * HISTORY_MS;
  }

  function step(event: KeyboardEvent): void {
    const from = pointed === null ? samples.length - 1 : nearest(samples, pointed);
    const to = stepTo(event.key, from, samples.length - 1);
    if (to === undefined) return;
    event.preventDefault();
    point(to === null ? null : (samples[Math.min(Math.max(to, 0), samples.length - 1)]?.at ?? null));
  }

  function point(moment: number | null): void {
    if (moment === pointed) return;
    pointed = moment;
    draw();
  }
}

/** The index that a key selects; null: now. Undefined for other keys. */
function stepTo(key: string, from: number, last: number): number | null | undefined {
  switch (key) {
    case "ArrowLeft":
    case "ArrowDown":
      return from - 1;
    case "ArrowRight":
    case "ArrowUp":
      return from + 1;
    case "PageDown":
      return from - FAR;
    case "PageUp":
      return from + FAR;
    case "Home":
      return 0;
    case "End":
      return last;
    case "Escape":
      return null;
    default:
      return undefined;
  }
}

function swatch(i: number): SVGSVGElement {
  return svg("svg", { viewBox: "0 0 20 8", "aria-hidden": "true" }, svg("line", { class: `tone-${i + 1}`, x1: 1, x2: 19, y1: 4, y2: 4 }));
}
