/**
 * The last 15 minutes as points: merges those that come one by one with the history of a reply.
 */
import type { Point, StatsWithHistory } from "./api.ts";

/** Length of the history in milliseconds. */
export const HISTORY_MS = 15 * 60_000;

/** The values of a chart at `at` (ms since 1970). Null: the line has a gap. */
export interface Sample {
  readonly at: number;
  readonly values: readonly (number | null)[];
}

/**
 * `history` with `point` appended, or in place of a point with the same start; without points older than 15 minutes.
 */
export function withPoint(history: readonly Point[], point: Point): readonly Point[] {
  const at = Date.parse(point.at);
  const kept = history.filter((each) => {
    const begin = Date.parse(each.at);
    return begin < at && begin > at - HISTORY_MS;
  });
  return [...kept, point];
}

/**
 * The history of a reply, with points that are known already, later and earlier: a restarted gateway has no history,
 * and operators want to see what happened before.
 */
export function mergedHistory(answer: StatsWithHistory, known: readonly Point[]): readonly Point[] {
  const begin = Date.parse((answer.history[0] ?? answer.point).at) - answer.step_s * 1000;
  const now = Date.parse(answer.point.at);
  // Without its last step, which is incomplete and would look like a drop in traffic.
  const earlier = known.slice(0, -1).filter((each) => Date.parse(each.at) <= begin);
  const later = known.filter((each) => Date.parse(each.at) > now);
  return later.reduce(withPoint, withPoint([...earlier, ...answer.history], answer.point));
}
