import { describe, expect, it } from "vitest";
import {
  ago,
  listed,
  milliseconds,
  moment,
  number,
  perSecond,
  percent,
  until,
} from "../../../lib/manager/assets/format.ts";

const NOW = Date.parse("2026-11-21T12:00:00Z");
const before = (ms: number) => new Date(NOW - ms).toISOString();
const after = (ms: number) => new Date(NOW + ms).toISOString();

const MINUTE = 60_000;
const DAY = 86_400_000;

describe("figures", () => {
  it.each([
    [0, "0"],
    [0.123, "0.12"],
    [7, "7"],
    [9.999, "10"],
    [12.34, "12.3"],
    [99.96, "100"],
    [12345, "12,345"],
    [999_999.4, "999,999"],
    [999_999.6, "1 M"],
    [1_234_567, "1.2 M"],
    [999_960_000, "1 G"],
    [-1_234_567, "-1.2 M"],
    [4e15, "4,000 T"],
    [Number.NaN, "–"],
    [Number.POSITIVE_INFINITY, "–"],
  ])("writes %d as %s", (n, text) => {
    expect(number(n)).toBe(text);
  });

  it("figures have the unit /s if they are rates", () => {
    expect([12.34, 0, 12345, Number.NaN].map(perSecond)).toEqual(["12.3/s", "0/s", "12,345/s", "–"]);
  });

  it.each([
    [null, "–"],
    [Number.NaN, "–"],
    [0, "0 ms"],
    [0.004, "0.01 ms"],
    [0.05, "0.05 ms"],
    [0.8, "0.8 ms"],
    [9.94, "9.9 ms"],
    [9.96, "10 ms"],
    [12.3, "12 ms"],
    [999.6, "1 s"],
    [1240, "1.24 s"],
    [12_340, "12.3 s"],
    [59_960, "1 min"],
    [75_000, "1 min 15 s"],
  ])("writes %s milliseconds as %s", (ms, text) => {
    expect(milliseconds(ms)).toBe(text);
  });

  it.each([
    [0, "0 %"],
    [0.0001, "< 0.1 %"],
    [0.0042, "0.4 %"],
    [0.0999, "10 %"],
    [0.333, "33 %"],
    [0.995, "99.5 %"],
    [0.9999, "> 99.9 %"],
    [1, "100 %"],
    [0 / 0, "–"],
  ])("writes a share of %d as %s", (share, text) => {
    expect(percent(share)).toBe(text);
  });
});

describe("lists", () => {
  it("name the first few, and count the others", () => {
    expect([listed([], 2), listed(["a", "b"], 2), listed(["a", "b", "c"], 2)]).toEqual(["", "a, b", "a, b and 1 more"]);
  });
});

describe("moments", () => {
  it.each([
    [before(0), "just now"],
    [after(DAY), "just now"],
    [before(12_900), "12 s ago"],
    [before(3 * MINUTE), "3 min ago"],
    [before(119 * MINUTE), "1 h ago"],
    [before(DAY), "1 day ago"],
    [before(400 * DAY), "400 days ago"],
    ["yesterday", "–"],
  ])("writes the past moment %s as %s", (iso, text) => {
    expect(ago(iso, NOW)).toBe(text);
  });

  it.each([
    [after(12 * DAY + 5), "in 12 days"],
    [after(DAY), "in 1 day"],
    [after(90 * MINUTE), "in 1 h"],
    [after(30_000), "in 30 s"],
    [after(10), "just now"],
    [before(2 * DAY), "2 days ago"],
    ["", "–"],
  ])("writes the moment %s as %s", (iso, text) => {
    expect(until(iso, NOW)).toBe(text);
  });

  it("moments have date, time and the name of the time zone; an invalid moment becomes a dash", () => {
    expect(moment(new Date(2026, 10, 21, 14, 15, 10).toISOString())).toMatch(
      /^21 Nov 2026, 14:15:10 (?:[A-Z]{2,5}|GMT[+-]\d+(?::\d\d)?)$/,
    );
    expect(moment("soon")).toBe("–");
  });
});
