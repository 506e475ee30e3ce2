/**
 * Calendar periods in a time zone: days, weeks from Monday, and months, with their first and last moment.
 */

export const PERIODS = ["day", "week", "month"] as const;
export type PeriodName = (typeof PERIODS)[number];

/** Times are in milliseconds since 1970. */
export interface Period {
  /** Consecutive periods have consecutive numbers, in every time zone. */
  readonly number: number;
  readonly start: number;
  /** The first moment of the next one. */
  readonly end: number;
}

const DAY_MS = 86_400_000;
/** No clock of a time zone differs from UTC by more. */
const MAX_OFFSET_MS = 26 * 3_600_000;

/** Why a text names no time zone of the IANA database; undefined if it names one. */
export function timeZoneProblem(zone: string): string | undefined {
  // Newer versions of Node take offsets, too, which know no daylight saving.
  if (/^[+-]/.test(zone)) return 'is an offset: name a time zone, such as "Europe/Berlin"';
  try {
    dateFormat(zone);
  } catch {
    return 'is no time zone of the IANA database: write one such as "Europe/Berlin", or "UTC"';
  }
}

/** Returns the period of a moment. Throws a `RangeError` for an unknown time zone. */
export function calendar(per: PeriodName, zone: string): (now: number) => Period {
  const format = dateFormat(zone);
  /** The day on the clocks of the time zone, as days since 1970. */
  const dayAt = (time: number) => {
    const [month, day, year] = format.format(time).split("/");
    return Date.UTC(Number(year), Number(month) - 1, Number(day)) / DAY_MS;
  };
  /**
   * The first moment of a day, which is not midnight where clocks go forward then. A day that a time zone has left out
   * begins with the next one (Pacific/Apia, 30 December 2011).
   */
  const startOf = (day: number) => {
    let before = day * DAY_MS - MAX_OFFSET_MS;
    let from = day * DAY_MS + MAX_OFFSET_MS;
    while (from - before > 1) {
      const middle = Math.floor((before + from) / 2);
      if (dayAt(middle) < day) before = middle;
      else from = middle;
    }
    return from;
  };
  let period: Period = { number: 0, start: Infinity, end: -Infinity };
  return (now) => {
    if (now >= period.start && now < period.end) return period;
    let number = numberOf(per, dayAt(now));
    // A clock that goes back across midnight has some minutes of the next day twice: they belong to the first one.
    for (;;) {
      period = { number, start: startOf(firstDay(per, number)), end: startOf(firstDay(per, number + 1)) };
      if (now < period.start) number--;
      else if (now >= period.end) number++;
      else return period;
    }
  };
}

function dateFormat(timeZone: string): Intl.DateTimeFormat {
  return new Intl.DateTimeFormat("en-US", {
    timeZone,
    calendar: "gregory",
    numberingSystem: "latn",
    year: "numeric",
    month: "numeric",
    day: "numeric",
  });
}

function numberOf(per: PeriodName, day: number): number {
  if (per === "day") return day;
  // 1 January 1970 was a Thursday.
  if (per === "week") return Math.floor((day + 3) / 7);
  const date = new Date(day * DAY_MS);
  return 12 * date.getUTCFullYear() + date.getUTCMonth();
}

/** As days since 1970. */
function firstDay(per: PeriodName, number: number): number {
  if (per === "day") return number;
  return per === "week" ? 7 * number - 3 : Date.UTC(Math.floor(number / 12), number % 12) / DAY_MS;
}
