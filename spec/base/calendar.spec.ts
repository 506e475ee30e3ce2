import { describe, expect, it } from "vitest";
import { calendar, PERIODS, timeZoneProblem, type PeriodName } from "../../lib/base/calendar.ts";
import { random } from "../support/random.ts";

const HOUR = 3_600_000;
const at = (text: string) => Date.parse(text);
const iso = (time: number) => new Date(time).toISOString().replace(".000Z", "Z");
const span = (per: PeriodName, zone: string, now: string) => {
  const { start, end } = calendar(per, zone)(at(now));
  return `${iso(start)} ${iso(end)}`;
};

/**
 * With daylight saving on both halves of the Earth, at midnight, by half an hour; without it; with offsets of odd
 * minutes; beyond 12 hours.
 */
const ZONES = [
  "UTC",
  "Europe/Berlin",
  "America/New_York",
  "Australia/Lord_Howe",
  "Asia/Kathmandu",
  "Pacific/Kiritimati",
  "Pacific/Pago_Pago",
  "America/Santiago",
  "Asia/Beirut",
  "America/Havana",
  "Africa/Cairo",
  "Asia/Tokyo",
  "Atlantic/Azores",
  "Pacific/Chatham",
  "Africa/Casablanca",
];

describe("calendar periods", () => {
  it.each<[PeriodName, string, string, string]>([
    ["day", "UTC", "2026-01-31T23:59:59Z", "2026-01-31T00:00:00Z 2026-02-01T00:00:00Z"],
    ["day", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z 2026-03-29T22:00:00Z"], // 23 hours
    ["day", "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z 2026-10-25T23:00:00Z"], // 25 hours
    // midnight is left out
    ["day", "America/Santiago", "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z 2026-09-07T03:00:00Z"],
    // 23:00 comes twice
    ["day", "America/Santiago", "2026-04-04T12:00:00Z", "2026-04-04T03:00:00Z 2026-04-05T04:00:00Z"],
    // midnight comes twice
    ["day", "America/Havana", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z 2026-11-02T05:00:00Z"],
    ["day", "Pacific/Kiritimati", "2026-01-31T09:59:59Z", "2026-01-30T10:00:00Z 2026-01-31T10:00:00Z"],
    // the 30th is left out
    ["day", "Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z 2011-12-30T10:00:00Z"],
    ["month", "UTC", "2026-01-31T23:59:59.999Z", "2026-01-01T00:00:00Z 2026-02-01T00:00:00Z"],
    ["month", "UTC", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z 2028-03-01T00:00:00Z"], // a leap year
    ["month", "UTC", "2100-02-28T23:00:00Z", "2100-02-01T00:00:00Z 2100-03-01T00:00:00Z"], // none
    ["month", "Asia/Tokyo", "2026-12-31T15:00:00Z", "2026-12-31T15:00:00Z 2027-01-31T15:00:00Z"],
    ["month", "Europe/Berlin", "2026-10-31T23:30:00Z", "2026-10-31T23:00:00Z 2026-11-30T23:00:00Z"],
    ["month", "America/New_York", "2027-01-01T04:59:59Z", "2026-12-01T05:00:00Z 2027-01-01T05:00:00Z"],
    ["week", "UTC", "2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z 2027-01-04T00:00:00Z"], // begins in the old year
    ["week", "UTC", "2026-03-01T23:59:59Z", "2026-02-23T00:00:00Z 2026-03-02T00:00:00Z"], // Sunday is its last day
    ["week", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z 2026-03-29T22:00:00Z"],
    ["week", "America/New_York", "2026-11-02T04:59:59Z", "2026-10-26T04:00:00Z 2026-11-02T05:00:00Z"],
  ])("the %s in %s at %s is %s", (per, zone, now, expected) => {
    expect(span(per, zone, now)).toBe(expected);
  });

  it.each(ZONES)(
    "in %s every period begins where Intl's clock comes to its first day, and the next begins where it ends",
    (zone) => {
      const from = random(30);
      const day = new Intl.DateTimeFormat("en-CA", { timeZone: zone, dateStyle: "short" });
      const weekday = new Intl.DateTimeFormat("en-GB", { timeZone: zone, weekday: "long" });
      for (const per of PERIODS) {
        const periodAt = calendar(per, zone);
        for (let i = 0; i < 60; i++) {
          const now = at("2020-01-01T00:00:00Z") + from.int(0, 20 * 365 * 24 * 4) * 900_000 - from.int(0, 1);
          const period = periodAt(now);
          expect(period.start).toBeLessThanOrEqual(now);
          expect(period.end).toBeGreaterThan(now);
          const first = day.format(period.start);
          expect(first > day.format(period.start - 1)).toBe(true);
          if (per === "week") expect(weekday.format(period.start)).toBe("Monday");
          if (per === "month") expect(first).toMatch(/-01$/);
          // By days on the clock, not by hours: across a change of clocks a day has 23 to 25 of them.
          const last = Date.parse(day.format(period.end - 1));
          const days =
            per === "day"
              ? 1
              : per === "week"
                ? 7
                : new Date(Date.UTC(Number(first.slice(0, 4)), Number(first.slice(5, 7)), 0)).getUTCDate();
          expect((last - Date.parse(first)) / (24 * HOUR) + 1).toBe(days);
          expect(calendar(per, zone)(period.end)).toMatchObject({ start: period.end, number: period.number + 1 });
          expect(calendar(per, zone)(period.start)).toEqual(period);
          expect(periodAt(period.end - 1)).toEqual(period);
        }
      }
    },
  );

  it("a clock that goes back across midnight has no moment in two days: America/St_Johns, 00:01 to 23:01", () => {
    const days = calendar("day", "America/St_Johns");
    let before = days(at("2010-11-06T12:00:00Z"));
    for (let now = at("2010-11-06T12:00:00Z"); now < at("2010-11-08T12:00:00Z"); now += 60_000) {
      const period = days(now);
      expect(period.start <= now && now < period.end).toBe(true);
      expect(
        period.number === before.number || (period.number === before.number + 1 && period.start === before.end),
      ).toBe(true);
      before = period;
    }
  });

  it.each([
    ["Europe/Berlin", undefined],
    ["UTC", undefined],
    ["Europe/Berlin ", /no time zone/],
    ["Mars/Olympus", /no time zone/],
    ["", /no time zone/],
    ["+02:00", /offset/],
    ["CEST", /no time zone/],
  ])("the time zone %j is checked", (zone, expected) => {
    if (expected === undefined) expect(timeZoneProblem(zone)).toBeUndefined();
    else expect(timeZoneProblem(zone)).toMatch(expected);
  });
});
