/**
 * The charts of requests, replies, errors and times: what each shows, and its samples.
 */
import type { FigurePoint, Point, Stats } from "./api.ts";
import type { ChartOptions } from "./chart.ts";
import { milliseconds, percent, perSecond } from "./format.ts";
import type { Sample } from "./history.ts";

const STATUS_CLASSES = ["2xx", "3xx", "4xx", "5xx"] as const;

/**
 * Values of one step, of which `seconds` were counted. Those of one service, route or upstream are not divided by
 * status.
 */
type Values = (point: FigurePoint & Partial<Pick<Point, "statuses">>, seconds: number) => Sample["values"];

export interface TrafficChart extends Omit<ChartOptions, "empty"> {
  readonly values: Values;
}

/** Requests and replies per second, shares of replies (with gaps where there was no request), and milliseconds. */
export const CHARTS = {
  requests: {
    title: "Requests",
    series: ["all", "limited"],
    leading: { series: 0, name: "" },
    least: 1,
    format: perSecond,
    values: ({ requests, limited }, seconds) => [requests / seconds, limited / seconds],
  },
  replies: {
    title: "Replies by status",
    series: STATUS_CLASSES,
    leading: { series: 0, name: "2xx" },
    least: 1,
    format: perSecond,
    values: ({ statuses = {} }, seconds) => STATUS_CLASSES.map((name) => (statuses[name] ?? 0) / seconds),
  },
  errors: {
    title: "Error share",
    series: ["5xx", "4xx"],
    leading: { series: 0, name: "5xx" },
    least: 0.01,
    format: percent,
    values: ({ requests, errors, statuses = {} }) =>
      requests === 0 ? [null, null] : [errors / requests, (statuses["4xx"] ?? 0) / requests],
  },
  times: {
    title: "Response time",
    series: ["p50", "p95", "p99"],
    leading: { series: 1, name: "p95" },
    least: 5,
    format: milliseconds,
    values: (point) => [point.p50_ms, point.p95_ms, point.p99_ms],
  },
} satisfies Readonly<Record<string, TrafficChart>>;

export function samplesOf(
  history: readonly Point[],
  stepS: number,
  stats: Stats | null,
  values: Values,
): readonly Sample[] {
  const made: Sample[] = [];
  for (const point of history) {
    const at = Date.parse(point.at);
    const seconds = stats?.point.at === point.at ? Math.min((Date.parse(stats.at) - at) / 1000, stepS) : stepS;
    // A step that has just begun gives no useful rate: the end of the line would jump.
    if (seconds < Math.min(1, stepS)) continue;
    made.push({ at, values: values(point, seconds) });
  }
  return made;
}
