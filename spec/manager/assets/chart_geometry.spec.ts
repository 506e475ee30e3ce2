import { describe, expect, it } from "vitest";
import type { Sample } from "../../../lib/manager/assets/history.ts";
import {
  areaPath,
  groupedByMinute,
  linePath,
  axisMarks,
  nearestIndex,
  maximums,
  spanOf,
  timeMarks,
} from "../../../lib/manager/assets/chart_geometry.ts";

const sample = (at: number, ...values: (number | null)[]): Sample => ({ at, values });
const PLANE = { x: (at: number) => at, y: (value: number) => 100 - value, gapMs: 10 };

describe("axis marks", () => {
  it.each([
    [87, [0, 20, 40, 60, 80, 100]],
    [100, [0, 20, 40, 60, 80, 100]],
    [101, [0, 25, 50, 75, 100, 125]],
    [0.3, [0, 0.1, 0.2, 0.3]],
    [1, [0, 0.2, 0.4, 0.6, 0.8, 1]],
    [0.01, [0, 0.002, 0.004, 0.006, 0.008, 0.01]],
    [12_345_678, [0, 2.5e6, 5e6, 7.5e6, 1e7, 1.25e7]],
  ])("axis marks have round values for a maximum of %d", (most, expected) => {
    expect(axisMarks(most)).toEqual(expected);
  });

  it("axis marks cover every maximum with at most six lines", () => {
    for (let most = 1e-6; most < 1e12; most *= 1.37) {
      const made = axisMarks(most);
      expect(made.at(-1)!).toBeGreaterThanOrEqual(most * (1 - 1e-9));
      expect(made.length).toBeLessThanOrEqual(6);
    }
    for (const odd of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) expect(axisMarks(odd).length).toBeGreaterThan(1);
  });

  it("axis marks stand at whole minutes of the clock on a time axis", () => {
    const at = (time: string) => Date.parse(`2026-11-21T${time}Z`);
    const marks = (from: string, to: string, most: number) =>
      timeMarks({ from: at(from), to: at(to) }, most).map((each) => new Date(each).toISOString().slice(11, 19));
    expect(marks("12:01:30", "12:16:30", 4)).toEqual(["12:05:00", "12:10:00", "12:15:00"]);
    expect(marks("12:01:30", "12:16:30", 1)).toEqual(["12:05:00", "12:10:00", "12:15:00"]);
    expect(marks("12:01:30", "12:16:30", 5)).toEqual(["12:03:00", "12:06:00", "12:09:00", "12:12:00", "12:15:00"]);
    expect(marks("12:01:10", "12:02:10", 4)).toEqual(["12:01:15", "12:01:30", "12:01:45", "12:02:00"]);
    expect(marks("12:01:10", "12:03:00", 4)).toEqual(["12:01:30", "12:02:00", "12:02:30", "12:03:00"]);
  });

  it("a time axis begins at the first sample, has a minute at least, and 15 minutes at most", () => {
    const minute = 60_000;
    const now = 100 * minute;
    expect(spanOf([], now)).toEqual({ from: now, to: now + minute });
    expect(spanOf([sample(now - 5_000, 1)], now)).toEqual({ from: now - 5_000, to: now + 55_000 });
    expect(spanOf([sample(now - 3 * minute, null), sample(now, 1)], now)).toEqual({ from: now - 3 * minute, to: now });
    expect(spanOf([sample(now - 15.5 * minute, 1)], now)).toEqual({ from: now - 15 * minute, to: now });
    // A sample of a clock that is ahead.
    expect(spanOf([sample(now + 9_000, 1)], now)).toEqual({ from: now, to: now + minute });
  });
});

describe("a line of a chart", () => {
  it(
    "a line of a chart has a gap where a value is unknown or samples are far apart, " +
      "and draws a single sample as a dot",
    () => {
      const samples = [sample(0, 1), sample(5, 2), sample(10, null), sample(15, 3), sample(40, 4), sample(45, 5)];
      expect(linePath(samples, 0, PLANE)).toBe("M0 99L5 98M15 97L15 97M40 96L45 95");
      expect(areaPath(samples, 0, PLANE)).toBe("M0 100L0 99L5 98L5 100ZM40 100L40 96L45 95L45 100Z");
    },
  );

  it("a line of a chart has no points without samples", () => {
    expect([linePath([], 0, PLANE), linePath([sample(0, null)], 0, PLANE), linePath([sample(0, 1)], 2, PLANE)]).toEqual(
      ["", "", ""],
    );
  });
});

describe("samples of a chart", () => {
  it("samples of a chart match the moment nearest to them", () => {
    const samples = [sample(0), sample(10), sample(20), sample(40)];
    expect([-5, 4, 6, 15, 29, 31, 99].map((at) => nearestIndex(samples, at))).toEqual([0, 0, 1, 1, 2, 3, 3]);
    expect(nearestIndex([], 3)).toBe(-1);
    expect(nearestIndex([sample(7)], 3)).toBe(0);
  });

  it("samples of a chart have one row per minute with their highest values, newest first", () => {
    const samples = [sample(0, 1, null), sample(59_999, 3, null), sample(60_000, 2, 9)];
    expect(maximums(samples, 2)).toEqual([3, 9]);
    expect(groupedByMinute(samples).map((minute) => [minute.at, maximums(minute.samples, 2)])).toEqual([
      [60_000, [2, 9]],
      [0, [3, null]],
    ]);
  });
});
