import { describe, expect, it } from "vitest";
import type { Point, Stats, StatsWithHistory } from "../../../lib/manager/assets/api.ts";
import { mergedHistory, withPoint } from "../../../lib/manager/assets/history.ts";
import { CHARTS, samplesOf } from "../../../lib/manager/assets/traffic_charts.ts";

const T = Date.parse("2026-11-21T12:00:00Z");
const FIGURES = {
  requests_per_s: 0,
  errors_per_s: 0,
  limited_per_s: 0,
  statuses_per_s: {},
  p50_ms: null,
  p95_ms: null,
  p99_ms: null,
  in_flight: 0,
};

function point(s: number, counts: Partial<Point> = {}): Point {
  return {
    at: new Date(T + s * 1000).toISOString(),
    requests: 0,
    errors: 0,
    limited: 0,
    statuses: {},
    p50_ms: null,
    p95_ms: null,
    p99_ms: null,
    ...counts,
  };
}

function statsOf(s: number, last: Point): Stats {
  return {
    at: new Date(T + s * 1000).toISOString(),
    window_s: 60,
    total: FIGURES,
    unrouted: FIGURES,
    codes_per_s: {},
    services: [],
    point: last,
  };
}

describe("the history of statistics", () => {
  it("the history of statistics replaces an unfinished step with its newer state", () => {
    const history = [point(0), point(5)].reduce(withPoint, []);
    expect(withPoint(history, point(5, { requests: 7 }))).toEqual([point(0), point(5, { requests: 7 })]);
  });

  it("the history of statistics keeps 15 minutes", () => {
    const history = Array.from({ length: 400 }, (_, i) => point(i * 5)).reduce(withPoint, [] as readonly Point[]);
    expect([history.length, history[0]!.at, history.at(-1)!.at]).toEqual([180, point(1100).at, point(1995).at]);
  });

  it("the history of statistics starts again when the clock was set back", () => {
    expect(withPoint([point(100), point(105)], point(50))).toEqual([point(50)]);
  });

  it("the history of statistics appends the steps of the stream to the history that was fetched", () => {
    const answer: StatsWithHistory = {
      ...statsOf(12, point(10, { requests: 2 })),
      step_s: 5,
      history: [point(0), point(5)],
    };
    expect(mergedHistory(answer, [point(5, { requests: 9 }), point(10), point(15)])).toEqual([
      point(0),
      point(5),
      point(10, { requests: 2 }),
      point(15),
    ]);
  });

  it(
    "the history of statistics continues after a restart of the gateway, " +
      "without the unfinished step of the old process",
    () => {
      const answer: StatsWithHistory = { ...statsOf(63, point(62)), step_s: 5, history: [point(57)] };
      expect(mergedHistory(answer, [point(0), point(5, { requests: 9 }), point(10, { requests: 1 })])).toEqual([
        point(0),
        point(5, { requests: 9 }),
        point(57),
        point(62),
      ]);
      expect(mergedHistory({ ...answer, history: [] }, [point(-900), point(5), point(10)])).toEqual([
        point(5),
        point(62),
      ]);
    },
  );
});

describe("values of a chart", () => {
  it("values of a chart give rates per second; an unfinished step is divided by its elapsed time", () => {
    const history = [point(0, { requests: 50, limited: 5 }), point(5, { requests: 20 })];
    expect(samplesOf(history, 5, statsOf(7, history[1]!), CHARTS.requests.values).map(({ values }) => values)).toEqual([
      [10, 1],
      [10, 0],
    ]);
  });

  it("values of a chart give replies per second by class of status", () => {
    const history = [point(0, { requests: 50, statuses: { "2xx": 40, "4xx": 5, "5xx": 1, "401": 5 } })];
    expect(samplesOf(history, 5, null, CHARTS.replies.values).map(({ values }) => values)).toEqual([[8, 0, 1, 0.2]]);
  });

  it("values of a chart leave out a step that has just begun", () => {
    const history = [point(0, { requests: 50 }), point(5, { requests: 1 })];
    expect(samplesOf(history, 5, statsOf(5.2, history[1]!), CHARTS.requests.values)).toHaveLength(1);
  });

  it("values of a chart have a gap where no request arrived", () => {
    const history = [
      point(0, { requests: 4, errors: 1, statuses: { "4xx": 2 }, p50_ms: 1, p95_ms: 2, p99_ms: 3 }),
      point(5),
    ];
    expect(samplesOf(history, 5, null, CHARTS.errors.values).map(({ values }) => values)).toEqual([
      [0.25, 0.5],
      [null, null],
    ]);
    expect(samplesOf(history, 5, null, CHARTS.times.values).map(({ values }) => values)).toEqual([
      [1, 2, 3],
      [null, null, null],
    ]);
  });
});
