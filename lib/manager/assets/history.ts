/**
 * The last quarter of an hour as points: adds what a stream brings to what was asked for, and makes the values that charts draw.
 * Where points come from is `live.ts`, how they look `chart.ts`.
 */
import type { Point, Stats, StatsWithHistory } from "./api.ts";

/** Milliseconds that the history reaches back. */
export const HISTORY_MS = 15 * 60_000;

/** One moment of a chart: what it draws at `at` (ms since 1970). Null: nothing to draw, the line has a gap. */
export interface Sample {
  readonly at: number;
  readonly values: readonly (number | null)[];
}

/** `history` with `point` in the place of one of the same begin, else behind; without what is older than 15 minutes before it. */
export function withPoint(history: readonly Point[], point: Point): readonly Point[] {
  const at = Date.parse(point.at);
  const kept = history.filter((each) => {
    const begin = Date.parse(each.at);
    return begin < at && begin > at - HISTORY_MS;
  });
  return [...kept, point];
}

/**
 * An answer's history, with what the stream has brought since it was made, and with what was known from before it begins: a gateway that
 * has been started anew remembers nothing, and what came before is what somebody wants to see then.
 */
export function joined(answer: StatsWithHistory, known: readonly Point[]): readonly Point[] {
  const begin = Date.parse((answer.history[0] ?? answer.point).at) - answer.step_s * 1000;
  const now = Date.parse(answer.point.at);
  // Without its last step, which was never over: it would look like a fall of the traffic.
  const earlier = known.slice(0, -1).filter((each) => Date.parse(each.at) <= begin);
  const later = known.filter((each) => Date.parse(each.at) > now);
  return later.reduce(withPoint, withPoint([...earlier, ...answer.history], answer.point));
}

/** By second: [requests, refused by a rate limit]. */
export function requestSamples(history: readonly Point[], stepS: number, stats: Stats | null): readonly Sample[] {
  return samples(history, stepS, stats, (point, seconds) => [point.requests / seconds, point.limited / seconds]);
}

/** [share of answers with 5xx, 0 to 1]; a gap where there was no request. */
export function errorSamples(history: readonly Point[], stepS: number, stats: Stats | null): readonly Sample[] {
  return samples(history, stepS, stats, (point) => [point.requests === 0 ? null : point.errors / point.requests]);
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
    // A step that has hardly begun has seen too little to say anything by second: the line would twitch at its end.
    if (seconds < Math.min(1, stepS)) continue;
    made.push({ at, values: values(point, seconds) });
  }
  return made;
}
