/**
 * The geometry of line charts: round marks on an axis, paths with gaps, and the sample nearest to a moment.
 */
import { HISTORY_MS, type Sample } from "./history.ts";

const MINUTE = 60_000;
/** Between the marks of a time axis. */
const TIME_STEPS = [MINUTE / 4, MINUTE / 2, MINUTE, 2 * MINUTE, 3 * MINUTE, 5 * MINUTE] as const;
/** The same for more than an hour. */
const LONG_STEPS = [60, 120, 180, 360].map((minutes) => minutes * MINUTE);
const ROUND = [1, 2, 2.5, 5, 10] as const;

/** Round marks from 0 to the first that is at least `max`, in at most five steps: 87 → [0, 20, 40, 60, 80, 100]. */
export function axisMarks(max: number): readonly number[] {
  const rough = (Number.isFinite(max) && max > 0 ? max : 1) / 5;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  // Without the tolerance 0.3 / 5 would be above 0.06, and 0.1 be chosen.
  const step = magnitude * ROUND.find((each) => each * magnitude >= rough * (1 - 1e-9))!;
  const count = Math.max(Math.ceil((max / step) * (1 - 1e-9)), 1);
  return Array.from({ length: Number.isFinite(count) ? count + 1 : 2 }, (_, i) => Number((i * step).toPrecision(12)));
}

/** Both ends of a time axis, in ms since 1970. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/**
 * From the first sample, at most `mostMs` (15 minutes) ago, to `now`; a minute at least, which then fills from the
 * left.
 */
export function spanOf(samples: readonly Sample[], now: number, mostMs = HISTORY_MS): Span {
  const from = Math.max(Math.min(samples[0]?.at ?? now, now), now - mostMs);
  return { from, to: Math.max(now, from + MINUTE) };
}

/** Moments by the clock within a span, at most `most` if five minutes between them allow it. */
export function timeMarks({ from, to }: Span, most: number): readonly number[] {
  const steps = to - from > 60 * MINUTE ? LONG_STEPS : TIME_STEPS;
  const step = steps.find((each) => (to - from) / each <= most) ?? steps.at(-1)!;
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.max(Math.floor((to - first) / step) + 1, 0) }, (_, i) => first + i * step);
}

export interface ChartArea {
  x(at: number): number;
  y(value: number): number;
  /** Samples further apart than this (ms) are not connected. */
  readonly gapMs: number;
}

/** The `d` of one series' line. A single sample becomes a line of no length, which round ends show as a dot. */
export function linePath(samples: readonly Sample[], series: number, plane: ChartArea): string {
  return runsOf(samples, series, plane)
    .map((points) => `M${points.join("L")}${points.length === 1 ? `L${points[0]!}` : ""}`)
    .join("");
}

/** The `d` of the dots of samples that no line leads to. */
export function dotsPath(samples: readonly Sample[], series: number, plane: ChartArea): string {
  return runsOf(samples, series, plane)
    .filter(({ length }) => length === 1)
    .map(([point]) => `M${point!}L${point!}`)
    .join("");
}

/** The `d` of the area between the line and zero. */
export function areaPath(samples: readonly Sample[], series: number, plane: ChartArea): string {
  const runs = runsOf(samples, series, plane).filter(({ length }) => length > 1);
  const below = (point: string) => `${point.split(" ")[0]!} ${short(plane.y(0))}`;
  return runs.map((points) => `M${below(points[0]!)}L${points.join("L")}L${below(points.at(-1)!)}Z`).join("");
}

/** The index of the sample nearest to `at`; -1 where there is none. */
export function nearestIndex(samples: readonly Sample[], at: number): number {
  let low = 0;
  let high = samples.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (samples[middle]!.at <= at) low = middle;
    else high = middle;
  }
  return Math.abs(samples[low]!.at - at) <= Math.abs(samples[high]!.at - at) ? low : high;
}

/** The highest value of each series; null where it has none. */
export function maximums(samples: readonly Sample[], count: number): readonly (number | null)[] {
  return Array.from({ length: count }, (_, series) => {
    let max: number | null = null;
    for (const { values } of samples) {
      const value = values[series] ?? null;
      if (value !== null && (max === null || value > max)) max = value;
    }
    return max;
  });
}

/** Samples of each minute by the clock, the last one first. */
export function groupedByMinute(
  samples: readonly Sample[],
): readonly { readonly at: number; readonly samples: readonly Sample[] }[] {
  const minutes = new Map<number, Sample[]>();
  for (const sample of samples) {
    const at = Math.floor(sample.at / MINUTE) * MINUTE;
    const minute = minutes.get(at);
    if (minute === undefined) minutes.set(at, [sample]);
    else minute.push(sample);
  }
  return [...minutes].map(([at, list]) => ({ at, samples: list })).sort((a, b) => b.at - a.at);
}

/** The samples that are connected, each as "x y". */
function runsOf(
  samples: readonly Sample[],
  series: number,
  { x, y, gapMs }: ChartArea,
): readonly (readonly string[])[] {
  const all: string[][] = [];
  let last = -Infinity;
  for (const { at, values } of samples) {
    const value = values[series] ?? null;
    if (value !== null && at - last > gapMs) all.push([]);
    if (value !== null) all.at(-1)!.push(`${short(x(at))} ${short(y(value))}`);
    last = value === null ? -Infinity : at;
  }
  return all;
}

function short(n: number): number {
  return Math.round(n * 10) / 10;
}
