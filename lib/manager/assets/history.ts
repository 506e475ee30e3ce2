/**
 * The last 15 minutes as points: merges the event stream with the requested history, and computes the samples of the charts.
 */
import type { Point, Stats, StatsWithHistory } from "./api.ts";

/** Length of the history in milliseconds. */
export const HISTORY_MS = 15 * 60_000;

export const STATUS_CLASSES = ["2xx", "3xx", "4xx", "5xx"] as const;

/** The values of a chart at `at` (ms since 1970). Null: the line has a gap. */
export interface Sample {
  readonly at: number;
  readonly values: readonly (number | null)[];
}

/** `history` with `point` appended, or in place of a point with the same start; without points older than 15 minutes. */
export function withPoint(history: readonly Point[], point: Point): readonly Point[] {
  const at = Date.parse(point.at);
  const kept = history.filter((each) => {
    const begin = Date.parse(each.at);
    return begin < at && begin > at - HISTORY_MS;
  });
  return [...kept, point];
}

/**
 * The history of a reply, with later points from the stream and earlier known points: a restarted gateway has no history, and operators want to see
 * what happened before.
 */
export function mergedHistory(answer: StatsWithHistory, known: readonly Point[]): readonly Point[] {
  const begin = Date.parse((answer.history[0] ?? answer.point).at) - answer.step_s * 1000;
  const now = Date.parse(answer.point.at);
  // Without its last step, which is incomplete and would look like a drop in traffic.
  const earlier = known.slice(0, -1).filter((each) => Date.parse(each.at) <= begin);
  const later = known.filter((each) => Date.parse(each.at) > now);
  return later.reduce(withPoint, withPoint([...earlier, ...answer.history], answer.point));
}

/** Per second: [requests, requests refused by a rate limit]. */
export function requestSamples(history: readonly Point[], stepS: number, stats: Stats | null): readonly Sample[] {
  return samples(history, stepS, stats, (point, seconds) => [point.requests / seconds, point.limited / seconds]);
}

/** Replies per second: [2xx, 3xx, 4xx, 5xx]. */
export function statusSamples(history: readonly Point[], stepS: number, stats: Stats | null): readonly Sample[] {
  return samples(history, stepS, stats, ({ statuses }, seconds) => STATUS_CLASSES.map((name) => (statuses[name] ?? 0) / seconds));
}

/** [share of replies with 5xx, share with 4xx, 0 to 1]; gaps where there was no request. */
export function errorSamples(history: readonly Point[], stepS: number, stats: Stats | null): readonly Sample[] {
  return samples(history, stepS, stats, ({ requests, errors, statuses }) => (requests === 0 ? [null, null] : [errors / requests, (statuses["4xx"] ?? 0) / requests]));
}

/** Milliseconds: [p50, p95, p99]. */
export function timeSamples(history: readonly Point[], stepS: number, stats: Stats | null): readonly Sample[] {
  return samples(history, stepS, stats, (point) => [point.p50_ms, point.p95_ms, point.p99_ms]);
}

function samples(history: readonly Point[], stepS: number, stats: Stats | null, values: (point: Point, seconds: number) => Sample["values"]): readonly Sample[] {
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
