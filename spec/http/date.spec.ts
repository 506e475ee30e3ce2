import { describe, expect, it } from "vitest";
import { httpDate } from "../../lib/http/date.ts";

const NOW = Date.UTC(2026, 0, 1);

describe("dates", () => {
  it.each([
    ["Sun, 06 Nov 1994 08:49:37 GMT", Date.UTC(1994, 10, 6, 8, 49, 37)],
    ["Sunday, 06-Nov-94 08:49:37 GMT", Date.UTC(1994, 10, 6, 8, 49, 37)],
    ["Sun Nov  6 08:49:37 1994", Date.UTC(1994, 10, 6, 8, 49, 37)],
    ["Sunday, 06-Nov-76 08:49:37 GMT", Date.UTC(2076, 10, 6, 8, 49, 37)],
    ["Sunday, 06-Nov-77 08:49:37 GMT", Date.UTC(1977, 10, 6, 8, 49, 37)],
    ["Sat, 31 Dec 2016 23:59:60 GMT", Date.UTC(2017, 0, 1)],
    ["Thu, 29 Feb 2024 00:00:00 GMT", Date.UTC(2024, 1, 29)],
  ])("reads the date %s", (text, expected) => {
    expect(httpDate(text, NOW)).toBe(expected);
  });

  it.each([
    "",
    "0",
    "-1",
    "now",
    "Later 5",
    "2026-01-01",
    "Thu, 30 Feb 2024 00:00:00 GMT",
    "Thu, 00 Jan 2026 00:00:00 GMT",
    "Thu, 01 Jan 2026 24:00:00 GMT",
    "Thu, 01 Foo 2026 00:00:00 GMT",
    "Thu, 01 Jan 2026 00:00:00 CET",
    "Thu, 01 Jan 2026 00:00:00 GMT ",
  ])("does not read %j as a date", (text) => {
    expect(httpDate(text, NOW)).toBe(NaN);
  });
});
